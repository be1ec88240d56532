"""What must work where only guards is installed."""

import sys

import guards

assert "site-packages" in guards.__file__, guards.__file__
assert not {"opspec", "dispatch_core", "subclass_utils", "torch._dynamo"} & sys.modules.keys()

assert guards.facts("aten::add_.Tensor").known
