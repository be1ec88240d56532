"""Define the operators of a user's own namespace in torch, from their specs."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.library

from dispatch_core import _registry
from dispatch_core import _torch_private as private
from dispatch_core._errors import (
    DefinitionError,
    SchemaDriftError,
    UnknownOperatorError,
    near_matches,
)
from dispatch_core._schema import read_schema, split_name
from dispatch_core._stub import STUBS, StubRecord

__all__ = ["define"]

_lock = threading.RLock()
_libraries: dict[str, torch.library.Library] = {}  # torch takes back what nobody holds


# Operators are defined here first, to see whether torch takes them, and taken back.
_TRIAL = "_dispatch_core_trial"


def define(namespace: str) -> torch.library.Library:
    """Define in torch every operator that the specs of this namespace have.

    The library that comes back takes the kernels (`library.impl("scale_add", kernel, "CPU")`); it
    lives as long as the process does. An operator that is defined already, with the same schema,
    is left alone.

    Raises: UnknownOperatorError if no spec has this namespace; DefinitionError for a namespace
    that torch itself defines, and for operators that torch refuses, all of which it names;
    SchemaDriftError if torch has an operator of this name with another schema. Nothing is defined
    then.
    """
    if not isinstance(namespace, str):
        raise DefinitionError(
            f"define takes the name of a namespace, as a str, but got {namespace!r}",
            namespace=repr(namespace),
        )
    index = _registry.spec_index(namespace)
    if index is None:
        known = _registry.spec_namespaces()
        near = near_matches(namespace, known)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UnknownOperatorError(
            f"the specs have no namespace {namespace!r}{hint}",
            qualified_name=f"{namespace}::",
            suggestions=near,
        )
    if index.torch is not None:
        raise DefinitionError(
            f"the operators of {namespace!r} come with torch (the specs were imported from "
            f"torch {index.torch}); define is for namespaces of your own",
            namespace=namespace,
        )
    with _lock:
        missing = _missing(namespace, index)
        _try(namespace, missing)
        library = _libraries.get(namespace)
        if library is None or getattr(library, "m", None) is None:  # taken back by its owner
            library = _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
        for record in missing:
            _define(library, record)
        return library


def _define(library: torch.library.Library, record: StubRecord) -> None:
    tags: Any = tuple(getattr(torch.Tag, tag) for tag in record.tags.split())
    library.define(record.schema.partition("::")[2], tags=tags)


def _try(namespace: str, records: list[StubRecord]) -> None:
    """Let torch define the operators elsewhere: only there does it say all that it refuses."""
    if not records:
        return
    refused = []
    trial = torch.library.Library(_TRIAL, "FRAGMENT")
    try:
        for record in records:
            try:
                _define(trial, record)
            except (RuntimeError, ValueError, LookupError, AttributeError) as error:
                said = " ".join(str(error).split("\nException raised")[0].split())
                refused.append(f"torch cannot define {record.schema}: {said}")
    finally:
        trial._destroy()
    if refused:
        raise DefinitionError(
            "\n".join(refused) + f"\nNo operator of {namespace!r} is defined: mend the specs, or "
            "import the library whose types they name, and call define again.",
            namespace=namespace,
        )


def _missing(namespace: str, index: _registry.SpecIndex) -> list[StubRecord]:
    """List what torch does not have yet, after checking all of it."""
    for family in index.families:
        index.load(family)
    missing = []
    for qualified_name in sorted(STUBS):
        if not qualified_name.startswith(f"{namespace}::"):
            continue
        record = STUBS[qualified_name]
        _, base, overload = split_name(qualified_name)
        live = private.live_schema(f"{namespace}::{base}", overload)
        if live is None:
            missing.append(record)
        elif live != record.schema and read_schema(live) != read_schema(record.schema):
            raise SchemaDriftError(
                f"{qualified_name} is defined already, with another schema.\n"
                f"  specs: {record.schema}\n"
                f"  torch: {live}\n"
                "Make the two equal: change the spec and run `nox -s codegen`, or the library "
                "that defines it.",
                qualified_name=qualified_name,
                spec_schema=record.schema,
                live_schema=live,
            )
    return missing
