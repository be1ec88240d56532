"""The two forms that a schema is printed in: torch's own, and the one of spec files."""

from __future__ import annotations

import pytest
import torch
from opspec.schema import parse_schema

TORCH_FORM = [
    "f(float x=1e-05) -> ()",
    "f(float x=1e17, float y=1e19, float z=0.1, float w=-3) -> ()",
    "f(float x=12345678901.5, float y=1e-300, float z=-0.0) -> ()",
    "f(Scalar x=1, Scalar y=1.0, Scalar z=True, Scalar w=2j) -> ()",
    "f(float? x=1, float? y=1.5, int? z=0) -> ()",
    "f(int[2] x=0, int[1] y=0, int[2] z=[0, 1], int[] w=[]) -> ()",
    "f(int[] x=[1,1], int[3] y=[1,1]) -> ()",
    "f(SymInt[2] x=0, SymInt[] y=[1,1], bool[2] z=True, float[2] w=1) -> ()",
    "f(int reduction=Mean, ScalarType a=long, ScalarType? b=float, ScalarType c=int64) -> ()",
    "f(MemoryFormat x=contiguous_format, Layout? y=strided, ScalarType[] z=[long]) -> ()",
    "f(str x='it\"s', str y=\"it's\", str z=\"\\\\\", str? w='a#b') -> ()",
    "f(Device x=\"cpu\", Device? y='cuda:1') -> ()",
    "f(complex x=1j, complex y=-2.5j) -> ()",
    "f(DeviceIndex x, ConstQuantizerPtr y) -> ()",
    "f(Tensor(a! -> a) x, Tensor(a)[](b) y, Tensor(c)[]? z) -> Tensor(a)",
    "f(Tensor x) -> ((Tensor, int))",
    "f(Tensor x) -> (Tensor y)",
    "f(Tensor x, *, ...) -> (Tensor, ...)",
    "f(Tensor x) -> (...)",
    "f() -> (())",
    "f ( Tensor  x ,int [ 2 ] ?y = None )->Tensor (a) ?",
    "aten :: f . x (Tensor a) -> ()",
    "f(Dict(str,int)[] x, Future(t) y, (int,str)? z, Union(int,str) w) -> ()",
    "f(__torch__.torch.classes.rnn.CellParamsBase[] x) -> ()",
]


@pytest.mark.parametrize("text", TORCH_FORM)
def test_torch_form_is_what_torch_prints(text: str) -> None:
    ours = parse_schema(text.replace(", *, ...", ", ...")).torch_text()
    assert ours == str(torch._C.parse_schema(text))


HOUSE_FORM = {
    "f(float x=0.00001, float y=1., Scalar z=.5) -> ()": (
        "f(float x=1e-05, float y=1.0, Scalar z=0.5) -> ()"
    ),
    "f(int[2] x=[0,0], int[2] y=[0,1], int[1] z=[3]) -> ()": (
        "f(int[2] x=0, int[2] y=[0, 1], int[1] z=3) -> ()"
    ),
    "f(ScalarType? x=4, MemoryFormat y=0, int z=Mean) -> ()": (
        "f(ScalarType? x=long, MemoryFormat y=contiguous_format, int z=1) -> ()"
    ),
    "f(str x='a\"b', str y='\\n') -> ()": 'f(str x="a\\"b", str y="\\n") -> ()',
    "f(Device x=cpu) -> ()": 'f(Device x="cpu") -> ()',
    "f(float x=inf, float y=-inf, float z=nan) -> ()": (
        "f(float x=inf, float y=-inf, float z=nan) -> ()"
    ),
    "f(Tensor(a|a -> a) x) -> ()": "f(Tensor(a) x) -> ()",
    "f(complex x=1.+2.j) -> ()": "f(complex x=1.0+2.0j) -> ()",
}


@pytest.mark.parametrize(("text", "house"), HOUSE_FORM.items())
def test_house_form(text: str, house: str) -> None:
    assert str(parse_schema(text)) == house
    assert parse_schema(house) == parse_schema(text)
