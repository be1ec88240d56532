"""Operators on a transparent wrapper, against handlers written by hand and with tree_map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from subclass_utils import WrapperTensor
from torch.utils._pytree import tree_map

from tools.bench.row import Row, at_most, faster
from tools.bench.timing import Statement, alternate

aten = torch.ops.aten
_share_storage: Any = torch._functionalize_unsafe_set
_increment_version: Any = torch._C._increment_version
_inference_mode: Any = torch._C._InferenceMode
_state_of_caller: Any = torch._C._RestorePythonTLSSnapshot  # type: ignore[attr-defined]


class ByHand(torch.Tensor):
    """What a careful author writes: a handler for each shape of operator.

    It does as much as ours. The outside has the inner tensor's size, strides, offset, dtype,
    layout and device. A view shares the storage and the versions of what it is a view of, outside
    and inside, and is an inference tensor where what it views is one. Writes count as versions of
    the inner tensors, and where autograd passes over lists of the outsides; a resized `out` has
    its outside brought in step. Arguments that were written are given back as they are. Nothing
    asks for inner tensors that require grad or are complex, plain tensors among the arguments,
    metadata, or handlers of child classes; nor for the version of a linear of three dims, which
    plain torch counts where it adds the bias.
    """

    elem: torch.Tensor
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem: torch.Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=elem.device,
            requires_grad=elem.requires_grad,
        )
        made.elem = elem
        return made

    def __init__(self, elem: torch.Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return HANDLERS[func](cls, func, args, kwargs)


def _one(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    return cls(func(args[0].elem, *args[1:]))


def _view(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    with _state_of_caller():
        view = func(args[0].elem, *args[1:])
    made = _wrap_view(cls, view)
    _share_storage(made, args[0])
    return made


def _wrap_view(cls: Any, view: Any) -> Any:
    inference = view.is_inference()
    if inference is torch.is_inference_mode_enabled():
        return cls(view)
    with _inference_mode(inference):  # as the view is, which was made of a tensor from outside
        return cls(view)


def _count_version(*tensors: Any) -> None:
    counting = [each for each in tensors if not each.is_inference()]
    if counting:
        _increment_version(counting)


def _two(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    a, b = args
    return cls(func(a.elem, b.elem))


def _three(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    a, b, c = args
    return cls(func(a.elem, b.elem, c.elem))


def _tensor_or_number(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    a, b = args
    return cls(func(a.elem, b.elem if isinstance(b, cls) else b))


def _in_place(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    a, b = args
    written = a.elem
    func(written, b.elem)
    if not written.is_inference():
        _increment_version((written,))
    return a


def _out(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    a, b = args
    out = kwargs["out"]
    written = out.elem
    func(a.elem, b.elem, out=written)
    if not written.is_inference():
        _increment_version((written,))
    if out.size() != written.size():
        out.data = cls(written)
    return out


def _join(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    return cls(func([each.elem for each in args[0]], *args[1:]))


def _split(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    with _state_of_caller():
        views = func(args[0].elem, *args[1:])
    made = [_wrap_view(cls, view) for view in views]
    for each in made:
        _share_storage(each, args[0])
    return made


def _each(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    a, b = args
    return [cls(each) for each in func([x.elem for x in a], [x.elem for x in b])]


def _each_in_place(cls: Any, func: Any, args: Any, kwargs: Any) -> None:
    a, b = args
    written = [x.elem for x in a]
    func(written, [x.elem for x in b])
    _count_version(*a, *written)  # autograd passes over lists


HANDLERS: dict[Any, Any] = {
    aten.mul.Tensor: _tensor_or_number,
    aten.add.Tensor: _two,
    aten.mm.default: _two,
    aten.addmm.default: _three,
    aten.linear.default: _three,  # it arrives whole under inference mode
    aten.neg.default: _one,
    aten.sum.default: _one,
    aten.add_.Tensor: _in_place,
    aten.mul_.Tensor: _in_place,
    aten.view.default: _view,
    aten.t.default: _view,
    aten.slice.Tensor: _view,
    aten.select.int: _view,
    aten.detach.default: _view,
    aten._unsafe_view.default: _view,
    aten.split.Tensor: _split,
    aten.mul.out: _out,
    aten.cat.default: _join,
    aten._foreach_mul.List: _each,
    aten._foreach_add_.List: _each_in_place,
}


def _unwrap(value: Any) -> Any:
    return value.elem if isinstance(value, ByHand) else value


def _map(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    def wrap(value: Any) -> Any:
        return cls(value) if isinstance(value, torch.Tensor) else value

    return tree_map(wrap, func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs or {})))


def _map_views(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    def wrap(value: Any) -> Any:
        return _wrap_view(cls, value) if isinstance(value, torch.Tensor) else value

    with _state_of_caller():
        views = func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs or {}))
    made = tree_map(wrap, views)
    for each in made if isinstance(made, list) else [made]:
        _share_storage(each, args[0])
    return made


def _map_written(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    written = args[0] if kwargs is None or "out" not in kwargs else kwargs["out"]
    func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs or {}))
    if isinstance(written, list):
        _count_version(*written, *tree_map(_unwrap, written))
        return None
    _count_version(written.elem)
    if written.size() != written.elem.size():
        written.data = cls(written.elem)
    return written


WITH_TREE_MAP = {
    _view: _map_views,
    _split: _map_views,
    _in_place: _map_written,
    _out: _map_written,
    _each_in_place: _map_written,
}


class WithTreeMap(ByHand):
    """The same, and as much, with pytree's tree_map over arguments and results."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return MAPPED[func](cls, func, args, kwargs)


MAPPED = {op: WITH_TREE_MAP.get(handler, _map) for op, handler in HANDLERS.items()}


class Ours(WrapperTensor):
    """A transparent wrapper."""


CODE = {
    "mul, two tensors": "a * b",
    "add, two tensors": "a + b",
    "mul, tensor and number": "a * 2.0",
    "mm": "a @ b",
    "linear": "linear(a, b, v)",
    "linear of three dims": "linear(d, b, v)",
    "neg": "a.neg()",
    "sum": "a.sum()",
    "cat": "torch.cat([a, b])",
    "add_": "a.add_(b)",
    "mul_": "a.mul_(b)",
    "view": "a.view(-1)",
    "t": "a.t()",
    "slice": "a[1:]",
    "select": "a[1]",
    "detach": "a.detach()",
    "split into three": "a.split(1)",
    "mul with out": "torch.mul(a, b, out=c)",
    "foreach mul of two": "torch._foreach_mul([a, b], [b, a])",
    "foreach add_ of two": "torch._foreach_add_([a, b], [b, a])",
}
FROM_OUTSIDE = "inference_mode, made outside"
MODES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], bool, list[str]]] = {
    "plain": (nullcontext, False, list(CODE)),
    "grad": (
        nullcontext,
        True,
        ["mul, two tensors", "mm", "linear", "linear of three dims", "neg", "view", "cat"],
    ),
    "no_grad": (torch.no_grad, True, ["mul, two tensors", "view", "add_"]),
    "inference_mode": (torch.inference_mode, False, ["mul, two tensors", "view", "add_"]),
    FROM_OUTSIDE: (torch.inference_mode, False, ["mul, two tensors", "view", "detach", "linear"]),
}


def names_for(cls: type[Any], requires_grad: bool) -> dict[str, object]:
    """Make the tensors that the code names."""
    a, b, c = (cls(torch.zeros(3, 3)) for _ in range(3))
    d = cls(torch.zeros(2, 3, 3))
    for tensor in (a, b, d):
        tensor.requires_grad_(requires_grad)
    names: dict[str, object] = {"a": a, "b": b, "c": c, "d": d, "v": cls(torch.zeros(3))}
    return {**names, "torch": torch, "linear": torch.nn.functional.linear}


def rows() -> Iterator[Row]:
    """Compare operators on wrappers of nine numbers."""
    for cls in (Ours, ByHand, WithTreeMap):
        cls(torch.ones(3)) * cls(torch.ones(3))  # torch imports more on the first operator
    for mode, (context, requires_grad, works) in MODES.items():
        for work in works:
            classes = (Ours, ByHand, WithTreeMap)
            outside = [names_for(cls, requires_grad) for cls in classes]
            with context():
                inside = [names_for(cls, requires_grad) for cls in classes]
                names = outside if mode == FROM_OUTSIDE else inside
                ours, by_hand, tree_map = alternate(
                    *(Statement(CODE[work], each) for each in names), rounds=31
                )
            name = f"wrapper: {work}" if mode == "plain" else f"wrapper: {work}, {mode}"
            yield Row(name, "by hand, as much", ours, by_hand, at_most(1.25))
            yield Row(name, "tree_map, as much", ours, tree_map, faster(2.5))
