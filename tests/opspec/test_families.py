"""Every operator has one family, by rule, with a short list of exceptions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from opspec import families
from opspec.families import (
    EXCEPTIONS,
    PATTERNS,
    TAG_RULES,
    TORCHSCRIPT_EXCEPTIONS,
    UNPLACED,
    family_of,
    placed_by,
    stem,
    torchscript_family,
)
from opspec.families_descriptions import DESCRIPTIONS, TORCHSCRIPT_DESCRIPTIONS
from opspec.model import Operator, SpecTree
from opspec.schema import parse_schema
from opspec.tree import load

SPECS = Path(__file__).parents[2] / "specs"


@pytest.fixture(scope="module")
def tree() -> SpecTree:
    found, diagnostics = load([SPECS])
    assert [d for d in diagnostics if d.severity == "error"] == []
    return found


@pytest.fixture(scope="module")
def dispatched(tree: SpecTree) -> list[Operator]:
    """The dispatcher's operators, without a person's own."""
    return [operator for operator in tree.operators if operator.imported and not operator.scripted]


@pytest.fixture(scope="module")
def stems(dispatched: list[Operator]) -> dict[tuple[str, str], list[Operator]]:
    groups: dict[tuple[str, str], list[Operator]] = defaultdict(list)
    for operator in dispatched:
        groups[operator.schema.namespace, stem(operator.schema.name)].append(operator)
    return groups


def by_rule(namespace: str, name: str, group: list[Operator]) -> str:
    return family_of(
        namespace,
        name,
        tags={tag for operator in group for tag in operator.tags},
        schemas=[operator.schema for operator in group],
    )


@pytest.mark.slow
def test_each_base_name_has_exactly_one_family(tree: SpecTree) -> None:
    found: dict[tuple[bool, str], set[str]] = defaultdict(set)
    for operator in tree.operators:
        found[operator.scripted, operator.schema.base].add(operator.family)
    assert {name: of for name, of in found.items() if len(of) > 1} == {}


def test_an_in_place_form_lies_with_the_other(stems: dict[tuple[str, str], list[Operator]]) -> None:
    apart = {}
    for key, group in stems.items():
        forms = {operator.schema.name.rstrip("_"): operator.family for operator in group}
        for operator in group:
            if operator.family != forms[operator.schema.name.rstrip("_")]:
                apart[key] = {operator.qualified_name: operator.family for operator in group}
    assert apart == {}


def test_the_specs_lie_where_the_rule_says(stems: dict[tuple[str, str], list[Operator]]) -> None:
    wrong = {
        operator.qualified_name: operator.family
        for (namespace, _), group in stems.items()
        for operator in group
        if operator.family != by_rule(namespace, operator.schema.name, group)
    }
    assert wrong == {}


def test_torchscript_lies_where_the_rule_says(tree: SpecTree) -> None:
    groups: dict[str, list[Operator]] = defaultdict(list)
    for operator in tree.operators:
        if operator.scripted:
            groups[operator.schema.base].append(operator)
    wrong = {
        name: group[0].family
        for name, group in groups.items()
        if group[0].family != torchscript_family(name, [op.schema for op in group])
    }
    assert len(groups) > 200
    assert wrong == {}


def test_nothing_is_unplaced(tree: SpecTree) -> None:
    assert [op.qualified_name for op in tree.operators if op.family == UNPLACED] == []


def test_the_exceptions_are_few() -> None:
    assert len(EXCEPTIONS) + len(TORCHSCRIPT_EXCEPTIONS) <= 150


def test_every_exception_is_used(
    tree: SpecTree, stems: dict[tuple[str, str], list[Operator]]
) -> None:
    names = {name for _, name in stems}
    assert [name for name in EXCEPTIONS if name not in names] == []
    scripted = {operator.schema.base for operator in tree.operators if operator.scripted}
    assert [name for name in TORCHSCRIPT_EXCEPTIONS if name not in scripted] == []


def test_no_exception_says_what_the_rule_says(
    stems: dict[tuple[str, str], list[Operator]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "EXCEPTIONS", {})
    needless = []
    for name, family in EXCEPTIONS.items():
        placed = {
            by_rule(namespace, operator.schema.name, group)
            for (namespace, stemmed), group in stems.items()
            if stemmed == name and namespace in ("aten", "quantized")
            for operator in group
        }
        if placed == {family}:
            needless.append(name)
    assert needless == []


def test_no_exception_of_torchscript_says_what_the_rule_says(
    tree: SpecTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "TORCHSCRIPT_EXCEPTIONS", {})
    needless = []
    for name, family in TORCHSCRIPT_EXCEPTIONS.items():
        schemas = [op.schema for op in tree.operators if op.scripted and op.schema.base == name]
        if torchscript_family(name, schemas) == family:
            needless.append(name)
    assert needless == []


def test_every_pattern_decides_several_names(dispatched: list[Operator]) -> None:
    """A pattern for one name would be an exception in disguise."""
    decided: Counter[tuple[str, tuple[str, str]]] = Counter()
    for namespace, name in {(op.schema.namespace, op.schema.name) for op in dispatched}:
        if namespace not in ("aten", "quantized") or stem(name) in EXCEPTIONS:
            continue
        placed = placed_by(namespace, name)
        if placed is not None:
            own = placed in PATTERNS.get(namespace, ())
            decided[namespace if own else "", placed] += 1
    few = [
        (namespace, row)
        for namespace, rows in PATTERNS.items()
        for row in rows
        if decided[namespace, row] < 2
    ]
    assert few == []


def test_every_tag_rule_decides_something(stems: dict[tuple[str, str], list[Operator]]) -> None:
    used = set()
    for (namespace, name), group in stems.items():
        if namespace == "aten" and name not in EXCEPTIONS and not placed_by(namespace, name):
            tags = {tag for operator in group for tag in operator.tags}
            used.add(next((rule for rule in TAG_RULES if rule[0] in tags), None))
    assert [rule for rule in TAG_RULES if rule not in used] == []


# The largest is what has the same name everywhere, so that one knows where it is.
LARGEST = {"aten/backward": 270}


def test_a_family_can_be_read(tree: SpecTree) -> None:
    sizes: Counter[str] = Counter()
    for operator in tree.operators:
        if operator.imported:
            folder = "torchscript" if operator.scripted else operator.schema.namespace
            sizes[f"{folder}/{operator.family}"] += 1
    assert {name: n for name, n in sizes.items() if n > LARGEST.get(name, 250)} == {}


def test_every_family_is_described_and_every_description_used(tree: SpecTree) -> None:
    dispatched = {op.family for op in tree.operators if op.imported and not op.scripted}
    assert dispatched | {UNPLACED} == set(DESCRIPTIONS)
    assert {op.family for op in tree.operators if op.scripted} == set(TORCHSCRIPT_DESCRIPTIONS)


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("activation", "relu relu_ gelu sigmoid softmax log_softmax leaky_relu prelu silu"),
        ("arithmetic", "add add_ mul sub div pow remainder neg addcmul lerp clamp"),
        ("attention", "scaled_dot_product_attention _native_multi_head_attention"),
        ("autograd", "requires_grad_ retain_grad"),
        ("backward", "convolution_backward native_layer_norm_backward tanh_backward"),
        ("blas", "addmv addmv_ mm bmm addmm dot matmul linear einsum baddbmm"),
        ("comparison", "eq lt isnan maximum isclose allclose equal"),
        ("conversion", "to _to_copy type_as item _local_scalar_dense"),
        ("convolution", "conv2d conv_transpose1d convolution im2col"),
        ("copying", "clone copy_ fill_ zero_ contiguous"),
        ("cumulative", "cumsum cummax logcumsumexp diff"),
        ("distance", "cdist pairwise_distance cosine_similarity"),
        ("dropout", "dropout dropout_ native_dropout"),
        ("embedding", "embedding embedding_bag one_hot"),
        ("factories", "zeros empty full_like arange eye hann_window tril_indices new_zeros"),
        ("fft", "fft_fft fft_rfft stft"),
        ("foreach", "_foreach_add_ _foreach_norm"),
        ("histogram", "histc histogram bincount"),
        ("indexing", "index_put_ gather scatter_add masked_fill nonzero where take_along_dim"),
        ("interpolation", "upsample_bilinear2d grid_sampler_2d"),
        ("joining", "cat stack hstack"),
        ("linalg", "svd linalg_svd qr det cholesky norm tril diag inverse"),
        ("logic", "logical_and bitwise_or __and__ __lshift__"),
        ("loss", "mse_loss cross_entropy_loss ctc_loss kl_div nll_loss"),
        ("movement", "flip roll repeat repeat_interleave pixel_shuffle"),
        ("nested", "_nested_tensor_size to_padded_tensor"),
        ("normalization", "layer_norm native_layer_norm batch_norm group_norm _weight_norm"),
        ("optim", "_fused_adam_ _fused_sgd_"),
        ("padding", "constant_pad_nd reflection_pad2d pad"),
        ("pointwise", "exp sin round sqrt erf tanh abs absolute arccos"),
        ("pooling", "max_pool2d max_pool2d_with_indices adaptive_avg_pool2d avg_pool1d"),
        ("properties", "size stride is_complex sym_size numel"),
        ("quantization", "quantize_per_tensor fake_quantize_per_tensor_affine dequantize"),
        ("random", "random_ normal_ rand randperm bernoulli multinomial uniform_"),
        ("reductions", "sum mean amax var std argmax all any median quantile count_nonzero"),
        ("rnn", "lstm gru lstm_cell _pack_padded_sequence"),
        ("sorting", "sort argsort topk kthvalue searchsorted"),
        ("sparse", "to_sparse coalesce crow_indices _sparse_mm sparse_coo_tensor to_dense"),
        ("special", "special_zeta special_bessel_j0"),
        ("storage", "resize_ set_ record_stream"),
        ("unique", "_unique2 unique_dim unique_consecutive"),
        ("views", "view reshape transpose permute slice split unsqueeze_ detach view_copy real"),
    ],
)
def test_a_reader_finds(file: str, names: str, tree: SpecTree) -> None:
    of = {op.schema.base: op.family for op in tree.operators if not op.scripted}
    assert {name: of[f"aten::{name}"] for name in names.split()} == dict.fromkeys(
        names.split(), file
    )


def test_a_new_operator_falls_to_its_tags_and_then_to_its_schema() -> None:
    random = family_of("aten", "frobnicate", tags=["nondeterministic_seeded"])
    view = family_of("aten", "peek", schemas=[parse_schema("peek(Tensor(a) self) -> Tensor(a)")])
    neither = family_of("aten", "frobnicate", schemas=[parse_schema("frob(Tensor self) -> Tensor")])
    assert (random, view, neither) == ("random", "views", UNPLACED)


def test_a_namespace_of_its_own_is_one_family() -> None:
    assert family_of("torchvision", "nms") == "torchvision"


def test_the_readme_lists_every_file() -> None:
    readme = (SPECS / "README.md").read_text(encoding="utf-8")
    missing = []
    for path in sorted((SPECS / "aten").glob("*.yaml")):
        row = f"| [{path.stem}](aten/{path.name}) | {DESCRIPTIONS.get(path.stem, '').rstrip('.')} |"
        if path.name != "facts.yaml" and row not in readme:
            missing.append(path)
    for path in sorted(SPECS.iterdir()):
        listed = f"]({path.name}" in readme or path.name == "aten"
        if not listed and path.suffix not in (".md", ".json"):
            missing.append(path)
    assert missing == []


def test_every_name_in_a_description_exists(tree: SpecTree) -> None:
    known = {form for op in tree.operators for form in (op.schema.name, stem(op.schema.name))}
    wrong = [
        word
        for text in DESCRIPTIONS.values()
        for word in re.findall(r"\b\w*[a-z]_[a-z0-9_]+", text)
        if not any(name.startswith(word) for name in known)
    ]
    assert wrong == []
