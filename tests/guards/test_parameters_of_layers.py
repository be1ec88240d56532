"""Guards on parameters of few and of many layers give the verdicts that they give one by one."""

from __future__ import annotations

import collections
import importlib
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    CheckFunction,
    GetItemSource,
    Guard,
    GuardBuilder,
    LocalSource,
    compile_guards,
)

pytestmark = [
    pytest.mark.slow,  # loads torch._dynamo
    pytest.mark.parametrize("layers", [3, 13, 40, 230]),
]


@pytest.fixture(autouse=True)
def with_trees() -> None:
    importlib.import_module("torch._dynamo.guards")


class Trained(torch.nn.Linear):
    pass


def model_of(layers: int) -> Any:
    return torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(layers)))


def layers_of(model: Any) -> list[GetItemSource]:
    modules = AttrSource(LocalSource("m"), "_modules")
    return [GetItemSource(modules, name) for name in model._modules]


def on_parameters(model: Any) -> list[Guard]:
    return [
        Guard(AttrSource(source, key), GuardBuilder.TENSOR_MATCH)
        for source in layers_of(model)
        for key in ("weight", "bias")
    ]


def holds(check: CheckFunction, model: Any) -> bool:
    """Give the verdict, which must be that of ``explain`` too."""
    found = check({"m": model})
    assert found is (check.explain({"m": model}) is None)
    return found


def test_layers_of_another_class(layers: int) -> None:
    model = model_of(layers)
    check = compile_guards(on_parameters(model), {"m": model})
    assert holds(check, model)
    assert holds(check, model_of(layers))
    for place in (0, 1, layers - 1):
        model[place] = Trained(2, 2)
        assert holds(check, model)
        for wrong in (Trained(2, 3), torch.nn.Linear(2, 3), torch.nn.Bilinear(2, 2, 2)):
            model[place] = wrong
            assert not holds(check, model)
        model[place] = torch.nn.Linear(2, 2)
        assert holds(check, model)


def test_tables_of_another_class(layers: int) -> None:
    model = model_of(layers)
    check = compile_guards(on_parameters(model), {"m": model})
    for place in (0, 1, layers - 1):
        table = model[place]._parameters
        tables: list[Any] = [collections.OrderedDict(table), None, {}, 3]
        for wrong in tables:
            model[place].__dict__["_parameters"] = wrong
            assert not holds(check, model)
        model[place].__dict__["_parameters"] = table
        assert holds(check, model)
        layer = model._modules[str(place)]
        others: list[Any] = [None, 3, object()]
        for other in others:
            model._modules[str(place)] = other
            assert not holds(check, model)
        del model._modules[str(place)]
        assert not holds(check, model)
        model._modules[str(place)] = layer


def test_layers_that_other_guards_are_about_too(layers: int) -> None:
    model = model_of(layers)
    each = layers_of(model)
    guards = [Guard(AttrSource(s, "weight"), GuardBuilder.TENSOR_MATCH) for s in each]
    guards += [Guard(s, GuardBuilder.MODULE_TRAINING) for s in each]
    guards += [Guard(AttrSource(s, "in_features"), GuardBuilder.EQUALS_MATCH) for s in each[1:]]
    guards += [Guard(AttrSource(s, "bias"), GuardBuilder.ID_MATCH) for s in each[:2]]
    check = compile_guards(guards, {"m": model})
    assert holds(check, model)
    for layer in (model[0], model[layers - 1]):
        layer.eval()
        assert not holds(check, model)
        layer.train()
    model[1].in_features = 3
    assert not holds(check, model)
    model[1].in_features = 2
    assert holds(check, model)
    model[0].bias = torch.nn.Parameter(torch.zeros(2))
    assert not holds(check, model)


class Hiding(torch.nn.Linear):
    weight: Any = property(lambda self: torch.zeros(5))


def test_parameter_that_something_hides(layers: int) -> None:
    model = model_of(layers)
    check = compile_guards(on_parameters(model), {"m": model})
    for place in (0, 1, layers - 1):
        layer = model[place]
        for hiding in (torch.zeros(7), None):
            layer.__dict__["bias"] = hiding
            assert not holds(check, model)
        layer.__dict__["bias"] = layer._parameters["bias"]
        assert holds(check, model)
        del layer.__dict__["bias"]
        layer.__class__ = Hiding
        assert not holds(check, model)
        layer.__class__ = Trained
        assert holds(check, model)
        layer.__class__ = torch.nn.Linear
        assert holds(check, model)


def test_parameter_that_a_class_hides_later(layers: int) -> None:
    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in "abc":
                self.register_parameter(name, torch.nn.Parameter(torch.ones(2)))

    model = torch.nn.Sequential(*(Several() for _ in range(layers)))
    guards = [
        Guard(AttrSource(source, name), GuardBuilder.TENSOR_MATCH)
        for source in layers_of(model)
        for name in "abc"
    ]
    check = compile_guards(guards, {"m": model})
    assert holds(check, model)
    model[layers - 1].__dict__["c"] = torch.zeros(7)
    assert not holds(check, model)
    del model[layers - 1].__dict__["c"]
    Several.b = property(lambda self: torch.zeros(7))  # type: ignore[attr-defined]
    assert not holds(check, model)
    del Several.b  # type: ignore[attr-defined]
    assert holds(check, model)
