"""Let a tensor subclass answer every operator of a thread, also those without its instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._errors import ModeClassError, ModeStateError, NoHandlerError
from dispatch_core._honest import answering, ask_classes, class_order
from dispatch_core._mode import DispatchMode, hand_on, is_honest
from dispatch_core._scopes import Scope

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["enable_python_mode"]


def enable_python_mode(cls: type) -> Scope:
    """Let `cls`, a subclass of torch.Tensor, answer every operator, also on plain tensors.

    The class takes part in the order of classes: it comes first, unless the class of an argument
    is its proper subclass. Its handler runs with the mode taken off. Also a decorator.

    Raises: ModeClassError (a ValueError) if `cls` is no class, or has no `__torch_dispatch__` of
    its own; ModeStateError (a RuntimeError), when entered inside another such mode.
    """
    if not isinstance(cls, type):
        raise ModeClassError(
            f"enable_python_mode: the argument must be the type of a tensor subclass, not an "
            f"instance of {type(cls).__qualname__}",
            cls=cls,
        )
    dispatch = getattr(cls, "__torch_dispatch__", None)
    if (
        not issubclass(cls, torch.Tensor)
        or dispatch is None
        or dispatch is private.disabled_torch_dispatch
    ):
        raise ModeClassError(
            f"enable_python_mode: {cls.__qualname__} must be a subclass of torch.Tensor that "
            "defines __torch_dispatch__",
            cls=cls,
        )
    return _PythonMode(cls)


class _PythonMode(DispatchMode, Scope):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self._cls = cls

    @private.skip_in_dynamo
    def __enter__(self) -> Self:
        for mode in private.mode_stack():
            if isinstance(mode, _PythonMode):
                raise ModeStateError(
                    "enable_python_mode: the python mode of this thread has already been set, to "
                    f"{mode._cls.__qualname__}; leave it before entering one of "
                    f"{self._cls.__qualname__}"
                )
        return super().__enter__()

    @is_honest
    @private.skip_in_dynamo
    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if private.sets_bits(func, args):
            with private.as_in_parts():
                return self._ask(func, types, args, kwargs or {})
        return self._ask(func, types, args, kwargs or {})

    def _ask(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        asked = answering(types)
        order = class_order((self._cls, *asked))
        try:
            result = ask_classes(func, order, order, args, kwargs)
        except NoHandlerError as error:
            if error.overload is not func or error.declined != order or asked:
                raise
            result = NotImplemented  # of no argument's class, so there is more to come
        return result if result is not NotImplemented else hand_on(func, types, args, kwargs)
