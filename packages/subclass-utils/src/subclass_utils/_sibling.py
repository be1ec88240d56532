"""Refuse a dispatch_core of another version, before anything of it is used."""

import dispatch_core

from subclass_utils._version import __version__

_found = getattr(dispatch_core, "__version__", "an unknown version")

if _found != __version__:
    raise ImportError(
        f"subclass_utils {__version__} works with dispatch_core {__version__} only, and "
        f"{dispatch_core.__file__} is {_found}: install both from one release or one checkout"
    )
