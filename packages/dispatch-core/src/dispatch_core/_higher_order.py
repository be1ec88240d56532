"""Higher-order operators (cond, while_loop, …): handles without a schema, and who answers them.

Torch asks tensor subclasses for no answer to them, but looks for a rule in the operator's own
table, by the exact class. Those of our tables' classes are put there, to be asked like any other.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._errors import BindError
from dispatch_core._handle import Facts, Handle, Param
from dispatch_core._honest import answering, ask_classes, class_order, nobody_took

__all__ = ["HIGHER_ORDER", "HigherOrderHandle", "let_classes_answer"]

HIGHER_ORDER = "higher_order"
_REQUIRED = inspect.Parameter.empty


def let_classes_answer() -> None:
    """Let classes with a table be asked for the higher-order operators that there are now."""
    for op in private.higher_order_operators().values():
        rules = private.higher_order_rules(op)
        if type(rules) is not _Rules:
            private.set_higher_order_rules(op, _Rules(op, rules))


class _Rules(dict[Any, Callable[..., Any]]):
    """An operator's rules by class, of modes and tensors, and one for each class with a table."""

    def __init__(self, op: Any, rules: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__(rules)
        self._op = op

    def __contains__(self, cls: object) -> bool:
        if super().__contains__(cls):
            return True
        # Only for torch's look for a rule: whoever registers one asks too whether there is any.
        return _has_table(cls) and sys._getframe(1).f_code is private.HIGHER_ORDER_DISPATCH

    def __missing__(self, cls: Any) -> Callable[..., Any]:
        if not _has_table(cls):
            raise KeyError(cls)
        return functools.partial(_ask, self._op)


def _has_table(cls: Any) -> bool:
    from dispatch_core._table import HandlerTable

    if not isinstance(cls, type) or not issubclass(cls, torch.Tensor) or not answering((cls,)):
        return False
    return any(
        isinstance(value, HandlerTable) for base in cls.__mro__ for value in vars(base).values()
    )


def _ask(op: Any, /, *args: Any, **kwargs: Any) -> Any:
    order = class_order([type(t) for t in private.higher_order_arguments(op, args, kwargs)])
    ours = [cls for cls in order if _has_table(cls)]
    result = ask_classes(op, ours, order, args, kwargs)
    if result is NotImplemented and len(ours) == len(order):
        raise nobody_took(op, order)
    return result


class HigherOrderHandle(Handle[Any]):
    """The handle of a higher-order operator.

    It is a key like any other handle, and callable. It binds by the signature of the operator's
    own `__call__`; an operator that takes just anything cannot be bound.
    """

    __slots__ = ("_signature",)

    def __init__(self, op: Any) -> None:
        """Make the handle of one of torch's higher-order operators."""
        super().__init__(
            f"{HIGHER_ORDER}::{op.name()}(...) -> ...",
            drift="a higher-order operator: it has no schema",
        )
        self._torch_op = op
        self._call = op
        parameters = [
            parameter
            for parameter in inspect.signature(type(op).__call__).parameters.values()
            if parameter.name != "self"
        ]
        fixed = all(
            parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            for parameter in parameters
        )
        self._signature = inspect.Signature(parameters) if fixed else None

    @property
    def params(self) -> tuple[Param, ...]:
        """Give the parameters of the operator's own signature; none if it takes anything."""
        if self._signature is None:
            return ()
        return tuple(
            Param(
                name=parameter.name,
                type="Any",
                kwarg_only=parameter.kind is parameter.KEYWORD_ONLY,
                alias=None,
                mutated=False,
                required=parameter.default is _REQUIRED,
                default=None if parameter.default is _REQUIRED else parameter.default,
            )
            for parameter in self._signature.parameters.values()
        )

    @property
    def returns(self) -> tuple[str, ...]:
        """Give nothing: the results depend on the functions passed."""
        return ()

    @property
    def tags(self) -> frozenset[str]:
        """Give nothing: higher-order operators carry no tags."""
        return frozenset()

    @property
    def facts(self) -> Facts:
        """Give facts that claim nothing."""
        return Facts(
            family=HIGHER_ORDER,
            view=False,
            inplace=False,
            out=False,
            mutates=(),
            composite="no",
            random=False,
            reads_data="no",
            output_shape="static",
        )

    def _find_signature(self) -> inspect.Signature:
        return self._signature or inspect.signature(lambda *args, **kwargs: None)

    def bind(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, /
    ) -> dict[str, Any]:
        """Bind by the signature of the operator's own `__call__`.

        Raises: BindError if it does not fit, or if that signature takes anything.
        """
        if self._signature is None:
            raise self._fault("takes any arguments, so they have no names to bind to")
        try:
            bound = self._signature.bind(*args, **(kwargs or {}))
        except TypeError as error:
            raise self._fault(f"{error}; the signature is {self._signature}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def elide(self, values: Mapping[str, Any], /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the values back as a call; nothing is left out, as torch leaves nothing out.

        Raises: BindError if the operator takes anything, or a name does not fit.
        """
        if self._signature is None:
            raise self._fault("takes any arguments, so they have no names to elide by")
        if values.keys() != self._signature.parameters.keys():
            raise self._fault(
                f"expected values for {', '.join(self._signature.parameters)}, "
                f"got {', '.join(values)}"
            )
        kwargs = {
            name: values[name]
            for name, parameter in self._signature.parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        return tuple(value for name, value in values.items() if name not in kwargs), kwargs

    def __eq__(self, other: object) -> bool:
        return self is other or other is self._torch_op

    def __hash__(self) -> int:
        return hash(self._torch_op)

    def __repr__(self) -> str:
        return f"<Handle {self.qualified_name.replace('::', '.')}>"

    def _fault(self, text: str) -> BindError:
        return BindError(
            f"{self.qualified_name}: {text}",
            qualified_name=self.qualified_name,
            argument=None,
            problem="unsupported",
        )
