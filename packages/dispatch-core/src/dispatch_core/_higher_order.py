"""Handles of higher-order operators (cond, while_loop, …), which have no schema."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from dispatch_core._errors import BindError
from dispatch_core._handle import Facts, Handle, Param

__all__ = ["HIGHER_ORDER", "HigherOrderHandle"]

HIGHER_ORDER = "higher_order"
_REQUIRED = inspect.Parameter.empty


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
