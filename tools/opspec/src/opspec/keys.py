"""The keys of the spec language, in one table.

The reader's checks, the JSON Schema for editors and the list of keys in specs/README.md are all
made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ENTRY", "FOREIGN_KEYS", "KEYS", "OVERLAY", "TAGS", "TREE", "TREE_KEYS", "Key", "Kind"]

Kind = Literal["schema", "name", "tags", "choice", "bool", "text", "names"]

ENTRY = "entry"  # - func: …
OVERLAY = "overlay"  # - op: …, in specs/<namespace>/facts.yaml
TREE = "tree"  # specs/_torch.yaml


@dataclass(frozen=True, slots=True)
class Key:
    """One key: where it may stand, what its value is, and how to explain it."""

    name: str
    where: tuple[str, ...]
    kind: Kind
    meaning: str
    default: str
    example: str
    choices: tuple[str, ...] = ()
    required: bool = False


# torch.Tag of 2.13, with what each says.
TAGS: dict[str, str] = {
    "core": "part of the small set that decompositions end in",
    "cudagraph_unsafe": "must not run inside a CUDA graph",
    "data_dependent_output": "the result is a Python value computed from data, as item() is",
    "dynamic_output_shape": "the shape of the result depends on data, as nonzero's does",
    "flexible_layout": "accepts inputs of any strides",
    "generated": "written by torch's own code generation",
    "inplace": "the in-place variant of another operator",
    "inplace_view": "changes the metadata of its argument in place, as t_ does",
    "maybe_aliasing_or_mutating": "may alias or write although the schema does not say so",
    "needs_contiguous_strides": "wants contiguous inputs",
    "needs_exact_strides": "wants the strides that the caller's tensors have",
    "needs_fixed_stride_order": "wants the order of strides that the caller's tensors have",
    "nondeterministic_bitwise": "may differ bit by bit between two runs",
    "nondeterministic_seeded": "draws random numbers from a generator",
    "out": "the out= variant of another operator",
    "out_variant": "the out= variant of another operator",
    "pointwise": "computes each element of the result from the same elements of its arguments",
    "pt2_compliant_tag": "works under torch.compile and torch.export",
    "reduction": "computes one value from many, along dimensions",
    "view_copy": "the copying variant of a view",
}

KEYS: tuple[Key, ...] = (
    Key(
        "func",
        (ENTRY,),
        "schema",
        "the schema: the operator's name, its arguments with types and defaults, its results",
        "",
        "mm(Tensor self, Tensor mat2) -> Tensor",
        required=True,
    ),
    Key(
        "tags",
        (ENTRY,),
        "tags",
        "torch's tags, one or a list; those that go without saying are left out "
        "(`pt2_compliant_tag` in aten, prims and quantized; `inplace` and `out` in aten)",
        "none",
        "[core, pointwise]",
    ),
    Key(
        "without_tags",
        (ENTRY,),
        "tags",
        "tags that go without saying for such an operator, and that it does not have",
        "none",
        "[pt2_compliant_tag]",
    ),
    Key(
        "op",
        (OVERLAY,),
        "name",
        "the operator that the entry speaks of: a base name stands for all of its overloads, "
        "`.default` for the one without a name",
        "",
        "aten::dropout",
        required=True,
    ),
    Key(
        "composite",
        (ENTRY, OVERLAY),
        "choice",
        "whether torch runs it by calling other operators: `implicit` with their gradients, "
        "`explicit` with a gradient of its own, `no` by a kernel",
        "no",
        "implicit",
        ("implicit", "explicit", "no"),
    ),
    Key(
        "random",
        (ENTRY, OVERLAY),
        "bool",
        "whether two calls with equal arguments may differ",
        "true with the tag nondeterministic_seeded, else false",
        "true",
    ),
    Key(
        "reads_data",
        (ENTRY, OVERLAY),
        "choice",
        "whether the call needs the values in its tensors to answer at all, so that it cannot run "
        "on shapes alone: `by_argument` when that depends on the arguments",
        "always with the tag data_dependent_output, else no",
        "by_argument",
        ("no", "always", "by_argument"),
    ),
    Key(
        "output_shape",
        (ENTRY, OVERLAY),
        "choice",
        "whether the shape of a result depends on data",
        "dynamic with the tag dynamic_output_shape, else static",
        "dynamic",
        ("static", "dynamic"),
    ),
    Key(
        "also_writes",
        (ENTRY, OVERLAY),
        "names",
        "arguments that the call may write to, although the schema does not say so",
        "none",
        "[self]",
    ),
    Key(
        "doc",
        (ENTRY, OVERLAY),
        "text",
        "one or more sentences that generated docstrings repeat",
        "none",
        "Multiply, add and scale in one pass over memory.",
    ),
)

TREE_KEYS: tuple[Key, ...] = (
    Key(
        "torch",
        (TREE,),
        "text",
        "the version of torch that the imported namespaces come from",
        "",
        "2.13.0",
        required=True,
    ),
    Key(
        "namespaces",
        (TREE,),
        "names",
        "the namespaces that were imported; all others are a person's own, with stricter rules",
        "",
        "[aten, prims]",
        required=True,
    ),
)

# Keys of native_functions.yaml that steer torch's own code generation.
FOREIGN_KEYS: frozenset[str] = frozenset(
    {
        "autogen",
        "category_override",
        "cpp_no_default_args",
        "device_check",
        "device_guard",
        "dispatch",
        "manual_cpp_binding",
        "manual_kernel_registration",
        "precomputed",
        "python_module",
        "structured",
        "structured_delegate",
        "structured_inherits",
        "ufunc_inner_loop",
        "use_const_ref_for_mutable_tensors",
        "variants",
    }
)
