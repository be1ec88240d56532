"""Why torch.compile would not use a compilation again, in words."""

from __future__ import annotations

import collections
import enum
import gc
from typing import Any

import guards
import pytest
import torch
from guards import EntryReport
from guards import _compiled_reasons as reasons
from guards import _compiled_texts as texts
from guards._compiled_identities import named_identities
from torch import nn

from tests.guards import compiled as compiled_functions
from tests.guards.compiled import (
    ADDRESS,
    Scaled,
    add,
    broken,
    check_texts,
    compile_eagerly,
    twice,
)

pytestmark = [
    pytest.mark.slow,  # torch.compile is
    pytest.mark.usefixtures("nothing_compiled_before"),
]


@pytest.mark.parametrize(
    ("arguments", "expected", "actual"),
    [
        ((torch.ones(4), 2, {"double": True}), "size [2]", "size [4]"),
        ((torch.ones(2, dtype=torch.int64), 2, {"double": True}), "dtype float32", "dtype int64"),
        ((torch.ones(2), 5, {"double": True}), "2", "5"),
        ((torch.ones(2), 2, {"double": False}), "True", "False"),
        ((torch.ones(2), 2, {}), "there", "missing"),
        ((torch.ones(2), 2, None), "of type dict", "of type NoneType"),
        ((5, 2, {"double": True}), "a tensor", "5 (of type int)"),
        (
            (nn.Parameter(torch.ones(2)), 2, {"double": True}),
            "class Tensor, requires_grad False",
            "class Parameter, requires_grad True",
        ),
    ],
    ids=range(8),
)
def test_one_guard_that_fails_is_the_only_one_named(
    arguments: tuple[Any, ...], expected: str, actual: str
) -> None:
    compiled = compile_eagerly(add)
    compiled(torch.ones(2), 2, {"double": True})
    (report,) = guards.inspect(compiled)
    explained = report.explain(*arguments)
    assert explained is not None
    assert (explained.expected, explained.actual) == (expected, actual)
    assert [str(failure) for failure in explained.failures] == [str(explained)]
    assert explained.user_location is not None


def test_several_guards_that_fail_are_all_named() -> None:
    compiled = compile_eagerly(add)
    compiled(torch.ones(2), 2, {"double": True})
    (report,) = guards.inspect(compiled)
    explained = report.explain(torch.ones(3), 4, {"double": False})
    assert explained is not None
    assert {f.actual for f in explained.failures} == {"size [3]", "4", "False"}


def test_changed_global_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_eagerly(add)
    call = (torch.ones(2), 2, {"double": True})
    compiled(*call)
    (report,) = guards.inspect(compiled)
    monkeypatch.setattr(compiled_functions, "FACTOR", 4)
    assert str(report.explain(*call)).startswith("G['FACTOR'] == 3: expected 3, found 4 (")


def test_global_state_is_compared_field_by_field() -> None:
    compiled = compile_eagerly(add)
    call = (torch.ones(2), 2, {"double": True})
    compiled(*call)
    (report,) = guards.inspect(compiled)
    with torch.no_grad():
        explained = report.explain(*call)
    assert str(explained) == (
        "torch's global state is as it was: expected grad mode on, found grad mode off"
    )
    with torch.autocast("cpu", dtype=torch.float16):
        explained = report.explain(*call)
    assert str(explained) == (
        "torch's global state is as it was: expected autocast dtype on cpu torch.bfloat16, "
        "autocast on cpu off, found autocast dtype on cpu torch.float16, autocast on cpu on"
    )
    torch.set_default_dtype(torch.float64)
    try:
        explained = report.explain(*call)
    finally:
        torch.set_default_dtype(torch.float32)
    assert str(explained) == (
        "torch's global state is as it was: expected default dtype torch.float32, "
        "found default dtype torch.float64"
    )


class Quiet(torch.overrides.TorchFunctionMode):
    pass


def test_modes_that_are_open_are_named() -> None:
    call = (torch.ones(2), 2, {"double": True})
    report = one_of(compile_eagerly(add), *call)
    with Quiet():
        explained = report.explain(*call)
    assert explained is not None
    assert f"found {__name__}.Quiet" in [str(e)[-len(__name__) - 12 :] for e in explained.failures]


def test_compilation_of_another_backend_is_not_used_again() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    counts = [0, 0]

    def first(graph: Any, examples: Any) -> Any:
        counts[0] += 1
        return graph.forward

    def second(graph: Any, examples: Any) -> Any:
        counts[1] += 1
        return graph.forward

    x = torch.ones(2)
    one = torch.compile(function, backend=first)
    other = torch.compile(function, backend=second)
    dynamic = torch.compile(function, backend=first, dynamic=True)
    again = torch.compile(function, backend=first)
    one(x)
    explained = [guards.inspect(f)[0].explain(x) for f in (one, again, other, dynamic)]
    assert explained[:2] == [None, None]
    assert [str(e) for e in explained[2:]] == [
        "the backend and its options are the same: expected first, found second",
        "the backend and its options are the same: expected first, found first (dynamic=True)",
    ]
    assert explained[2] is not None
    assert explained[2].code == "BACKEND"
    again(x)
    other(x)
    dynamic(x)
    assert counts == [2, 1]


def test_asking_does_not_make_torch_compile_again() -> None:
    def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    compiled = compile_eagerly(two, dynamic=False)
    a, b = torch.ones(2), torch.ones(2)
    compiled(a, b)
    (report,) = guards.inspect(compiled)
    for _ in range(3):
        assert report.explain(a, b) is None
        assert report.explain(torch.ones(5), b) is not None
        assert report.explain(a, a) is not None
        compiled(a, b)
    assert len(guards.inspect(compiled)) == 1


def test_inputs_that_become_one_tensor() -> None:
    def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(1) + y

    compiled = compile_eagerly(two)
    compiled(torch.ones(2), torch.ones(2))
    (report,) = guards.inspect(compiled)
    same = torch.ones(2)
    explained = report.explain(same, same)
    assert explained is not None
    assert not ADDRESS.search(str(explained))
    assert explained.code == "NO_TENSOR_ALIASING"
    assert str(explained).startswith(
        "L['x'], L['y'] are different tensors: expected different tensors, found L['y'] is L['x']"
    )


def one_of(compiled: Any, *before: Any) -> EntryReport:
    compiled(*before)
    (report,) = guards.inspect(compiled)
    assert report.explain(*before) is None
    return report


def sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def first_of(x: torch.Tensor, values: dict[str, int]) -> torch.Tensor:
    return x * next(iter(values.values()))


def times_if_more(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n if n > 2 else x * 3


def test_inputs_that_become_two_tensors() -> None:
    x = torch.ones(2)
    explained = one_of(compile_eagerly(sums), x, x).explain(x, torch.ones(2))
    assert explained is not None
    assert str(explained).startswith("L['x'] is L['y']: expected the same object, found two")


def test_dict_of_another_class() -> None:
    x = torch.ones(2)
    report = one_of(compile_eagerly(first_of), x, collections.OrderedDict(a=1))
    explained = report.explain(x, {"a": 1})
    assert explained is not None
    assert explained.code == "TYPE_MATCH"
    assert str(explained).startswith(
        "type(L['values']) is collections.OrderedDict: expected of type collections.OrderedDict, "
        "found of type dict"
    )


def test_number_out_of_the_range_that_was_compiled() -> None:
    compiled = compile_eagerly(times_if_more)
    x = torch.ones(2)
    for n in (3, 4):
        compiled(x, n)
    more = guards.inspect(compiled)[0]
    explained = more.explain(x, 1)
    assert explained is not None
    assert explained.code == "SHAPE_ENV"
    assert explained.actual == "L['n'] is 1"


def made_in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2)


COMPLEX = torch.ones(2, dtype=torch.cfloat)


@pytest.mark.parametrize(
    ("before", "now", "expected", "actual"),
    [
        (COMPLEX, COMPLEX.conj(), "not a lazy conjugate", "a lazy conjugate"),
        (COMPLEX, torch._neg_view(COMPLEX), "not a lazy negative", "a lazy negative"),
        (
            torch.ones(2),
            made_in_inference_mode(),
            "not an inference tensor",
            "an inference tensor",
        ),
        (
            made_in_inference_mode(),
            torch.ones(2),
            "an inference tensor",
            "not an inference tensor",
        ),
        (torch.ones(2), torch.ones(2, device="meta"), "on cpu", "on meta"),
        (torch.ones(2), torch.ones(2).to_sparse(), "not sparse", "sparse"),
        (
            torch.ones(2),
            torch._efficientzerotensor(2),
            "not an immutable zero",
            "an immutable zero",
        ),
    ],
    ids=range(7),
)
def test_dispatch_keys_are_compared_in_english(
    before: torch.Tensor, now: torch.Tensor, expected: str, actual: str
) -> None:
    explained = one_of(compile_eagerly(twice), before).explain(now)
    assert explained is not None
    assert (explained.expected, explained.actual) == (expected, actual)


def test_dispatch_keys_of_the_thread_are_named() -> None:
    report = one_of(compile_eagerly(twice), torch.ones(2))
    with torch.autocast("cpu"):
        explained = report.explain(torch.ones(2))
    assert explained is not None
    assert [failure.actual for failure in explained.failures] == [
        "autocast on cpu on",
        "under autocast on cpu",
    ]

    def within(x: torch.Tensor) -> torch.Tensor:
        found.append(report.explain(x))
        return x

    found: list[Any] = []
    torch.vmap(within)(torch.ones(3, 2))
    assert found[0].actual == "batched by vmap"


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def half(x: torch.Tensor) -> torch.Tensor:
    return x / 2


def painted(x: torch.Tensor, how: Any, colour: Colour) -> Any:
    return how(x) + 1 if colour is Colour.RED else how(x)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (half, Colour.BLUE),
            "L['colour'] is the same object: Colour.RED: "
            "expected the same object: Colour.RED, found Colour.BLUE",
        ),
        (
            (twice, Colour.RED),
            "L['how'].__code__ is the same object: code of half: "
            "expected the same object: code of half, found code of twice",
        ),
    ],
    ids=["member", "function"],
)
def test_objects_of_which_torch_keeps_the_address_have_names(
    arguments: tuple[Any, ...], text: str
) -> None:
    report = one_of(compile_eagerly(painted), torch.ones(2), half, Colour.RED)
    assert str(report.explain(torch.ones(2), *arguments)).startswith(text)


def test_object_that_is_gone_has_no_name() -> None:
    def passing(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    compiled = compile_eagerly(painted)
    compiled(torch.ones(2), passing, Colour.RED)
    named = str(guards.inspect(compiled)[0])
    assert "code of passing" in named
    texts_of_torch = [g._text for g in guards.inspect(compiled)[0].guards]
    del passing
    gc.collect()
    assert "code of passing" not in named_identities(texts_of_torch).values()


def test_function_of_torch_goes_by_its_name() -> None:
    report = one_of(compile_eagerly(painted), torch.ones(2), torch.sin, Colour.RED)
    explained = report.explain(torch.ones(2), torch.cos, Colour.RED)
    assert explained is not None
    assert explained.expected == "the same object: function torch.sin"
    assert explained.actual == "function torch.cos"


def test_relation_that_no_line_asks_for_has_a_reason() -> None:
    report = one_of(compile_eagerly(sums, dynamic=True), torch.ones(4), torch.ones(4))
    explained = report.explain(torch.ones(6), torch.ones(5))
    assert explained is not None
    assert explained.expected == (
        "L['y'].size()[0] == L['x'].size()[0], as both were 4 when it was compiled"
    )
    explained = report.explain(torch.ones(1), torch.ones(1))
    assert explained is not None
    assert explained.expected == (
        "2 <= L['x'].size()[0], as torch compiles for 0 and 1 by themselves"
    )


def test_miss_names_the_nearest_compilation_first() -> None:
    compiled = compile_eagerly(add, dynamic=False)
    for size, n in ((2, 2), (3, 5)):
        compiled(torch.ones(size), n, {"double": True})
    reports = guards.inspect(compiled)
    whys = reports.explain_miss(torch.ones(2), 3, {"double": True})
    assert [(len(why.failures), why.expected) for why in whys] == [(1, "2"), (2, "5")]
    assert reports.explain_miss(torch.ones(2), 2, {"double": True}) == []
    assert guards.inspect(compile_eagerly(sums)).explain_miss(1, 2) == []


def test_one_cause_of_all_misses_is_said_once() -> None:
    compiled = compile_eagerly(add, dynamic=False)
    for size in (2, 3):
        compiled(torch.ones(size), 2, {"double": True})
    reports = guards.inspect(compiled)
    with torch.no_grad():
        (why,) = reports.explain_miss(torch.ones(3), 2, {"double": True})
    assert (why.code, why.expected, why.actual) == ("GLOBAL_STATE", "grad mode on", "grad mode off")
    whys = reports.explain_miss(torch.ones(4), 2, {"double": True})
    assert [why.expected for why in whys] == ["size [3]", "size [2]"]


def test_miss_leaves_parts_behind_graph_breaks_out() -> None:
    compiled = compile_eagerly(broken)
    compiled(torch.ones(2))
    reports = guards.inspect(compiled)
    assert len(reports) == 2
    assert len(reports.explain_miss(torch.ones(2, dtype=torch.int64))) == 1


def test_places_of_a_relation() -> None:
    scope: dict[str, Any] = {"L": {"x": torch.ones(2, 3), "c": Scaled()}, "G": {"n": 4}}
    expression = "2*L['x'].size()[1] + G['n'] <= 3 or not L['c'].factor"
    expected, actual = reasons._of_relation(expression, scope)
    assert expected == expression
    assert actual == f"L['x'].size()[1] is 3, G['n'] is 4, L['c'].factor is {Scaled().factor}"


def test_dynamic_shapes_show_sizes() -> None:
    def slices(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[: y.shape[0]] * 2

    compiled = compile_eagerly(slices, dynamic=True)
    compiled(torch.ones(6), torch.ones(4))
    (report,) = guards.inspect(compiled)
    check_texts([report])
    assert report.explain(torch.ones(9), torch.ones(5)) is None
    explained = report.explain(torch.ones(3), torch.ones(5))
    assert explained is not None
    assert explained.code == "SHAPE_ENV"
    assert "L['x'].size()[0] is 3" in explained.actual
    assert "L['y'].size()[0] is 5" in explained.actual


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "___check_type_id(L['x'], 139711094317952), type=<class 'tuple'> (HINT: type tuple)",
            "type(L['x']) is tuple",
        ),
        ("not ___dict_contains('a', L['x'].__dict__)      ", "'a' not in L['x'].__dict__"),
        ("___dict_contains('a', L['x'].__dict__)", "'a' in L['x'].__dict__"),
        ("set.__contains__(G['st'], 1)", "1 in G['st']"),
        ("not set.__contains__(G['st'], 1)", "1 not in G['st']"),
        ("not L['a']   ", "L['a'] is empty"),
        ("len(L['a']) == 2   ", "len(L['a']) == 2"),
        ("utils_device.CURRENT_DEVICE == None  # _d/o.py:1 in f", "the default device is None"),
        ("L['x'] == G['__builtins_dict___2']['len']", "L['x'] == len"),
        ("Eq(L['x'].size()[0], 3)  # (unknown source x, please file a bug)",
         "Eq(L['x'].size()[0], 3)"),
        ("anything else", "anything else"),
    ],
    ids=range(11),
)  # fmt: skip
def test_words(text: str, words: str) -> None:
    assert texts.in_words(text) == words


class Backend:
    def __call__(self, graph: Any, inputs: Any) -> Any:
        return graph


class Times:
    def __call__(self, x: Any) -> Any:
        return x * 2


def called(x: torch.Tensor, times: Any, factor: Any, table: Any, chosen: Any) -> Any:
    for value in table.values():
        x = x * value
    return times(x) * factor * (2 if 1 in chosen else 3) * CONSTANT


CONSTANT = torch.ones(2)
NAN = float("nan")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"table": {"a": 1, "b": 2}},
            "len(L['table']) == 1: expected of length 1, found of length 2",
        ),
        ({"chosen": {2}}, "1 in L['chosen']: expected with 1, found {2}"),
        ({"factor": 1.0}, "L['factor'] is nan: expected nan, found 1.0"),
    ],
)
def test_words_for_what_torch_says_in_code(changed: dict[str, Any], text: str) -> None:
    compiled = compile_eagerly(called)
    given = {"times": Times(), "factor": NAN, "table": {"a": 1}, "chosen": {1}}
    compiled(torch.ones(2), **given)
    entries = guards.inspect(compiled)
    said = [str(guard) for guard in entries[0].guards]
    assert any("type(L['times']).__call__.__code__ is the same object" in line for line in said)
    assert "L['x'], G['CONSTANT'] are different tensors" in said
    check_texts(entries)
    assert entries.explain_miss(torch.ones(2), **given) == []
    (why,) = entries.explain_miss(torch.ones(2), **{**given, **changed})
    assert str(why).startswith(text)


def test_function_without_code_is_missing_it() -> None:
    compiled = compile_eagerly(lambda x, act: act(x))
    compiled(torch.ones(2), nn.functional.relu)
    (why,) = guards.inspect(compiled).explain_miss(torch.ones(2), torch.sigmoid)
    assert (why.expected, why.actual) == ("there", "missing")


def test_backends_that_are_objects_have_no_addresses() -> None:
    one, other = (torch.compile(twice, backend=Backend()) for _ in range(2))
    one(torch.ones(2))
    assert guards.inspect(one).explain_miss(torch.ones(2)) == []
    (why,) = guards.inspect(other).explain_miss(torch.ones(2))
    kind = f"an object of type {__name__}.Backend"
    assert (why.expected, why.actual) == (kind, f"another one: {kind}")
