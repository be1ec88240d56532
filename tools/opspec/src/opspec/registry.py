"""Read what the installed torch registers.

torch is imported in a child process that imports nothing else, so that the answer does not depend
on what the calling process has imported: the registry grows with every import of torch's own parts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from opspec.diagnostics import OpspecError

__all__ = [
    "INTERNAL_NAMESPACES",
    "RegisteredOperator",
    "Registry",
    "RegistryError",
    "read_registry",
]

Composite = Literal["implicit", "explicit", "no"]

INTERNAL_NAMESPACES = frozenset({"_native", "_test", "debug_mode_ops", "static_runtime"})
"""Namespaces of torch that are there for torch's own tests and executors."""


class RegistryError(OpspecError):
    """The installed torch could not be asked."""


@dataclass(frozen=True, slots=True)
class RegisteredOperator:
    """One overload as the running torch knows it."""

    qualified_name: str
    schema: str
    """torch's own text."""
    tags: frozenset[str]
    """As `op.tags` says, with those that Python adds."""
    composite: Composite

    @property
    def namespace(self) -> str:
        return self.qualified_name.partition("::")[0]


@dataclass(frozen=True, slots=True)
class Registry:
    """What one torch registers in a fresh process, sorted by name."""

    torch_version: str
    """The public part of the version: 2.13.0 for 2.13.0+cpu."""
    dispatcher: tuple[RegisteredOperator, ...]
    torchscript: tuple[RegisteredOperator, ...]
    """The operators that only the TorchScript interpreter knows."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The dispatcher's namespaces, sorted, without torch's internal ones."""
        found = {operator.namespace for operator in self.dispatcher}
        return tuple(sorted(found - INTERNAL_NAMESPACES))


# A schema's text is the key between the two lists: the dispatcher answers by name, and only the
# list of the TorchScript interpreter holds every schema.
_CHILD = """\
import json, sys
import torch

C = torch._C
schemas = {}
for schema in C._jit_get_all_schemas():
    name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
    schemas[name] = str(schema)

def tags(name):
    # Python adds tags of its own to prims, and these are in the object of the overload only. It
    # exists already where that happened, and asking for another one would make it.
    base, _, overload = name.partition(".")
    namespace, _, short = base.partition("::")
    owner = torch.ops
    for step in (namespace, short, overload or "default"):
        owner = getattr(owner, "__dict__", {}).get(step)
    if isinstance(owner, torch._ops.OpOverload):
        return sorted(tag.name for tag in owner.tags)
    found = C._get_operation_overload(base, overload)
    return sorted(tag.name for tag in found[2]) if found else []

def composite(name):
    has = lambda key: C._dispatch_has_kernel_for_dispatch_key(name, key)
    if has("CompositeImplicitAutograd"):
        return "implicit"
    if has("CompositeExplicitAutograd") or has("CompositeExplicitAutogradNonFunctional"):
        return "explicit"
    return "no"

dispatcher = [
    [name, schemas.pop(name), tags(name), composite(name)]
    for name in C._dispatch_get_all_op_names()
]
torchscript = [[name, text, tags(name), "no"] for name, text in schemas.items()]
json.dump([torch.__version__, dispatcher, torchscript], sys.stdout)
"""


def read_registry(progress: Callable[[int, int], None] | None = None) -> Registry:
    """Ask the torch of this interpreter what it registers.

    `progress` is called from time to time, with nothing done of one thing.

    Raises:
        RegistryError: torch is not installed, or it lacks one of the functions asked for.
    """
    environment = {
        **os.environ,
        # Another package's backend would be loaded by `import torch` and bring its operators.
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        # A torch.py or json.py in the current folder is not meant.
        "PYTHONSAFEPATH": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as child:
        output, complaints = _wait(child, progress)
    if child.returncode != 0:
        raise RegistryError(_why(complaints))
    version, dispatcher, torchscript = json.loads(output)
    return Registry(version.partition("+")[0], _operators(dispatcher), _operators(torchscript))


def _wait(
    child: subprocess.Popen[str], progress: Callable[[int, int], None] | None
) -> tuple[str, str]:
    while True:
        try:
            return child.communicate(timeout=0.2)
        except subprocess.TimeoutExpired:
            if progress is not None:
                progress(0, 1)
        except BaseException:
            child.kill()
            raise


def _operators(rows: list[tuple[str, str, list[str], Composite]]) -> tuple[RegisteredOperator, ...]:
    made = (
        RegisteredOperator(name, schema, frozenset(tags), composite)
        for name, schema, tags, composite in rows
    )
    return tuple(sorted(made, key=lambda operator: operator.qualified_name))


def _why(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "the child process ended without a word"
    if "No module named 'torch'" in last:
        return (
            f"torch is not installed for {sys.executable}; "
            "run `pip install torch`, or use the Python that has it"
        )
    return f"could not read torch's registry with {sys.executable}: {last}"
