"""Choose Python names for what specs name, without a clash and always the same."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Sequence

from opspec.model import Operator, Schema

__all__ = ["NamePool", "class_stem", "function_names", "is_refused", "parameter_names"]

# A module lives by these; an operator of this name must not replace them.
_MODULE_NAMES = frozenset(
    (
        "__all__",
        "__annotations__",
        "__builtins__",
        "__cached__",
        "__dict__",
        "__dir__",
        "__doc__",
        "__file__",
        "__getattr__",
        "__loader__",
        "__name__",
        "__package__",
        "__path__",
        "__spec__",
    )
)


def is_refused(name: str) -> bool:
    """Say whether Python takes the name for no parameter or function: a keyword, `__debug__`."""
    return keyword.iskeyword(name) or name == "__debug__"


class NamePool:
    """Names that are taken in one scope; a second claimant gets underscores behind its name."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*taken, *_MODULE_NAMES}

    def claim(self, name: str) -> str:
        """Give `name`, or the next one with underscores behind it that is free and no keyword."""
        while name in self._taken or is_refused(name):
            name += "_"
        self._taken.add(name)
        return name


def class_stem(schema: Schema) -> str:
    """Give what the classes of an overload begin with: `addmv_out`, `addmv_default`."""
    return f"{schema.name}_{schema.overload or 'default'}"


def function_names(operators: Sequence[Operator], taken: Iterable[str]) -> list[str]:
    """Name the stub functions of a module: `addmv`, `addmv_out`, `add__Tensor`."""
    pool = NamePool(taken)
    return [
        pool.claim(
            f"{operator.schema.name}_{operator.schema.overload}"
            if operator.schema.overload
            else operator.schema.name
        )
        for operator in operators
    ]


def parameter_names(schema: Schema) -> list[str]:
    """Name the parameters in Python: as in the schema, and `from_` for `from`.

    A name that Python refuses, as a word of its own or for the second time, gets underscores; it
    gives way to an argument that has the name with the underscore already.
    """
    names = [parameter.name for parameter in schema.parameters]
    if len(set(names)) == len(names) and not any(map(is_refused, names)):
        return names
    pool = NamePool(names)
    seen: set[str] = set()
    result = []
    for name in names:
        result.append(pool.claim(name) if name in seen or is_refused(name) else name)
        seen.add(name)
    return result
