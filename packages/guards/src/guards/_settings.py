"""Settings of torch: what guards hold fast for a whole call, and what takes part in one."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from guards import _torch_private as private
from guards._builder import GuardBuilder
from guards._emit import Emitter
from guards._guard import Guard
from guards._source import GuardSource
from guards._value_sources import GlobalStateSource, ValueSource

__all__ = [
    "CACHES_PARAMETRIZATIONS",
    "READERS",
    "SettingSource",
    "is_ordinary",
    "settings_now",
    "state_guards",
]


@dataclass(frozen=True, eq=False)
class SettingSource(ValueSource):
    """A setting of torch or Python, as one of its functions tells it."""

    setting: str

    def _spell(self, base: str) -> str:
        return self.setting if self.setting in _OF_PYTHON else f"torch.{self.setting}"

    def guard_source(self) -> GuardSource:
        return GuardSource.GLOBAL

    def start(self, L: Any, G: Any) -> Any:
        return self._reader()()

    def emit(self, base: str, emitter: Emitter, example: Any) -> str:
        return f"{emitter.constant(self._reader(), 'read_setting')}()"

    def _reader(self) -> Callable[[], Any]:
        return _SETTINGS.get(self.setting) or _OF_SOME_MODULES[self.setting]


# Composites choose their parts by these, or code may ask for them. By the names of torch._C, some
# of which an older or newer torch lacks.
_OF_C = {
    "backends.cudnn.enabled": "_get_cudnn_enabled",
    "backends.cudnn.benchmark": "_get_cudnn_benchmark",
    "backends.cudnn.deterministic": "_get_cudnn_deterministic",
    "backends.mkldnn.enabled": "_get_mkldnn_enabled",
    "backends.mkldnn.deterministic": "_get_mkldnn_deterministic",
    "backends.cuda.flash_sdp_enabled()": "_get_flash_sdp_enabled",
    "backends.cuda.mem_efficient_sdp_enabled()": "_get_mem_efficient_sdp_enabled",
    "backends.cuda.math_sdp_enabled()": "_get_math_sdp_enabled",
    "backends.cuda.cudnn_sdp_enabled()": "_get_cudnn_sdp_enabled",
    "backends.cuda.fp16_bf16_reduction_math_sdp_allowed()": (
        "_get_math_sdp_allow_fp16_bf16_reduction"
    ),
    "nn.attention.sdpa_kernel's order": "_get_sdp_priority_order",
    "get_float32_matmul_precision()": "_get_float32_matmul_precision",
    "is_warn_always_enabled()": "_get_warnAlways",
}
_READ_IN_C = {
    name: getattr(torch._C, reader) for name, reader in _OF_C.items() if hasattr(torch._C, reader)
}
# Functions of C that tell what a guard holds fast.
READERS: tuple[Callable[[], Any], ...] = tuple(_READ_IN_C.values())
# Counts the classes that are registered with abstract ones, which isinstance takes into account.
_OF_PYTHON: dict[str, Callable[[], Any]] = {"abc.get_cache_token()": abc.get_cache_token}
_SETTINGS: dict[str, Callable[[], Any]] = {
    **_OF_PYTHON,
    "is_inference_mode_enabled()": torch.is_inference_mode_enabled,
    "backends.mha.get_fastpath_enabled()": torch.backends.mha.get_fastpath_enabled,
    **_READ_IN_C,
}
# What only modules with parametrizations ask for.
CACHES_PARAMETRIZATIONS = "nn.utils.parametrize._cache_enabled"
_OF_SOME_MODULES: dict[str, Callable[[], Any]] = {
    CACHES_PARAMETRIZATIONS: lambda: torch.nn.utils.parametrize._cache_enabled
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
