"""What the parts of a walk over all that a function reaches have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from guards._builder import GuardBuilder
from guards._evaluation import ValueSource
from guards._fetch import MISSING
from guards._guard import Guard

__all__ = ["CannotSpecialize", "Walk"]


_ON_CONSTANTS = (
    GuardBuilder.CONSTANT_MATCH,
    GuardBuilder.EQUALS_MATCH,
    GuardBuilder.SET_MATCH,
)


class CannotSpecialize(Exception):
    """A run that cannot be written down; the text says why."""


class Walk:
    """What was found so far, and what is still to be visited.

    Attributes:
        guards: what holds fast what was visited.
        todo: values to visit, with where they are.
        names: the names of attributes that code uses.
        absent: modules and functions, each with the name of an attribute that it lacks.
        noted: classes, each with an attribute that must stay what it is.
        constants: where constants are.
        keyed: where dicts are whose keys are constants.
        functions_of_c: functions of C that were reached.
        not_understood: functions of C that only a call which is seen may call, with the names
            that they go by.
    """

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.todo: list[tuple[ValueSource, Any]] = []
        self.names: set[str] = {"forward"}
        self.absent: list[tuple[Any, str]] = []
        self.noted: list[tuple[type, str]] = []
        self.constants: list[ValueSource] = []
        self.keyed: list[ValueSource] = []
        self.functions_of_c: list[Any] = []
        self.not_understood: list[tuple[ValueSource, str | None]] = []
        # What code may set attributes of, with those that are there.
        self._namespaces: dict[int, tuple[Any, dict[str, Any]]] = {}

    def guard(self, source: ValueSource, create: Callable[..., Any], **options: Any) -> None:
        """Add a guard."""
        if create in _ON_CONSTANTS:
            self.constants.append(source)
        elif create is GuardBuilder.DICT_KEYS_MATCH:
            self.keyed.append(source)
        made = functools.partial(create, **options) if options else create
        self.guards.append(Guard(source, made))

    def refuse(self, source: ValueSource, why: str) -> NoReturn:
        """End the walk.

        Raises:
            CannotSpecialize: always.
        """
        raise CannotSpecialize(f"{source.name()} {why}")

    def remember(self, owner: Any) -> None:
        """Keep which attributes something has before the run, and what they are."""
        if id(owner) not in self._namespaces:
            self._namespaces[id(owner)] = (owner, dict(owner.__dict__))

    def namespaces_are_as_they_were(self) -> bool:
        """Tell whether functions, classes and modules have the attributes that they had."""
        for owner, before in self._namespaces.values():
            now = owner.__dict__
            if len(now) != len(before) or any(
                now.get(name, MISSING) is not value for name, value in before.items()
            ):
                return False
        return True
