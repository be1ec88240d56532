"""One call of a composite operator as a whole, with its gradient from the operator's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._autocast import Autocast
from dispatch_core._call_tensors import fill, walk
from dispatch_core._gradient_needs import GradientNeeds, LikePlain, gradient_needs
from dispatch_core._registry import handle_of
from dispatch_core._whole_view import as_views, shares_data

__all__ = ["WholeCall"]

Tensor = torch.Tensor
Run = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]

_PLAIN = (Tensor, torch.nn.Parameter)


class WholeCall:
    """The operator, its arguments, and the tensors among them.

    `needs_parts` says that only the parts do what torch does: out= with gradients, which torch
    refuses; writes that autograd refuses; operators that change what autograd itself keeps of a
    tensor; those that draw random numbers for a gradient that is traced.
    """

    def __init__(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.op = op
        self._args = args
        self._kwargs = kwargs
        self.tensors: list[Tensor] = []
        self._template = walk((list(args), dict(kwargs)), self.tensors.append)
        self._written = self._find_written()
        self.needs_gradient = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in self.tensors
        )
        self._random = _RandomState(self)
        self._needs: GradientNeeds | None = None
        self._before: dict[int, Tensor] = {}
        self._not_given_back: list[int] = []
        self._flat_result: list[Tensor] | None = None
        self.needs_parts = self.needs_gradient and (
            self._writes_oddly()
            # What is traced draws anew in the backward.
            or (private.is_traced() and self._find_needs().draws)
        )
        self._result_template: Any = None

    def _find_written(self) -> list[int]:
        """List which of the tensors are written to, each once, by position in `tensors`."""
        if self._writes_nothing():
            return []
        written: list[Any] = []
        for index, argument in enumerate(self.op._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            if argument.kwarg_only:
                value = self._kwargs.get(argument.name)
            else:
                value = self._args[index] if index < len(self._args) else None
            walk(value, written.append)
        seen: set[int] = set()
        found = []
        for position, tensor in enumerate(self.tensors):
            if id(tensor) not in seen and any(tensor is other for other in written):
                seen.add(id(tensor))
                found.append(position)
        return found

    def _writes_nothing(self) -> bool:
        """Say whether the operator gives its argument back as it is, though it is one that writes.

        So do those for dropout in place, outside of training.
        """
        base = self.op._schema.name.partition("::")
        if base[0] != "aten" or not base[2].endswith("dropout_"):
            return False
        _, p, train = self._args
        return not train or p == 0

    def _writes_oddly(self) -> bool:
        if any(_is_refused_by_autograd(self.tensors[position]) for position in self._written):
            return True
        arguments = self.op._schema.arguments
        if any(a.kwarg_only and a.alias_info and a.alias_info.is_write for a in arguments):
            return True
        name = self.op._schema.name.partition("::")[2]
        return bool(self._written) and (
            torch.Tag.inplace_view in self.op.tags
            or name in ("requires_grad_", "retain_grad", "set_", "set_data")
            or len(self._written) > 1
        )

    def has_tangents(self) -> bool:
        """Say whether an argument has a tangent, of which the node knows nothing."""
        return private.forward_gradients_are_on() and any(map(private.has_tangent, self.tensors))

    # ── forward ─────────────────────────────────────────────────────────────────────────────────

    def run(self, hand_to_python: Run) -> Any:
        """Hand the call to modes and subclasses; what autograd must know of it comes after."""
        if self._written:
            return self._run_writing(hand_to_python)
        if self.needs_gradient:
            self._random.save()
        before = private.nodes_made()
        result = hand_to_python(self.op, self._args, self._kwargs)
        flat: list[Tensor] = []
        self._result_template = walk(result, flat.append)
        if self.needs_gradient and self._is_recorded(flat, before):
            return result
        views = as_views(self.op, self._template, self.tensors, flat)
        if views is not None:
            return fill(self._result_template, list(views))
        if not self.needs_gradient:
            return result
        self._flat_result = flat
        return self._as_node()

    def _is_recorded(self, results: Sequence[Tensor], before: int) -> bool:
        """Say whether autograd has seen to the results, as where a handler ran the parts.

        `before` counts the nodes before that; a handler may also give what it had.
        """
        recorded = [
            result.grad_fn is not None
            and private.is_made_since(result.grad_fn, before)
            and not any(result is tensor for tensor in self.tensors)
            for result in results
        ]
        if not any(recorded):
            return False
        needing = self._find_needs().results
        if needing is None or len(needing) != len(results):
            return True
        return all(r or not need for r, need in zip(recorded, needing, strict=True))

    def _find_needs(self) -> GradientNeeds:
        if self._needs is None:
            self._autocast = Autocast(self.tensors)
            state = self._autocast.settings
            self._needs = gradient_needs(
                self.op, self._template, self.tensors, self._written, state
            )
        return self._needs

    def _run_writing(self, hand_to_python: Run) -> Any:
        if self.needs_gradient:
            # The values before the call are for the parts that run in the backward.
            needed = self._find_needs().values
            self._before = {
                position: tensor.clone()
                for position, tensor in enumerate(self.tensors)
                if position in needed
                and any(shares_data(tensor, self.tensors[at]) for at in self._written)
            }
            self._random.save()
        written = [self.tensors[position] for position in self._written]
        versions = [(each, each._version) for each in written if not each.is_inference()]
        histories = [each.grad_fn for each in written] if self.needs_gradient else []
        result = hand_to_python(self.op, self._args, self._kwargs)
        if self.needs_gradient and any(
            each.grad_fn is not history for each, history in zip(written, histories, strict=True)
        ):
            return result  # by parts that a handler ran
        for tensor, version in versions:
            if tensor._version != version:  # counted by parts that a handler ran, and once more
                private.set_version(tensor, version)
        if self.needs_gradient:
            self._flat_result = []
            self._result_template = walk(result, self._flat_result.append)
            return self._as_node()
        # The parts would have counted these writes.
        if versions:
            private.increment_version([tensor for tensor, _ in versions])
        return result

    def _as_node(self) -> Any:
        apply: Any = _Node.apply
        flat = apply(self, *self.tensors)
        return fill(self._result_template, list(flat))

    def forward(self, ctx: Any) -> tuple[Any, ...]:
        """Keep what the gradient needs, and give what the operator has given."""
        self._save(ctx)
        flat = self._flat_result or []
        if self._written:
            written = [self.tensors[position] for position in self._written]
            ctx.mark_dirty(*written)
            # Autograd wants back what was written to, also from an operator that gives nothing.
            given_back = [any(tensor is result for result in flat) for tensor in written]
            self._not_given_back = [
                at for at, there in zip(self._written, given_back, strict=True) if not there
            ]
            flat += [self.tensors[position] for position in self._not_given_back]
        elif (results := self._find_needs().results) is not None and len(results) == len(flat):
            without = [value for value, has in zip(flat, results, strict=True) if not has]
            ctx.mark_non_differentiable(*without)
        # Nothing must stay alive through the call that autograd does not count.
        self._args, self._kwargs, self.tensors = (), {}, []
        self._before, self._flat_result = {}, None
        return tuple(flat)

    def _save(self, ctx: Any) -> None:
        """Save the arguments whose values the gradient needs, and how the others look."""
        saved: list[Tensor | None] = list(self.tensors)
        for position, before in self._before.items():
            saved[position] = before
        beside: dict[int, Tensor | LikePlain] = {
            position: self.tensors[position].detach().clone() for position in self._hidden_writes()
        }
        needed = self._find_needs().values
        for position, tensor in enumerate(self.tensors):
            if position not in (*needed, *beside):
                plain = type(tensor) in _PLAIN and not private.has_python_key(tensor)
                beside[position] = LikePlain(tensor) if plain else tensor.detach()
        for position in beside:
            saved[position] = None
        ctx.beside = beside
        ctx.save_for_backward(*saved)

    def _hidden_writes(self) -> list[int]:
        """List what is written to although the schema does not say so.

        No gradient needs it.
        """
        hidden: list[Any] = []
        mutates = handle_of(self.op).facts.mutates
        for index, argument in enumerate(self.op._schema.arguments):
            said = argument.alias_info is not None and argument.alias_info.is_write
            if argument.name in mutates and not said and index < len(self._args):
                walk(self._args[index], hidden.append)
        return [i for i, t in enumerate(self.tensors) if any(t is other for other in hidden)]

    # ── backward ────────────────────────────────────────────────────────────────────────────────

    def backward(self, ctx: Any, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Run the operator's parts and differentiate them."""
        tensors = list(ctx.saved_tensors)
        wanted = ctx.needs_input_grad[1:]
        again = torch.is_grad_enabled()
        for position, look in ctx.beside.items():
            tensors[position] = look.make() if isinstance(look, LikePlain) else look
        with torch.enable_grad(), self._random.restored(), self._autocast.restored():
            # Distinct stand-ins, because arguments may be the same tensor or depend on each other.
            own = [
                tensor
                if not want
                else tensor.view_as(tensor)
                if again and tensor.requires_grad
                else tensor.detach().requires_grad_()
                for tensor, want in zip(tensors, wanted, strict=True)
            ]
            if self._written:  # a leaf must not be written to
                given = [t.clone() if at in self._written else t for at, t in enumerate(own)]
            else:
                given = list(own)
            args, kwargs = fill(self._template, list(given))
            parts: Any = private.composite_kernel(self.op)
            flat: list[Tensor] = []
            walk(parts(*args, **kwargs), flat.append)
            flat += [given[position] for position in self._not_given_back]
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
    def forward(ctx: Any, call: WholeCall, *tensors: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.call = call
        return call.forward(ctx)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return (None, *ctx.call.backward(ctx, gradients))


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


# ── writing ─────────────────────────────────────────────────────────────────────────────────────


def _is_refused_by_autograd(tensor: Tensor) -> bool:
    """Say whether autograd refuses a write to a tensor, or may do so."""
    base: Any = tensor._base
    if base is None:
        return tensor.requires_grad and tensor.is_leaf
    return (base.requires_grad and base.is_leaf) or not private.may_be_written_through(tensor)
