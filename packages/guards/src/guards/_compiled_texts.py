"""Torch's texts of its own guards, in the words of a person: no addresses, no inner names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import torch

from guards import _torch_private as private
from guards._compiled_keys import keys_difference
from guards._constants import spell, type_name
from guards._fetch import is_a
from guards._tensor_checks import tensor_facts

__all__ = [
    "difference",
    "in_words",
    "open_modes",
    "reason",
    "state_difference",
    "user_location",
    "with_plain_names",
    "without_remarks",
]

_ADDRESS_ARGUMENT = re.compile(r",? ?\b\d{6,}\b")
_USER_LINE = re.compile(r"\s+#\s(?P<text>.*?)\s+#\s(?P<place>\S+:\d+ in \S+)(?P<hint> \(.*\))?\s*$")
_SAME_SIZE = re.compile(r"# duck sizing added .* had the same size (?P<size>\d+)")
_FRAMEWORK_LINE = re.compile(r"\s+#\s(?P<place>\S+:\d+ in \S+)\s*$")
_REMARK = re.compile(r"\s+#\s\(unknown source.*\)\s*$|\s{2,}#\s[^'\"]*$")
_TYPE_TEST = re.compile(r"___check_type_id\((?P<what>.*?), \d+\), type=<class '(?P<type>[^']+)'>")
_IDENTITY_TEST = re.compile(
    r"___check_obj_id\((?P<what>.*?), \d+\)(?:, type=<class '(?P<type>[^']+)'>)?"
)
_TENSOR_TEST = re.compile(
    r"check_tensor\((?P<what>.*?), (?P<cls>\w+), DispatchKeySet\((?P<keys>[^)]*)\), "
    r"torch\.(?P<dtype>\w+), device=(?P<device>[^,]+), requires_grad=(?P<grad>\w+), "
    r"size=(?P<size>\[[^]]*\]), stride=(?P<stride>\[[^]]*\])"
)
_STATE_TEST = re.compile(r"___check_global_state\(\) against (?P<state>\{.*\})")
_MARKING = re.compile(r"hasattr\((?P<what>.*), '_dynamo_(?P<mark>\w+)'\) == False")
_LACKS_KEY = re.compile(r"not ___dict_contains\((?P<key>.*?), (?P<what>\w.*)\)")
_HAS_KEY = re.compile(r"___dict_contains\((?P<key>.*?), (?P<what>\w.*)\)")
_IN_SET = re.compile(r"(?P<no>not )?set\.__contains__\((?P<what>.*), (?P<key>[^,]+)\)")
_EMPTY = re.compile(r"not (?P<what>[LG]\[.*)")
_NO_ALIASING = re.compile(r"check_no_aliasing\((?P<what>.*)\)")
_IS_NAN = re.compile(r"\(type\((?P<what>.*)\) is (?:float|complex) and __\w*isnan\((?P=what)\)\)")
_BUILTIN = re.compile(r"G\['__builtins_dict___\d+'\]\['(\w+)'\]")
_IMPORT = re.compile(r"G\['__import_(\w+)'\]")
_WHOLE = {
    "___check_torch_function_mode_stack()": "the open modes of __torch_function__ are as they were",
}


def in_words(part: str, identities: Mapping[str, str] | None = None) -> str:
    """Rewrite one of torch's texts as a person would put it.

    ``identities`` says what the objects are of which some texts have the address alone.
    """
    name = (identities or {}).get(part, "")
    return with_plain_names(_reworded(without_remarks(part), name))


def without_remarks(part: str) -> str:
    """Take off where a guard came from."""
    return _REMARK.sub("", _FRAMEWORK_LINE.sub("", _USER_LINE.sub("", part))).rstrip()


def with_plain_names(text: str) -> str:
    """Write builtins and imported modules by their own names, without torch's detour."""
    text = _BUILTIN.sub(r"\1", text)
    return _IMPORT.sub(lambda found: found[1].replace("_dot_", "."), text)


def _reworded(text: str, name: str) -> str:
    if text in _WHOLE:
        return _WHOLE[text]
    if text.startswith("utils_device.CURRENT_DEVICE == "):
        return f"the default device is {text.partition(' == ')[2]}"
    if "top_saved_tensors_hooks" in text:
        return "the hooks on saved tensors are as they were"
    if found := _TYPE_TEST.search(text):
        return f"type({found['what']}) is {found['type']}"
    if found := _IDENTITY_TEST.search(text):
        name = name or found["type"] or ""
        kind = f": {name}" if name else ""
        return f"{found['what']} is the same object{kind}"
    if found := _TENSOR_TEST.search(text):
        facts = ", ".join(f"{k} {v}" for k, v in _tensor_expected(found).items())
        return f"{found['what']} is a tensor: {facts}"
    if _STATE_TEST.search(text):
        return "torch's global state is as it was"
    if found := _MARKING.fullmatch(text):
        return f"{found['what']} has no mark {found['mark']}"
    if found := _LACKS_KEY.fullmatch(text):
        return f"{found['key']} not in {found['what']}"
    if found := _HAS_KEY.fullmatch(text):
        return f"{found['key']} in {found['what']}"
    if found := _IN_SET.fullmatch(text):
        return f"{found['key']} {'not ' if found['no'] else ''}in {found['what']}"
    if found := _IS_NAN.fullmatch(text):
        return f"{found['what']} is nan"
    if found := _NO_ALIASING.fullmatch(text):
        return f"{found['what']} are different tensors"
    if found := _EMPTY.fullmatch(text):
        return f"{found['what']} is empty"
    return _ADDRESS_ARGUMENT.sub("", text) if "___" in text else text


def user_location(part: str) -> str | None:
    """Give the user's line that a text ends with."""
    found = _USER_LINE.search(part)
    return f"{found['place']}: {found['text'].strip()}" if found else None


def reason(part: str) -> str:
    """Say why torch wants a relation between sizes that no line of the user's asks for."""
    if found := _SAME_SIZE.search(part):
        return f"both were {found['size']} when it was compiled"
    return "torch compiles for 0 and 1 by themselves" if "0/1 specialization" in part else ""


def _tensor_expected(found: re.Match[str]) -> dict[str, str]:
    return {
        "class": found["cls"],
        "dtype": found["dtype"],
        "requires_grad": found["grad"],
        "ndim": str(len([d for d in found["size"].strip("[]").split(",") if d.strip()])),
        "size": found["size"].replace("None", "*"),
        "stride": found["stride"].replace("None", "*"),
    }


def difference(code: str, source: str, text: str, expression: str, value: Any) -> tuple[str, str]:
    """Say what a guard wants and what it found instead."""
    if code == "TYPE_MATCH":
        found = _TYPE_TEST.search(text)
        wanted = f"of type {found['type']}" if found else expression
        return wanted, f"of type {type_name(type(value))}"
    if code == "TENSOR_MATCH":
        found = _TENSOR_TEST.search(text)
        if found is not None and is_a(value, torch.Tensor):
            return _tensor_difference(found, value)
        return "a tensor", f"{spell(value)} (of type {type_name(type(value))})"
    if code in ("DICT_LENGTH", "LENGTH_CHECK"):
        wanted = "nothing" if expression.endswith(" is empty") else expression.rpartition(" ")[2]
        return f"of length {wanted}" if wanted != "nothing" else "empty", f"of length {len(value)}"
    if code == "SET_CONTAINS":
        key, absent, _ = expression.rpartition(" in ")[0].partition(" not")
        return f"{'without' if absent else 'with'} {key}", spell(value)
    if code == "ID_MATCH":
        wanted, actual = expression.partition(" is the same object")[2], spell(value)
        same = wanted.removeprefix(": ") == actual
        return f"the same object{wanted}", f"another object: {actual}" if same else actual
    wanted = expression.removeprefix(f"{with_plain_names(source)} ")
    return wanted.removeprefix("== ").removeprefix("is "), spell(value)


def _tensor_difference(found: re.Match[str], value: torch.Tensor) -> tuple[str, str]:
    wanted = _tensor_expected(found)
    facts = tensor_facts(value)
    facts["class"] = type(value).__name__
    actual = {key: facts[key] for key in wanted}
    differ = [k for k in wanted if not _fits(wanted[k], actual[k])]
    keys = ("", "")
    if wanted["class"] == actual["class"]:  # else its keys follow from its class
        keys = keys_difference(found["keys"], value)
    if facts["layout"] != "strided":
        differ = [k for k in differ if k != "stride"]  # it has none
    before, now = (
        ", ".join([*(f"{k} {side[k]}" for k in differ), *filter(None, [said])])
        for side, said in ((wanted, keys[0]), (actual, keys[1]))
    )
    return before, now


def _fits(wanted: str, actual: str) -> bool:
    if not wanted.startswith("["):
        return wanted == actual
    parts, found = wanted.strip("[]").split(", "), actual.strip("[]").split(", ")
    return len(parts) == len(found) and all(
        w in ("*", a) for w, a in zip(parts, found, strict=True)
    )


def state_difference(text: str) -> tuple[str, str]:
    """Say field by field how torch's global state differs from what a guard recorded."""
    found = _STATE_TEST.search(text)
    if found is None:
        return in_words(text), "it does not hold"
    before, now = _fields(json.loads(found["state"])), _fields(private.global_state())
    differ = sorted(k for k in {**before, **now} if before.get(k) != now.get(k))
    sides = (
        ", ".join(f"{key} {side.get(key, 'not told')}" for key in differ) or "as it was"
        for side in (before, now)
    )
    expected, actual = sides
    return expected, actual


# As torch numbers them: kinds of devices that autocast knows, and dtypes.
_AUTOCAST_DEVICES = (
    "cpu", "cuda", "mtia", "maia", "xpu", "ipu", "hpu", "xla", "privateuseone", "mps",
)  # fmt: skip
_DTYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
    "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16",
)  # fmt: skip


def _fields(state: dict[str, Any]) -> dict[str, str]:
    """Give torch's global state as a person names it, each field by itself."""
    fields: dict[str, str] = {}
    for key, value in state.items():
        if key == "default_dtype":
            fields["default dtype"] = _dtype(value)
        elif key == "autocast_state":
            fields["autocast cache"] = _on(value.get("cached_enabled"))
            for number, enabled in enumerate(value.get("enabled", ())):
                fields[f"autocast on {_device(number)}"] = _on(enabled)
            for number, dtype in enumerate(value.get("dtype", ())):
                fields[f"autocast dtype on {_device(number)}"] = _dtype(dtype)
        else:
            fields[key.replace("_", " ")] = _on(value) if type(value) is bool else str(value)
    return fields


def _on(value: Any) -> str:
    return "on" if value else "off"


def _dtype(number: Any) -> str:
    known = type(number) is int and number in range(len(_DTYPES))
    return f"torch.{_DTYPES[number]}" if known else f"number {number}"


def _device(number: int) -> str:
    return _AUTOCAST_DEVICES[number] if number < len(_AUTOCAST_DEVICES) else f"device {number}"


def open_modes() -> str:
    """Name the modes of ``__torch_function__`` that are open, the outermost first."""
    modes = torch.overrides._get_current_function_mode_stack()
    return ", ".join(type_name(type(mode)) for mode in modes) or "none"
