"""Objects whose own code a check must not run, and how checks of many values are made."""

from __future__ import annotations

from typing import Any

from guards import (
    CheckFunction,
    Guard,
    LocalSource,
    compile_guards,
)

CALLS: list[str] = []


class Hostile:
    """An object whose special methods are written down, and lie."""

    def __eq__(self, other: object) -> bool:
        CALLS.append("__eq__")
        return True

    def __hash__(self) -> int:
        CALLS.append("__hash__")
        return hash("k1")

    def __len__(self) -> int:
        CALLS.append("__len__")
        return 5

    def __getattr__(self, name: str) -> Any:
        CALLS.append(name)
        return None


class HostileDict(dict[Any, Any]):
    def __getitem__(self, key: object) -> Any:
        CALLS.append("__getitem__")
        return super().__getitem__(key)

    def __iter__(self) -> Any:
        CALLS.append("__iter__")
        return super().__iter__()

    def __len__(self) -> int:
        CALLS.append("__len__")
        return super().__len__()

    __contains__ = keys = values = items = get = None  # type: ignore[assignment]


class ChildDict(dict[Any, Any]):
    pass


def guarded(scope: dict[str, Any], **kinds: Any) -> CheckFunction:
    """Guard each local by the kind that the first letter of its name stands for."""
    return compile_guards([Guard(LocalSource(k), kinds[k[0]]) for k in scope], scope)


def first_failure(check: CheckFunction, scope: dict[str, Any]) -> str:
    explained = check.explain(scope)
    return "" if explained is None else explained.expression
