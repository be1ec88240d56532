"""Checks of torch's own state: what is set for the thread or the process, not in a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from guards import _torch_private as private
from guards._checks import Check, wants
from guards._constants import spell
from guards._emit import Emitter

__all__ = ["StateCheck", "read_state"]


def _autocast() -> dict[str, Any]:
    """Read what autocast does: for each device where it is on, its dtype; and its cache."""
    if not private.any_autocast_enabled():
        return {}
    on = {
        device: torch.get_autocast_dtype(device)
        for device in private.AUTOCAST_DEVICES
        if torch.is_autocast_enabled(device)
    }
    return {**on, "cache": torch.is_autocast_cache_enabled()}


def _deterministic() -> dict[str, bool]:
    return {
        "enabled": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
    }


_READERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "GRAD_MODE": ("grad mode", torch.is_grad_enabled),
    "AUTOCAST_STATE": ("autocast", _autocast),
    "DEFAULT_DTYPE": ("default dtype", torch.get_default_dtype),
    "DEFAULT_DEVICE": ("default device", private.current_device),
    "DETERMINISTIC_ALGORITHMS": ("deterministic algorithms", _deterministic),
}


def read_state(code: str) -> Any:
    """Read the part of torch's state that a guard of this kind is about."""
    return _READERS[code][1]()


def _field(value: Any) -> str:
    return ("on" if value else "off") if type(value) is bool else spell(value)


def _fits(code: str, value: Any) -> bool:
    if code == "GRAD_MODE":
        return type(value) is bool
    if code == "DEFAULT_DTYPE":
        return type(value) is torch.dtype
    if code == "DEFAULT_DEVICE":
        return value is None or type(value) is torch.device
    if type(value) is not dict:
        return False
    if code == "DETERMINISTIC_ALGORITHMS":
        return set(value) == {"enabled", "warn_only"} and set(map(type, value.values())) == {bool}
    return all(
        type(v) is (bool if k == "cache" else torch.dtype) and type(k) is str
        for k, v in value.items()
    )


class StateCheck(Check):
    """A part of torch's state is as it was."""

    def __init__(self, code: str, value: Any) -> None:
        known = code in _READERS
        wants(known, "a guard on torch's state", f"one of {', '.join(_READERS)}", code)
        wants(_fits(code, value), code, "what torch's state can be", value)
        self.code = code  # type: ignore[misc]
        self.value = value
        self._title, self._read = _READERS[code]

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        if self.code == "GRAD_MODE":
            return f"{emitter.constant(self._read, 'is_grad_enabled')}() is {self.value}"
        if self.code == "DEFAULT_DTYPE":
            dtype = emitter.constant(self.value, str(self.value).removeprefix("torch."))
            return f"{emitter.constant(self._read, 'get_default_dtype')}() is {dtype}"
        if self.code == "DEFAULT_DEVICE":
            read = f"{emitter.constant(self._read, 'default_device')}()"
            if self.value is not None:
                return f"{read} == {emitter.constant(self.value, 'device')}"
            modes = emitter.constant(private.torch_function_modes, "torch_function_modes")
            return f"not {modes}() or {read} is None"
        if self.code == "DETERMINISTIC_ALGORITHMS":
            enabled = emitter.constant(torch.are_deterministic_algorithms_enabled, "deterministic")
            warn = emitter.constant(
                torch.is_deterministic_algorithms_warn_only_enabled, "deterministic_warn_only"
            )
            return (
                f"{enabled}() is {self.value['enabled']} and {warn}() is {self.value['warn_only']}"
            )
        if not self.value:
            return f"not {emitter.constant(private.autocast_switch(), 'any_autocast')}()"
        read = emitter.constant(self._read, "autocast")
        return f"{read}() == {emitter.constant(self.value, 'expected')}"

    def _say(self, value: Any, other: Any) -> str:
        if not isinstance(value, dict):
            said: dict[str, dict[Any, str]] = {
                "GRAD_MODE": {True: "on", False: "off"},
                "DEFAULT_DEVICE": {None: "none"},
            }
            return said.get(self.code, {}).get(value) or spell(value)
        absent = "off" if self.code == "AUTOCAST_STATE" else None
        keys = [k for k in {**value, **other} if value.get(k, absent) != other.get(k, absent)]
        if not (value and other):  # where autocast is off, there is no cache to speak of
            keys = [k for k in keys if k != "cache"]
        fields = [f"{k} {_field(value[k]) if k in value else absent}" for k in keys or value]
        return ", ".join(fields) or str(absent)

    def expected(self) -> str:
        now = self._read()
        return self._say(self.value, now if isinstance(now, dict) else {})

    def actual(self, values: Sequence[Any]) -> str:
        return self._say(self._read(), self.value if isinstance(self.value, dict) else {})

    def expression(self) -> str:
        return self._title

    def state(self) -> dict[str, Any]:
        return {"code": self.code, "value": self.value}

    @classmethod
    def from_state(cls, sources: Sequence[Any], state: dict[str, Any]) -> Check:
        return cls(state["code"], state["value"])
