"""The handle of one operator overload: what the specs know of it, and how to use it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import torch

from dispatch_core import _torch_private as private
from dispatch_core._errors import NotRegisteredError, SchemaDriftError
from dispatch_core._schema import (
    Argument,
    Schema,
    gives_view,
    is_shortened,
    read_schema,
    split_name,
)
from dispatch_core._stub import StubRecord

if TYPE_CHECKING:
    from dispatch_core._elide import Elide

__all__ = ["Facts", "Handle", "Param"]

H = TypeVar("H")

_is_tracing = torch.compiler.is_dynamo_compiling


@dataclass(frozen=True)
class Param:
    """One parameter of an overload.

    `type` is torch's own, without alias annotation ('SymInt[2]', 'Tensor?'); `alias` is the text
    between its parentheses ('a!'). `default` is a real Python value (torch.int64, a list); it
    means nothing where `required` is True.
    """

    name: str
    type: str
    kwarg_only: bool
    alias: str | None
    mutated: bool
    required: bool
    default: object = field(hash=False)


@dataclass(frozen=True)
class Facts:
    """What an operator does beyond computing its results.

    `view` says that a result may share memory with a parameter that is not written to, `mutates`
    names the parameters that may be, also where the schema does not say so, as of the statistics
    of a batch norm. `reads_data` says whether the values of a tensor decide what happens: 'always',
    or depending on an argument.
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


class _Signature:
    """Give a handle's signature to `inspect` and to shells; the class keeps its own."""

    def __get__(self, handle: Handle[Any] | None, owner: type) -> inspect.Signature:
        if handle is None:
            raise AttributeError("__signature__")
        return handle._find_signature()


def _for_trace(handle: Handle[Any], part: str) -> Any:
    from dispatch_core._tracing import find_part

    return find_part(handle, part)


def _default_value(argument: Argument) -> object:
    # Another object than the one that bind fills in, where elide tells them apart.
    # A list is the reader's own: changing it changes nothing that elide compares with.
    if isinstance(argument.default, list):
        return list(argument.default)
    if argument.default is argument.written_default:
        return argument.default
    if isinstance(argument.default, torch.device):
        return torch.device(argument.default)
    return float(str(argument.written_default))


class Handle(Generic[H]):
    """One overload of an operator: callable, with its schema, and able to bind and elide.

    Handles are equal to their torch operator and hash as it does, so a dict takes either. There
    is one handle for an overload; get it from `ops` or `handle_of`. The type parameter is the
    signature of a function that handles the operator.

    Attributes:
        qualified_name: 'aten::addmv', 'aten::addmv.out'.
        schema: the schema as torch prints it.
        from_spec: whether the specs say what the installed torch has.
        drift: what differs between the two, None where nothing does.
    """

    __slots__ = (
        "__weakref__",
        "_call",
        "_elide",
        "_facts",
        "_hash",
        "_params",
        "_parsed",
        "_record",
        "_stub",
        "_torch_op",
        "drift",
        "from_spec",
        "qualified_name",
        "schema",
    )

    qualified_name: str
    schema: str
    from_spec: bool
    drift: str | None

    __signature__ = _Signature()

    def __init__(
        self,
        schema: str,
        *,
        record: StubRecord | None = None,
        from_spec: bool = False,
        drift: str | None = None,
    ) -> None:
        """Make a handle; `ops` and `handle_of` do, and keep it unique."""
        self.qualified_name = schema[: schema.index("(")]
        self.schema = schema
        self.from_spec = from_spec
        self.drift = drift
        self._record = record
        self._torch_op: Any = None
        self._hash: int | None = None
        self._parsed: Schema | None = None
        self._params: tuple[Param, ...] | None = None
        self._facts: Facts | None = None
        self._elide: Elide = self._first_elide
        self._call: Callable[..., Any] = self._first_call
        self._stub: Callable[..., dict[str, Any]] = self._first_bind

    # ── the schema ──────────────────────────────────────────────────────────────────────────────

    @property
    def params(self) -> tuple[Param, ...]:
        """Give the parameters in schema order. A default that is a list is a fresh one."""
        if _is_tracing():
            return cast(tuple[Param, ...], _for_trace(self, "params"))
        if self._params is None:
            params = tuple(
                Param(
                    name=argument.name,
                    type=argument.type,
                    kwarg_only=argument.kwarg_only,
                    alias=argument.alias,
                    mutated="!" in (argument.alias or ""),
                    required=not argument.has_default,
                    default=_default_value(argument),
                )
                for argument in self._read().arguments
            )
            if any(isinstance(param.default, list) for param in params):
                return params
            self._params = params
        return self._params

    @property
    def returns(self) -> tuple[str, ...]:
        """Give the types of the results, as the schema writes them: ('Tensor(a!)',)."""
        if _is_tracing():
            return cast(tuple[str, ...], _for_trace(self, "returns"))
        return self._read().returns

    @property
    def tags(self) -> frozenset[str]:
        """Give the names of the operator's tags: {'core', 'pointwise', 'pt2_compliant_tag'}."""
        if self.from_spec and self._record is not None:
            return frozenset(self._record.tags.split())
        return frozenset(tag.name for tag in getattr(self.torch_op, "tags", ()))

    @property
    def facts(self) -> Facts:
        """Give what the operator does beyond computing its results."""
        if _is_tracing():
            return cast(Facts, _for_trace(self, "facts"))
        if self._facts is None:
            self._facts = self._make_facts()
        return self._facts

    def _read(self) -> Schema:
        if self._parsed is None:
            parsed = read_schema(self.schema)
            if any(map(is_shortened, parsed.arguments)):
                parsed = self._with_whole_lists(parsed)
            self._parsed = parsed
        return self._parsed

    def _with_whole_lists(self, schema: Schema) -> Schema:
        """Ask torch for the defaults whose text leaves open how long the list is."""
        namespace, base, overload = split_name(self.qualified_name)
        whole = private.live_defaults(f"{namespace}::{base}", overload)

        def mend(argument: Argument) -> Argument:
            if not is_shortened(argument):
                return argument
            default = whole.get(argument.name, [argument.default])
            return replace(argument, default=default, written_default=default)

        return replace(schema, arguments=tuple(map(mend, schema.arguments)))

    def _make_facts(self) -> Facts:
        base = self._read().base
        written = [param for param in self.params if param.mutated]
        out = any(param.kwarg_only for param in written)
        dunder = base.startswith("__") and base.endswith("__")
        named_inplace = base.startswith("__i") if dunder else base.endswith("_")
        record = self._record
        also = record.also_writes.split() if record is not None else []
        tags = self.tags
        reads_data: Any = "always" if "data_dependent_output" in tags else "no"
        output_shape: Any = "dynamic" if "dynamic_output_shape" in tags else "static"
        composite: Any
        if record is not None:
            composite = record.composite
            random = record.random or "nondeterministic_seeded" in tags
            reads_data = record.reads_data if record.reads_data != "no" else reads_data
            output_shape = record.output_shape if record.output_shape != "static" else output_shape
        else:
            composite = self._live_composite()
            random = "nondeterministic_seeded" in tags
        return Facts(
            family=record.family if record is not None else "",
            view=gives_view(self._read()),
            inplace=bool(written) and not out and named_inplace,
            out=out,
            mutates=tuple(
                param.name for param in self.params if param.mutated or param.name in also
            ),
            composite=composite,
            random=random,
            reads_data=reads_data,
            output_shape=output_shape,
        )

    def _live_composite(self) -> str:
        if private.has_kernel(self.qualified_name, "CompositeImplicitAutograd"):
            return "implicit"
        for key in ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"):
            if private.has_kernel(self.qualified_name, key):
                return "explicit"
        return "no"

    # ── the operator ────────────────────────────────────────────────────────────────────────────

    @property
    def torch_op(self) -> Any:
        """Give torch's own object for this overload.

        Raises: NotRegisteredError if nobody has defined it in torch yet; SchemaDriftError if it
        has been defined since with another schema.
        """
        if _is_tracing():
            _for_trace(self, "_try_to_resolve")
        if self._torch_op is None:
            self._resolve()
        return self._torch_op

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the operator."""
        if _is_tracing():  # Dynamo knows OpOverloads, not what they end in
            return self.torch_op(*args, **kwargs)
        return self._call(*args, **kwargs)

    def _first_call(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.torch_op(*args, **kwargs)

    def _try_to_resolve(self) -> None:
        with suppress(NotRegisteredError, SchemaDriftError):  # the call that follows says so
            hash(self)

    def _resolve(self) -> None:
        namespace, base, overload = split_name(self.qualified_name)
        live = private.live_schema(f"{namespace}::{base}", overload)
        if live is None:
            raise NotRegisteredError(
                f"{self.qualified_name} is not registered in torch: call "
                f"dispatch_core.define({namespace!r}) to define the operators of its specs, or "
                "import the library that does.",
                qualified_name=self.qualified_name,
            )
        if live != self.schema and read_schema(live) != read_schema(self.schema):
            raise SchemaDriftError(
                f"{self.qualified_name} was registered with another schema than this handle has.\n"
                f"  handle:     {self.schema}\n"
                f"  registered: {live}",
                qualified_name=self.qualified_name,
                spec_schema=self.schema,
                live_schema=live,
            )
        packet = getattr(getattr(torch.ops, namespace), base)
        op = getattr(packet, overload or "default")
        self._call = private.fast_call(op)
        self._torch_op = op

    # ── arguments ───────────────────────────────────────────────────────────────────────────────

    def bind(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, /
    ) -> dict[str, Any]:
        """Give every parameter by its schema name, in schema order, defaults filled in.

        A default that is a list is a fresh list each time.

        Raises: BindError (a TypeError) if an argument is missing, unknown, given twice, or one
        too many.
        """
        try:
            if kwargs:
                return self._stub(*args, **kwargs)
            return self._stub(*args)
        except TypeError as error:
            from dispatch_core import _bind_errors

            raise _bind_errors.explain(self, args, kwargs or {}, error) from None

    def _first_bind(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if _is_tracing():
            stub: Callable[..., dict[str, Any]] = _for_trace(self, "_find_stub")
        else:
            self._stub = stub = self._find_stub()
        return stub(*args, **kwargs)

    def _find_signature(self) -> inspect.Signature:
        return inspect.signature(self._find_stub())

    def _find_stub(self) -> Callable[..., dict[str, Any]]:
        from dispatch_core._runtime_stub import accept_schema_names, make_stub

        schema = self._read()
        if (
            self.from_spec
            and self._record is not None
            and all(argument.default is argument.written_default for argument in schema.arguments)
        ):
            stub = self._record.function
        else:
            stub = make_stub(schema)
        return accept_schema_names(stub, schema)

    def elide(self, values: Mapping[str, Any], /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the args and kwargs that torch hands to `__torch_dispatch__` for these values.

        `values` is a mapping as `bind` gives. Values come out in the schema's types, as torch
        converts them; trailing positional ones and keyword-only ones that equal their default
        are left out. Symbolic numbers are never compared, so no guard arises.

        Raises: BindError (a TypeError) if `values` lacks a parameter or has one too many.
        """
        return self._elide(values)

    def _first_elide(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if _is_tracing():
            made: Elide = _for_trace(self, "_find_elide")
        else:
            self._elide = made = self._find_elide()
        return made(values)

    def _find_elide(self) -> Elide:
        from dispatch_core._elide import make_elide  # which not every program needs

        return make_elide(self._read())

    # ── the object ──────────────────────────────────────────────────────────────────────────────

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, private.OP_OVERLOAD):
            named_alike = private.overload_name(other) == self.qualified_name
            return named_alike and other is self.torch_op
        return NotImplemented

    def __hash__(self) -> int:
        known = self._hash
        if known is None:
            known = self._hash = hash(self.torch_op)
        return known

    def __repr__(self) -> str:
        namespace, base, overload = split_name(self.qualified_name)
        return f"<Handle {namespace}.{base}.{overload or 'default'}>"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        from dispatch_core._registry import handle_named

        return handle_named, (self.qualified_name,)

    def __copy__(self) -> Handle[H]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Handle[H]:
        return self
