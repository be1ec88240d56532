"""Sources as torch has them: name and place are properties, the name comes from a template."""

from __future__ import annotations

import dataclasses
import functools
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import guards
from guards import GuardSource, guard_source_of, name_of

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform  # in typing only from Python 3.11 on
else:

    def dataclass_transform() -> Any:
        return lambda function: function


__all__ = ["ChainedSource", "Source", "dataclass_with_cached_hash"]

C = TypeVar("C", bound=type)


@overload
def dataclass_with_cached_hash(cls: C, **options: Any) -> C: ...
@overload
def dataclass_with_cached_hash(cls: None = None, **options: Any) -> Callable[[C], C]: ...
@dataclass_transform()
def dataclass_with_cached_hash(cls: C | None = None, **options: Any) -> C | Callable[[C], C]:
    """Make a dataclass whose instances compute their hash once.

    What is cached stays out of copies and pickles, which are made by calling the class with the
    values of its fields, so that equal instances give equal bytes.
    """
    if cls is None:
        return functools.partial(dataclass_with_cached_hash, **options)
    made: Any = dataclasses.dataclass(cls, **options)
    hash_of_fields: Callable[[Any], int] = made.__hash__

    def __hash__(self: Any) -> int:
        try:
            return cast(int, self._hash)
        except AttributeError:
            object.__setattr__(self, "_hash", hash_of_fields(self))
            return cast(int, self._hash)

    def __reduce__(self: Any) -> tuple[Any, ...]:
        values = {f: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        by_name = {f.name: value for f, value in values.items() if f.kw_only}
        make: Any = type(self)
        if by_name:
            make = functools.partial(make, **by_name)
        return make, tuple(value for f, value in values.items() if not f.kw_only)

    made.__hash__ = __hash__
    made.__reduce__ = __reduce__
    return cast(C, made)


@dataclass_with_cached_hash(frozen=True)
class Source(guards.Source):
    """A source whose subclasses give ``_name_template``, which is its name."""

    @property
    def _name_template(self) -> str:
        raise NotImplementedError

    @functools.cached_property
    def name(self) -> str:  # type: ignore[override]
        return self._name_template

    @functools.cached_property
    def guard_source(self) -> GuardSource:  # type: ignore[override]
        raise NotImplementedError

    def reconstruct_pycode(self, codegen: Any) -> str:
        """Give Python code that fetches the value again."""
        raise NotImplementedError

    def get_value(
        self, globals: dict[str, Any], locals: Mapping[str, Any], cache: dict[Any, Any]
    ) -> Any:
        """Evaluate the source, and remember its value in ``cache``."""
        if self not in cache:
            cache[self] = self._evaluate(globals, locals, cache)
        return cache[self]

    def _evaluate(
        self, globals: dict[str, Any], locals: Mapping[str, Any], cache: dict[Any, Any]
    ) -> Any:
        return eval(self._name_template, globals, locals)

    def clone(self, transform_fn: Callable[[Any], Any] | None = None) -> Any:
        """Copy the source, each part of it replaced by what ``transform_fn`` makes of it."""
        return self if transform_fn is None else transform_fn(self)


@dataclass_with_cached_hash(frozen=True)
class ChainedSource(Source, guards.ChainedSource):
    """A chained source, whose ``_name_template`` has ``{0}`` where the name of the base goes."""

    @functools.cached_property
    def name(self) -> str:  # type: ignore[override]
        return self._name_template.format(name_of(self.base))

    @functools.cached_property
    def guard_source(self) -> GuardSource:  # type: ignore[override]
        return cast(GuardSource, guard_source_of(self.base))

    def _evaluate(
        self, globals: dict[str, Any], locals: Mapping[str, Any], cache: dict[Any, Any]
    ) -> Any:
        base: Any = self.base
        value = base.get_value(globals, locals, cache)
        name = "_base"
        while name in locals or name in globals:
            name += "_"
        scope = ChainMap({name: value}, cast(dict[str, Any], locals))
        return eval(self._name_template.format(name), globals, scope)

    def clone(self, transform_fn: Callable[[Any], Any] | None = None) -> Any:
        parts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        cloned = {
            name: cast(Any, part).clone(transform_fn)
            for name, part in parts.items()
            if isinstance(part, guards.Source)
        }
        copy = dataclasses.replace(self, **cloned)
        return copy if transform_fn is None else transform_fn(copy)
