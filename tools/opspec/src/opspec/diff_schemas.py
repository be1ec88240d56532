"""How two schemas of one operator differ, and whether its callers break by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opspec.model import ListOf, Named, Optional_, Parameter, Schema, Type, aliases_of
from opspec.model import without_aliases as plain
from opspec.printer import default_text

__all__ = ["Finding", "accepts", "compare_schemas"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference; `breaks`: a call that was right may fail, or give another result."""

    breaks: bool
    text: str


def compare_schemas(old: Schema, new: Schema) -> tuple[Finding, ...]:
    """Give every difference that a caller or a handler can see, those that break callers first."""
    pairs = _paired(old, new)
    found = [
        *_gone_and_new(old, new, pairs),
        *_order(new, pairs),
        *(finding for before, after in pairs for finding in _parameter(before, after)),
        *_results(old, new),
        *_aliases(old, new, {after.name: before.name for before, after in pairs}),
    ]
    if old.vararg != new.vararg or old.varret != new.varret:
        found.append(Finding(True, "`...` stands in one of the two only"))
    return tuple(sorted(found, key=lambda finding: not finding.breaks))


_Pairs = list[tuple[Parameter, Parameter]]


def _positional(schema: Schema) -> list[Parameter]:
    return [parameter for parameter in schema.parameters if not parameter.kwarg_only]


def _paired(old: Schema, new: Schema) -> _Pairs:
    """Pair the parameters: by name, and where one was renamed, by place and type."""
    by_name = {parameter.name: parameter for parameter in new.parameters}
    old_names = {parameter.name for parameter in old.parameters}
    pairs = []
    for index, before in enumerate(old.parameters):
        after = by_name.get(before.name)
        if after is None and index < len(new.parameters):
            there = new.parameters[index]
            same = plain(there.type) == plain(before.type) and there.kwarg_only == before.kwarg_only
            after = there if same and there.name not in old_names else None
        if after is not None:
            pairs.append((before, after))
    return pairs


def _gone_and_new(old: Schema, new: Schema, pairs: _Pairs) -> Iterator[Finding]:
    kept = {before.name for before, _ in pairs}
    for parameter in old.parameters:
        if parameter.name not in kept:
            yield Finding(True, f"parameter '{parameter.name}' is gone")
    known = {after.name for _, after in pairs}
    for parameter in new.parameters:
        if parameter.name not in known:
            if parameter.has_default:
                yield Finding(False, f"new parameter '{parameter}', which may be left out")
            else:
                yield Finding(True, f"new parameter '{parameter}', which every call must give")


def _order(new: Schema, pairs: _Pairs) -> Iterator[Finding]:
    """Find other orders: only positions matter to a caller, keywords reach handlers in order."""
    keywords = [pair for pair in pairs if pair[0].kwarg_only and pair[1].kwarg_only]
    names = [after.name for _, after in keywords]
    listed = [parameter.name for parameter in new.parameters if parameter.name in names]
    if names != listed:
        was = ", ".join(pair[0].name for pair in keywords)
        text = f"keyword-only parameters in another order: ({was}), now ({', '.join(listed)})"
        yield Finding(False, text)
    before = [pair for pair in pairs if not pair[0].kwarg_only and not pair[1].kwarg_only]
    order = [after.name for _, after in before]
    places = {parameter.name: index for index, parameter in enumerate(_positional(new))}
    if order != sorted(order, key=places.__getitem__):
        was = ", ".join(pair[0].name for pair in before)
        now = ", ".join(sorted(order, key=places.__getitem__))
        yield Finding(True, f"positional parameters in another order: ({was}), now ({now})")
        return
    last = max((places[name] for name in order), default=-1)
    for name, place in places.items():
        if name not in order and place < last:
            behind = next(other for other in order if places[other] > place)
            yield Finding(
                True, f"'{name}' stands before '{behind}', which moves to another position"
            )


def _parameter(before: Parameter, after: Parameter) -> Iterator[Finding]:
    name = after.name
    if before.name != name:
        yield Finding(True, f"parameter '{before.name}' is called '{name}' now")
    if before.kwarg_only and not after.kwarg_only:
        yield Finding(False, f"'{name}' may be passed by position now, and handlers receive it so")
    if after.kwarg_only and not before.kwarg_only:
        yield Finding(True, f"'{name}' must be passed by keyword now")
    was, now = plain(before.type), plain(after.type)
    if was != now:
        if accepts(now, was):
            yield Finding(False, f"'{name}' is {now} instead of {was}, which takes those too")
        else:
            yield Finding(
                True, f"'{name}' is {now} instead of {was}, which does not take all of those"
            )
    yield from _default(before, after)


def _default(before: Parameter, after: Parameter) -> Iterator[Finding]:
    name = after.name
    if before.has_default and not after.has_default:
        yield Finding(True, f"'{name}' has no default now: every call must give it")
    elif after.has_default and not before.has_default:
        yield Finding(False, f"'{name}' has a default now, and may be left out")
    elif before.has_default and after.has_default:
        was = default_text(before.type, before.default)
        now = default_text(after.type, after.default)
        if was != now:
            yield Finding(True, f"who leaves out '{name}' gets {now} instead of {was}")


def _results(old: Schema, new: Schema) -> Iterator[Finding]:
    if len(old.returns) != len(new.returns):
        yield Finding(True, f"{_count(new)} instead of {_count(old)}")
        return
    for index, (before, after) in enumerate(zip(old.returns, new.returns, strict=True)):
        which = "the result" if len(new.returns) == 1 else f"result {index}"
        if plain(before.type) != plain(after.type):
            text = f"{which} is {plain(after.type)} instead of {plain(before.type)}"
            yield Finding(True, text)
        if before.name != after.name:
            was, now = before.name or "without a name", after.name or "without a name"
            yield Finding(
                False, f"{which} is called {now} instead of {was}; torch.ops has no names"
            )


def _count(schema: Schema) -> str:
    number = len(schema.returns)
    return {0: "no result", 1: "one result"}.get(number, f"{number} results")


def _aliases(old: Schema, new: Schema, old_names: dict[str, str]) -> Iterator[Finding]:
    """Compare what is written and what shares memory; the letters of a set do not matter."""
    written_before = _written(old)
    written = {old_names.get(name, name): name for name in _written(new)}
    known = {parameter.name for parameter in old.parameters}
    for parameter in old.parameters:
        name = parameter.name
        if name in written_before and name not in written and name in old_names.values():
            yield Finding(True, f"'{name}' is not written any more")
    for name, shown in written.items():
        if name in known and name not in written_before:
            yield Finding(True, f"'{shown}' is written now")
    if len(old.returns) != len(new.returns):
        return
    for index, (was, now) in enumerate(zip(_shared(old), _shared(new), strict=True)):
        now = frozenset(old_names.get(name, name) for name in now)
        if was != now:
            which = "the result" if len(new.returns) == 1 else f"result {index}"
            yield Finding(True, f"{which} {_memory(now)} instead of {_memory(was, noun=True)}")


def _written(schema: Schema) -> set[str]:
    return {
        parameter.name
        for parameter in schema.parameters
        if any(alias.write for alias in aliases_of(parameter.type))
    }


def _shared(schema: Schema) -> list[frozenset[str]]:
    """Give for each result the names of the parameters whose memory it may share."""
    shared = []
    for result in schema.returns:
        letters = _letters(result.type)
        shared.append(
            frozenset(
                parameter.name
                for parameter in schema.parameters
                if letters & _letters(parameter.type)
            )
        )
    return shared


def _letters(type_: Type) -> set[str]:
    return {
        letter for alias in aliases_of(type_) for letter in (*alias.before, *(alias.after or ()))
    }


def _memory(names: frozenset[str], *, noun: bool = False) -> str:
    if not names:
        return "memory of its own" if noun else "has memory of its own"
    listed = " and ".join(f"'{name}'" for name in sorted(names))
    return f"that of {listed}" if noun else f"shares the memory of {listed}"


# What a value of one type is converted to, or taken as, without a word.
_TAKEN_AS = {
    "bool": {"int", "float", "complex", "Scalar", "SymBool", "SymInt"},
    "int": {"float", "complex", "Scalar", "SymInt", "SymFloat"},
    "float": {"complex", "Scalar", "SymFloat"},
    "complex": {"Scalar"},
    "SymInt": {"Scalar"},
    "SymFloat": {"Scalar"},
}


def accepts(new: Type, old: Type) -> bool:
    """Say whether every value of `old` can be passed for `new`; both without aliases."""
    if new == old or new == Named("Any"):
        return True
    if isinstance(new, Optional_):
        return accepts(new.element, old.element if isinstance(old, Optional_) else old)
    if isinstance(new, ListOf) and isinstance(old, ListOf):
        # For int[2] a single value may stand, for int[] and SymInt[2] it may not.
        loses_single = old.size is not None and (
            new.size is None or (new.element == Named("SymInt") and old.element != new.element)
        )
        return not loses_single and accepts(new.element, old.element)
    if isinstance(new, Named) and isinstance(old, Named):
        return new.name in _TAKEN_AS.get(old.name, ())
    return False
