"""What must work where subclass-utils and its one sibling are installed."""

import sys

import dispatch_core
import subclass_utils

assert "site-packages" in subclass_utils.__file__, subclass_utils.__file__
assert subclass_utils.__version__ == dispatch_core.__version__
assert not {"opspec", "guards"} & sys.modules.keys()
