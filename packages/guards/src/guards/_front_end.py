"""What only a front end knows, and how it says so.

The vocabulary imports no front end. Two of its answers depend on one all the same, so a front
end registers a function for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from guards._arguments import need_callable

if TYPE_CHECKING:
    from guards._guard import Guard

__all__ = ["register_duplicate_input", "register_fsdp_guard_skip"]

_duplicate_input: list[Callable[[Guard], bool]] = []
_fsdp_guard_skip: list[Callable[[], bool]] = []


def register_duplicate_input(predicate: Callable[[Guard], bool]) -> Callable[[Guard], bool]:
    """Let ``predicate(guard)`` say which guards speak of two sources.

    Such guards sort behind all others, since both sources must have been checked before.
    Registering the same function again changes nothing. Returns the predicate.
    """
    need_callable("register_duplicate_input", "predicate", predicate)
    if predicate not in _duplicate_input:
        _duplicate_input.append(predicate)
    return predicate


def register_fsdp_guard_skip(switch: Callable[[], bool]) -> Callable[[], bool]:
    """Let ``switch()`` say whether this process skips the guards of FSDP modules, unsafely.

    While it does, FSDP modules count as specialized ones. It is asked anew each time.
    Registering the same function again changes nothing. Returns the switch.
    """
    need_callable("register_fsdp_guard_skip", "switch", switch)
    if switch not in _fsdp_guard_skip:
        _fsdp_guard_skip.append(switch)
    return switch


def is_duplicate_input(guard: Guard) -> bool:
    for predicate in _duplicate_input:  # noqa: SIM110 - asked of each guard, and this is faster
        if predicate(guard):
            return True
    return False


def skips_fsdp_guards() -> bool:
    return any(switch() for switch in _fsdp_guard_skip)
