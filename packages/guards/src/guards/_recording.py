"""Watch one run of a function: every operator, and every sign that operators are not the whole.

A run is written down as the operators that torch's dispatcher saw, each argument a constant, an
input by its place, or an earlier result. That is the whole of it only if the run read nothing but
what the assumptions cover, and did nothing else; what speaks against that makes the run one that
cannot be written down.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from guards import _torch_private as private
from guards._assumptions import ORDER_OF_SETS, Assumptions, CannotSpecialize
from guards._constants import is_constant, spell
from guards._evaluation import ValueSource
from guards._fetch import MISSING, is_a
from guards._gc_pause import GcPause
from guards._index_lists import indexes_by_constants
from guards._op_facts import facts
from guards._record import Input, Number, Record, Result, Step, make_record
from guards._results import write_result
from guards._settings import settings_now
from guards._stack_reading import MAKERS, read_stack
from guards._trust import is_of_torch, path_in_torch
from guards._understood import (
    ASK_BY_NAME,
    CODE_OF_CLASSES,
    is_look_up,
    is_of_tensors,
    is_understood,
    torch_code_problem,
    words,
)
from guards._user_code import catches_errors

__all__ = ["Watcher", "unchanged", "watch"]

_FOLDER = __file__.rpartition("_recording.py")[0]

# These read Python values, among which may be tensors, whose values they read unseen.
_TAKE_DATA = words("tensor as_tensor asarray new_tensor from_numpy frombuffer")
# Of these the arguments tell whether they do.
_TELL_BY_ARGUMENTS = words("tensor as_tensor asarray new_tensor tensor_split ctc_loss")
# These take tensors that nothing but operators reads, so many, and make others of constants.
_BESIDES_CONSTANTS = {"new_tensor": 1, "tensor_split": 1, "ctc_loss": 2}


class _Open:
    """The watchers that are open, in all threads, and what torch's flags were before."""

    lock = threading.RLock()  # what is dropped meanwhile may run code that comes back here
    count = 0
    flags: ClassVar[list[bool]] = []


class Watcher(TorchDispatchMode):
    """Write down operators; the first reason why that is not enough is kept, not raised."""

    supports_higher_order_operators = True  # they are refused here, and run as without us

    def __init__(self, inputs: Sequence[tuple[ValueSource, torch.Tensor]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs = inputs
        self.steps: list[Step] = []
        self.problem: str | None = None
        self.made_of_data = False  # something may have read tensors unseen
        self.of_constants = False  # a tensor is being made of nothing but constants
        self.fills_unseen = False  # an operator fills empty tensors of its own with constants
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], Any]] = {
            id(t): (weakref.ref(t), Input(place)) for place, (_, t) in enumerate(inputs)
        }
        self.given: dict[int, Any] = {}  # the containers of the result
        self._count = 0
        self._masks: list[int] = []  # results that are made of lists of bools, as indices
        self._results: list[weakref.ref[torch.Tensor]] = []
        self._settings = settings_now()
        # What a garbage collection runs, in the middle of anything, is not the function's doing.
        self.pause = GcPause()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would load torch._dynamo on first use

    def __enter__(self) -> Watcher:
        with _Open.lock:
            if not _Open.count:
                _Open.flags = private.mode_flags()
            _Open.count += 1
            super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        # Each mode puts back the flags that it found, which another thread's mode may have set.
        with _Open.lock:
            super().__exit__(*error)  # type: ignore[no-untyped-call]
            _Open.count -= 1
            if not _Open.count:
                private.set_mode_flags(_Open.flags)

    def refuse(self, why: str) -> None:
        self.problem = self.problem or why
        self.pause.end()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        profile = sys.getprofile()
        sys.setprofile(None)
        try:
            kwargs = kwargs or {}
            if self.problem is not None:
                return self._run(func, args, kwargs)
            try:
                self._admit(func, args)
                written = tuple(self.write(a) for a in self._with_numbers(func, args))
                named = {key: self.write(a) for key, a in kwargs.items()}
            except CannotSpecialize as problem:
                self.refuse(str(problem))
                return self._run(func, args, kwargs)
            try:
                result = self._run(func, args, kwargs)
            except Exception:
                self.refuse(f"{func.name()} raised an error, as it may not do the next time")
                raise
            if self.fills_unseen and func is torch.ops.aten.empty.memory_format:
                return result  # what it holds is known where it is used
            outputs = self._number(func, result)
            self.steps.append(Step(func, written, named, torch.is_grad_enabled(), outputs))
            return result
        finally:
            sys.setprofile(profile)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # In inference mode composites come here whole, and their parts must track views.
        whole = is_a(func, torch._ops.OpOverload) and facts(func).composite == "implicit"
        with private.with_lazy_bits(views=whole and not private.tracks_views(func.name())):
            return func(*args, **kwargs)

    def _admit(self, func: Any, args: tuple[Any, ...]) -> None:
        if not is_a(func, torch._ops.OpOverload):
            raise CannotSpecialize(f"{func.name()} takes functions")
        known = facts(func)
        name = func.name()
        if not known.known:
            raise CannotSpecialize(f"{name} is not in the specs: nothing is known of it")
        if known.reads_data == "always":
            raise CannotSpecialize(f"{name} reads a value that may decide what happens next")
        fixed = name == "aten::_ctc_loss" or self._indexes_by_numbers(name, args)
        if known.output_shape == "dynamic" and not fixed:
            raise CannotSpecialize(f"{name} gives a shape that depends on values")
        if name.startswith(("aten::as_strided", "aten::set_", "aten::resize_")):
            raise CannotSpecialize(f"{name} reaches memory by its offset")
        if settings_now() != self._settings:
            raise CannotSpecialize("it changes a setting of torch, or enters inference mode")

    def _indexes_by_numbers(self, name: str, args: tuple[Any, ...]) -> bool:
        if name != "aten::index.Tensor":
            return False
        masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
        return all(self._knows(i) and self.write(i) in map(Result, self._masks) for i in masks)

    def write(self, value: Any) -> Any:
        """Give the form of an argument or a result that can be used again."""
        if is_a(value, torch.Tensor):
            if not self._knows(value):
                if self.fills_unseen:
                    return Number(value.clone())
                raise CannotSpecialize(
                    "a tensor comes from outside of the operators and the inputs, as those of "
                    "torch.tensor(…) do: make it before the call"
                )
            return self._known[id(value)][1]
        if type(value) in (list, tuple):
            return type(value)(self.write(part) for part in value)
        if is_constant(value) or type(value) is Number:
            return value
        raise CannotSpecialize(f"an operator takes {spell(value)}")

    def _with_numbers(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Keep the tensors that torch makes of constants: of the 5 in ``x[0] = 5``, of ``[0, 1]``.

        Raises:
            CannotSpecialize: the list in an index may hold tensors.
        """
        if func.name() != "aten::lift_fresh" or self._knows(args[0]):
            return args
        one_number = not self.made_of_data and args[0].dim() == 0
        if one_number or self.of_constants or self._is_index(args[0]):
            return (Number(args[0].clone()),)
        return args

    def _is_index(self, tensor: torch.Tensor) -> bool:
        frame: Any = sys._getframe(3)
        while frame.f_back is not None and (_is_ours(frame.f_code) or is_of_torch(frame.f_code)):
            frame = frame.f_back
        found = indexes_by_constants(frame)
        if found is False:
            raise CannotSpecialize(
                "torch makes a tensor of a list within an index, and reads unseen what the list "
                "holds: give the list a name before, or make a tensor of it before the call"
            )
        # A mask that is the same each time gives results of one shape.
        self._masks += [self._count] if found and tensor.dtype is torch.bool else []
        return bool(found)

    def _knows(self, tensor: torch.Tensor) -> bool:
        known = self._known.get(id(tensor))
        return known is not None and known[0]() is tensor

    def _number(self, func: Any, result: Any) -> Any:
        if is_a(result, torch.Tensor):
            return self._number_one(result)
        if type(result) in (list, tuple):
            return tuple(
                self._number_one(part) if is_a(part, torch.Tensor) else None for part in result
            )
        if result is not None:
            self.refuse(f"{func.name()} gives {spell(result)}, which is no tensor")
        return None

    def _number_one(self, tensor: torch.Tensor) -> int | None:
        if self._knows(tensor):
            return None  # an argument that was written, and given back
        number = self._count
        self._count += 1
        # Weakly: a result that is held makes torch hand a copy of it to its caller.
        self._known[id(tensor)] = (weakref.ref(tensor), Result(number))
        self._results.append(weakref.ref(tensor))
        return number

    def look_at_results(self) -> None:
        """Refuse what was done to the results unseen."""
        for reference in self._results:
            tensor = reference()
            if tensor is None:
                continue
            if tensor.__dict__:
                self.refuse(f"it gives a tensor attributes: {', '.join(tensor.__dict__)}")
            try:
                made_leaf = tensor.requires_grad and tensor.is_leaf
            except RuntimeError as error:  # of views that were written to where that is forbidden
                self.refuse(f"it gives a tensor that autograd refuses: {error}")
                continue
            if made_leaf:
                self.refuse("it makes a tensor that requires grad")


def _is_ours(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_FOLDER)


class _Arguments(TorchFunctionMode):
    """See the arguments of one function of torch's C code, which is about to be called."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        watcher = self._watcher
        given = [*args, *kwargs.values()]
        tensors = [value for value in given if is_a(value, torch.Tensor)]
        others = all(is_constant(value) for value in given if not is_a(value, torch.Tensor))
        takes_data = func.__name__ in _TAKE_DATA
        allowed = _BESIDES_CONSTANTS.get(func.__name__, 0)
        if not others or len(tensors) > allowed:
            if takes_data:
                watcher.made_of_data = True
            else:
                watcher.refuse(f"{func.__name__} reads what its arguments hold")
            return func(*args, **kwargs)
        watcher.of_constants = takes_data
        watcher.fills_unseen = func.__name__ == "ctc_loss"
        try:
            return func(*args, **kwargs)
        finally:
            watcher.of_constants = watcher.fills_unseen = False


class _Frames:
    """Tell from the calls that Python makes whether code ran that nobody has looked at."""

    def __init__(self, assumptions: Assumptions, watcher: Watcher) -> None:
        self._codes = assumptions.codes
        self._patchable = assumptions.patchable
        self._operates = assumptions.operates
        self._viewed: list[tuple[dict[Any, Any], str]] = []  # with what they were asked for
        self._views = ""  # code that keeps keys or items of which sets have an order by addresses
        self._watcher = watcher
        self._refuse = watcher.refuse
        self._looked_at: set[types.CodeType] = set()
        self.catching = ""  # code that ran and may catch what an operator raises
        self._arguments = _Arguments(watcher)
        # Whose call the mode that sees arguments is on for.
        self._asking: types.FrameType | None = None

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        try:
            if event == "call":
                if code not in self._looked_at:
                    self._looked_at.add(code)
                    self._look_at(frame, code)
                caller = frame.f_back
                compares = code.co_name in _SMALLER and caller and caller.f_code in self._codes
                if caller and compares and read_stack(caller.f_code).sorts:
                    self._refuse_set(caller.f_code)
            elif event == "return":
                if code in self._codes and read_stack(code).gives and _holds_addresses(argument):
                    self._refuse_set(code)
            elif _is_ours(code):
                return
            elif event == "c_call":
                if argument.__name__ in _TELL_BY_ARGUMENTS and is_of_tensors(argument):
                    private.open_function_mode(self._arguments)
                    self._asking = frame
                    return
                if argument.__name__ in _TAKE_DATA:
                    self._watcher.made_of_data = True
                self._look_at_call(frame, argument)
                self._look_at_set(frame, argument)
                owner = getattr(argument, "__self__", None)
                if code in self._codes and is_a(owner, (dict, types.MappingProxyType)):
                    self._look_at_view(frame, argument)
            elif self._asking is frame and event in ("c_return", "c_exception"):
                self._asking = None
                private.close_function_mode()
            elif event == "c_return":
                self._look_at_set(frame, argument)
        except Exception as error:  # it would come out of the user's code
            self._refuse(f"what it calls cannot be looked at: {type(error).__name__}")

    def end(self) -> None:
        """Close what is still open, which nothing should be."""
        if self._asking is not None:
            self._asking = None
            private.close_function_mode()

    def look_at_views(self) -> None:
        """Refuse sets of objects that operators may have made of the keys or items of dicts."""
        ran = self._looked_at & self._codes.keys()
        if self._operates or any(read_stack(code).operates for code in ran):
            kept = any(_views_addresses(*viewed) for viewed in self._viewed)
            if self._views or kept or (self._viewed and any(map(_deletes, ran))):
                self._refuse(f"{self._views or 'it'} {ORDER_OF_SETS}")

    def _look_at_view(self, frame: types.FrameType, function: Any) -> None:
        """Note a view of a dict of which code keeps it, and may make sets."""
        owner, code, name = function.__self__, frame.f_code, function.__name__
        if name not in ("keys", "items"):
            for viewed in self._viewed:  # what is taken away had been seen by the view
                if viewed[0] is owner and _views_addresses(*viewed):
                    self._views = self._views or code.co_name
        elif read_stack(code).keeps_views or name not in code.co_names:
            if type(owner) is types.MappingProxyType or _views_addresses(owner, name):
                self._views = self._views or code.co_name
            else:
                self._viewed.append((owner, name))

    def _look_at(self, frame: types.FrameType, code: types.CodeType) -> None:
        if code is _EXIT_OF_STACK:  # what was pushed may say that an error is dealt with
            self.catching = self.catching or "contextlib.ExitStack"
        if _is_ours(code) or code in CODE_OF_CLASSES:
            return
        if code in self._codes:
            if self._codes[code]:
                self._refuse(f"{code.co_name} {self._codes[code]}")
            if not self.catching and catches_errors(code):
                self.catching = code.co_name
            return
        if not is_of_torch(code):
            self._refuse(_unknown_code(frame, code))
            return
        path = path_in_torch(code)
        problem = torch_code_problem(code, path)
        if problem:
            self._refuse(problem)
        elif not is_look_up(path):
            self._patchable.note_torch_code(frame, path)

    def _look_at_set(self, frame: types.FrameType, function: Any) -> None:
        """Refuse a set of objects that a method is called of, if its order may matter here."""
        owner = getattr(function, "__self__", None)
        code = frame.f_code
        if type(owner) in MAKERS and code in self._codes and _holds_addresses(owner):
            mine = (frame.f_locals.get(name) for name in read_stack(code).locals)
            if not any(local is owner for local in mine):
                self._refuse_set(code)

    def _refuse_set(self, code: types.CodeType) -> None:
        self._refuse(f"{code.co_name} {ORDER_OF_SETS}")

    def _look_at_call(self, frame: types.FrameType, function: Any) -> None:
        of_torch = is_of_torch(frame.f_code)
        path = path_in_torch(frame.f_code) if of_torch else ""
        if (of_torch and is_look_up(path)) or frame.f_code in CODE_OF_CLASSES:
            return
        if path == _RNN and function.__name__ in _READ_PACKED:
            # Of these only the forms for packed sequences read memory themselves.
            if frame.f_locals.get("batch_sizes", MISSING) is not None:
                self._refuse(f"{function.__name__} of packed sequences reads their lengths")
            return
        code = frame.f_code
        if function in ASK_BY_NAME and code in self._codes:
            if not read_stack(code).asks_by_names_it_has:
                self._refuse(f"it calls {function.__name__} with names that it does not say itself")
            return
        if function is hash and code.co_name == "__hash__":
            return  # who else asks for hashes is refused
        if not is_understood(function, from_torch=of_torch):
            if of_torch and function.__name__ == "warn":
                self._refuse(f"{frame.f_code.co_name} of torch/{path} warns, as no record would")
                return
            self._refuse(f"it calls {spell(function).removeprefix('function ')}")


def _unknown_code(frame: types.FrameType, code: types.CodeType) -> str:
    """Say that code runs which nobody has looked at."""
    name = getattr(code, "co_qualname", code.co_name)
    if code is _CACHED_PROPERTY:
        return (
            "it asks a functools.cached_property for its first value, which is kept from then on: "
            "ask for it before"
        )
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if module in sys.stdlib_module_names:
        return (
            f"it runs {name} of Python's {module}, of which nothing is known: call it before, and "
            "hand on what it gives"
        )
    return f"it runs {name}, which it does not reach by a name it uses"


def _holds_addresses(value: Any) -> bool:
    """Tell whether a value is, or holds, a set of objects that are hashed by their addresses."""
    if type(value) in (list, tuple):
        return any(map(_holds_addresses, value))
    return type(value) in MAKERS and not all(map(is_constant, value))


def _deletes(code: types.CodeType) -> bool:
    return any(i.opname == "DELETE_SUBSCR" for i in dis.get_instructions(code))


def _views_addresses(viewed: dict[Any, Any], name: str) -> bool:
    """Tell whether a set of the keys or items of a dict holds what is hashed by its address."""
    parts = [*dict.keys(viewed)] + ([*dict.values(viewed)] if name == "items" else [])
    return not all(map(is_constant, parts))


_CACHED_PROPERTY = functools.cached_property.__get__.__code__
_EXIT_OF_STACK = contextlib.ExitStack.__exit__.__code__
_SMALLER = ("__lt__", "__gt__")
_RNN = "nn/modules/rnn.py"
_READ_PACKED = words("lstm gru rnn_tanh rnn_relu")


def watch(
    run: Callable[[], Any], assumptions: Assumptions
) -> tuple[Any, Record | None, str | None]:
    """Run a function and write down what it does; the result, the record, or why there is none.

    Raises:
        Exception: whatever the function raises.
    """
    inputs = list(assumptions.tensors())
    watcher = Watcher(inputs)
    frames = _Frames(assumptions, watcher)
    try:
        with watcher:
            sys.setprofile(frames)
            try:
                result = run()
            finally:
                if sys.getprofile() is frames:
                    sys.setprofile(None)
                else:  # the code has set or taken away one, and that stays so
                    watcher.refuse("it changes which function profiles it")
    finally:
        watcher.pause.end()
        frames.end()
    output = None
    if watcher.problem is None:
        frames.look_at_views()
        watcher.look_at_results()
        try:
            output = write_result(result, watcher, assumptions)
        except CannotSpecialize as problem:
            watcher.refuse(str(problem))
    if watcher.problem is not None:
        return result, None, watcher.problem
    places = [source for source, _ in inputs]
    record = make_record(watcher.steps, output, places, torch.is_grad_enabled())
    if frames.catching and not record.harmless:
        return result, None, f"{frames.catching} may catch an error, after something was written"
    return result, record, None


def unchanged(assumptions: Assumptions, lookup: Callable[[ValueSource], Any]) -> bool:
    """Tell whether every place still holds the very object that it held before the run."""
    if not assumptions.namespaces_are_as_they_were():
        return False
    for source, value in assumptions.places.values():
        found = lookup(source)
        if found is not value and type(value) is not types.MethodType:
            return False
    return True
