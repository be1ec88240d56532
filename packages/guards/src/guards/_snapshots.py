"""What a trace can take back: contexts and snapshots of them.

A snapshot is a copy. Nothing that happens to its context later shows in it, and it can be
restored any number of times.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from torch.utils._ordered_set import OrderedSet

from guards._arguments import each_of, need, need_scope
from guards._errors import SnapshotError
from guards._guard import Guard, GuardEnvExpr
from guards._guards_set import GuardsSet

__all__ = [
    "Checkpointable",
    "GlobalContext",
    "GlobalContextCheckpointState",
    "GuardsCheckpointState",
    "GuardsContext",
    "ModuleContext",
    "ModuleContextCheckpointState",
]

T = TypeVar("T")
GlobalState = tuple[Callable[[Any], Any], Any]


class Checkpointable(ABC, Generic[T]):
    """Something of which a snapshot can be taken and restored."""

    @abstractmethod
    def copy_graphstate(self) -> T:
        """Take a snapshot."""

    @abstractmethod
    def restore_graphstate(self, state: T) -> None:
        """Go back to a snapshot."""


class GuardsCheckpointState:
    """A snapshot of a :class:`GuardsContext`."""

    def __init__(
        self, dynamo_guards: Iterable[Guard], aotautograd_guards: Iterable[GuardEnvExpr] = ()
    ) -> None:
        name = type(self).__name__
        self.dynamo_guards: OrderedSet[Guard] = OrderedSet(
            each_of(Guard, dynamo_guards, name, "dynamo_guards", "guards")
        )
        self.aotautograd_guards: tuple[GuardEnvExpr, ...] = tuple(
            each_of(GuardEnvExpr, aotautograd_guards, name, "aotautograd_guards", "GuardEnvExprs")
        )

    def diff(self, other: GuardsCheckpointState) -> set[Guard | GuardEnvExpr] | None:
        """Give the guards of both kinds that are here and not in the other one, None if none."""
        _check_class(other, GuardsCheckpointState)
        lost = {guard for guard in self.dynamo_guards if guard not in other.dynamo_guards}
        lost_env = {e for e in self.aotautograd_guards if e not in other.aotautograd_guards}
        return (lost | lost_env) or None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (
            set(self.dynamo_guards) == set(other.dynamo_guards)
            and self.aotautograd_guards == other.aotautograd_guards
        )

    __hash__ = None  # type: ignore[assignment]  # it can be changed


class GuardsContext(Checkpointable[GuardsCheckpointState]):
    """All guards of one trace.

    Attributes:
        dynamo_guards: guards on single sources.
        aotautograd_guards: assumptions about several inputs at once.
    """

    _guards_set: ClassVar[type[GuardsSet]] = GuardsSet

    def __init__(self) -> None:
        self.dynamo_guards: GuardsSet = self._guards_set()
        self.aotautograd_guards: list[GuardEnvExpr] = []

    def copy_graphstate(self) -> GuardsCheckpointState:
        return GuardsCheckpointState(self.dynamo_guards, self.aotautograd_guards)

    def restore_graphstate(self, state: GuardsCheckpointState) -> None:
        """Bring back both kinds of guards.

        Raises:
            SnapshotError: the state is a snapshot of something else.
        """
        _check_class(state, GuardsCheckpointState)
        self.dynamo_guards = self._guards_set(state.dynamo_guards)
        self.aotautograd_guards = list(state.aotautograd_guards)


class _NamedState:
    """What the snapshots have in common that map names to values."""

    @property
    def _content(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self._content, other._content
        return mine.keys() == theirs.keys() and all(
            _same_value(value, theirs[name]) for name, value in mine.items()
        )

    __hash__ = None  # type: ignore[assignment]  # it can be changed


def _diff(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> set[str] | None:
    return set(mine.keys() - theirs.keys()) or None


class ModuleContextCheckpointState(_NamedState):
    """A snapshot of a :class:`ModuleContext`."""

    def __init__(self, nn_modules: Mapping[str, Any]) -> None:
        need_scope(type(self).__name__, "nn_modules", nn_modules)
        self.nn_modules: dict[str, Any] = dict(nn_modules)

    @property
    def _content(self) -> Mapping[str, Any]:
        return self.nn_modules

    def diff(self, other: ModuleContextCheckpointState) -> set[str] | None:
        """Give the names of modules that are here and not in the other one, None if none."""
        _check_class(other, ModuleContextCheckpointState)
        return _diff(self.nn_modules, other.nn_modules)


class ModuleContext(Checkpointable[ModuleContextCheckpointState]):
    """The modules that a trace has met, by the names it gave them."""

    def __init__(self) -> None:
        self.nn_modules: dict[str, Any] = {}

    def copy_graphstate(self) -> ModuleContextCheckpointState:
        return ModuleContextCheckpointState(self.nn_modules)

    def restore_graphstate(self, state: ModuleContextCheckpointState) -> None:
        """Bring back the modules.

        Raises:
            SnapshotError: the state is a snapshot of something else.
        """
        _check_class(state, ModuleContextCheckpointState)
        self.nn_modules = dict(state.nn_modules)


class GlobalContextCheckpointState(_NamedState):
    """A snapshot of a :class:`GlobalContext`."""

    def __init__(self, global_states: Mapping[str, GlobalState]) -> None:
        need_scope(type(self).__name__, "global_states", global_states)
        for name, entry in global_states.items():
            pair = isinstance(entry, (tuple, list)) and len(entry) == 2 and callable(entry[0])
            wanted = "a setter and the value to call it with"
            need(pair, type(self).__name__, f"global_states[{name!r}]", wanted, entry)
        self.global_state: dict[str, GlobalState] = dict(global_states)

    @property
    def _content(self) -> Mapping[str, Any]:
        return {k: (_setter(setter), value) for k, (setter, value) in self.global_state.items()}

    def diff(self, other: GlobalContextCheckpointState) -> set[str] | None:
        """Give the names of states that are here and not in the other one, None if none."""
        _check_class(other, GlobalContextCheckpointState)
        return _diff(self.global_state, other.global_state)


class GlobalContext(Checkpointable[GlobalContextCheckpointState]):
    """The state of torch that a trace depends on and may change, such as the grad mode.

    ``global_state`` maps each name to a setter and the value to call it with.
    """

    _supported_global_states: ClassVar[frozenset[str]] = frozenset(
        {
            "grad_enabled",
            "autocast_enabled",
            "autocast_cpu_enabled",
            "autocast_gpu_dtype",
            "autocast_cpu_dtype",
            "autocast_cache_enabled",
        }
    )

    def __init__(self) -> None:
        self.global_state: dict[str, GlobalState] = {}

    def copy_graphstate(self) -> GlobalContextCheckpointState:
        return GlobalContextCheckpointState(self.global_state)

    def restore_graphstate(self, state: GlobalContextCheckpointState) -> None:
        """Bring back the record, and torch's own state by calling each setter with its value.

        Raises:
            SnapshotError: the state is a snapshot of something else, or its names are not
                exactly the supported ones. Nothing has been changed then.
        """
        _check_class(state, GlobalContextCheckpointState)
        got, wanted = state.global_state.keys(), self._supported_global_states
        missing, unknown = sorted(wanted - got), sorted(got - wanted, key=str)
        if missing or unknown:
            raise SnapshotError(
                "a snapshot of the global state must have exactly the names "
                f"{', '.join(sorted(wanted))}; missing: {', '.join(missing) or 'none'}; "
                f"unknown: {', '.join(map(str, unknown)) or 'none'}",
                missing=missing,
                unknown=unknown,
            )
        self.global_state = dict(state.global_state)
        for setter, value in state.global_state.values():
            setter(value)


def _check_class(state: object, wanted: type) -> None:
    if not isinstance(state, wanted):
        raise SnapshotError(
            f"expected a {wanted.__name__}, got a {type(state).__name__}: "
            "take what copy_graphstate of the same class of context gave"
        )


def _setter(setter: Any) -> Any:
    # Setters are often partials made on the spot, which are equal only to themselves.
    if isinstance(setter, functools.partial):
        return setter.func, setter.args, setter.keywords
    return setter


def _same_value(a: Any, b: Any) -> bool:
    # A tensor's == gives a tensor: only a plain True will do.
    return a is b or (a == b) is True
