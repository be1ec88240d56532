"""Checks of tensors: what one is like, which are the same, which share memory."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from guards import _torch_private as private
from guards._checks import Check, NodeCheck, OneSourceCheck, spell_found, wants
from guards._class_names import importable_name
from guards._constants import type_name
from guards._emit import Emitter
from guards._errors import UnsupportedGuardError
from guards._fetch import Absent, is_a

if TYPE_CHECKING:
    from guards._value_sources import ValueSource

__all__ = ["OverlapCheck", "SameObjectCheck", "TensorCheck", "TensorFacts"]


# Of these torch can be asked together; a subclass may answer, and raise, by itself.
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class TensorCheck(OneSourceCheck, NodeCheck):
    """A tensor of this class, dispatch keys, dtype, device, requires_grad, sizes and strides.

    A size or stride of None may be anything. The thread's own dispatch state counts, as it does
    for torch: a guard made outside ``inference_mode`` or autocast does not hold inside.
    """

    code = "TENSOR_MATCH"

    def __init__(
        self,
        source: ValueSource,
        tensor: torch.Tensor,
        sizes: list[int | None] | None,
        strides: list[int | None] | None,
        *,
        saved: bool = False,
        facts: TensorFacts | None = None,
        alike: dict[Hashable, Any] | None = None,
    ) -> None:
        super().__init__(source)
        self.example = tensor if saved else None
        self._thread = private.thread_state()
        self.sizes, self.strides = sizes, strides
        self._read = TensorFacts(tensor) if facts is None else facts
        self._class = weakref.ref(type(tensor))
        self.plain = type(tensor) in _PLAIN
        # Tensors that are alike share one of torch's checks; ``alike`` holds those made so far.
        key = self._alike_key(type(tensor)) if alike is not None else None
        known = None if alike is None or key is None else alike.get(key)
        self.tree = private.tensor_check(tensor, sizes, strides) if known is None else known
        if alike is not None and key is not None:
            alike[key] = self.tree

    def _alike_key(self, cls: type) -> Hashable | None:
        if not self.plain or self._thread is None:
            return None
        read = self._read
        dims = [None if d is None else tuple(d) for d in (self.sizes, self.strides)]
        return (
            cls,
            self._thread,
            torch.is_grad_enabled(),
            read.state,
            read.dtype,
            read.device,
            read.requires_grad,
            read.ndim,
            *dims,
        )

    @functools.cached_property
    def facts(self) -> dict[str, str]:
        """Say what the tensor was like."""
        facts = self._read.spell(self.sizes, self.strides)
        for name, dims in (("size", self.sizes), ("stride", self.strides)):
            if dims is not None:  # the tensor itself may be an example of one size
                facts[name] = _spell_dims([d or 0 for d in dims], dims)
        return facts

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        name, cls = names[0], self._class()
        if cls is None:
            return "False"
        test = emitter.ask_tree(self.tree, "tensor", name)
        # torch knows the class by its bare address, which may come to mean another one.
        return test if self.plain else f"{emitter.is_type(name, cls, vital=True)} and {test}"

    def pattern(self) -> tuple[str, Any] | None:
        here = self.example is None or self._thread == private.thread_state()
        return ("tensors", None) if self.plain and here else None

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        private.add_tensor_match(node, value, self.sizes, self.strides, self._read.ndim)
        return None

    def holds(self, tensor: object) -> bool:
        """Tell whether one value is a tensor like the one that the check was made for."""
        return type(tensor) is self._class() and bool(self.tree.check(tensor))

    def expected(self) -> str:
        if self._class() is None:
            return f"a {self.facts['class']}, a class that is dead"
        return ", ".join(f"{k} {v}" for k, v in self.facts.items() if v != "")

    def difference(self, value: Any) -> tuple[str, str]:
        """Say what was expected and what was found, only of the facts that differ."""
        if not is_a(value, torch.Tensor):
            return self.facts["class"], spell_found(value)
        if self._class() is None:
            return self.expected(), spell_found(value)
        if type(value) is not self._class() and type(value) not in _PLAIN:
            # Its facts may be had by running its code alone.
            return f"class {self.facts['class']}", f"class {type_name(type(value))}"
        found = tensor_facts(value, self.sizes, self.strides)
        differ = [k for k in self.facts if self.facts[k] != found.get(k)]
        if differ == ["state"]:
            return _state_difference(self.facts["state"], found["state"])
        if not differ:
            return self.expected(), private.tensor_reason(self.tree, value)
        return tuple(  # type: ignore[return-value]
            ", ".join(f"{k} {side.get(k, '')}".rstrip() for k in differ)
            for side in (self.facts, found)
        )

    def actual(self, values: Sequence[Any]) -> str:
        return self.difference(values[0])[1]

    def expression(self) -> str:
        return f"{self.sources[0].name()} is a tensor like the one that was traced"

    def state(self) -> dict[str, Any]:
        example = self._read.example_state()
        if example is None:
            raise UnsupportedGuardError(
                f"{self.code} on {self.sources[0].name()} cannot be saved: a tensor of class "
                f"{self.facts['class']} and {self.facts['layout']} cannot be made from its facts"
            )
        if self._thread is None:
            raise UnsupportedGuardError(
                f"{self.code} on {self.sources[0].name()} cannot be saved: it was made inside a "
                "mode or transform, which is part of what it expects; make it outside"
            )
        autocast, inference_mode = self._thread
        return {
            **example,
            "sizes": self.sizes,
            "strides": self.strides,
            "autocast": list(autocast),
            "inference_mode": inference_mode,
        }

    @classmethod
    def from_state(cls, sources: Sequence[ValueSource], state: dict[str, Any]) -> Check:
        (source,) = sources
        _read_tensor_state(state)
        thread = (tuple(state["autocast"]), state["inference_mode"])
        own = {k: v for k, v in state.items() if k not in _NOT_OF_THE_EXAMPLE}
        try:
            tensor = _make_example(**own)
        except Exception as error:
            text = (str(error) or type(error).__name__).splitlines()[0]
            try:
                _make_example(**{**own, "device": "meta"})
            except Exception:
                possible = False  # no tensor is like that on any device
            else:
                possible = torch.device(own["device"]).type not in ("cpu", "meta")
            wants(possible, cls.code, f"what a tensor can be like ({text})", own)
            return ImpossibleCheck(source, cls.code, state, text)
        with private.in_thread_state(thread):
            return cls(source, tensor, state["sizes"], state["strides"], saved=True)


_NOT_OF_THE_EXAMPLE = ("sizes", "strides", "autocast", "inference_mode")
_STATE_TYPES: dict[str, tuple[type, ...]] = {
    "cls": (str,),
    "dtype": (torch.dtype,),
    "device": (str,),
    "requires_grad": (bool,),
    "ndim": (int,),
    "conj": (bool,),
    "neg": (bool,),
    "inference": (bool,),
    "sizes": (list, type(None)),
    "strides": (list, type(None)),
    "autocast": (list,),
    "inference_mode": (bool,),
}


def _read_tensor_state(state: Mapping[str, Any]) -> None:
    """Refuse a saved state in which something is missing, too much, or what it cannot be."""
    code = TensorCheck.code
    missing = sorted(set(_STATE_TYPES) - set(state))
    wants(not missing, code, f"{', '.join(missing)} too", sorted(state))
    unknown = sorted(set(state) - set(_STATE_TYPES))
    wants(not unknown, code, f"none but {', '.join(_STATE_TYPES)}", unknown)
    for name, classes in _STATE_TYPES.items():
        wanted = " or ".join("None" if c is type(None) else f"a {c.__name__}" for c in classes)
        wants(type(state[name]) in classes, code, f"for {name} {wanted}", state[name])
    wants(state["cls"] in _SAVEABLE.values(), code, "a class of torch's", state["cls"])
    wants(state["ndim"] in range(65), code, "at most 64 dimensions", state["ndim"])
    for dims in (state["sizes"], state["strides"]):
        fits = dims is None or (
            len(dims) == state["ndim"]
            and all(d is None or (type(d) is int and 0 <= d < 2**63) for d in dims)
        )
        wants(fits, code, "a size or None for each dimension", dims)
    devices = state["autocast"]
    known = [device for device in private.AUTOCAST_DEVICES if device in devices]
    wants(devices == known, code, "devices of autocast", devices)


class ImpossibleCheck(OneSourceCheck):
    """A saved check that cannot hold in this process, since what it wants cannot exist here."""

    def __init__(self, source: ValueSource, code: str, state: dict[str, Any], why: str) -> None:
        super().__init__(source)
        self.code = code  # type: ignore[misc]
        self._state, self.why = state, why

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return "False"

    def expected(self) -> str:
        return f"what cannot exist in this process ({self.why})"

    def state(self) -> dict[str, Any]:
        return self._state


class TensorFacts:
    """What is read of a tensor when a guard is made; it is put in words when somebody asks."""

    def __init__(self, tensor: torch.Tensor) -> None:
        cls = type(tensor)
        self.cls = _PLAIN_NAMES.get(id(cls)) or type_name(cls)
        self.saved_as = _SAVEABLE.get(id(cls))
        # A subclass may answer for itself, and is not asked.
        plain: Any = torch.Tensor
        with torch._C.DisableTorchFunction():
            if cls in _PLAIN:
                self.dtype, self.device = tensor.dtype, tensor.device
                self.layout, self.requires_grad = tensor.layout, tensor.requires_grad
                self.quantized, self.conj, self.neg = (
                    tensor.is_quantized,
                    tensor.is_conj(),
                    tensor.is_neg(),
                )
            else:
                self.dtype, self.device = plain.dtype.__get__(tensor), plain.device.__get__(tensor)
                self.layout = plain.layout.__get__(tensor)
                self.requires_grad = plain.requires_grad.__get__(tensor)
            self.state = private.dispatch_facts(tensor)
            self.size, self.stride = _dims(plain.size, tensor), _dims(plain.stride, tensor)
            self.ndim = plain.dim(tensor) if self.size is None else len(self.size)

    def spell(
        self, sizes: list[int | None] | None = None, strides: list[int | None] | None = None
    ) -> dict[str, str]:
        """Say class, dtype, device, layout, requires_grad, dispatch state and shape.

        Dimensions that ``sizes`` and ``strides`` leave open are written as ``*``.
        """
        return {
            "class": self.cls,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "layout": str(self.layout).removeprefix("torch."),
            "requires_grad": str(self.requires_grad),
            "state": ", ".join(private.dispatch_state(self.state)),
            "ndim": str(self.ndim),
            "size": _spell_dims(self.size, sizes),
            "stride": _spell_dims(self.stride, strides),
        }

    def example_state(self) -> dict[str, Any] | None:
        """Give what a tensor of this kind can be made from; None where that is not enough."""
        if self.saved_as is None or self.layout is not torch.strided or self.quantized:
            return None
        if private.is_odd(self.state):
            return None
        return {
            "cls": self.saved_as,
            "dtype": self.dtype,
            "device": str(self.device),
            "requires_grad": self.requires_grad,
            "ndim": self.ndim,
            "conj": self.conj,
            "neg": self.neg,
            "inference": self.state[1],
        }


def tensor_facts(
    tensor: torch.Tensor,
    sizes: list[int | None] | None = None,
    strides: list[int | None] | None = None,
) -> dict[str, str]:
    """Describe a tensor; dimensions that ``sizes`` and ``strides`` leave open are ``*``."""
    return TensorFacts(tensor).spell(sizes, strides)


def _state_difference(wanted: str, found: str) -> tuple[str, str]:
    """Say what a tensor's state lacks and has beyond what was wanted; torch's own state first."""
    before, now = wanted.split(", "), found.split(", ")
    lacks = [part for part in before if part and part not in now]
    has = [part for part in now if part and part not in before]

    def negated(parts: list[str]) -> list[str]:
        return [re.sub(r" is on\b", " is off", p) if " is on" in p else f"not {p}" for p in parts]

    order = sorted(range(len(lacks) + len(has)), key=lambda i: " is on" not in (lacks + has)[i])
    expected, actual = lacks + negated(has), negated(lacks) + has
    return ", ".join(expected[i] for i in order), ", ".join(actual[i] for i in order)


def _dims(read: Any, tensor: torch.Tensor) -> list[int] | None:
    try:
        return list(read(tensor))
    except Exception:  # sparse tensors have no strides
        return None


def _spell_dims(dims: list[int] | None, wanted: list[int | None] | None) -> str:
    if dims is None:
        return ""
    if wanted is not None and len(wanted) != len(dims):
        wanted = None
    open_dims = wanted if wanted is not None else dims
    parts = ["*" if w is None else str(d) for d, w in zip(dims, open_dims, strict=True)]
    return f"[{', '.join(parts)}]"


_SAVEABLE = {id(cls): importable_name(cls) for cls in _PLAIN}
_PLAIN_NAMES = {id(cls): type_name(cls) for cls in _PLAIN}


def _make_example(
    cls: str,
    dtype: torch.dtype,
    device: str,
    requires_grad: bool,
    ndim: int,
    conj: bool,
    neg: bool,
    inference: bool,
) -> torch.Tensor:
    with private.in_thread_state(((), inference)):
        tensor = torch.empty([1] * ndim, dtype=dtype, device=device)
        tensor = tensor.conj() if conj else tensor
        tensor = torch._neg_view(tensor) if neg else tensor
        if cls.endswith("Parameter"):
            return torch.nn.Parameter(tensor, requires_grad=requires_grad)
        return tensor.detach().requires_grad_(requires_grad) if requires_grad else tensor


class SameObjectCheck(Check):
    """Two sources hold the very same object."""

    code = "DUPLICATE_INPUT"

    def __init__(self, a: ValueSource, b: ValueSource) -> None:
        self.sources = (a, b)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"{names[0]} is {names[1]}"

    def expected(self) -> str:
        return "the same object"

    def actual(self, values: Sequence[Any]) -> str:
        absent = [v for v in values if type(v) is Absent]
        return repr(absent[0]) if absent else "two objects"

    def expression(self) -> str:
        return f"{self.sources[0].name()} is {self.sources[1].name()}"

    def state(self) -> dict[str, Any]:
        return {}


class OverlapCheck(Check):
    """Of these tensors only the first so many may overlap in memory with another one of them."""

    code = "STORAGE_OVERLAP"

    def __init__(
        self, overlapping: Iterable[ValueSource], non_overlapping: Iterable[ValueSource]
    ) -> None:
        first, rest = tuple(overlapping), tuple(non_overlapping)
        wants(bool(rest), self.code, "tensors that do not overlap", "none")
        self.sources = (*first, *rest)
        self.free = len(first)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        values = f"[{', '.join(names)}]"
        slow = f"{emitter.constant(self._apart, 'storages_apart')}({values})"
        if self.free:
            return slow
        known = " and ".join(emitter.is_type(name, torch.Tensor) for name in names)
        # torch's function compares places within one storage, and takes it that there is one.
        if len(names) > 1:
            storage = emitter.local("storage")
            known += f" and {emitter.no_modes()} and ({storage} := {names[0]}.untyped_storage())"
            known += "".join(f" is {name}.untyped_storage()" for name in names[1:])
        overlapping = emitter.constant(private.overlapping_tensors(), "overlapping")
        return f"{known} and not {overlapping}({values}, False) or {slow}"

    def _apart(self, values: list[Any]) -> bool:
        return not self._offenders(values)

    def _offenders(self, values: list[Any]) -> list[int]:
        if not all(is_a(v, torch.Tensor) for v in values):
            return [-1]
        return sorted(i for i in private.overlapping(values) if i >= self.free)

    def expected(self) -> str:
        return "no memory shared with the others"

    def actual(self, values: Sequence[Any]) -> str:
        absent = [v for v in values if not is_a(v, torch.Tensor)]
        if absent:
            return spell_found(absent[0])
        names = [self.sources[i].name() for i in self._offenders(list(values))]
        return f"memory shared by {', '.join(names)}"

    def expression(self) -> str:
        names = ", ".join(s.name() for s in self.sources[self.free :])
        return f"memory of {names} is its own"

    def state(self) -> dict[str, Any]:
        return {"free": self.free}

    @classmethod
    def from_state(cls, sources: Sequence[ValueSource], state: dict[str, Any]) -> Check:
        free = state["free"]
        fits = type(free) is int and free in range(len(sources))
        wants(fits, cls.code, "a number of free tensors", free)
        return cls(sources[:free], sources[free:])
