"""Compare the schema that the specs have with the one the installed torch has."""

from __future__ import annotations

from dataclasses import dataclass

from dispatch_core._schema import Argument, Schema

__all__ = ["Difference", "compare"]


@dataclass(frozen=True)
class Difference:
    """One difference; `breaks` if calls or handlers written for the first schema do."""

    text: str
    breaks: bool


def compare(spec: Schema, live: Schema) -> list[Difference]:
    """List the differences, seen by somebody who wrote code for the first schema."""
    found: list[Difference] = []
    live_by_name = {argument.name: argument for argument in live.arguments}
    spec_by_name = {argument.name: argument for argument in spec.arguments}
    positions = _positions(live)
    for name, position in _positions(spec).items():
        now = positions.get(name)
        if now is not None and now != position:
            found.append(Difference(f"argument {name!r} moved to position {now + 1}", True))
    for old in spec.arguments:
        new = live_by_name.get(old.name)
        if new is None:
            found.append(Difference(f"argument {old.name!r} is gone", True))
        else:
            found.extend(_compare_arguments(old, new))
    for new in live.arguments:
        if new.name not in spec_by_name:
            how = "with a default" if new.has_default else "and required"
            found.append(Difference(f"argument {new.name!r} is new {how}", not new.has_default))
    if spec.returns != live.returns:
        was, now_ = (", ".join(returns) or "nothing" for returns in (spec.returns, live.returns))
        found.append(Difference(f"returns {now_} instead of {was}", True))
    if spec.variadic != live.variadic:
        found.append(Difference("takes unnamed arguments or no longer does", True))
    return found


def _positions(schema: Schema) -> dict[str, int]:
    names = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    return {name: index for index, name in enumerate(names)}


def _compare_arguments(old: Argument, new: Argument) -> list[Difference]:
    found: list[Difference] = []
    name = repr(old.name)
    if old.kwarg_only != new.kwarg_only:
        now = "keyword-only" if new.kwarg_only else "positional"
        found.append(Difference(f"argument {name} is {now} now", True))
    if old.type != new.type:
        found.append(
            Difference(
                f"argument {name} is {new.type} instead of {old.type}",
                not _takes_all_of(new.type, old.type),
            )
        )
    if old.has_default and not new.has_default:
        found.append(Difference(f"argument {name} has no default any more", True))
    elif new.has_default and not old.has_default:
        found.append(Difference(f"argument {name} has a default now", False))
    elif repr(old.default) != repr(new.default):
        found.append(
            Difference(f"default of {name} is {new.default!r} instead of {old.default!r}", True)
        )
    if old.alias != new.alias:
        found.append(
            Difference(
                f"argument {name} is annotated ({new.alias}) instead of ({old.alias})",
                ("!" in (old.alias or "")) != ("!" in (new.alias or "")),
            )
        )
    return found


def _takes_all_of(new: str, old: str) -> bool:
    """Say whether a parameter of type `new` takes every value that `old` took."""
    if new.endswith("?"):
        return _takes_all_of(new[:-1], old.removesuffix("?"))
    if old.endswith("?"):
        return False
    if new.replace("SymInt", "int") == old.replace("SymInt", "int"):
        return True
    return (old, new) in {
        ("int", "Scalar"),
        ("SymInt", "Scalar"),
        ("float", "Scalar"),
        ("bool", "Scalar"),
        ("bool", "int"),
        ("int", "float"),
    }
