"""What the laws are tried on: types, schemas, texts that are almost right, spec files."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from opspec.enums import ENUMS, enum_by_number
from opspec.model import (
    Alias,
    Default,
    DictOf,
    Generic_,
    ListOf,
    Named,
    Optional_,
    Parameter,
    Return,
    Schema,
    TupleOf,
    Type,
    base_name,
)

__all__ = [
    "LAWS",
    "broken_schema_texts",
    "names",
    "schema_texts",
    "schemas",
    "spec_bytes",
    "spec_texts",
    "torch_schemas",
    "types",
]

LAWS = settings(
    deadline=None,  # the machine may be busy
    derandomize=True,  # the same examples in every run
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

_WORDS = (
    "self other x y z dim input out_ A B1 _a size stride mat1 vec from lambda ord range t2 self_ "
    "inf nan long Mean cpu type name2 X9"
)
names = st.sampled_from(_WORDS.split())

# Types

_INTS = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False).map(
    lambda value: value + 0.0  # torch loses the sign of zero
)
_ASCII = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=8)


def _enum(type_name: str) -> st.SearchStrategy[Default]:
    numbers = sorted({number for number, _ in ENUMS[type_name].values()})
    return st.sampled_from(numbers).map(lambda number: enum_by_number(type_name, number))


_VALUES: dict[str, st.SearchStrategy[Default]] = {
    "int": _INTS,
    "SymInt": _INTS,
    "float": _FLOATS,
    "bool": st.booleans(),
    "str": _ASCII,
    "Scalar": st.one_of(_INTS, _FLOATS, st.booleans()),
    "Device": st.sampled_from(["cpu", "cuda:1", "meta"]),
    "ScalarType": _enum("ScalarType"),
    "Layout": _enum("Layout"),
    "MemoryFormat": _enum("MemoryFormat"),
}
_WITHOUT_VALUES = ("Tensor", "Generator", "Storage", "Stream", "Any", "t", "complex")

aliases = st.builds(
    Alias,
    st.lists(names, min_size=1, max_size=2, unique=True).map(tuple),
    st.none() | st.just(("*",)),
    st.booleans(),
)
_one_alias = st.builds(Alias, names.map(lambda name: (name,)), st.none(), st.booleans())

_named = st.one_of(
    st.sampled_from([*_VALUES, *_WITHOUT_VALUES, "__torch__.torch.classes.c10d.Work"]).map(Named),
    st.builds(Named, st.just("Tensor"), aliases),
    st.builds(Named, names),
)


def _larger(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(
        inner.filter(lambda type_: not isinstance(type_, Optional_)).map(Optional_),
        st.builds(ListOf, inner, st.none() | st.integers(0, 5), st.none() | aliases),
        st.builds(TupleOf, st.lists(inner, max_size=3).map(tuple), st.none() | aliases),
        st.builds(DictOf, inner, inner, st.none() | aliases),
        st.builds(
            Generic_,
            st.sampled_from(["Future", "RRef", "Await", "Union"]),
            st.lists(inner, min_size=1, max_size=2).map(tuple),
            st.none() | aliases,
        ),
    )


types: st.SearchStrategy[Type] = st.one_of(_named, _larger(_named), _larger(_larger(_named)))


@st.composite
def _typed_values(draw: st.DrawFn) -> tuple[Type, Default]:
    """Draw a type that may have a default, and one."""
    name = draw(st.sampled_from(sorted(_VALUES)))
    element = Named(name)
    form = draw(st.sampled_from(["plain", "optional", "none", "list", "sized"]))
    if form == "plain":
        return element, draw(_VALUES[name])
    if form == "optional":
        return Optional_(element), draw(st.none() | _VALUES[name])
    if form == "none":
        return Optional_(draw(_named)), None
    if form == "list":
        return ListOf(element), tuple(draw(st.lists(_VALUES[name], max_size=3)))
    size = draw(st.integers(1, 4))
    if draw(st.booleans()):
        return ListOf(element, size), (draw(_VALUES[name]),) * size
    return ListOf(element, size), tuple(draw(st.lists(_VALUES[name], max_size=4)))


# Schemas


@st.composite
def schemas(draw: st.DrawFn, *, bare: bool = False) -> Schema:
    """Draw a schema that can be read; rules that `opspec check` has may be broken in it."""
    used = draw(st.lists(names, max_size=6, unique=True))
    star = draw(st.integers(0, len(used)))
    with_default = draw(st.integers(0, star))
    parameters = []
    for index, name in enumerate(used):
        kwarg_only = index >= star
        has_default = draw(st.booleans()) if kwarg_only else index >= with_default
        type_, default = draw(_typed_values()) if has_default else (draw(types), None)
        parameters.append(Parameter(name, type_, default, has_default, kwarg_only))
    return Schema(
        "" if bare else draw(st.one_of(st.just(""), names)),
        draw(names),
        draw(st.one_of(st.just(""), names)),
        tuple(parameters),
        tuple(draw(st.lists(st.builds(Return, st.none() | names, types), max_size=3))),
        vararg=draw(st.booleans()),
        varret=draw(st.booleans()),
    )


def _torch_reads(type_: Type, default: Default) -> bool:
    # torch reads lists of numbers only, and no float that is not a normal number.
    if base_name(type_) == "Device" and default is not None:
        return False  # it prints cpu and reads "cpu"
    if isinstance(type_, ListOf):
        sized = type_.size is None or len(default) == type_.size  # type: ignore[arg-type]
        return sized and str(type_.element) in ("int", "SymInt", "float", "bool")
    return True


_torch_types: st.SearchStrategy[Type] = st.one_of(
    st.sampled_from(["Tensor", "int", "SymInt", "float", "bool", "str", "Scalar"]).map(Named),
    st.builds(Named, st.just("Tensor"), _one_alias),
).flatmap(lambda t: st.sampled_from([t, ListOf(t), Optional_(t), Optional_(ListOf(t))]))


@st.composite
def torch_schemas(draw: st.DrawFn) -> Schema:
    """Draw a schema that torch's own parser reads too."""
    used = draw(st.lists(names, max_size=5, unique=True))
    parameters = []
    for index, name in enumerate(used):
        has_default = index >= len(used) // 2
        type_: Type = draw(_torch_types)
        default: Default = None
        if has_default:
            type_, default = draw(_typed_values())
        if not _torch_reads(type_, default):
            type_, default = Named("Scalar"), 1
        if has_default and default is None:
            type_ = Optional_(Named("Tensor"))
        parameters.append(Parameter(name, type_, default, has_default, index == len(used) - 1))
    returns = draw(st.lists(st.builds(Return, st.none() | names, _torch_types), max_size=3))
    return Schema(draw(names), draw(names), "", tuple(parameters), tuple(returns))


# Texts

_JUNK = ["(", ")", "[", "]", "*", ",", "=", "->", "?", "!", "|", ":", "::", ".", "...", '"', "'",
         "\\", "-", "1", "1e999", "None", "Tensor", "Tensr", "int[2]", "x", " ", "\t", "é", "漢",
         "\u0301", "$", "#", "0x", "999999999999999999999"]  # fmt: skip

schema_texts = schemas().map(str)


@st.composite
def _mangled(draw: st.DrawFn, texts: st.SearchStrategy[str], junk: list[str]) -> str:
    """Draw a text and cut, double or replace a few pieces of it."""
    text = draw(texts)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        text = text[:start] + draw(st.sampled_from([*junk, "", text[start:end] * 2])) + text[end:]
    return text


broken_schema_texts = st.one_of(_mangled(schema_texts, _JUNK), st.text(max_size=40))


@st.composite
def _entries(draw: st.DrawFn) -> str:
    text = draw(schemas(bare=True).map(str))
    style = draw(st.sampled_from(["single", "double", "flow"]))
    if style == "single":
        lines = "- func: '" + text.replace("'", "''") + "'\n"
    elif style == "double":
        lines = '- func: "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"\n'
    else:
        return "- {func: '" + text.replace("'", "''") + "'}\n"
    for key, value in draw(
        st.lists(
            st.sampled_from(
                [
                    ("tags", "core"),
                    ("tags", "[core, pointwise]"),
                    ("composite", "no"),
                    ("random", "yes"),
                    ("doc", "|\n    some\n    text"),
                    ("doc", ">-\n    some\n    text"),
                    ("variants", "function"),
                    ("tag", "core"),
                    ("<<", "*anchor"),
                ]
            ),
            max_size=2,
            unique_by=lambda pair: pair[0],
        )
    ):
        lines += f"  {key}: {value}\n"
    return lines


spec_texts = st.lists(_entries(), max_size=4).map("".join)

_YAML_JUNK = [*_JUNK, "\n", "\r\n", "- ", "  ", "&a ", "*a", "<<: ", "{", "}", "---\n", "...\n",
              "%YAML 1.1\n", "!!int ", "? ", "@", "`", "|", ">", "\u2028", "\x85", "\ufeff",
              "\x00", "\x07", "~", "func:", "tags: [", "op: "]  # fmt: skip

_broken_spec_texts = st.one_of(_mangled(spec_texts, _YAML_JUNK), st.text(max_size=60))
spec_bytes = st.one_of(
    _broken_spec_texts.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=60),
    st.builds(
        lambda text, at, byte: text.encode()[:at] + bytes([byte]) + text.encode()[at:],
        spec_texts,
        st.integers(0, 200),
        st.integers(0, 255),
    ),
)
