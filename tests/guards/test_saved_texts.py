"""Whatever a saved text says: it is refused when it is read, or it works; it never runs."""

from __future__ import annotations

import builtins
import collections
import datetime
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from guards import (
    AttrSource,
    CellContentsSource,
    ConstDictKeySource,
    DefaultsSource,
    GetItemSource,
    GlobalSource,
    Guard,
    GuardBuilder,
    LengthSource,
    LocalSource,
    ParamBufferSource,
    SavedGuardsError,
    Source,
    TensorPropertySource,
    UnsupportedGuardError,
    compile_guards,
    dumps,
    loads,
    verify,
)

from tests.guards.kinds import X

CODE = "0) if __import__('builtins').canary() is None else v0.size(0"


class Text(str):
    """A string that is none: what it is written as is code of its own."""

    def __repr__(self) -> str:
        return CODE

    def __str__(self) -> str:
        return CODE

    def __format__(self, spec: str) -> str:
        return CODE


FIELDS: list[Callable[[Any], Source]] = [
    lambda value: LocalSource(value),
    lambda value: GlobalSource(value),
    lambda value: AttrSource(X, value),
    lambda value: AttrSource(X, "a", value),
    lambda value: GetItemSource(X, "a", value),
    lambda value: ConstDictKeySource(X, value),
    lambda value: LengthSource(X, value),
    lambda value: CellContentsSource(X, value),
    lambda value: DefaultsSource(X, value),
    lambda value: ParamBufferSource(X, value),
    lambda value: TensorPropertySource(X, value, 0),
    lambda value: TensorPropertySource(X, "size", value),
]


@pytest.mark.parametrize("make", FIELDS, ids=range(len(FIELDS)))
@pytest.mark.parametrize("value", [Text("a"), 1.5, [], type, 10**5000, b"a"], ids=range(6))
def test_field_of_a_source_of_another_class_is_refused(
    make: Callable[[Any], Source], value: Any
) -> None:
    with pytest.raises(UnsupportedGuardError):
        make(value)


def test_text_in_place_of_a_dimension_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    monkeypatch.setattr(builtins, "canary", lambda: ran.append(1), raising=False)
    L = {"x": torch.ones(2, 3)}
    guard = Guard(TensorPropertySource(X, "size", 0), GuardBuilder.EQUALS_MATCH)
    document = json.loads(dumps(compile_guards([guard], L)))
    for link in document["guards"][0]["checks"][0]["sources"][0]:
        if link[0] == "TensorPropertySource":
            link[1]["idx"] = CODE
    with pytest.raises(SavedGuardsError, match="a dimension is told by a whole number"):
        compile_guards(loads(json.dumps(document)), L)(L)
    assert not ran


CLASSES_OF_C = [datetime.date, collections.OrderedDict, collections.deque, torch.Size, np.bool_,
                np.float64, np.ndarray, torch.dtype, torch.device, torch.finfo]  # fmt: skip


@pytest.mark.parametrize("cls", CLASSES_OF_C, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_class_written_in_c_is_known_by_its_own_name(cls: type) -> None:
    check = compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": cls})
    again = compile_guards(loads(dumps(check)), {})
    assert again({"x": cls})
    assert not any(again({"x": other}) for other in (bool, float, *CLASSES_OF_C) if other != cls)


@pytest.mark.parametrize(
    "value",
    [np.bool_(True), np.float64(1), np.int64(1), datetime.date(2020, 1, 1),
     collections.OrderedDict(a=1), collections.deque([1]), torch.Size([1])],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_type_of_a_class_written_in_c(value: Any) -> None:
    check = compile_guards([Guard(X, GuardBuilder.TYPE_MATCH)], {"x": value})
    text = dumps(check)
    again = compile_guards(loads(text), {})
    for other in (value, True, 1.0, 1, (1,), {"a": 1}, [1]):
        assert again({"x": other}) is check({"x": other}) is (other is value)
    assert verify(text, {"x": value}) == []
