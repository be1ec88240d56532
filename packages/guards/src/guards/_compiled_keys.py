"""Dispatch keys in English: what the ones that a compilation wants say of a tensor."""

from __future__ import annotations

import re

import torch

from guards import _torch_private as private

__all__ = ["keys_difference"]

# Keys that have a device's name behind them; the device alone stands for plain tensors.
_LAYOUTS = {
    "Sparse": "sparse",
    "SparseCsr": "sparse in a compressed layout",
    "Quantized": "quantized",
    "NestedTensor": "nested",
}
_WHERE = re.compile(
    f"(?P<layout>{'|'.join(sorted(_LAYOUTS, key=len, reverse=True))}|)(?P<device>[A-Z]\\w*)"
)


def keys_difference(wanted: str, value: torch.Tensor) -> tuple[str, str]:
    """Say what the wanted keys, in torch's text, mean that the tensor's do not, and the reverse.

    Both texts are empty where there is no difference.
    """
    before, now = _names(wanted), _names_of(value)
    if before == now:
        return "", ""
    meant, means = _meaning(before), _meaning(now)
    lacks = [part for part in meant if part not in means]
    has = [part for part in means if part not in meant]
    if not (lacks or has):  # keys whose meaning nobody has written down
        lacks = [f"dispatch key {key}" for key in sorted(before - now)]
        has = [f"dispatch key {key}" for key in sorted(now - before)]
    places = [[p for p in parts if p.startswith("on ")] for parts in (lacks, has)]
    lacks, has = ([p for p in parts if not p.startswith("on ")] for parts in (lacks, has))
    expected = [*places[0], *lacks, *(f"not {part}" for part in has)]
    actual = [*places[1], *(f"not {part}" for part in lacks), *has]
    return ", ".join(expected), ", ".join(actual)


def _names(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _names_of(value: torch.Tensor) -> frozenset[str]:
    """Give the names of a tensor's keys as the thread has them in force, as torch compares them."""
    keys = torch._C._dispatch_keys(value) | torch._C._dispatch_tls_local_include_set()
    keys = keys - torch._C._dispatch_tls_local_exclude_set()
    return _names(str(keys).removeprefix("DispatchKeySet(").removesuffix(")"))


def _meaning(names: frozenset[str]) -> list[str]:
    said: list[str] = []
    for name in sorted(names):
        meaning = private.key_meaning(name)
        if meaning is not None:
            said.append(meaning)
        elif name.startswith("Autocast"):
            said.append(f"under autocast on {name.removeprefix('Autocast').lower()}")
        elif name.startswith(("Autograd", "FuncTorch")) or name in _OF_ALL:
            continue
        elif found := _WHERE.fullmatch(name):
            said.append(f"on {found['device'].lower()}")
            said += [_LAYOUTS[found["layout"]]] if found["layout"] else []
    if not any(name.startswith("Autograd") for name in names):
        said.append("an inference tensor")
    elif "ADInplaceOrView" not in names:
        said.append("inside inference_mode")
    return list(dict.fromkeys(said))


_OF_ALL = frozenset({"BackendSelect", "ADInplaceOrView", "PythonTLSSnapshot", "PythonDispatcher"})
