"""One call of a composite operator as a whole, with its gradient from the operator's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._whole_view import as_views, gives_views, viewed_argument

__all__ = ["WholeCall"]

Tensor = torch.Tensor
Run = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]

# Written to by operators whose schema does not say so; never needed for a gradient.
_HIDDEN_WRITES = ("running_mean", "running_var")


class WholeCall:
    """The operator, its arguments, and the tensors among them.

    `needs_parts` says that only the parts give a right gradient: out= with gradients, which torch
    refuses; operators that change what autograd itself keeps of a tensor; views of complex
    tensors, and views that autograd makes in a backward.
    """

    def __init__(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.op = op
        self._args = args
        self._kwargs = kwargs
        self.tensors: list[Tensor] = []
        _walk((args, dict(kwargs)), self.tensors.append)
        self._written = self._find_written()
        self.needs_gradient = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in self.tensors
        )
        self._base = viewed_argument(op, args) if gives_views(op) else None
        self.needs_parts = self.needs_gradient and (
            self._writes_oddly()
            # Autograd's own formulas write through views, also of another dtype.
            or (self._base is not None and (private.in_backward() or self._base.is_complex()))
        )
        self._random = _RandomState(self)
        self._before: list[Tensor] = []
        self.result_template: Any = None

    def _find_written(self) -> list[int]:
        """List which of the tensors are written to, by position in `tensors`."""
        written: list[Any] = []
        for index, argument in enumerate(self.op._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            if argument.kwarg_only:
                value = self._kwargs.get(argument.name)
            else:
                value = self._args[index] if index < len(self._args) else None
            _walk(value, written.append)
        return [
            position
            for position, tensor in enumerate(self.tensors)
            if any(tensor is other for other in written)
        ]

    def _writes_oddly(self) -> bool:
        if not self._written:
            return False
        arguments = self.op._schema.arguments
        if any(a.kwarg_only and a.alias_info and a.alias_info.is_write for a in arguments):
            return True
        name = self.op._schema.name.partition("::")[2]
        return (
            torch.Tag.inplace_view in self.op.tags
            or name in ("requires_grad_", "retain_grad", "set_", "set_data")
            or len(self._written) > 1
        )

    # ── forward ─────────────────────────────────────────────────────────────────────────────────

    def run(self, hand_to_python: Run) -> Any:
        """Hand the call to modes and subclasses; as one autograd node where it needs one."""
        if self.needs_gradient:
            # The value before the call is for the parts that run in the backward.
            self._before = [self.tensors[position].clone() for position in self._written]
            flat = _Node.apply(self, hand_to_python, *self.tensors)  # type: ignore[no-untyped-call]
            return _fill(self.result_template, list(flat))
        result = self._hand_over(hand_to_python)
        # The parts would have counted these writes.
        changed = [t for t in (self.tensors[i] for i in self._written) if not t.is_inference()]
        if changed:
            private.increment_version(changed)
        return result

    def _hand_over(self, hand_to_python: Run) -> Any:
        result = hand_to_python(self.op, self._args, self._kwargs)
        if self._base is None:
            return result
        return as_views(result, self._base, self._shadow)

    def _shadow(self) -> list[bool]:
        """Say of each result whether it would share memory, were the arguments plain tensors."""
        parts: Any = private.composite_kernel(self.op)
        shadows: dict[int, Tensor] = {}
        with torch.no_grad(), private.disable_dispatch():
            for tensor in self.tensors:
                shadows[id(tensor)] = torch.empty_strided(
                    tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"
                )
            template = _walk((list(self._args), dict(self._kwargs)), lambda tensor: None)
            args, kwargs = _fill(template, [shadows[id(tensor)] for tensor in self.tensors])
            flat: list[Tensor] = []
            try:
                _walk(parts(*args, **kwargs), flat.append)
            except Exception:  # another device, data that decides: such results are copies
                return [False] * 1000
        return [private.is_alias_of(value, shadows[id(self._base)]) for value in flat]

    def forward(self, ctx: Any, hand_to_python: Run) -> tuple[Any, ...]:
        """Run the operator, and keep what the gradient needs."""
        saved: list[Tensor | None] = list(self.tensors)
        for position, before in zip(self._written, self._before, strict=True):
            saved[position] = before
        ctx.beside = {}
        for position in self._hidden_writes():
            saved[position] = None
            ctx.beside[position] = self.tensors[position].detach().clone()
        ctx.save_for_backward(*saved)
        self._random.save()
        result = self._hand_over(hand_to_python)
        flat: list[Any] = []
        self.result_template = _walk(result, flat.append)
        if self._written:
            ctx.mark_dirty(*(self.tensors[position] for position in self._written))
        # Nothing must stay alive through the call that autograd does not count.
        self._args, self._kwargs, self.tensors = self._template()
        self._before = []
        return tuple(flat)

    def _hidden_writes(self) -> list[int]:
        hidden: list[Any] = []
        for index, argument in enumerate(self.op._schema.arguments):
            if argument.name in _HIDDEN_WRITES and index < len(self._args):
                _walk(self._args[index], hidden.append)
        return [i for i, t in enumerate(self.tensors) if any(t is other for other in hidden)]

    def _template(self) -> tuple[Any, Any, list[Tensor]]:
        args, kwargs = _walk((list(self._args), dict(self._kwargs)), lambda tensor: None)
        return args, kwargs, []

    # ── backward ────────────────────────────────────────────────────────────────────────────────

    def backward(self, ctx: Any, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Run the operator's parts and differentiate them."""
        tensors = list(ctx.saved_tensors)
        wanted = ctx.needs_input_grad[2:]
        again = torch.is_grad_enabled()
        for position, before in ctx.beside.items():
            tensors[position] = before
        with torch.enable_grad(), self._random.restored():
            # Distinct stand-ins, because arguments may be the same tensor or depend on each other.
            own = [
                tensor
                if not want
                else tensor.view_as(tensor)
                if again and tensor.requires_grad
                else tensor.detach().requires_grad_()
                for tensor, want in zip(tensors, wanted, strict=True)
            ]
            args, kwargs = _fill((self._args, self._kwargs), list(own))
            if self._written:  # a leaf must not be written to
                args = [a.clone() if _among(a, own, self._written) else a for a in args]
            parts: Any = private.composite_kernel(self.op)
            flat: list[Tensor] = []
            _walk(parts(*args, **kwargs), flat.append)
        pairs = [
            (value, gradient)
            for value, gradient in zip(flat, gradients, strict=True)
            if gradient is not None and value.requires_grad
        ]
        inputs = [tensor for tensor, want in zip(own, wanted, strict=True) if want]
        found: Sequence[Tensor | None] = [None] * len(inputs)
        if pairs:
            found = torch.autograd.grad(
                [value for value, _ in pairs],
                inputs,
                [gradient for _, gradient in pairs],
                create_graph=again,
                allow_unused=True,
            )
        remaining = iter(found)
        return [next(remaining) if want else None for want in wanted]


class _Node(torch.autograd.Function):
    """The autograd node of an operator that was kept whole."""

    @staticmethod
    def forward(ctx: Any, call: WholeCall, hand_to_python: Run, *tensors: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.call = call
        return call.forward(ctx, hand_to_python)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return (None, None, *ctx.call.backward(ctx, gradients))


class _RandomState:
    """The state of the generators that an operator may draw from."""

    def __init__(self, call: WholeCall) -> None:
        self._generators = [
            value
            for value in (*call._args, *call._kwargs.values())
            if isinstance(value, torch.Generator)
        ] or [torch.default_generator]
        devices = {tensor.device for tensor in call.tensors}
        self._cuda = sorted({d.index for d in devices if d.type == "cuda" and d.index is not None})
        self._states: list[Tensor] = []
        self._cuda_states: list[Tensor] = []

    def save(self) -> None:
        with private.disable_dispatch():
            self._states = [generator.get_state() for generator in self._generators]
            if self._cuda and torch.cuda.is_available():
                self._cuda_states = [torch.cuda.get_rng_state(index) for index in self._cuda]

    def restored(self) -> AbstractContextManager[None]:
        return _Restored(self) if self._states else nullcontext()

    def _set(self, states: Sequence[Tensor], cuda_states: Sequence[Tensor]) -> None:
        with private.disable_dispatch():
            for generator, state in zip(self._generators, states, strict=True):
                generator.set_state(state)
            for index, state in zip(self._cuda, cuda_states, strict=False):
                torch.cuda.set_rng_state(state, index)


class _Restored:
    def __init__(self, saved: _RandomState) -> None:
        self._saved = saved
        self._now = _RandomState.__new__(_RandomState)
        self._now._generators = saved._generators
        self._now._cuda = saved._cuda
        self._now._cuda_states = []

    def __enter__(self) -> None:
        self._now.save()
        self._saved._set(self._saved._states, self._saved._cuda_states)

    def __exit__(self, *exc_info: object) -> None:
        self._now._set(self._now._states, self._now._cuda_states)


# ── tensors in a call ───────────────────────────────────────────────────────────────────────────


class _Hole:
    """Where a tensor stood."""


_HOLE = _Hole()


def _walk(value: Any, visit: Callable[[Tensor], object]) -> Any:
    """Visit each tensor in order, and give the same structure with holes in their place."""
    if isinstance(value, Tensor):
        visit(value)
        return _HOLE
    if isinstance(value, list):
        return [_walk(item, visit) for item in value]
    if isinstance(value, tuple):
        return tuple(_walk(item, visit) for item in value)
    if isinstance(value, dict):
        return {key: _walk(item, visit) for key, item in value.items()}
    return value


def _fill(template: Any, tensors: list[Tensor]) -> Any:
    """Put tensors into the holes; takes them off the list."""
    if template is _HOLE:
        return tensors.pop(0)
    if isinstance(template, list):
        return [_fill(item, tensors) for item in template]
    if isinstance(template, tuple):
        return tuple(_fill(item, tensors) for item in template)
    if isinstance(template, dict):
        return {key: _fill(item, tensors) for key, item in template.items()}
    return template


def _among(value: Any, tensors: Sequence[Tensor], positions: Sequence[int]) -> bool:
    return any(value is tensors[position] for position in positions)
