"""What a caller gives to a function of this package, and how it is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from guards._errors import WrongArgumentError

__all__ = ["each_of", "need", "need_callable", "need_scope", "wrong", "wrong_call"]


def wrong(
    function: str, argument: str, wanted: str, got: object, remedy: str = ""
) -> WrongArgumentError:
    """Make the error that says what an argument must be, what it was, and how to mend that."""
    from guards._constants import spell

    what = f"{argument} must be " if argument else "it takes "
    text = f"{function}: {what}{wanted}, got {spell(got, 80)}"
    return WrongArgumentError(
        f"{text}; {remedy}" if remedy else text, function=function, argument=argument, got=got
    )


def wrong_call(function: str, error: TypeError, given: object) -> WrongArgumentError:
    """Make the error that says that a function does not take the arguments of a call."""
    text = str(error).removeprefix("bind() ")
    return WrongArgumentError(f"{function}: {text}", function=function, argument="", got=given)


def need(
    holds: bool, function: str, argument: str, wanted: str, got: object, remedy: str = ""
) -> None:
    """Refuse an argument that is not what it must be.

    Raises:
        WrongArgumentError: ``holds`` is False.
    """
    if not holds:
        raise wrong(function, argument, wanted, got, remedy)


def each_of(
    cls: type, values: Iterable[Any], function: str, argument: str, wanted: str, remedy: str = ""
) -> list[Any]:
    """Give the values as a list, all of them of one class.

    Raises:
        WrongArgumentError: they are no iterable, or one of them is of another class.
    """
    try:
        found = list(values)
    except TypeError:
        raise wrong(function, argument, f"an iterable of {wanted}", values, remedy) from None
    for value in found:
        if not issubclass(type(value), cls):
            raise wrong(function, f"each of {argument}", _one(wanted), value, remedy)
    return found


def _one(wanted: str) -> str:
    noun = wanted.rpartition(" ")[2].removesuffix("s")
    return f"a {noun}"


def need_scope(function: str, argument: str, got: object) -> None:
    """Refuse what cannot hold variables by name.

    Raises:
        WrongArgumentError: it is no mapping.
    """
    if type(got) is dict or issubclass(type(got), Mapping):
        return
    members = {name for base in type(got).__mro__ for name in vars(base)}
    need(
        {"__getitem__", "keys"} <= members,
        function,
        argument,
        "a mapping from names to values",
        got,
        "such as a function's locals()",
    )


def need_callable(function: str, argument: str, got: object, remedy: str = "") -> None:
    """Refuse what cannot be called.

    Raises:
        WrongArgumentError: it is not callable.
    """
    need(callable(got), function, argument, "something that can be called", got, remedy)
