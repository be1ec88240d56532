"""What an overload's arguments and results mean for wrapping: tensors, writes, aliases."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from dispatch_core import handle_of

__all__ = ["Roles", "TensorArgument", "TensorResult", "each_in", "roles_of"]

_ALIAS = re.compile(r"\(([^)]*)\)")
# Views that the schema does not admit to; autograd does not take them for views either.
_UNSAFE_VIEWS = {
    "aten::_unsafe_view",
    "aten::unsafe_split.Tensor",
    "aten::unsafe_split_with_sizes",
}


@dataclass(frozen=True)
class TensorArgument:
    """An argument that holds tensors. `position` is None for a keyword-only one."""

    name: str
    position: int | None
    is_list: bool
    written: bool


@dataclass(frozen=True)
class TensorResult:
    """A result: a fresh tensor, the argument itself, a view of it, or no tensor at all."""

    kind: Literal["new", "same", "view", "none"]
    is_list: bool = False
    source: str | None = None


@dataclass(frozen=True)
class Roles:
    """The roles of all of an overload's arguments and results."""

    arguments: tuple[TensorArgument, ...]
    results: tuple[TensorResult, ...]
    unsaid: tuple[TensorArgument, ...] = ()
    """The arguments that may be written although the schema, and so autograd, does not say so."""
    _only_if: tuple[str, int] | None = None

    def unsaid_writes(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[TensorArgument, ...]:
        """List the arguments that this call writes although the schema does not say so."""
        if self.unsaid and self._only_if is not None:
            name, position = self._only_if
            if not (args[position] if position < len(args) else kwargs.get(name)):
                return ()
        return self.unsaid

    def replace_tensors(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        replace: Callable[[Any, str], Any],
        values: dict[str, Any],
    ) -> tuple[list[Any], dict[str, Any]]:
        """Give the call with `replace(value, argument name)` where it may hold a tensor.

        `values` takes, by name, what these arguments held before.
        """
        new_args, new_kwargs = list(args), dict(kwargs)
        for argument in self.arguments:
            holder: Any = new_kwargs
            key: Any = argument.name
            if argument.position is not None and argument.position < len(new_args):
                holder, key = new_args, argument.position
            elif key not in new_kwargs:
                continue
            value = values[argument.name] = holder[key]
            if isinstance(value, torch.Tensor):
                holder[key] = replace(value, argument.name)
            else:
                holder[key] = _replaced(value, replace, argument.name)
        return new_args, new_kwargs

    @property
    def writes(self) -> bool:
        """Say whether an argument is written."""
        return any(argument.written for argument in self.arguments)

    @property
    def aliases(self) -> bool:
        """Say whether a result may share memory with an argument."""
        return any(result.kind == "view" for result in self.results)


def _replaced(value: Any, replace: Callable[[Any, str], Any], name: str) -> Any:
    if isinstance(value, list):
        return [_replaced(item, replace, name) for item in value]
    if isinstance(value, tuple):
        return tuple([_replaced(item, replace, name) for item in value])
    if isinstance(value, dict):
        return {key: _replaced(item, replace, name) for key, item in value.items()}
    return replace(value, name)


def each_in(value: Any) -> Iterator[Any]:
    """Give each value in an argument: itself, or what is in its lists, of lists, and dicts."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from each_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from each_in(item)
    else:
        yield value


def _names(alias: str) -> set[str]:
    """Give the alias sets of an annotation: 'a! -> *' is of the set a."""
    before = alias.partition("->")[0].replace("!", "")
    return {name.strip() for name in before.split("|")} - {"", "*"}


_known: dict[Any, Roles] = {}


def roles_of(op: Any) -> Roles:
    """Find the roles of an overload, from the specs, or from the installed torch's schema."""
    roles = _known.get(op)
    if roles is None:
        handle = handle_of(op)
        written = _spec_roles(handle)
        roles = _read_schema(handle) if written is None else _read(handle, *written)
        roles = _known[op] = _with_unsaid(handle, roles)
    return roles


# By which a batch norm is told whether to keep what it sees.
_FLAGS = {"training", "use_input_stats"}


def _with_unsaid(handle: Any, roles: Roles) -> Roles:
    mutates = handle.facts.mutates
    unsaid = tuple(a for a in roles.arguments if a.name in mutates and not a.written)
    if not unsaid:
        return roles
    flags = [(param.name, at) for at, param in enumerate(handle.params) if param.name in _FLAGS]
    return replace(roles, unsaid=unsaid, _only_if=flags[0] if flags else None)


# ── from the specs ──────────────────────────────────────────────────────────────────────────────


def _spec_roles(handle: Any) -> tuple[str, str] | None:
    if not handle.from_spec or handle.qualified_name in _UNSAFE_VIEWS:
        return None
    namespace = handle.qualified_name.partition("::")[0]
    try:
        module = importlib.import_module(
            f"subclass_utils._generated.{namespace}.{handle.facts.family}"
        )
    except ImportError:  # a namespace of the user's own
        return None
    roles: tuple[str, str] | None = module.ROLES.get(handle.qualified_name)
    return roles


def _read(handle: Any, arguments: str, results: str) -> Roles:
    positions = {
        param.name: None if param.kwarg_only else position
        for position, param in enumerate(handle.params)
    }
    return Roles(
        tuple(_read_argument(text, positions) for text in arguments.split()),
        tuple(_read_result(text) for text in results.split()),
    )


def _read_argument(text: str, positions: dict[str, int | None]) -> TensorArgument:
    name = text.rstrip("?[]!")
    marks = text[len(name) :]
    return TensorArgument(name, positions[name], "[" in marks, "!" in marks)


def _read_result(text: str) -> TensorResult:
    name = text.rstrip("?[]{}")
    is_list = "[]" in text
    if name == "-":
        return TensorResult("none")
    if name == "new":
        return TensorResult("new", is_list)
    return TensorResult("same" if name[0] == "=" else "view", is_list, name[1:])


# ── from a schema ───────────────────────────────────────────────────────────────────────────────


def _read_schema(handle: Any) -> Roles:
    arguments: list[TensorArgument] = []
    sources: dict[str, str] = {}
    for position, param in enumerate(handle.params):
        if "Tensor" not in param.type:
            continue
        for name in _names(param.alias or ""):
            sources.setdefault(name, param.name)
        arguments.append(
            TensorArgument(
                name=param.name,
                position=None if param.kwarg_only else position,
                is_list="[" in param.type or "Dict" in param.type,
                written=param.mutated,
            )
        )
    unsafe_view = handle.qualified_name in _UNSAFE_VIEWS
    results = tuple(
        TensorResult("view", "[]" in type_, "self") if unsafe_view else _result(type_, sources)
        for type_ in handle.returns
    )
    return Roles(tuple(arguments), results)


def _result(type_: str, sources: dict[str, str]) -> TensorResult:
    if "Tensor" not in type_:
        return TensorResult("none")
    is_list = "[]" in type_
    annotation = _ALIAS.search(type_)
    if annotation is None:
        return TensorResult("new", is_list)
    alias = annotation.group(1)
    source = next((sources[name] for name in sorted(_names(alias)) if name in sources), None)
    if source is None:
        return TensorResult("new", is_list)
    return TensorResult("same" if "!" in alias else "view", is_list, source)
