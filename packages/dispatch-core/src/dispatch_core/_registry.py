"""Find and keep the one handle of each overload, from the specs and from torch's own registry."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._describe import an
from dispatch_core._errors import (
    NotAnOperatorError,
    SchemaDriftError,
    UnknownOperatorError,
    near_matches,
)
from dispatch_core._handle import Handle
from dispatch_core._higher_order import HIGHER_ORDER, HigherOrderHandle
from dispatch_core._schema import read_schema, split_name
from dispatch_core._stub import OVERLOADS, STUBS, StubRecord

__all__ = [
    "base_names",
    "handle_named",
    "handle_of",
    "is_namespace",
    "is_settled",
    "namespaces",
    "overload_names",
    "spec_index",
    "spec_namespaces",
    "typed_handle",
    "unknown",
]

_is_tracing = torch.compiler.is_dynamo_compiling
_GENERATED = "dispatch_core._generated"
_lock = threading.RLock()
_handles: dict[str, Handle[Any]] = {}
_by_op: dict[Any, Handle[Any]] = {}
_broken: dict[str, tuple[str, str]] = {}
_indexes: dict[str, SpecIndex | None] = {}


class SpecIndex:
    """Which family file has which operators of one namespace.

    `torch` is the version that the specs were imported from, None for a namespace of the user's
    own, whose operators need not be registered.
    """

    def __init__(self, namespace: str, torch_version: str | None, families: dict[str, str]) -> None:
        self.namespace = namespace
        self.torch = torch_version
        self.families = families
        self.family_of = {
            base: family for family, bases in families.items() for base in bases.split()
        }

    def load(self, family: str) -> None:
        """Import the stubs of one family."""
        importlib.import_module(f"{_GENERATED}.{self.namespace}.{family}")


# ── what the specs have ─────────────────────────────────────────────────────────────────────────


def spec_namespaces() -> tuple[str, ...]:
    """List the namespaces that the specs have."""
    names: tuple[str, ...] = importlib.import_module(f"{_GENERATED}._index").NAMESPACES
    return names


def spec_index(namespace: str) -> SpecIndex | None:
    """Give the index of a namespace, None if the specs lack it."""
    try:
        return _indexes[namespace]
    except KeyError:
        pass
    index = None
    if namespace in spec_namespaces():
        module = importlib.import_module(f"{_GENERATED}.{namespace}._index")
        index = SpecIndex(namespace, module.TORCH, module.FAMILIES)
    return _indexes.setdefault(namespace, index)


def spec_overloads(namespace: str, base: str) -> list[str]:
    """List the overloads that the specs have of an operator; imports its family."""
    index = spec_index(namespace)
    family = index.family_of.get(base) if index is not None else None
    if index is None or family is None:
        return []
    index.load(family)
    return OVERLOADS.get(f"{namespace}::{base}", [])


def _spec_record(qualified_name: str) -> StubRecord | None:
    namespace, base, overload = split_name(qualified_name)
    if overload in spec_overloads(namespace, base):
        return STUBS[qualified_name]
    return None


# ── what there is at all ────────────────────────────────────────────────────────────────────────


def namespaces() -> set[str]:
    """List the namespaces of the specs and of torch's registry."""
    live = {name.partition("::")[0] for name in private.all_operator_names()}
    return live | set(spec_namespaces()) | {HIGHER_ORDER}


def is_namespace(name: str) -> bool:
    """Say whether there are operators in a namespace, if only such as TorchScript knows (prim)."""
    return name in namespaces() or name in private.script_namespaces()


def base_names(namespace: str) -> set[str]:
    """List the operators of a namespace: torch's, and those of specs that are to be defined."""
    index = spec_index(namespace)
    names = set(index.family_of) if index is not None and index.torch is None else set()
    if namespace == HIGHER_ORDER:
        names |= set(private.higher_order_operators())
    prefix = namespace + "::"
    for name in private.all_operator_names():
        if name.startswith(prefix):
            names.add(name[len(prefix) :].partition(".")[0])
    return names


def overload_names(namespace: str, base: str) -> list[str]:
    """List an operator's overloads, '' for the default one, those of the specs first."""
    live = private.live_overload_names(f"{namespace}::{base}")
    return list(dict.fromkeys([*spec_overloads(namespace, base), *live]))


# ── handles ─────────────────────────────────────────────────────────────────────────────────────


def handle_of(op: Any) -> Handle[Any]:
    """Give the handle of an operator, however it is named.

    Takes an OpOverload, a name ('aten::addmv.out', 'aten.addmv.out'), a packet or a name without
    overload where there is only one, a higher-order operator, what torch.library.custom_op makes,
    and a handle itself. An overload that the specs lack, or have with another schema than the
    installed torch, gets a handle from torch's own schema; its `drift` says so.

    Raises: UnknownOperatorError if nothing has that name, or several overloads do;
    SchemaDriftError if the specs have it and the installed torch does not; NotAnOperatorError (a
    TypeError) for anything that names no operator.
    """
    if isinstance(op, Handle):
        return op
    if _is_tracing():
        from dispatch_core._tracing import find_handle

        return find_handle(op)
    if isinstance(op, str):
        return handle_named(op)
    try:
        return _by_op[op]
    except (KeyError, TypeError):
        pass
    with _lock:
        if isinstance(op, private.OP_OVERLOAD):
            handle = _by_op[op] = _handle_of_overload(op)
            return handle
        if isinstance(op, private.HIGHER_ORDER_OPERATOR):
            handle = _by_op[op] = _higher_order_handle(op)
            return handle
    if isinstance(op, private.CUSTOM_OPERATOR):
        return handle_of(private.overload_of(op))
    packet = None
    if isinstance(op, private.OP_OVERLOAD_PACKET):
        packet = private.packet_name(op)
    elif isinstance(getattr(op, "torch_packet", None), private.OP_OVERLOAD_PACKET):
        packet = op.qualified_name
    if packet is not None:
        return _only_overload(packet)
    raise _no_operator(op)


def _only_overload(packet: str) -> Handle[Any]:
    namespace, base, _ = split_name(packet)
    overloads = overload_names(namespace, base)
    if len(overloads) != 1:
        shown = tuple(name or "default" for name in overloads)
        raise UnknownOperatorError(
            f"{packet} has {len(shown)} overloads, say which one: {', '.join(shown)}",
            qualified_name=packet,
            suggestions=shown,
        )
    return _get(namespace, base, overloads[0])


def handle_named(name: str) -> Handle[Any]:
    """Give the handle for a name: 'aten::addmv.out', 'aten.addmv.out', 'aten::addmv'."""
    namespace, base, overload = _parse(name)
    if namespace == HIGHER_ORDER:
        operator = private.higher_order_operators().get(base)
        if operator is None:
            raise unknown(namespace, base, overload)
        return handle_of(operator)
    if not overload and not name.endswith(".default"):
        overloads = overload_names(namespace, base)
        if "" not in overloads:
            if len(overloads) != 1:
                raise unknown(namespace, base, overload)
            overload = overloads[0]
    return _get(namespace, base, overload)


def typed_handle(namespace: str, base: str, overload: str) -> Handle[Any]:
    """Give the handle for `ops.<namespace>.<base>.<overload>`.

    Raises: SchemaDriftError if the installed torch has it changed so that callers break.
    """
    handle = _get(namespace, base, overload)
    broken = _broken.get(handle.qualified_name)
    if broken is not None:
        raise _drift_error(handle.qualified_name, *broken, detail=handle.drift)
    return handle


def _get(namespace: str, base: str, overload: str) -> Handle[Any]:
    qualified_name = f"{namespace}::{base}" + (f".{overload}" if overload else "")
    handle = _handles.get(qualified_name)
    if handle is not None and not _is_stale(handle):
        return handle
    with _lock:
        handle = _handles.get(qualified_name)
        if handle is None or _is_stale(handle):
            handle = _handles[qualified_name] = _make(namespace, base, overload)
        return handle


def _make(namespace: str, base: str, overload: str) -> Handle[Any]:
    qualified_name = f"{namespace}::{base}" + (f".{overload}" if overload else "")
    record = _spec_record(qualified_name)
    live = private.live_schema(f"{namespace}::{base}", overload)
    _broken.pop(qualified_name, None)
    if record is None:
        if live is None:
            raise unknown(namespace, base, overload)
        return Handle(live, drift="the specs do not have it; this is torch's own schema")
    if live is None:
        index = spec_index(namespace)
        if index is not None and index.torch is not None:
            raise _drift_error(qualified_name, record.schema, None)
        return Handle(record.schema, record=record, from_spec=True)
    if live == record.schema or read_schema(live) == read_schema(record.schema):
        return Handle(live, record=record, from_spec=True)
    from dispatch_core._drift import compare  # on the torch of the specs, nothing differs

    differences = compare(read_schema(record.schema), read_schema(live))
    if any(difference.breaks for difference in differences):
        _broken[qualified_name] = (record.schema, live)
    text = "; ".join(difference.text for difference in differences) or "written differently"
    return Handle(live, record=record, drift=f"{text} (compared with the specs)")


def _handle_of_overload(op: Any) -> Handle[Any]:
    namespace, base, overload = split_name(private.overload_name(op))
    handle = _get(namespace, base, overload)
    if handle.torch_op is not op:  # the same name registered anew
        with _lock:
            handle = _handles[handle.qualified_name] = _make(namespace, base, overload)
    return handle


def _higher_order_handle(op: Any) -> Handle[Any]:
    handle = HigherOrderHandle(op)
    return _handles.setdefault(handle.qualified_name, handle)


def is_settled(handle: Handle[Any]) -> bool:
    """Say whether the operator comes with torch, so that nobody takes it back."""
    index = spec_index(split_name(handle.qualified_name)[0])
    return index is not None and index.torch is not None


def _is_stale(handle: Handle[Any]) -> bool:
    """Say whether a library's operator was taken back, or registered anew, since."""
    op = handle._torch_op
    if op is None or is_settled(handle):
        return False
    namespace, base, overload = split_name(handle.qualified_name)
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload or "default", None) is not op


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


def _parse(name: str) -> tuple[str, str, str]:
    text = name.removeprefix("torch.ops.").removeprefix("ops.")
    if "::" in text:
        namespace, base, overload = split_name(text)
    else:
        namespace, _, rest = text.partition(".")
        base, _, overload = rest.partition(".")
    if not namespace or not base or text.endswith("."):
        raise UnknownOperatorError(
            f"{name!r} is no name of an operator; write 'aten::addmv' or 'aten::addmv.out'",
            qualified_name=name,
        )
    return namespace, base, "" if overload == "default" else overload


def _no_operator(op: Any) -> NotAnOperatorError:
    name = getattr(op, "__name__", None)
    if isinstance(op, list | tuple | set | frozenset):
        remedy = "; give several operators as arguments of their own"
    elif isinstance(name, str) and callable(op) and base_names("aten") & {name}:
        remedy = f"; the operator of that name is ops.aten.{name}"
    elif isinstance(op, private.OP_NAMESPACE) or type(op).__name__ == "OpNamespace":
        remedy = "; name an operator of this namespace"
    else:
        remedy = ""
    return NotAnOperatorError(
        f"expected an operator of torch.ops or its name, not {an(type(op).__name__)}: "
        f"{op!r}{remedy}",
        value=op,
    )


def unknown(namespace: str, base: str, overload: str) -> UnknownOperatorError:
    asked = f"{namespace}::{base}" + (f".{overload}" if overload else "")
    if not is_namespace(namespace):
        near = near_matches(namespace, namespaces())
        return UnknownOperatorError(
            f"no operators are registered in the namespace {namespace!r}{_hint(near)}",
            qualified_name=asked,
            suggestions=near,
        )
    overloads = overload_names(namespace, base)
    if not overloads:
        near = near_matches(base, base_names(namespace))
        return UnknownOperatorError(
            f"{namespace} has no operator {base!r}{_hint(near)}",
            qualified_name=asked,
            suggestions=near,
        )
    shown = [name or "default" for name in overloads]
    near = near_matches(overload or "default", shown)
    return UnknownOperatorError(
        f"{namespace}::{base} has no overload {overload or 'default'!r}; it has {', '.join(shown)}",
        qualified_name=asked,
        suggestions=near or tuple(shown),
    )


def _hint(near: tuple[str, ...]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _drift_error(
    qualified_name: str, spec: str, live: str | None, *, detail: str | None = None
) -> SchemaDriftError:
    index = spec_index(split_name(qualified_name)[0])
    written_for = f"torch {index.torch}" if index is not None and index.torch else "the specs"
    if live is None:
        what = f"{qualified_name} is gone from torch {torch.__version__}."
    else:
        what = f"{qualified_name} has another schema in torch {torch.__version__}: {detail}."
    return SchemaDriftError(
        f"{what}\n  {written_for}: {spec}\n  torch {torch.__version__}: {live or '(none)'}\n"
        "Use handle_of(...) to go by the installed torch's schema, or update the specs with "
        "`opspec import` and `nox -s codegen`.",
        qualified_name=qualified_name,
        spec_schema=spec,
        live_schema=live,
    )
