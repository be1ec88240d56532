"""Tell at once that the namespace of a module or a class is as it was when last looked at."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from typing import Any

from guards import _torch_private as private

__all__ = ["VERSION_OF_DICT", "dict_behind"]

# Every change of a dict gives it a number that no dict had before: where that is the same, so are
# its keys and values. Python 3.12 has done away with it, and None stands for that.
VERSION_OF_DICT: Callable[[Any], int] | None = (
    None if sys.version_info >= (3, 12) else private.dict_version()
)


def dict_behind(own: Mapping[str, Any]) -> Any:
    """Give the dict of a namespace: behind a proxy where it is of a class, which it keeps alive."""
    return own if type(own) is dict else gc.get_referents(own)[0]
