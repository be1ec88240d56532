"""The conditions by which a table registers a handler for many operators at once."""

from __future__ import annotations

from typing import Any

import torch

from dispatch_core._errors import TableError, near_matches
from dispatch_core._handle import Handle
from dispatch_core._registry import spec_index, spec_namespaces

__all__ = ["has_family", "has_tag", "known_family", "known_tag"]


def known_tag(tag: str) -> str:
    name = getattr(tag, "name", tag)
    known = list(torch.Tag.__members__)
    if name not in known:
        near = near_matches(str(name), known)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise TableError(f"torch has no tag {name!r}{hint}")
    return str(name)


def known_family(family: str) -> str:
    known: set[str] = set()
    for namespace in spec_namespaces():
        index = spec_index(namespace)
        known.update(index.families if index is not None else ())
    if family not in known:
        near = near_matches(str(family), known)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise TableError(f"the specs have no family {family!r}{hint}")
    return family


def has_tag(tag: str, handle: Handle[Any]) -> bool:
    return tag in handle.tags


def has_family(family: str, handle: Handle[Any]) -> bool:
    return handle.facts.family == family
