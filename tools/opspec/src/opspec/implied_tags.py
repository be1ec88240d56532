"""Tags that go without saying: nearly every operator of a namespace has them.

Spec files leave them out. An operator that lacks one of them says so by `without_tags`.
"""

from __future__ import annotations

from opspec.model import Schema, aliases_of

__all__ = ["implied_tags"]

# torch gives this one to every operator of its own code generator.
_COMPLIANT_NAMESPACES = frozenset({"aten", "prims", "quantized"})


def implied_tags(schema: Schema) -> frozenset[str]:
    """Give the tags that torch derives from a schema, and that a spec therefore need not name."""
    if schema.namespace not in _COMPLIANT_NAMESPACES:
        return frozenset()
    tags = {"pt2_compliant_tag"}
    if schema.namespace == "aten":
        if _is_in_place(schema.name):
            tags.add("inplace")
        if _has_out(schema):
            tags.add("out")
    return frozenset(tags)


def _is_in_place(name: str) -> bool:
    """Say whether a name is that of an in-place form: `add_`, `__iand__`."""
    if name.startswith("__") and name.endswith("__"):
        return name.startswith("__i")
    return name.endswith("_")


def _has_out(schema: Schema) -> bool:
    return any(
        alias.write
        for parameter in schema.parameters
        if parameter.kwarg_only
        for alias in aliases_of(parameter.type)
    )
