"""Names of torch's enums as they may stand for a default, with the numbers torch prints for them.

torch prints `ScalarType? dtype=4` where native_functions.yaml says `dtype=long`. The numbers are
part of torch's serialized formats and do not change. torch itself confirms the tables in a test.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ENUMS", "REDUCTIONS", "EnumDefault", "enum_by_name", "enum_by_number"]

_DTYPE_NAMES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
    "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64 "
    "uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7 "
    "float8_e8m0fnu float4_e2m1fn_x2"
)
_LAYOUT_NAMES = "strided sparse_coo sparse_csr _mkldnn sparse_csc sparse_bsr sparse_bsc jagged"
_FORMAT_NAMES = "contiguous_format preserve_format channels_last channels_last_3d"
_DTYPES = _DTYPE_NAMES.split()

# native_functions.yaml says `long`; these names are how a spec writes those types.
_C_NAMES = {
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "float16": "half",
    "float32": "float",
    "float64": "double",
}

# For each type: what a spec may write → (number, the attribute of the module torch).
ENUMS: dict[str, dict[str, tuple[int, str]]] = {
    "ScalarType": {
        **{name: (number, name) for number, name in enumerate(_DTYPES)},
        **{short: (_DTYPES.index(name), name) for name, short in _C_NAMES.items()},
    },
    "Layout": {name: (number, name) for number, name in enumerate(_LAYOUT_NAMES.split())},
    "MemoryFormat": {name: (number, name) for number, name in enumerate(_FORMAT_NAMES.split())},
}

# `int reduction=Mean`: torch keeps the number, and so does the model.
REDUCTIONS = {"Mean": 1}

_PREFERRED = {
    type_name: {
        number: (_C_NAMES.get(attribute, attribute), attribute)
        for number, attribute in names.values()
    }
    for type_name, names in ENUMS.items()
}


@dataclass(frozen=True, slots=True)
class EnumDefault:
    """A default that is a value of a torch enum.

    `name` is how a spec writes it (`long`), `number` what torch prints for it (4), and
    `attribute` where Python finds it in the module torch (`int64`).
    """

    type_name: str
    name: str
    number: int
    attribute: str

    def __str__(self) -> str:
        return self.name


def enum_by_number(type_name: str, number: int) -> EnumDefault | None:
    """Give the value of an enum that torch prints as `number`, or None."""
    found = _PREFERRED[type_name].get(number)
    return None if found is None else EnumDefault(type_name, found[0], number, found[1])


def enum_by_name(type_name: str, name: str) -> EnumDefault | None:
    """Give the value of an enum that a spec writes as `name`, or None.

    Names for the same value give the same object: `int64` and `long` are both `long`.
    """
    found = ENUMS[type_name].get(name)
    return None if found is None else enum_by_number(type_name, found[0])
