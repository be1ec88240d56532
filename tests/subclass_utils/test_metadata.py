"""Every metadata value that a class takes comes back as it was, whatever way it travels."""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subclass_utils import CopyError, WrapperTensor, flatten_state_dict, unflatten_state_dict
from subclass_utils._encoding import decode, encode


class Colour(enum.Flag):
    RED = 1
    GREEN = 2
    BLUE = 4
    YELLOW = RED | GREEN


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Size(enum.IntEnum):
    SMALL = 1
    ALSO_SMALL = 1


class Name(str, enum.Enum):
    X = "x"


@dataclasses.dataclass(frozen=True)
class Computed:
    """With a field that is not given, and one that `__post_init__` changes."""

    given: Any
    length: int = dataclasses.field(init=False, default=0)
    doubled: Any = 1
    factory: list[int] = dataclasses.field(default_factory=list)
    initial: dataclasses.InitVar[int] = 0

    def __post_init__(self, initial: int) -> None:
        object.__setattr__(self, "length", len(repr(self.given)) + initial)
        object.__setattr__(self, "doubled", self.doubled * 2)
        object.__setattr__(self, "undeclared", ("added", self.length))


@dataclasses.dataclass(frozen=True, slots=True)
class InSlots:
    value: Any
    number: int = 3


class Carrier(WrapperTensor):
    elem: torch.Tensor
    metadata = ("held",)
    held: Any = None


FIXED: list[Any] = [
    *Colour,
    *Size,
    *Bits,
    Name.X,
    Colour(0),
    Bits(0),
    Bits(8),
    torch.float32,
    torch.strided,
    torch.sparse_coo,
    torch.channels_last,
    torch.device("cuda:1"),
    torch.device("cpu"),
    ...,
    None,
]
ATOMS = (
    st.sampled_from(FIXED)
    | st.integers(0, 7).map(Colour)
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([1, -2]))
    | st.builds(slice, st.integers(-9, 9) | st.none(), st.integers(-9, 9) | st.none())
    | st.lists(st.integers(0, 9)).map(torch.Size)
)
KEYS = st.integers() | st.text() | st.sampled_from(FIXED) | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(KEYS, max_size=3)
        | st.sets(KEYS, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | inner.map(Computed)
        | inner.map(InSlots)
    ),
    max_leaves=6,
)


def kind_of(value: Any) -> Any:
    """Give the types in a value, which `==` does not tell apart."""
    if isinstance(value, list | tuple):
        return type(value), [kind_of(item) for item in value]
    if isinstance(value, dict):
        return dict, [(kind_of(key), kind_of(item)) for key, item in value.items()]
    if isinstance(value, Computed | InSlots):
        names = [field.name for field in dataclasses.fields(value)]
        return type(value), [kind_of(getattr(value, name)) for name in names]
    return type(value)


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_encoded_metadata_is_json_and_comes_back(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert kind_of(back) == kind_of(value)


@given(VALUES)
@settings(max_examples=15, deadline=None)
def test_metadata_travels_every_way(value: Any) -> None:
    wrapper = Carrier(torch.ones(1), value)
    file = io.BytesIO()
    torch.save(wrapper, file)
    file.seek(0)
    flat = unflatten_state_dict(*flatten_state_dict({"w": wrapper}))
    backs: list[Any] = [torch.load(file), pickle.loads(pickle.dumps(wrapper)), flat["w"]]
    for back in backs:
        assert back.held == value
        assert kind_of(back.held) == kind_of(value)


def test_what_a_dataclass_added_to_itself_travels() -> None:
    back: Any = decode(encode(Computed("ab", doubled=3, initial=1)))
    assert (back.length, back.doubled, back.factory, back.undeclared) == (5, 6, [], ("added", 5))


def test_field_that_a_class_got_since_it_was_saved_has_its_default() -> None:
    saved = encode(InSlots("a"))
    saved[3] = [field for field in saved[3] if field[0] != "number"]
    assert decode(saved) == InSlots("a", 3)


@pytest.mark.parametrize("name", ["__class__", "a b"])
def test_saved_name_that_is_no_field_is_refused(name: str) -> None:
    saved = encode(InSlots("a"))
    saved[3].append([name, 1])
    with pytest.raises(CopyError, match="is no field of InSlots"):
        decode(saved)
