"""Let `make_fx` and what is built on it, such as `torch.func.linearize`, trace through wrappers.

A tracer notes what is done to the wrappers that it was given. It leaves a call to the class where
another wrapper is in it, of which it knows nothing; what the class does then, to inner tensors,
would be lost: the graph would give what the traced call gave, whatever it is called with. Such a
wrapper is a constant of the graph, as a plain tensor would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from subclass_utils._roles import each_in
from subclass_utils._torch_private import skip_in_dynamo, tracer_of_make_fx

__all__ = ["answer_in_trace"]


def answer_in_trace(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Answer by the tracer what it left to a class; NotImplemented where that is to answer.

    That is so without a tracer, and where it knows none of the tensors, as torch.compile's knows
    inner tensors only.
    """
    tracer = tracer_of_make_fx()
    if tracer is None:
        return NotImplemented
    tensors = [each for each in each_in((*args, *kwargs.values())) if _is_tensor(each)]
    known = [tracer.knows(each) for each in tensors]
    if not any(known):
        return NotImplemented
    for tensor, is_known in zip(tensors, known, strict=True):
        if not is_known and hasattr(type(tensor), "inner_tensors"):
            tracer.add_constant(tensor)
    return func(*args, **kwargs)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


skip_in_dynamo(answer_in_trace.__code__)
