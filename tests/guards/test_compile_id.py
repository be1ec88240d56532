from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from guards import CompileId, CompileIdError, GuardError, TraceId
from hypothesis import example, given, settings
from hypothesis import strategies as st

LAW = settings(deadline=None)
NUMBERS = st.integers(min_value=0, max_value=10**30)
IDS = st.one_of(
    st.builds(CompileId, frame_id=NUMBERS, frame_compile_id=NUMBERS),
    st.builds(
        CompileId,
        frame_id=NUMBERS,
        frame_compile_id=NUMBERS,
        compiled_autograd_id=NUMBERS,
    ),
    st.builds(
        CompileId,
        frame_id=st.none(),
        frame_compile_id=st.none(),
        compiled_autograd_id=NUMBERS,
    ),
)


def compile_id(frame: Any, compile: Any, autograd: Any = None) -> CompileId:
    return CompileId(frame_id=frame, frame_compile_id=compile, compiled_autograd_id=autograd)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((3, 1), "3/1"), ((None, None, 2), "!2"), ((3, 1, 2), "!2/3/1"), ((0, 0, 0), "!0/0/0")],
)
def test_text_of_an_id(numbers: tuple[Any, ...], text: str) -> None:
    assert str(compile_id(*numbers)) == text
    assert CompileId.from_string(text) == compile_id(*numbers)


@pytest.mark.slow
@LAW
@given(IDS)
def test_text_reads_back_as_the_same_id(c: CompileId) -> None:
    assert CompileId.from_string(str(c)) == c


# Texts that are nearly right, so that the strict half of the law is put to the test.
NEARLY = st.text(alphabet="0123/!-+_ \n\u0663", max_size=8) | st.from_regex(
    r"!?[0-9]{0,3}(/[0-9]{0,3}){0,4}\n?"
)


@pytest.mark.slow
@LAW
@given(NEARLY)
@example("3/1\n")
@example("03/1")
@example("!1/2")
@example("\u0663/1")
def test_only_the_text_of_an_id_parses(text: str) -> None:
    try:
        c = CompileId.from_string(text)
    except CompileIdError as error:
        assert str(error) == f"Invalid compile_id '{text}'"  # noqa: PT017
    else:
        assert str(c) == text


@pytest.mark.parametrize(
    "text",
    ["", "3", "3/", "/1", "!/1", "!", "-1/2", "3/1/4", "3/1\n", " 3/1", "3/1 ", "!2/3", "!2/3/1/4",
     "3/01", "00/1", "+3/1", "1_0/2", "\u0663/\u0661", "3//1", "None/None", "9" * 5000 + "/1"],
)  # fmt: skip
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid compile_id") as caught:
        CompileId.from_string(text)
    assert str(caught.value) == f"Invalid compile_id '{text}'"
    assert isinstance(caught.value, GuardError)


def test_none_is_no_id() -> None:
    assert CompileId.from_string(None) is None


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Invalid compile_id '31'$"):
        CompileId.from_string(31)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("numbers", "names"),
    [
        ((None, None), ["frame_id", "frame_compile_id"]),
        ((3, None), ["frame_id", "frame_compile_id"]),
        ((None, 1), ["frame_id", "frame_compile_id"]),
        ((3, None, 2), ["frame_id", "frame_compile_id"]),
        ((None, 1, 2), ["frame_id", "frame_compile_id"]),
        ((-3, 1), ["frame_id"]),
        ((3, 1, -1), ["compiled_autograd_id"]),
        ((3, True), ["frame_compile_id"]),
        ((3, "1"), ["frame_compile_id"]),
    ],
)
def test_an_incomplete_id_is_refused(numbers: tuple[Any, ...], names: list[str]) -> None:
    with pytest.raises(CompileIdError) as caught:
        compile_id(*numbers)
    assert all(name in str(caught.value) for name in names)


def test_an_id_is_a_small_frozen_value() -> None:
    c = compile_id(3, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.frame_id = 4  # type: ignore[misc]
    assert not hasattr(c, "__dict__")
    assert {c: "same"}[compile_id(3, 1)] == "same"
    assert pickle.loads(pickle.dumps(c)) == copy.deepcopy(c) == c
    with pytest.raises(TypeError):
        CompileId(3, 1)  # type: ignore[call-arg]


def test_a_trace_is_named_by_its_attempt() -> None:
    c = compile_id(3, 1)
    assert str(TraceId(c, 0)) == "3/1"
    assert str(TraceId(c, 2)) == "3/1_2"
    assert TraceId(c, 2) == (c, 2)
