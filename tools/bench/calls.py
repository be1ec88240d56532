"""The calls that are bound and elided: few and many arguments, short and long tails of defaults."""

from __future__ import annotations

import torch

_vector = torch.ones(3)
_matrix = torch.ones(3, 3)
_image = torch.ones(1, 1, 2, 2)
_filters = torch.ones(1, 1, 1, 1)
_pair = [1, 1]

CALLS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "aten::mul.Tensor": ((_vector, _vector), {}),
    "aten::addmv": ((_vector, _matrix, _vector), {"alpha": 2}),
    "aten::kl_div": ((_vector, _vector), {}),
    "aten::convolution": (
        (_image, _filters, None, _pair, _pair, _pair, False, [0, 0], 1),
        {},
    ),
    "aten::_to_copy": ((_vector,), {"dtype": torch.float64}),
}
