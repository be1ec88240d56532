"""torch's own guard tree, where it has the same kind of guard, gives the same verdict."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from guards import GlobalStateSource, Guard, GuardBuilder, LocalSource, compile_guards

from tests.guards.kinds import WITH_B, Point, X

pytestmark = pytest.mark.slow  # the first one loads torch._dynamo

Y = LocalSource("y")


def root() -> Any:
    from torch._C._dynamo.guards import RootGuardManager

    return RootGuardManager()


def child(tree: Any, name: str, value: Any) -> Any:
    from torch._dynamo.guards import GuardManagerType

    kind = GuardManagerType.GUARD_MANAGER
    return tree.dict_getitem_manager(name, f"L[{name!r}]", value, kind)


def verdicts(guard: Guard, tree: Any, made_of: dict[str, Any], others: list[Any]) -> list[bool]:
    check = compile_guards([guard], made_of)
    found = []
    for scope in [made_of, *others]:
        verdict = check(scope)
        assert verdict is bool(tree.check(scope)), scope
        assert verdict is (check.explain(scope) is None)
        found.append(verdict)
    assert found[0] is True
    assert False in found
    return found


OF_ONE_VALUE: dict[str, tuple[Any, Callable[[Any], None], Any, list[Any]]] = {
    "true": (
        GuardBuilder.BOOL_MATCH,
        lambda node: node.add_true_match_guard(["x"], None),
        True,
        [False, 1, None, 1.0],
    ),
    "false": (
        GuardBuilder.BOOL_MATCH,
        lambda node: node.add_false_match_guard(["x"], None),
        False,
        [True, 0, None, ""],
    ),
    "no attribute": (
        partial(GuardBuilder.NOT_PRESENT, attr="b"),
        lambda node: node.add_no_hasattr_guard("b", ["x"], None),
        Point(),
        [WITH_B, Point(3), 3, None],
    ),
    "no key": (
        partial(GuardBuilder.NOT_PRESENT, key="k"),
        lambda node: node.add_dict_contains_guard(False, "k", ["x"], None),
        {"a": 1},
        [{"k": 1}, {}, {"k": None, "a": 2}],
    ),
    "length of a dict": (
        GuardBuilder.SEQUENCE_LENGTH,
        lambda node: node.add_dict_length_check_guard(2, ["x"], None),
        {"a": 1, "b": 2},
        [{}, {"z": 0, "y": 1}, {1: 1, 2: 2, 3: 3}],
    ),
    "length of a tuple": (
        GuardBuilder.SEQUENCE_LENGTH,
        lambda node: node.add_length_check_guard(2, ["x"], None),
        (1, 2),
        [(), (3, 4), (1, 2, 3)],
    ),
    "nan": (
        GuardBuilder.EQUALS_MATCH,
        lambda node: node.add_float_is_nan_guard(["x"], None),
        float("nan"),
        [0.0, float("inf"), 1.5],
    ),
    "code": (
        GuardBuilder.EQUALS_MATCH,
        lambda node: node.add_equals_match_guard((1, "a", None), ["x"], None),
        (1, "a", None),
        [(1, "b", None), [1, "a", None], (1, "a"), None],
    ),
}


@pytest.mark.parametrize("name", OF_ONE_VALUE)
def test_guard_on_one_value(name: str) -> None:
    create, add, value, others = OF_ONE_VALUE[name]
    tree = root()
    add(child(tree, "x", value))
    verdicts(Guard(X, create), tree, {"x": value}, [{"x": other} for other in others])


def test_the_same_object_twice() -> None:
    from torch._C._dynamo.guards import install_object_aliasing_guard

    x, other = torch.ones(2), torch.ones(2)
    tree = root()
    install_object_aliasing_guard(child(tree, "x", x), child(tree, "y", x), ["x is y"], None)
    guard = Guard(X, partial(GuardBuilder.DUPLICATE_INPUT, source_b=Y))
    found = verdicts(guard, tree, {"x": x, "y": x}, [
        {"x": x, "y": other}, {"x": other, "y": other}, {"x": x, "y": x.view(2)},
    ])  # fmt: skip
    assert found == [True, False, True, False]


@pytest.mark.parametrize("seed", range(20))
def test_memory_that_is_shared(seed: int) -> None:
    from torch._C._dynamo.guards import install_storage_overlapping_guard

    rng = random.Random(seed)
    base = torch.zeros(12)
    made_of = {"x": base[:4], "y": base[4:8], "z": base[:6]}
    made_of["z"] = base[:4]
    tree = root()
    x, y, z = (child(tree, name, value) for name, value in made_of.items())
    install_storage_overlapping_guard([x, z], [y], ["overlap"], None)
    overlap = partial(
        GuardBuilder.STORAGE_OVERLAP,
        overlapping=[X, LocalSource("z")],
        non_overlapping=[Y],
    )
    check = compile_guards([Guard(X, overlap)], made_of)
    assert check(made_of)
    for _ in range(20):
        starts = {name: rng.randint(0, 8) for name in made_of}
        step = rng.choice([1, 2, 3])
        found = {name: base[start : start + 4 : step] for name, start in starts.items()}
        # torch wants the first ones to go on overlapping, too.
        if bool(tree.check(found)):
            assert check(found)
        shares = _shares_with_others(found)
        if shares or step == 1:  # of those with gaps, torch says more often that they do
            assert check(found) is not shares
        elsewhere = {**found, "y": torch.zeros(4)}
        assert check(elsewhere), "another storage shares nothing"


def test_one_memory_in_several_storages() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(8, dtype="float32")

    def part(start: int, stop: int) -> torch.Tensor:
        return torch.from_numpy(array[start:stop])

    apart = partial(GuardBuilder.STORAGE_OVERLAP, overlapping=[], non_overlapping=[X, Y])
    check = compile_guards([Guard(X, apart)], {"x": part(0, 4), "y": part(4, 8)})
    for second in ((0, 4), (3, 5), (4, 8), (5, 5), (0, 0)):
        found = {"x": part(0, 4), "y": part(*second)}
        meets = second in ((0, 4), (3, 5))
        assert check(found) is not meets
        assert (check.explain(found) is None) is not meets


def _shares_with_others(scope: dict[str, torch.Tensor]) -> bool:
    def reach(tensor: torch.Tensor) -> set[int]:
        start = tensor.data_ptr()
        return {start + 4 * i * (tensor.stride()[0]) for i in range(tensor.numel())}

    return any(reach(scope["y"]) & reach(scope[name]) for name in "xz")


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(
    ("create", "change"),
    [
        (GuardBuilder.GRAD_MODE, torch.no_grad),
        (GuardBuilder.AUTOCAST_STATE, lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
        (GuardBuilder.DEFAULT_DTYPE, lambda: default_dtype(torch.float64)),
    ],
    ids=["grad", "autocast", "dtype"],
)
def test_state_of_torch(create: Any, change: Callable[[], Any]) -> None:
    from torch._C._dynamo.guards import GlobalStateGuard

    theirs = GlobalStateGuard()
    check = compile_guards([Guard(GlobalStateSource(), create)], {})
    assert check({}) is bool(theirs.check()) is True
    with change():
        assert check({}) is bool(theirs.check()) is False


def test_default_device() -> None:
    tree = root()
    tree.add_default_device_guard(["device"], None)
    check = compile_guards([Guard(GlobalStateSource(), GuardBuilder.DEFAULT_DEVICE)], {})
    assert check({}) is bool(tree.check({})) is True
    try:
        torch.set_default_device("meta")
        assert check({}) is bool(tree.check({})) is False
    finally:
        torch.set_default_device(None)
