"""Settings of torch: what guards hold fast for a whole call, and what takes part in one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from guards import _torch_private as private
from guards._builder import GuardBuilder
from guards._guard import Guard
from guards._source import GuardSource
from guards._value_sources import GlobalStateSource, ValueSource

__all__ = ["SettingSource", "is_ordinary", "settings_now", "state_guards"]


@dataclass(frozen=True, eq=False)
class SettingSource(ValueSource):
    """A setting of torch, as one of its functions tells it."""

    setting: str

    def _spell(self, base: str) -> str:
        return f"torch.{self.setting}"

    def guard_source(self) -> GuardSource:
        return GuardSource.GLOBAL

    def start(self, L: Any, G: Any) -> Any:
        return _SETTINGS[self.setting]()


_SETTINGS: dict[str, Callable[[], Any]] = {
    "is_inference_mode_enabled()": torch.is_inference_mode_enabled,
    "backends.mha.get_fastpath_enabled()": torch.backends.mha.get_fastpath_enabled,
    "backends.cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "backends.mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
}
_STATES = (
    GuardBuilder.GRAD_MODE,
    GuardBuilder.DEFAULT_DTYPE,
    GuardBuilder.DETERMINISTIC_ALGORITHMS,
)
# Each step of a record says its grad mode; these must stay as they are while a record is made.
_FOLLOWED: tuple[Callable[[], Any], ...] = (
    torch.get_default_dtype,
    torch.are_deterministic_algorithms_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled,
    torch.get_float32_matmul_precision,
    *_SETTINGS.values(),
)


def state_guards() -> list[Guard]:
    """Give the guards on torch's state, the same for every call."""
    return [
        *(Guard(GlobalStateSource(), state) for state in _STATES),
        *(Guard(SettingSource(name), GuardBuilder.EQUALS_MATCH) for name in _SETTINGS),
    ]


def settings_now() -> tuple[Any, ...]:
    """Give the settings that must not change within a call that is written down."""
    return tuple([read() for read in _FOLLOWED])


def is_ordinary() -> bool:
    """Tell whether nothing around the call takes part in it: modes, autocast, transforms, hooks."""
    return not (
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or private.any_autocast_enabled()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch.nn.modules.module._has_any_global_hook()
        or torch.compiler.is_compiling()
    )
