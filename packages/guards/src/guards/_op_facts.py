"""What an operator does that a front end must guard or refuse."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from guards._constants import spell
from guards._errors import UnknownOperatorError

if TYPE_CHECKING:
    from torch._ops import OpOverload

__all__ = ["OpFacts", "facts"]


@dataclass(frozen=True)
class OpFacts:
    """What one overload does beyond computing its results.

    Attributes:
        family: the group the operator is specified in; empty where it is not known.
        view: a result shares memory with an argument that is not written.
        inplace: it writes its first argument and gives it back.
        out: it writes its results into arguments given for that.
        mutates: the names of all arguments that it writes.
        composite: whether it is made of other operators, with ('explicit') or without
            ('implicit') a derivative of its own.
        random: it draws random numbers.
        reads_data: whether values decide what happens: 'always', or depending on an argument.
        output_shape: 'dynamic' where the shape of a result depends on values.
        known: whether the operator is in the specs; False means that the facts were read off its
            schema and tags.
    """

    family: str
    view: bool
    inplace: bool
    out: bool
    mutates: tuple[str, ...]
    composite: Literal["implicit", "explicit", "no"]
    random: bool
    reads_data: Literal["no", "always", "by_argument"]
    output_shape: Literal["static", "dynamic"]
    known: bool


def facts(op: OpOverload[..., Any] | str) -> OpFacts:
    """Tell what an overload does: ``facts(torch.ops.aten.add_.Tensor)``, ``facts('aten::item')``.

    An operator that the specs lack gets what its schema and its tags say, and ``known`` False.

    Raises:
        UnknownOperatorError: torch has no such operator.
    """
    name = op if isinstance(op, str) else _name_of(op)
    return _facts(name.removesuffix(".default") if "::" in name else name)


def _name_of(op: Any) -> str:
    if isinstance(op, torch._ops.OpOverload):
        return cast(str, op.name())
    qualified = getattr(op, "qualified_name", None)  # a handle of dispatch_core
    if isinstance(qualified, str):
        return qualified
    if isinstance(op, torch._ops.OpOverloadPacket):
        names = op.overloads()
        raise UnknownOperatorError(
            f"{op} has {len(names)} overloads; name one of them: {', '.join(names)}"
        )
    if isinstance(op, torch._ops.HigherOrderOperator):
        return f"higher_order::{op.name()}"
    raise UnknownOperatorError(f"an operator or its name was expected, got {spell(op)}")


_TAGS = {
    "random": ("nondeterministic_seeded", True),
    "reads_data": ("data_dependent_output", "always"),
    "output_shape": ("dynamic_output_shape", "dynamic"),
}
_DEFAULTS: dict[str, Any] = {
    "view": False,
    "inplace": False,
    "out": False,
    "mutates": (),
    "composite": "no",
    "random": False,
    "reads_data": "no",
    "output_shape": "static",
}


@lru_cache(maxsize=8192)
def _facts(name: str) -> OpFacts:
    family, said = _from_specs(name)
    if said is not None:
        return OpFacts(**{**_DEFAULTS, **said}, family=family, known=True)
    if name.startswith("higher_order::"):
        return OpFacts(**_DEFAULTS, family="higher_order", known=False)
    return _from_torch(name)


@lru_cache(maxsize=64)
def _families(namespace: str) -> dict[str, str]:
    """Give the family of each base name of a namespace, as generated from the specs."""
    from guards._generated._index import NAMESPACES

    if namespace not in NAMESPACES:
        return {}
    index = importlib.import_module(f"guards._generated.{namespace}._index")
    return {base: family for family, bases in index.FAMILIES.items() for base in bases.split()}


def _from_specs(name: str) -> tuple[str, dict[str, Any] | None]:
    namespace, _, rest = name.partition("::")
    family = _families(namespace).get(rest.partition(".")[0])
    if family is None:
        return "", None
    table = importlib.import_module(f"guards._generated.{namespace}.{family}").FACTS
    return family, table.get(name)


def _from_torch(name: str) -> OpFacts:
    base, _, overload = name.partition(".")
    namespace, _, short = base.partition("::")
    try:
        op = getattr(getattr(getattr(torch.ops, namespace), short), overload or "default")
        schema = op._schema
    except (AttributeError, RuntimeError):
        raise UnknownOperatorError(
            f"torch {torch.__version__} has no operator {name!r}; "
            "write it as namespace::operator.overload"
        ) from None
    aliased = [a for a in schema.arguments if a.alias_info is not None]
    written = [a for a in aliased if a.alias_info.is_write]
    out = any(a.kwarg_only for a in written)
    tags = {tag.name for tag in op.tags}
    said: dict[str, Any] = {
        **_DEFAULTS,
        **{key: value for key, (tag, value) in _TAGS.items() if tag in tags},
        "view": _gives_view(schema),
        "inplace": bool(written) and not out and _is_inplace_name(short),
        "out": out,
        "mutates": tuple(a.name for a in written),
        "composite": _composite(name),
    }
    return OpFacts(**said, family="", known=False)


def _gives_view(schema: Any) -> bool:
    arguments = [a.alias_info for a in schema.arguments if a.alias_info is not None]
    written = {name for alias in arguments if alias.is_write for name in alias.before_set}
    results = [r.alias_info for r in schema.returns if r.alias_info is not None]
    # torch gives an empty set for `(*)`, which may share with anything.
    sets = [alias.before_set or {"*"} for alias in results if not alias.is_write]
    return any(names - written for names in sets)


def _is_inplace_name(short: str) -> bool:
    if short.startswith("__") and short.endswith("__"):
        return short.startswith("__i")
    return short.endswith("_")


def _composite(name: str) -> str:
    keys = {
        "CompositeImplicitAutograd": "implicit",
        "CompositeExplicitAutograd": "explicit",
        "CompositeExplicitAutogradNonFunctional": "explicit",
    }
    try:
        for key, kind in keys.items():
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
                return kind
    except RuntimeError:  # known to TorchScript only
        pass
    return "no"
