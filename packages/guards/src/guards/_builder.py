"""The builder: what turns guards into checks, with one create function for each kind of guard."""

from __future__ import annotations

import types
import weakref
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch

from guards import _fetch
from guards._arguments import each_of, need, need_scope
from guards._checks import Check, EqualsCheck, IdentityCheck, TypeCheck
from guards._code_check import CodeCheck, plain_function
from guards._constants import spell, type_name
from guards._container_checks import KeysCheck, LengthCheck, SetCheck, dict_keys
from guards._errors import UnsupportedGuardError
from guards._fetch import Absent, is_a, plain_type
from guards._front_end import register_duplicate_input
from guards._guard import Guard, GuardBuilderBase
from guards._own_dict_checks import AbsentCheck, PresentCheck, TrainingCheck
from guards._relation_check import RelationCheck
from guards._scalar_checks import BoolCheck, NoneCheck, RangeCheck
from guards._source import Source, name_of, need_source
from guards._state_checks import StateCheck, read_state
from guards._tensor_checks import OverlapCheck, SameObjectCheck, TensorCheck, TensorFacts
from guards._value_sources import ValueSource

__all__ = ["GuardBuilder"]

Scope = Mapping[str, Any]


class GuardBuilder(GuardBuilderBase):
    """Turn guards into checks of the values that ``L`` and ``G`` hold now.

    Every create function takes the builder and the guard. What more a kind wants, give with
    ``functools.partial``: ``Guard(source, partial(GuardBuilder.RANGE_MATCH, low=1, high=8))``.

    Attributes:
        L: the locals that the guards were made from.
        G: the globals.
        checks: pairs of a guard and a check, in the order of making.
    """

    def __init__(self, L: Scope, G: Scope | None = None) -> None:
        need_scope("GuardBuilder", "L", L)
        if G is not None:
            need_scope("GuardBuilder", "G", G)
        self.L = L
        self.G: Scope = {} if G is None else G
        self.checks: list[tuple[Guard, Check]] = []
        self._values: dict[Source, Any] = {}
        self._alike: dict[Hashable, Any] = {}  # torch's checks of single tensors

    # ── for create functions ────────────────────────────────────────────────────────────────────

    def source(self, guard: Guard) -> ValueSource:
        """Give the guard's source.

        Raises:
            UnsupportedGuardError: it is one that cannot be evaluated.
        """
        need(is_a(guard, Guard), "GuardBuilder.source", "guard", "a Guard", guard)
        return self._evaluable(guard.originating_source, guard)

    def _evaluable(self, source: Source, guard: Guard) -> ValueSource:
        if isinstance(source, ValueSource):
            return source
        need_source(guard.create_fn_name(), "a source", source)
        raise UnsupportedGuardError(
            f"{guard.create_fn_name()} on {name_of(source)}: {type(source).__name__} cannot be "
            "evaluated; derive it from guards.ValueSource or guards.ChainedValueSource"
        )

    def _all_evaluable(self, sources: Iterable[Source], guard: Guard, of: str) -> list[ValueSource]:
        given = each_of(object, sources, guard.create_fn_name(), of, "sources")
        return [self._evaluable(source, guard) for source in given]

    def lookup(self, source: ValueSource) -> Any:
        """Evaluate a source once; an ``Absent`` where its value is not to be had."""
        known = is_a(source, ValueSource)
        need(known, "GuardBuilder.lookup", "source", "a source that can be evaluated", source)
        return source.lookup(self.L, self.G, self._values)

    def value(self, guard: Guard) -> Any:
        """Give the guarded value.

        Raises:
            MissingValueError: it is not there, or only code of a class could tell.
        """
        return self.lookup_or_raise(self.source(guard))

    def add(self, guard: Guard, check: Check, value: object = None) -> None:
        """Add a check, and tell the guard what was made of it."""
        need(is_a(guard, Guard), "GuardBuilder.add", "guard", "a Guard", guard)
        need(is_a(check, Check), "GuardBuilder.add", "check", "a Check", check)
        self.checks.append((guard, check))
        cls = None if value is None else _weakref_or_none(type(value))
        try:
            guard.set_export_info(check.code, cls, [check.expression()], _weakref_or_none(value))
        except ValueError:
            guard.guard_types = [*(guard.guard_types or ()), check.code]

    # ── values ──────────────────────────────────────────────────────────────────────────────────

    def TYPE_MATCH(self, guard: Guard) -> None:
        """Guard on the exact class."""
        value = self.value(guard)
        self.add(guard, TypeCheck(self.source(guard), type(value)), value)

    def ID_MATCH(self, guard: Guard) -> None:
        """Guard on the identity; the object is held weakly."""
        value = self.value(guard)
        self.add(guard, IdentityCheck(self.source(guard), value), value)

    def EQUALS_MATCH(self, guard: Guard, recompile_hint: str | None = None) -> None:
        """Guard on the exact type and value of a constant, or of a container of constants."""
        value = self.value(guard)
        self.add(guard, EqualsCheck(self.source(guard), value), value)

    def CONSTANT_MATCH(self, guard: Guard) -> None:
        """Guard on None, True and False by identity, on any other constant by value."""
        value = self.value(guard)
        if value is None or type(value) is bool:
            self.add(guard, IdentityCheck(self.source(guard), value), value)
        elif is_a(value, types.CodeType):
            raise UnsupportedGuardError(
                f"CONSTANT_MATCH on {guard.name}: use FUNCTION_MATCH on the function"
            )
        else:
            self.add(guard, EqualsCheck(self.source(guard), value), value)

    def NONE_MATCH(self, guard: Guard) -> None:
        """Guard on the value being None."""
        value = self.value(guard)
        if value is not None:
            raise UnsupportedGuardError(f"NONE_MATCH on {guard.name}: the value is {spell(value)}")
        self.add(guard, NoneCheck(self.source(guard)))

    def BOOL_MATCH(self, guard: Guard) -> None:
        """Guard on the value being this bool."""
        value = self.value(guard)
        self.add(guard, BoolCheck(self.source(guard), value), value)

    def RANGE_MATCH(
        self, guard: Guard, low: float | None = None, high: float | None = None
    ) -> None:
        """Guard on an int or float lying from ``low`` up to ``high``, both included."""
        value = self.value(guard)
        if plain_type(value) not in (int, float):
            raise UnsupportedGuardError(
                f"RANGE_MATCH on {guard.name}: {spell(value)} is no int or float"
            )
        for bound in (low, high):
            if bound is not None and (plain_type(bound) not in (int, float) or bound != bound):
                raise UnsupportedGuardError(
                    f"RANGE_MATCH on {guard.name}: a bound is an int, a float or None, got "
                    f"{spell(bound, 60)}"
                )
        if value != value:
            raise UnsupportedGuardError(
                f"RANGE_MATCH on {guard.name}: nan lies in no range; use EQUALS_MATCH"
            )
        if (low is not None and not low <= value) or (high is not None and not value <= high):
            raise UnsupportedGuardError(
                f"RANGE_MATCH on {guard.name}: {spell(value)} does not lie from {spell(low)} "
                f"up to {spell(high)}"
            )
        check = RangeCheck(self.source(guard), type(value).__name__, low, high)
        self.add(guard, check, value)

    def FUNCTION_MATCH(self, guard: Guard) -> None:
        """Guard on a function running the same code; a builtin one on its identity."""
        value = self.value(guard)
        function = plain_function(value)
        if function is None:
            self.add(guard, IdentityCheck(self.source(guard), value), value)
        else:
            bound = value is not function
            self.add(guard, CodeCheck.of(self.source(guard), function, bound=bound), value)

    def MODULE_TRAINING(self, guard: Guard) -> None:
        """Guard on the training flag of a module."""
        value = self.value(guard)
        flag = _fetch.attribute(value, "training")
        if not is_a(value, torch.nn.Module) or type(flag) is not bool:
            raise UnsupportedGuardError(f"MODULE_TRAINING on {guard.name}: got {spell(value)}")
        self.add(guard, TrainingCheck(self.source(guard), flag, type(value)), value)

    # ── presence and containers ─────────────────────────────────────────────────────────────────

    def HASATTR(self, guard: Guard, attr: str | None = None) -> None:
        """Guard on a value being there or, with ``attr``, on its having that attribute."""
        value = self.value(guard)
        _need_attr(guard, attr)
        if attr is not None and _fetch.attribute(value, attr) is _fetch.MISSING:
            raise UnsupportedGuardError(f"HASATTR on {guard.name}: it has no attribute {attr!r}")
        own = attr is not None and attr in (_fetch.instance_dict(value) or {})
        self.add(guard, PresentCheck(self.source(guard), attr, type(value), own=own), value)

    def NOT_PRESENT(self, guard: Guard, attr: str | None = None, **key: Any) -> None:
        """Guard on a value not being there; with ``attr`` or ``key``, on its lacking that."""
        if set(key) - {"key"} or (attr is not None and key):
            raise UnsupportedGuardError(
                f"NOT_PRESENT on {guard.name}: takes attr or key, got {sorted(key)}"
            )
        _need_attr(guard, attr)
        of = None if attr is None else type(self.value(guard))
        check = AbsentCheck(self.source(guard), attr, cls=of, **key)
        if check.sources:
            self.lookup_or_raise(check.sources[0])
        if not holds_now(check, self):
            found = check.actual([self.lookup(s) for s in check.sources])
            raise UnsupportedGuardError(f"NOT_PRESENT on {guard.name}: it is {found}")
        self.add(guard, check)

    def lookup_or_raise(self, source: ValueSource) -> Any:
        """Evaluate a source, raising MissingValueError where its value is not to be had."""
        found = self.lookup(source)
        return source.get(self.L, self.G) if type(found) is Absent else found

    def SEQUENCE_LENGTH(self, guard: Guard) -> None:
        """Guard on the number of entries of a builtin container."""
        value = self.value(guard)
        length = _fetch.length(value)
        if type(length) is Absent:
            raise UnsupportedGuardError(
                f"SEQUENCE_LENGTH on {guard.name}: the length of {spell(value)} is {length!r}"
            )
        self.add(guard, LengthCheck(self.source(guard), length, type(value)), value)

    def DICT_KEYS_MATCH(self, guard: Guard, ordered: bool = True) -> None:
        """Guard on the keys of a dict, in their order unless ``ordered`` is False."""
        value = self.value(guard)
        if type(ordered) is not bool:
            raise UnsupportedGuardError(
                f"DICT_KEYS_MATCH on {guard.name}: ordered is True or False, got "
                f"{spell(ordered, 60)}"
            )
        keys = dict_keys(value)
        if keys is None:
            raise UnsupportedGuardError(f"DICT_KEYS_MATCH on {guard.name}: got {spell(value)}")
        plain = type(value) is dict
        self.add(guard, KeysCheck(self.source(guard), keys, ordered, plain), value)

    def SET_MATCH(self, guard: Guard) -> None:
        """Guard on the members of a set of constants."""
        value = self.value(guard)
        self.add(guard, SetCheck(self.source(guard), value), value)

    # ── tensors ─────────────────────────────────────────────────────────────────────────────────

    def TENSOR_MATCH(
        self,
        guard: Guard,
        dynamic_sizes: Iterable[int] | bool = (),
        dynamic_strides: Iterable[int] | bool = (),
    ) -> None:
        """Guard on a tensor's class, dispatch keys, dtype, device, requires_grad, sizes, strides.

        ``dynamic_sizes`` and ``dynamic_strides`` name dimensions whose size or stride may change;
        True leaves all of them open.
        """
        value = self.value(guard)
        if not is_a(value, torch.Tensor):
            raise UnsupportedGuardError(f"TENSOR_MATCH on {guard.name}: got {spell(value)}")
        open_dims = [_dimensions(dynamic) for dynamic in (dynamic_sizes, dynamic_strides)]
        try:
            check = self._tensor_check(guard, value, *open_dims)
        except UnsupportedGuardError:
            raise
        except Exception as error:  # a legacy nested tensor, or a subclass that answers for itself
            raise UnsupportedGuardError(
                f"TENSOR_MATCH on {guard.name}: a {type_name(type(value))} whose sizes and strides "
                f"torch cannot tell ({(str(error) or type(error).__name__).splitlines()[0]})"
            ) from error
        self.add(guard, check, value)

    def _tensor_check(self, guard: Guard, value: torch.Tensor, *dynamic: Any) -> TensorCheck:
        facts = TensorFacts(value)
        with torch._C.DisableTorchFunction():  # asked once more, a tensor says why it has none
            size = list(torch.Tensor.size(value)) if facts.size is None else facts.size
            sizes = _open_dims(guard, size, dynamic[0])
            try:
                stride = list(torch.Tensor.stride(value)) if facts.stride is None else facts.stride
                strides = _open_dims(guard, stride, dynamic[1])
            except RuntimeError:  # a layout without strides
                strides = None
        source = self.source(guard)
        return TensorCheck(source, value, sizes, strides, facts=facts, alike=self._alike)

    def DUPLICATE_INPUT(self, guard: Guard, source_b: Source) -> None:
        """Guard on two sources holding the very same object."""
        a, b = self.source(guard), self._evaluable(source_b, guard)
        if self.value(guard) is not self.lookup_or_raise(b):
            raise UnsupportedGuardError(
                f"DUPLICATE_INPUT on {a.name()}: {b.name()} is another object"
            )
        self.add(guard, SameObjectCheck(a, b))

    def STORAGE_OVERLAP(
        self, guard: Guard, overlapping: Iterable[Source], non_overlapping: Iterable[Source]
    ) -> None:
        """Guard on only the ``overlapping`` tensors sharing memory with another one of all."""
        check = OverlapCheck(
            self._all_evaluable(overlapping, guard, "overlapping"),
            self._all_evaluable(non_overlapping, guard, "non_overlapping"),
        )
        for source in check.sources:
            self.lookup_or_raise(source)
        self._add_holding(guard, check)

    def SHAPE_RELATION(self, guard: Guard, relation: Any, symbols: Mapping[str, Source]) -> None:
        """Guard on a relation between sizes: ``'s0 == 2 * s1'``, with a source for each symbol.

        A symbolic expression is taken by its text.
        """
        known = is_a(relation, (str, bool)) or hasattr(relation, "free_symbols")
        wanted = "a text or a symbolic expression"
        need(known, "SHAPE_RELATION", "relation", wanted, relation, "such as 's0 == 2 * s1'")
        wanted = "a mapping from symbols to sources"
        need(is_a(symbols, Mapping), "SHAPE_RELATION", "symbols", wanted, symbols)
        sources = {name: self._evaluable(s, guard) for name, s in symbols.items()}
        check = RelationCheck(str(relation), sources)
        for source in check.sources:
            self.lookup_or_raise(source)
        self._add_holding(guard, check)

    def _add_holding(self, guard: Guard, check: Check) -> None:
        if not holds_now(check, self):
            values = [self.lookup(s) for s in check.sources]
            raise UnsupportedGuardError(
                f"{check.code}: {check.expression()} does not hold now: {check.actual(values)}"
            )
        self.add(guard, check)

    # ── torch's own state ───────────────────────────────────────────────────────────────────────

    def GRAD_MODE(self, guard: Guard) -> None:
        """Guard on whether gradients are recorded."""
        self._add_state(guard, "GRAD_MODE")

    def AUTOCAST_STATE(self, guard: Guard) -> None:
        """Guard on where autocast is on, with which dtype, and on its cache."""
        self._add_state(guard, "AUTOCAST_STATE")

    def DEFAULT_DTYPE(self, guard: Guard) -> None:
        """Guard on the dtype of new floating-point tensors."""
        self._add_state(guard, "DEFAULT_DTYPE")

    def DEFAULT_DEVICE(self, guard: Guard) -> None:
        """Guard on the device that was set for new tensors."""
        self._add_state(guard, "DEFAULT_DEVICE")

    def DETERMINISTIC_ALGORITHMS(self, guard: Guard) -> None:
        """Guard on whether torch must use deterministic algorithms, and on warning only."""
        self._add_state(guard, "DETERMINISTIC_ALGORITHMS")

    def _add_state(self, guard: Guard, code: str) -> None:
        self.add(guard, StateCheck(code, read_state(code)))


def holds_now(check: Check, builder: GuardBuilder) -> bool:
    """Tell whether a check holds of the values that the builder sees."""
    from guards._compile import test_of

    return test_of(check)(builder.L, builder.G, [builder.lookup(s) for s in check.sources])


def _dimensions(dynamic: Any) -> list[int] | None:
    """Give the dimensions that may change; None for all of them."""
    if dynamic is True:
        return None
    if dynamic is False or dynamic is None or dynamic == ():
        return []
    return each_of(int, dynamic, "TENSOR_MATCH", "dynamic dimensions", "numbers")


def _open_dims(guard: Guard, dims: list[int], dynamic: list[int] | None) -> list[int | None]:
    if dynamic is None:
        return [None] * len(dims)
    if not dynamic:
        return [*dims]
    open_dims = set(dynamic)
    unknown = sorted(d for d in open_dims if not -len(dims) <= d < len(dims))
    if unknown:
        raise UnsupportedGuardError(
            f"TENSOR_MATCH on {guard.name}: no dimension {unknown[0]} in {len(dims)} dimensions"
        )
    open_dims = {d % len(dims) for d in open_dims}
    return [None if i in open_dims else size for i, size in enumerate(dims)]


def _need_attr(guard: Guard, attr: object) -> None:
    if attr is not None and type(attr) is not str:
        raise UnsupportedGuardError(
            f"{guard.create_fn_name()} on {guard.name}: attr is the name of an attribute, got "
            f"{spell(attr, 60)}"
        )


@register_duplicate_input
def _is_duplicate_input(guard: Guard) -> bool:
    return guard.inner_create_fn() is GuardBuilder.DUPLICATE_INPUT


def _weakref_or_none(value: object) -> Any:
    try:
        return None if value is None else weakref.ref(value)
    except TypeError:
        return None
