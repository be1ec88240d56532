"""Wrong declarations say what the author should change."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from dispatch_core import HandlerSignatureError, HandlerTable
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
        (
            {"metadata": ("unit",), "unit": torch.ones(1)},
            "'unit' is a tensor, which cannot travel: tensors belong into inner_tensors",
        ),
        (
            {"metadata": ("unit",), "unit": ({"x": torch.ones(1)},)},
            "'unit' is a tuple that holds a dict that holds a tensor, which cannot travel",
        ),
        ({"mixing": "warp"}, "mixing is 'warp', but must be one of error, wrap, unwrap"),
        ({"without_handler": "plain"}, "without_handler is 'plain', but must be one of"),
        ({"inner_tensors": ("a_", "b_")}, "it has 2 inner tensors.*say the outside in __new__"),
        ({"to_plain": lambda self: self.elem}, "it has to_plain but not from_plain"),
        ({"metadata": ("table",)}, "'table', a name that WrapperTensor uses itself"),
        ({"metadata": ("_plans",)}, "'_plans', a name that WrapperTensor uses itself"),
        ({"metadata": ("_is_param",)}, "'_is_param', a name that WrapperTensor uses itself"),
        ({"inner_tensors": ("class",)}, "'class', which is no name of an attribute"),
        ({"table": {}}, "table is a dict, but must be a dispatch_core.HandlerTable"),
        (
            {
                "__new__": lambda cls, elem: None,
                "to_plain": lambda self: self.elem,
                "from_plain": lambda cls, plain, like=None: cls(plain),
            },
            "from_plain must be a classmethod",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_class_is_refused_when_it_is_made(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare(**attributes)


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("inner_tensor", ("elem",), "inner_tensors"),
        ("inner_tensors_", "elem", "inner_tensors"),
        ("innertensors", ("elem",), "inner_tensors"),
        ("metdata", ("unit",), "metadata"),
        ("meta_data", ["unit"], "metadata"),
        ("Metadata", ("unit",), "metadata"),
        ("mixin", "error", "mixing"),
        ("without_handlers", "to_plain", "without_handler"),
        ("without_handle", "error", "without_handler"),
        ("tables", HandlerTable(), "table"),
    ],
)
def test_misspelt_declaration_is_refused(name: str, value: Any, meant: str) -> None:
    with pytest.raises(DeclarationError, match=f"it has {name} = .* did you mean {meant}\\?"):
        declare(**{name: value})


@pytest.mark.parametrize(
    "attributes",
    [
        {"mixin": object},
        {"mixin": lambda self: "error"},
        {"tables": ("a", "b"), "stable": True},
        {"meta_data": {"a": 1}},
        {"metadata": ("meta_data",), "meta_data": ("a",)},
        {"metadata": (), "metadatas": ("a",)},
        {"tensors": ("a",), "handler": "to_plain", "names_of_metadata": ("a",)},
        {"inner_tensors": ("inner_tensor",)},
        {"inner_tensors": ("inner_tensor",), "inner_tensor": None},
        {"_metadata": None, "__slots__": ()},
    ],
    ids=repr,
)
def test_attributes_of_another_meaning_are_taken(attributes: dict[str, Any]) -> None:
    declare(**attributes)


def test_misspelling_comes_out_with_the_other_faults() -> None:
    with pytest.raises(DeclarationError, match=r"mixing is 'no'.*did you mean metadata\?"):
        declare(metdata=("shape",), mixing="no")


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
    with pytest.raises(DeclarationError, match=r"which cannot travel: (values may be|tensors bel)"):
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


@pytest.mark.parametrize(
    ("made", "kind"), [(None, "NoneType"), (5, "int"), (torch.ones(1), "Tensor")]
)
def test_new_that_makes_no_wrapper_is_named(made: Any, kind: str) -> None:
    cls = declare(__new__=lambda cls, elem: made)
    with pytest.raises(DeclarationError, match=f"Declared.__new__ gave a {kind}, but must give"):
        cls(torch.ones(1))


def test_table_that_is_none_is_refused_when_it_is_set() -> None:
    cls = declare()
    with pytest.raises(DeclarationError, match="table is a NoneType, but must be"):
        cls.table = None


@pytest.mark.parametrize(
    "use", [lambda x: x + 1, lambda x: x.t(), lambda x: torch.cat([x, x]), lambda x: x.add_(1)]
)
def test_wrapper_that_its_class_did_not_make_is_named(use: Any) -> None:
    cls = declare()
    with pytest.raises(DeclarationError, match="inner tensor 'elem' is not set: make it by"):
        use(torch.ones(2, 2).as_subclass(cls))
    broken = cls(torch.ones(2, 2))
    broken.elem = None
    with pytest.raises(DeclarationError, match="inner tensor 'elem' is a NoneType"):
        use(broken)


class InSlots(WrapperTensor):
    """Its inner tensor is in no `__dict__`."""

    held: torch.Tensor
    __slots__ = ("held",)
    inner_tensors = ("held",)


class Child(InSlots):
    pass


class SetInNew(InSlots):
    def __new__(cls, held: torch.Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype)
        made.held = held
        return made

    def __init__(self, held: torch.Tensor) -> None:
        pass


def test_inner_tensor_in_a_slot() -> None:
    x: Any = InSlots(torch.ones(2))
    child: Any = Child(torch.ones(2))
    assert repr(x) == "InSlots(tensor([1., 1.]))"
    results: list[Any] = [x + child, child + x, torch.cat([x, child]), child.clone().add_(x)]
    for result in results:
        assert type(result) is Child
        assert type(result.held) is torch.Tensor
    x.data.add_(1)
    assert x.held.tolist() == [2.0, 2.0]
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), SetInNew(x.held)):
        assert again.held.tolist() == [2.0, 2.0]


def test_names_may_be_those_of_anything_inside() -> None:
    class Named(WrapperTensor):
        metadata = ("wrapper", "value0", "Tensor", "made", "source")
        elem: torch.Tensor

    x: Any = Named(torch.ones(2), "a", "b", "c", "d", "e")
    for made in (x, x.detach(), x + 1, x[1:]):
        assert [getattr(made, name) for name in Named.metadata] == list("abcde")
