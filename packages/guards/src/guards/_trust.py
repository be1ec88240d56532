"""Which code, modules and classes are taken to do what is known of them: torch's, and pure ones."""

from __future__ import annotations

import os
import sys
import types

import torch

from guards._class_names import find_class, importable_name, module_name
from guards._emit import is_heap_type
from guards._understood import words

__all__ = [
    "TORCH_FOLDER",
    "is_of_torch",
    "is_trusted_class",
    "is_trusted_module",
    "path_in_torch",
]

TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep

# Modules of the standard library whose functions give the same for the same arguments.
_PURE_MODULES = words(
    "builtins cmath collections collections.abc dataclasses enum functools itertools math numbers "
    "operator types typing abc __future__"
)


def is_of_torch(code: types.CodeType) -> bool:
    """Tell whether code belongs to torch itself."""
    return code.co_filename.startswith(TORCH_FOLDER)


def path_in_torch(code: types.CodeType) -> str:
    """Give the file of torch's that code of torch is in, as ``nn/functional.py``."""
    return code.co_filename[len(TORCH_FOLDER) :].replace(os.sep, "/")


def is_trusted_module(module: types.ModuleType) -> bool:
    """Tell whether a module is torch's, or a pure one of the standard library."""
    name = module.__name__
    return name in _PURE_MODULES or name == "torch" or name.startswith("torch.")


def is_trusted_class(cls: type) -> bool:
    """Tell whether a class comes from such a module."""
    module = sys.modules.get(module_name(cls))
    if module is None or not is_trusted_module(module):
        return False
    # A class may say that it is of any module: those of make_dataclass say it of `types`.
    name = importable_name(cls)
    return not is_heap_type(cls) or "<locals>" in name or find_class(name) is cls
