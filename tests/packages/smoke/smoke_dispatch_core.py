"""What must work where only dispatch-core is installed."""

import sys

import dispatch_core
import torch

assert "site-packages" in dispatch_core.__file__, dispatch_core.__file__
assert not {"opspec", "subclass_utils", "guards"} & sys.modules.keys()

add = dispatch_core.ops.aten.add.Tensor
bound = add.bind((torch.ones(2), torch.ones(2)))
assert list(bound) == ["self", "other", "alpha"]
args, kwargs = add.elide(bound)
assert len(args) == 2
assert kwargs == {}
assert torch.equal(add(*args, **kwargs), torch.full((2,), 2.0))
