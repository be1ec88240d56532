"""Where a guarded value lives."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from guards._arguments import need
from guards._front_end import skips_fsdp_guards

if TYPE_CHECKING:
    from guards._guard import Guard

__all__ = ["ChainedSource", "GuardSource", "Source", "guard_source_of", "name_of", "need_source"]


class GuardSource(enum.Enum):
    """Say what kind of place a guarded value lives in; the values order guards."""

    LOCAL = 0
    GLOBAL = 1
    LOCAL_SPECIALIZED_NN_MODULE = 2
    GLOBAL_SPECIALIZED_NN_MODULE = 3
    CONSTANT = 4
    RANDOM_VALUE = 5
    SHAPE_ENV = 6
    LOCAL_FSDP_MODULE = 7
    GLOBAL_FSDP_MODULE = 8
    BACKWARD_STATE = 9
    EPHEMERAL = 10
    SYNTHETIC_LOCAL = 11
    LOCAL_UNSPECIALIZED_NN_MODULE = 12
    GLOBAL_UNSPECIALIZED_NN_MODULE = 13
    LOCAL_UNSPECIALIZED_BUILTIN_NN_MODULE = 14
    GLOBAL_UNSPECIALIZED_BUILTIN_NN_MODULE = 15
    TEMP_LOCAL = 16

    def is_fsdp_module(self) -> bool:
        return "fsdp" in _TRAITS[self]

    def is_specialized_nn_module(self) -> bool:
        """Tell the specialized modules; FSDP ones too where the process skips their guards."""
        traits = _TRAITS[self]
        return "specialized" in traits or ("fsdp" in traits and skips_fsdp_guards())

    def is_unspecialized_nn_module(self) -> bool:
        return "unspecialized" in _TRAITS[self]

    def is_unspecialized_builtin_nn_module(self) -> bool:
        return "builtin" in _TRAITS[self]

    def is_local(self) -> bool:
        return "local" in _TRAITS[self]


_TRAITS = {source: frozenset[str]() for source in GuardSource} | {
    GuardSource.LOCAL: frozenset({"local"}),
    GuardSource.LOCAL_SPECIALIZED_NN_MODULE: frozenset({"local", "specialized"}),
    GuardSource.GLOBAL_SPECIALIZED_NN_MODULE: frozenset({"specialized"}),
    GuardSource.LOCAL_FSDP_MODULE: frozenset({"local", "fsdp"}),
    GuardSource.GLOBAL_FSDP_MODULE: frozenset({"fsdp"}),
    GuardSource.LOCAL_UNSPECIALIZED_NN_MODULE: frozenset({"local", "unspecialized"}),
    GuardSource.GLOBAL_UNSPECIALIZED_NN_MODULE: frozenset({"unspecialized"}),
    GuardSource.LOCAL_UNSPECIALIZED_BUILTIN_NN_MODULE: frozenset(
        {"local", "unspecialized", "builtin"}
    ),
    GuardSource.GLOBAL_UNSPECIALIZED_BUILTIN_NN_MODULE: frozenset({"unspecialized", "builtin"}),
}


@dataclass(frozen=True)
class Source:
    """Say where a guarded value came from; the base of all sources.

    A subclass gives ``name``, an expression for the value, and ``guard_source``, the kind of its
    place. Either may be a method, as here, or a property, as newer torch has them; code that
    meets sources of others reads them with :func:`name_of` and :func:`guard_source_of`.
    """

    def name(self) -> str:
        raise NotImplementedError

    def guard_source(self) -> GuardSource:
        raise NotImplementedError

    def reconstruct(self, codegen: Any) -> None:
        """Make code with ``codegen`` that fetches the value again."""
        raise NotImplementedError

    def is_dict_key(self) -> bool:
        return False

    def is_ephemeral(self) -> bool:
        return False

    def is_specialized_nn_module(self) -> bool:
        kind = guard_source_of(self)
        return kind is not None and kind.is_specialized_nn_module()

    def subguards_allowed(self) -> bool:
        """Tell whether what is reached through this source may be guarded too."""
        return guard_source_of(self) is not GuardSource.SYNTHETIC_LOCAL

    def make_guard(self, fn: Callable[..., Any]) -> Guard:
        """Make a guard on this source that ``fn(builder, guard)`` will turn into a check.

        Raises:
            NotImplementedError: the source is a constant, which needs no guard.
        """
        if guard_source_of(self) is GuardSource.CONSTANT:
            raise NotImplementedError(f"a constant needs no guard: {self!r}")
        from guards._guard import Guard

        return Guard(self, fn)


@dataclass(frozen=True)
class ChainedSource(Source):
    """Say that a value is reached through another one, ``base``."""

    base: Source

    def __post_init__(self) -> None:
        need_source(type(self).__name__, "base", self.base)

    def guard_source(self) -> GuardSource:
        return cast(GuardSource, guard_source_of(self._deciding("guard_source")))

    def is_dict_key(self) -> bool:
        return self._deciding("is_dict_key").is_dict_key()

    def is_ephemeral(self) -> bool:
        return self._deciding("is_ephemeral").is_ephemeral()

    def _deciding(self, method: str) -> Source:
        # Below this link, the first whose class does not just ask its base. A loop, since a chain
        # may be longer than Python's stack.
        asks_base = getattr(ChainedSource, method)
        link = self.base
        while isinstance(link, ChainedSource) and getattr(type(link), method) is asks_base:
            link = link.base
        return link

    def get_base(self) -> Source:
        """Walk down to the first source that is not reached through another."""
        source: Source = self
        while isinstance(source, ChainedSource):
            source = source.base
        return source


def name_of(source: Source) -> str:
    """Read the name of a source, whether its class has it as a method or as a property."""
    try:
        name: Any = source.name
    except AttributeError:
        need_source("name_of", "source", source)
        raise
    found: str = name() if callable(name) else name
    return found


def guard_source_of(source: Source) -> GuardSource | None:
    """Read a source's kind of place, whether its class has it as a method or as a property."""
    try:
        kind: Any = source.guard_source
    except AttributeError:
        need_source("guard_source_of", "source", source)
        raise
    found: GuardSource | None = kind() if callable(kind) else kind
    return found


def need_source(function: str, argument: str, got: object) -> None:
    """Refuse what is no source; one of a front end's own need not derive from ours.

    Raises:
        WrongArgumentError: it has no name, or no kind of place.
    """
    if not isinstance(got, Source):
        has_both = all(hasattr(got, name) for name in ("name", "guard_source"))
        need(has_both, function, argument, "a source", got, _SOURCES_START)


_SOURCES_START = "such as LocalSource('x')"


class ReachedThrough:
    """Tell which sources are a given one or are reached through it.

    One object serves many questions: it remembers the links it has walked, so that the cost of
    asking about all links of one chain grows with the length of the chain, not its square.
    """

    def __init__(self, target: Source) -> None:
        self._target = target
        self._target_length = _chain_length(target)
        # By identity, with the source itself so that no identity is used again: (length of the
        # chain, whether the target is on it).
        self._walked: dict[int, tuple[int, bool, Source]] = {}

    def __contains__(self, source: Source) -> bool:
        links: list[Source] = []
        link = source
        while id(link) not in self._walked:
            links.append(link)
            if not isinstance(link, ChainedSource):
                break
            link = link.base
        known = self._walked.get(id(link))
        length, found = (0, False) if known is None else known[:2]
        for link in reversed(links):
            length += 1
            # Equal sources have chains of equal length, and comparing two long chains is slow.
            found = found or (
                length == self._target_length and (link is self._target or link == self._target)
            )
            self._walked[id(link)] = (length, found, link)
        return found


def _chain_length(source: Source) -> int:
    length = 1
    while isinstance(source, ChainedSource):
        source = source.base
        length += 1
    return length
