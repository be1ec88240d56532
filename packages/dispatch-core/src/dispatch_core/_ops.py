"""The tree `ops.<namespace>.<op>.<overload>`, made branch by branch when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from dispatch_core import _registry
from dispatch_core import _torch_private as private
from dispatch_core._errors import UnknownOperatorError, near_matches
from dispatch_core._handle import Handle
from dispatch_core._higher_order import HIGHER_ORDER
from dispatch_core._tracing import find_place

if TYPE_CHECKING:
    from dispatch_core._generated import TypedOps

__all__ = ["OpNamespace", "OpPacket", "Ops", "ops"]

_is_tracing = torch.compiler.is_dynamo_compiling


def _is_probe(name: str) -> bool:
    """Say whether a name is one that Python or an interactive shell looks for on any object."""
    return (name.startswith("__") and name.endswith("__")) or name.startswith(
        ("_repr_", "_ipython_")
    )


class OpPacket:
    """An operator, `ops.aten.addmv`: its overloads are its attributes.

    Iterating gives the handles of all overloads that the installed torch has. Calling it picks
    the overload by the arguments, as `torch.ops.aten.addmv(...)` does.
    """

    def __init__(self, namespace: str, base: str) -> None:
        """Make a packet; `ops` does."""
        self._namespace = namespace
        self._base = base

    @property
    def qualified_name(self) -> str:
        """Give 'aten::addmv'."""
        return f"{self._namespace}::{self._base}"

    @property
    def torch_packet(self) -> Any:
        """Give torch's own packet."""
        return getattr(getattr(torch.ops, self._namespace), self._base)

    def overloads(self) -> tuple[str, ...]:
        """List the names of the overloads, 'default' for the one without a name."""
        names = _registry.overload_names(self._namespace, self._base)
        return tuple(name or "default" for name in names)

    # Type checkers see the attributes in _generated/*.pyi, and report any other name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Handle[Any]:
            if _is_probe(name):
                raise AttributeError(f"{self!r} has no attribute {name!r}")
            if _is_tracing():
                return find_place(f"{self._namespace}/{self._base}/{name}")
            overload = "" if name == "default" else name
            handle = _registry.typed_handle(self._namespace, self._base, overload)
            if _registry.is_settled(handle):
                self.__dict__[name] = handle
            return handle

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the overload that the arguments fit."""
        return self.torch_packet(*args, **kwargs)

    def __iter__(self) -> Iterator[Handle[Any]]:
        live = set(private.live_overload_names(self.qualified_name))
        index = _registry.spec_index(self._namespace)
        unregistered_too = index is not None and index.torch is None
        for overload in self.overloads():
            if unregistered_too or (overload if overload != "default" else "") in live:
                yield _registry.handle_named(f"{self.qualified_name}.{overload}")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self.overloads()})

    def __repr__(self) -> str:
        return f"<OpPacket {self._namespace}.{self._base}>"

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return _packet, (self._namespace, self._base)


class OpNamespace:
    """A namespace of operators, `ops.aten`. Iterating gives its operators."""

    def __init__(self, name: str) -> None:
        """Make a namespace; `ops` does."""
        self._name = name

    if not TYPE_CHECKING:  # as in OpPacket

        def __getattr__(self, name: str) -> Any:
            namespace = self._name
            if _is_tracing():
                return find_place(f"{namespace}/{name}")
            if namespace == HIGHER_ORDER and name in private.higher_order_operators():
                return _registry.handle_named(f"{namespace}::{name}")
            if not _registry.overload_names(namespace, name):
                if _is_probe(name):
                    raise AttributeError(f"{self!r} has no attribute {name!r}")
                raise _registry.unknown(namespace, name, "")
            # setdefault, so that two threads get the same object
            return self.__dict__.setdefault(name, OpPacket(namespace, name))

    def __iter__(self) -> Iterator[Any]:
        for base in sorted(_registry.base_names(self._name)):
            yield getattr(self, base)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *_registry.base_names(self._name)})

    def __repr__(self) -> str:
        return f"<OpNamespace {self._name}>"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _namespace, (self._name,)


class Ops:
    """The root of the tree. Iterating gives its namespaces."""

    # A namespace that no spec describes has operators all the same; checkers know none of them.
    def __getattr__(self, name: str) -> Any:
        if _is_probe(name):
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        if _is_tracing():
            return find_place(name)
        if name not in _registry.spec_namespaces() and not _registry.is_namespace(name):
            near = near_matches(name, _registry.namespaces())
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UnknownOperatorError(
                f"no operators are registered in the namespace {name!r}{hint}",
                qualified_name=f"{name}::",
                suggestions=near,
            )
        namespace: OpNamespace = self.__dict__.setdefault(name, OpNamespace(name))
        return namespace

    def __iter__(self) -> Iterator[OpNamespace]:
        for name in sorted(_registry.namespaces()):
            yield getattr(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *_registry.namespaces()})

    def __repr__(self) -> str:
        return "<dispatch_core.ops>"

    def __reduce__(self) -> str:
        return "ops"


if TYPE_CHECKING:
    ops: TypedOps
else:
    ops = Ops()


def _namespace(name: str) -> OpNamespace:
    namespace: OpNamespace = getattr(ops, name)
    return namespace


def _packet(namespace: str, base: str) -> Any:
    return getattr(getattr(ops, namespace), base)
