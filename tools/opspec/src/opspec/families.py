"""The family of an operator: the file under specs/<namespace>/ in which a reader finds it.

A family is found by rule: from the words of the operator's base name, and where they say nothing,
from its tags and its schemas. Names that no rule places well are listed in `EXCEPTIONS`. All
overloads of a base name, and its in-place form, lie in one family.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from opspec.model import DictOf, Generic_, ListOf, Named, Schema, aliases_of, base_name

__all__ = [
    "EXCEPTIONS",
    "PATTERNS",
    "TAG_RULES",
    "TORCHSCRIPT_EXCEPTIONS",
    "UNPLACED",
    "family_of",
    "placed_by",
    "stem",
    "torchscript_family",
]

UNPLACED = "unplaced"
"""The family of an operator that no rule places. An import says so; then add a rule here."""

_WHOLE_NAMESPACE = {
    "_c10d_functional": "collectives",
    "_c10d_functional_autograd": "collectives",
    "_dtensor": "collectives",
    "_quantized": "quantized",
    "c10d": "collectives",
}

# Every other namespace is one family of its own name.
_DIVIDED = frozenset({"aten", "quantized"})

# What these are is not to be seen from the words of their names.
_EXCEPTIONS = (
    ("activation", "glu threshold"),
    ("arithmetic", "add div float_power lerp mul multiply positive pow reciprocal remainder rsub"),
    ("assertions", "make_dep_token print"),
    ("attention", "fused_sdp_choice transform_bias_rescale_qkv transformer_encoder_layer_fwd"),
    ("autograd", "backward data get_gradients is_leaf output_nr propagate_xla_data requires_grad"),
    ("autograd", "set_data version"),
    ("backward", "glu_jvp"),
    ("blas", "addmm_activation addr chain_matmul einsum ger inner kron matmul outer"),
    ("blas", "int4mm_packed_weight_cpu"),
    ("comparison", "eq is_nonzero ne"),
    ("conversion", "can_cast chalf item local_scalar_dense promote_types result_type"),
    ("conversion", "saturate_weight_to_fp16 to type_as"),
    ("convolution", "col2im im2col"),
    ("copying", "contiguous copy zero"),
    ("cumulative", "diff gradient"),
    ("distance", "cosine_similarity dist euclidean_dist pairwise_distance"),
    ("dropout", "masked_scale"),
    ("embedding", "one_hot"),
    ("factories", "arange dim_arange efficientzerotensor eye from_file range scalar_tensor"),
    ("functorch", "add_batch_dim remove_batch_dim"),
    ("histogram", "bincount"),
    ("indexing", "gather index put"),
    ("joining", "block_diag cartesian_prod combinations concatenate meshgrid"),
    ("linalg", "cross det diag geqrf qr svd trace triangular_solve vander"),
    ("loss", "kl_div"),
    ("movement", "roll rot90 tile"),
    ("nested", "to_padded_tensor"),
    ("normalization", "instance_norm norm_except_dim"),
    ("padding", "constant_pad_nd pad"),
    ("pointwise", "complex polar"),
    ("properties", "cudnn_is_acceptable debug_has_internal_overlap dim get_device numel size"),
    ("properties", "has_compatible_shallow_copy_type nnpack_available shape_as_tensor"),
    ("properties", "storage_offset stride"),
    ("quantization", "dequantize int_repr qscheme rowwise_prune wrapped_linear_prepack"),
    ("reductions", "corrcoef count_nonzero cov hash_tensor mode segment_reduce sum_to_size"),
    ("sorting", "bucketize kthvalue searchsorted topk"),
    ("sparse", "dense_dim hspmm nnz smm sspaddmm to_dense"),
    ("storage", "has_same_storage_numel record_stream set"),
    ("testing", "foobar"),
    ("views", "slice_inverse"),
)

# Tried in this order; the first that fits decides.
_PATTERNS = (
    ("testing", "test_*"),
    ("autograd", "retain*"),
    ("backward", "*_backward *_backward_* *_grad"),
    ("foreach", "foreach_*"),
    ("optim", "fused_ada* fused_sgd* amp_*"),
    ("fft", "fft_* cufft_* *stft"),
    ("special", "special_*"),
    ("quantization", "quantize* *_quantized *_quantized_* *_quant_* *fake_quant* q_* fbgemm_*"),
    ("quantization", "*qparams* *_int?pack* *_avg_obs_*"),
    ("nested", "*nested* *jagged*"),
    ("attention", "*attention*"),
    ("sparse", "cslt_* *sparse* *col_indices* *row_indices* indices* values* *coalesce*"),
    ("sparse", "convert_indices_* dim? sp[ds]*"),
    ("loss", "*_loss *_loss_* *_loss2d* *cross_entropy*"),
    ("dropout", "*dropout*"),
    ("rnn", "*lstm* *gru* *rnn* *_sequence"),
    ("embedding", "*embedding*"),
    ("convolution", "*conv?d *conv_* *convolution* *_conv?d_*"),
    ("pooling", "*pool?d*"),
    ("padding", "*_pad?d pad_*"),
    ("interpolation", "upsample_* *grid_sampler* *affine_grid*"),
    ("normalization", "*batch_norm* *layer_norm *group_norm *rms_norm weight_norm*"),
    ("linalg", "linalg_* *cholesky* *logdet lu_* matrix_* *inverse *norm diag[!o]* or?qr tri?"),
    ("distance", "*cdist* *pdist*"),
    ("activation", "*softmax* *elu *relu? *relu_* *silu *mish hard* soft* *sigmoid*"),
    ("random", "rand* *normal* philox_* sobol_*"),
    ("histogram", "hist*"),
    ("unique", "unique*"),
    ("sorting", "*sort"),
    ("views", "*_view* *_scatter"),
    ("indexing", "index_* *_index *_index_put* scatter* *masked_* take* *nonzero* *where"),
    ("cumulative", "cum* *logcumsumexp trap*"),
    ("reductions", "*mean *median *quantile is_a??_true"),
    ("logic", "__*__ bitwise_* logical_*"),
    ("comparison", "*equal *close greater* less* [gl][et] is[!_]* m??imum fm[ai][xn]"),
    ("arithmetic", "addc* sub* *_divide divide* fmod* neg* clamp* clip*"),
    ("pointwise", "arc* abs* fix*"),
    ("factories", "zeros* ones* full* empty* new_* *_window *space tri?_indices"),
    ("blas", "*mm *mm_v? *mv *dot *linear*"),
    ("joining", "*cat *stack *flatten_dense_*"),
    ("assertions", "*assert* *sym_constrain*"),
    ("copying", "copy_* lift* fill* *clone"),
    ("conversion", "to_* cast_* autocast_*"),
    ("storage", "resize* *pin_memory"),
    ("movement", "*shuffle flip* repeat*"),
    ("views", "view_* *split* *chunk *transpose* *reshape* broadcast_* atleast_*"),
    ("properties", "is_* sym_*"),
    ("autograd", "*_dual* fw_primal*"),
)

# Tried before all others, in one namespace.
_PATTERNS_OF = {
    "quantized": (
        ("convolution", "*conv*"),
        ("rnn", "*_cell_*"),
        ("normalization", "*norm*"),
        ("blas", "*linear*"),
        ("arithmetic", "add* mul*"),
        ("joining", "cat*"),
    ),
}


def _table(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, family) for family, names in rows for name in names.split())


EXCEPTIONS: Mapping[str, str] = dict(_table(_EXCEPTIONS))
"""Stems that are placed one by one, in every namespace."""

PATTERNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": _table(_PATTERNS),
    **{namespace: _table(rows) for namespace, rows in _PATTERNS_OF.items()},
}
"""(pattern, family), for one namespace or, under the empty name, for all."""

TAG_RULES = (
    ("nondeterministic_seeded", "random"),
    ("reduction", "reductions"),
    ("pointwise", "pointwise"),
    ("view_copy", "views"),
    ("inplace_view", "views"),
)
"""(tag, family), for names that no pattern fits."""


def stem(name: str) -> str:
    """Strip what private and in-place forms add to a name: `_conv_`, `__ior__` → `conv`, `ior`."""
    return name.strip("_")


def placed_by(namespace: str, name: str) -> tuple[str, str] | None:
    """Give the (pattern, family) that the words of a base name decide, `EXCEPTIONS` left aside."""
    forms = (stem(name), name)
    for pattern, family in (*PATTERNS.get(namespace, ()), *PATTERNS[""]):
        if any(fnmatchcase(form, pattern) for form in forms):
            return pattern, family
    return None


def family_of(
    namespace: str, name: str, *, tags: Iterable[str] = (), schemas: Iterable[Schema] = ()
) -> str:
    """Give the family of a base name.

    `tags` and `schemas` are those of all overloads of all names with the same stem: what torch
    says of `gcd` holds for `gcd_`.
    """
    if namespace not in _DIVIDED:
        return _WHOLE_NAMESPACE.get(namespace, namespace)
    placed = placed_by(namespace, name)
    if placed is not None and placed[0] in dict(PATTERNS.get(namespace, ())):
        return placed[1]
    if stem(name) in EXCEPTIONS:
        return EXCEPTIONS[stem(name)]
    if placed is not None:
        return placed[1]
    known = set(tags)
    for tag, family in TAG_RULES:
        if tag in known:
            return family
    if any(_gives_view(schema) for schema in schemas):
        return "views"
    return UNPLACED


def _gives_view(schema: Schema) -> bool:
    return any(not alias.write for result in schema.returns for alias in aliases_of(result.type))


# Methods and functions of TorchScript whose types mislead.
_TORCHSCRIPT_EXCEPTIONS = (
    ("interpreter", "aten::device aten::get_autocast_dtype aten::manual_seed aten::warn"),
    ("interpreter", "aten::set_grad_enabled"),
    ("tensors", "aten::Size aten::_infer_size aten::_size_if_not_equal aten::backward"),
    ("tensors", "aten::broadcast_shapes aten::dequantize"),
)

TORCHSCRIPT_EXCEPTIONS: Mapping[str, str] = dict(_table(_TORCHSCRIPT_EXCEPTIONS))
"""Operators of TorchScript that are placed one by one."""

_NUMBERS = frozenset({"int", "float", "complex", "bool", "Scalar"})
_REMOTE = frozenset({"Await", "Future", "RRef"})


def torchscript_family(name: str, schemas: Iterable[Schema]) -> str:
    """Give the family of a name (`aten::append`) that only TorchScript has, from its types."""
    all_schemas = tuple(schemas)
    if name in TORCHSCRIPT_EXCEPTIONS:
        return TORCHSCRIPT_EXCEPTIONS[name]
    if name.partition("::")[2].startswith(("awaitable_", "dist_", "rpc_")):
        return "distributed"
    if all(_returns_tensors(schema) for schema in all_schemas):
        return "tensors"
    kinds = {_kind(schema) for schema in all_schemas}
    if kinds == {"numbers"} and any(_is_unary(schema) for schema in all_schemas):
        return "math"
    for kind in ("numbers", "containers", "strings", "distributed", "tensors"):
        if kind in kinds:
            return kind
    return "interpreter"


def _returns_tensors(schema: Schema) -> bool:
    return bool(schema.returns) and all(
        base_name(result.type) == "Tensor" for result in schema.returns
    )


def _is_unary(schema: Schema) -> bool:
    results = [base_name(result.type) for result in schema.returns]
    return len(schema.parameters) == 1 and bool(results) and _NUMBERS.issuperset(results)


def _kind(schema: Schema) -> str | None:
    """Say what a schema is a function of, from its first parameter."""
    types = [parameter.type for parameter in schema.parameters]
    if not types:
        return None
    if all(isinstance(type_, Named) and type_.name in _NUMBERS for type_ in types):
        return "numbers"
    first = types[0]
    if isinstance(first, Generic_) and first.name in _REMOTE:
        return "distributed"
    if isinstance(first, DictOf | ListOf):
        return "containers"
    return {"Tensor": "tensors", "str": "strings"}.get(base_name(first))
