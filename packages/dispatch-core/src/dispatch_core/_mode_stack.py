"""Put modes on torch's stack, take them off in any order, and carry them to other threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from typing import Any, TypeVar

from dispatch_core import _torch_private as private
from dispatch_core._errors import ModeStateError
from dispatch_core._kept import kept_scopes
from dispatch_core._scopes import Scope, run_through
from dispatch_core._torch_private import TorchDispatchMode

__all__ = ["QuietMode", "brought_to_top", "propagate_modes", "with_modes"]

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def brought_to_top(mode: TorchDispatchMode) -> Iterator[None]:
    """Make a mode the innermost one while it is taken off, and put those above it back after.

    Contexts are not always left in the order they were entered: a generator that holds one open
    may be closed at any time.

    Raises: ModeStateError if the mode is not on this thread's stack.
    """
    stack = private.mode_stack()
    for index in range(len(stack) - 1, -1, -1):
        if stack[index] is mode:
            break
    else:
        raise ModeStateError(
            f"{type(mode).__name__} is not open in this thread: leave a mode in the thread that "
            "entered it. To use the modes of one thread in another, wrap what runs there in "
            "dispatch_core.propagate_modes."
        )
    above = stack[index + 1 :]
    for other in reversed(above):
        private.pop_mode(other)
    try:
        yield
    finally:
        for other in above:
            private.push_mode(other)


class QuietMode(TorchDispatchMode, Scope):
    """A mode that torch.compile need not know of, and that costs next to nothing to enter."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        pass  # torch's flags are for modes that compiled code must respect

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the code is marked instead, which costs nothing when it runs

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code is not run step by step for the sake of this mode."""
        return True

    @private.skip_in_dynamo
    def __enter__(self) -> Any:
        private.push_mode(self)
        return self

    @private.skip_in_dynamo
    def __exit__(self, *exc_info: object) -> None:
        if private.innermost_mode() is self:
            private.pop_mode()
        else:
            with brought_to_top(self):
                private.pop_mode()


@contextmanager
def with_modes(modes: Sequence[TorchDispatchMode]) -> Iterator[None]:
    """Have these modes open in this thread too, outside of those that are."""
    before = private.mode_stack()
    own = list(before)
    for mode in modes:
        for index, other in enumerate(own):
            if other is mode:
                del own[index]
                break
    # Torch refuses a second one of some kinds too, but loses count of references when it does.
    kinds = [key for mode in (*modes, *own) if (key := private.mode_kind(mode)) is not None]
    for mode in modes:
        if kinds.count(private.mode_kind(mode)) > 1:
            raise ModeStateError(
                f"a {type(mode).__name__} is to be carried to where another one is open, but of "
                "these only one may be: one already exists, leave it first"
            )
    try:
        _replace(before, [*modes, *own])
        yield
    finally:
        _replace(private.mode_stack(), before)


def _replace(present: Sequence[TorchDispatchMode], wanted: Sequence[TorchDispatchMode]) -> None:
    for mode in reversed(present):
        private.pop_mode(mode)
    for mode in wanted:
        private.push_mode(mode)


def _held(ops: frozenset[Any]) -> AbstractContextManager[None]:
    """Go on keeping composite operators whole, which the scopes alone do only while open."""
    if not ops:
        return nullcontext()
    from dispatch_core._composite import kernels_held

    return kernels_held(ops)


def propagate_modes(fn: F) -> F:
    """Make a function that runs `fn` with the modes and captures that are open here and now.

    torch's modes belong to a thread. Wrap what another thread is to run::

        with Recorder() as recorder:
            thread = threading.Thread(target=propagate_modes(work))

    Modes that are open where it is called stay, inside of the others. So the call may as well
    come from the same thread: that is how `dispatch_core.checkpoint` keeps modes for what is
    recomputed. What `keep_composite` keeps whole is carried as well, and so are context variables,
    as `asyncio.to_thread` does; grad mode, inference mode and autocast are not.
    """
    if not callable(fn):
        raise TypeError(f"propagate_modes takes the function to run with them, not {fn!r}")
    modes = tuple(private.mode_stack())
    context = copy_context()
    kept = frozenset[Any]().union(*(ops for _, ops in kept_scopes.get()))

    def start() -> Callable[[Callable[[], Any]], Any]:
        own = context.copy()  # a context cannot be entered twice at a time

        def run(thunk: Callable[[], Any]) -> Any:
            with with_modes(modes), _held(kept):
                return own.run(thunk)

        return run

    return run_through(start, fn)
