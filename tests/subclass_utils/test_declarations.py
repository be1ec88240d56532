"""Wrong declarations say what the author should change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dispatch_core import HandlerSignatureError
from subclass_utils import DeclarationError, SubclassError, WrapperTensor

aten = torch.ops.aten


def declare(**attributes: Any) -> type[Any]:
    return type("Declared", (WrapperTensor,), attributes)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"inner_tensors": "elem"}, "inner_tensors is 'elem', but must be a tuple"),
        ({"inner_tensors": ()}, "inner_tensors is empty"),
        ({"inner_tensors": ("inner",)}, "'inner', which would hide torch.Tensor.inner"),
        ({"inner_tensors": ("a b",)}, "'a b', which is no name of an attribute"),
        ({"metadata": ("dtype",)}, "'dtype', which would hide torch.Tensor.dtype"),
        ({"metadata": ("unit", "unit")}, "metadata names an attribute twice"),
        ({"metadata": ("elem",)}, "declared both as inner tensors and as metadata"),
        ({"metadata": ("unit",), "unit": object()}, "'unit' is a object, which cannot travel"),
        ({"metadata": ("unit",), "unit": torch.ones(1)}, "a tensor: declare it in inner_tensors"),
        ({"mixing": "warp"}, "mixing is 'warp', but must be one of error, wrap, unwrap"),
        ({"without_handler": "plain"}, "without_handler is 'plain', but must be one of"),
        ({"inner_tensors": ("a_", "b_")}, "it has 2 inner tensors.*say the outside in __new__"),
        ({"to_plain": lambda self: self.elem}, "it has to_plain but not from_plain"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_class_is_refused_when_it_is_made(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare(**attributes)


def test_all_faults_of_a_class_come_out_together() -> None:
    with pytest.raises(SubclassError) as caught:
        declare(inner_tensors=("inner",), metadata=("shape",), mixing="no")
    assert str(caught.value) == (
        "Declared: inner_tensors has 'inner', which would hide torch.Tensor.inner: take another "
        "name, such as 'inner_' or '_inner'; metadata has 'shape', which would hide "
        "torch.Tensor.shape: take another name, such as 'shape_' or '_shape'; mixing is 'no', but "
        "must be one of error, wrap, unwrap"
    )


def test_inner_tensor_that_is_not_set_is_named() -> None:
    class Forgetful(WrapperTensor):
        def __init__(self, elem: torch.Tensor) -> None:
            pass

    with pytest.raises(DeclarationError, match="inner tensor 'elem' is not set after __init__"):
        Forgetful(torch.ones(1))


def test_metadata_that_is_not_set_is_named() -> None:
    cls = declare(metadata=("unit",))
    with pytest.raises(DeclarationError, match="metadata 'unit' is not set after __init__"):
        cls(torch.ones(1))
    assert cls(torch.ones(1), "m").unit == "m"


@pytest.mark.parametrize("value", [object(), [object()], {"a": torch.ones(1)}, print])
def test_metadata_that_cannot_travel_is_refused_at_construction(value: Any) -> None:
    cls = declare(metadata=("unit",))
    with pytest.raises(DeclarationError, match="which cannot travel; values may be builtins"):
        cls(torch.ones(1), value)


def test_outside_that_differs_needs_to_plain_and_from_plain() -> None:
    class Halved(WrapperTensor):
        @staticmethod
        def __new__(cls: type[Any], elem: torch.Tensor) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, (1,), dtype=elem.dtype)

    with pytest.raises(DeclarationError) as caught:
        Halved(torch.ones(2))
    assert "says an outside of torch.float32 and size (1,), stride (1,)" in str(caught.value)
    assert "must give to_plain(self) and the classmethod from_plain" in str(caught.value)


def test_first_argument_must_be_the_inner_tensor() -> None:
    cls = declare()
    with pytest.raises(DeclarationError, match="must be the inner tensor 'elem', not a int"):
        cls(3)


def test_unknown_argument_is_named() -> None:
    cls = declare(metadata=("unit",), unit="m")
    with pytest.raises(DeclarationError, match="takes elem, unit: got 'unti'"):
        cls(torch.ones(1), unti="s")


def test_handler_that_does_not_fit_is_refused_at_registration() -> None:
    cls = declare()
    with pytest.raises(HandlerSignatureError, match="mat2"):

        @cls.table.implements(aten.mm.default)  # type: ignore[untyped-decorator]
        def mm(self: Any, other: Any) -> Any:
            return self
