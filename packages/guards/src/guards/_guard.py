"""One guard, and the assumptions about several inputs at once."""

from __future__ import annotations

import functools
import logging
import traceback
import weakref
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from torch.utils._traceback import CapturedTraceback, format_frame

from guards._arguments import each_of, need, need_callable
from guards._errors import DuplicateSourceError, ExportInfoError
from guards._front_end import is_duplicate_input
from guards._source import GuardSource, Source, guard_source_of, name_of, need_source

__all__ = [
    "DuplicateInputs",
    "Guard",
    "GuardBuilderBase",
    "GuardEnvExpr",
    "SLoc",
    "ShapeGuard",
    "StorageOverlap",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SLoc:
    """Say which line of the framework, and which line of the user's, made a shape guard."""

    framework_loc: traceback.FrameSummary | str | None
    maybe_user_loc: str | None

    def __post_init__(self) -> None:
        framework, user = self.framework_loc, self.maybe_user_loc
        known = framework is None or isinstance(framework, (str, traceback.FrameSummary))
        need(known, "SLoc", "framework_loc", "a FrameSummary, a text or None", framework)
        known = user is None or isinstance(user, str)
        need(known, "SLoc", "maybe_user_loc", "a text or None", user)

    def __str__(self) -> str:
        location = self.framework_loc
        if isinstance(location, traceback.FrameSummary):
            location = format_frame(location)
        framework = f"({location or ''})"
        return framework if self.maybe_user_loc is None else f"{self.maybe_user_loc} {framework}"


class ShapeGuard(NamedTuple):
    """A relation between sizes that must hold; ``expr`` is a symbolic boolean."""

    expr: Any
    sloc: SLoc
    size_oblivious: bool


class GuardBuilderBase:
    """The role of a scope in which guards are built; a front end gives it a body."""


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class Guard:
    """One assumption of a trace: a check that must hold again before its result is used again.

    ``create_fn(builder, guard)`` turns it into a check. Two guards are equal when they have the
    same name, the same guard source and the very same ``create_fn``; where they were made and
    what was found out about them later plays no part. Sources that can be evaluated must be equal
    themselves: a name may be cut short.
    """

    originating_source: Source
    create_fn: Callable[[Any, Guard], Any]

    # Filled in by set_export_info when the check is built.
    guard_types: list[str] | None = None
    code_list: list[str] | None = None
    obj_weakref: object | None = None
    guarded_class_weakref: weakref.ReferenceType[Any] | None = None

    # Filled in when the guard is added to a set.
    stack: CapturedTraceback | None = None
    user_stack: traceback.StackSummary | None = None

    # Not for __init__: dataclasses.replace must not carry it over to another create_fn.
    _hash: int | None = field(default=None, init=False)
    # What compile_guards turned the guard into; dumps saves it.
    _checks: tuple[Any, ...] = field(default=(), init=False)
    # What the installed torch notes on its guards, and ours have no place of their own for.
    _more: dict[str, Any] | None = field(default=None, init=False)
    _unserializable: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.originating_source, Source):
            need_source("Guard", "originating_source", self.originating_source)
        if not callable(self.create_fn):
            need_callable("Guard", "create_fn", self.create_fn, "such as GuardBuilder.TYPE_MATCH")

    @property
    def name(self) -> str:
        return name_of(self.originating_source)

    @property
    def source(self) -> GuardSource | None:
        return guard_source_of(self.originating_source)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self._place(), self.source, id(self.create_fn)))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Guard):
            return NotImplemented
        return (
            self.create_fn is other.create_fn
            and hash(self) == hash(other)
            and self._place() == other._place()
            and self.source is other.source
        )

    def _place(self) -> Source | str:
        source = self.originating_source
        return source if getattr(source, "known_by_value", False) else self.name

    # The hash depends on an identity, which another process does not share.
    def __getstate__(self) -> dict[str, Any]:
        state = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return state if self._more is None else {**state, "_more": self._more}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for f in fields(self):
            setattr(self, f.name, state.get(f.name, f.default))

    def sort_key(self) -> tuple[bool, int, int, str, int]:
        """Order guards: duplicate inputs last, then by kind of place, parents before children."""
        kind = self.source
        name = self.name
        code = getattr(self.inner_create_fn(), "__code__", None)
        return (
            is_duplicate_input(self),
            -1 if kind is None else kind.value,
            len(name),
            name,
            getattr(code, "co_firstlineno", -1),
        )

    def __lt__(self, other: Guard) -> bool:
        if not isinstance(other, Guard):
            return NotImplemented
        return self.sort_key() < other.sort_key()

    def inner_create_fn(self) -> Callable[..., Any]:
        """Give ``create_fn`` itself, or the function that a ``functools.partial`` holds."""
        fn: Callable[..., Any] = self.create_fn
        while isinstance(fn, functools.partial):
            fn = fn.func
        return fn

    def create_fn_name(self) -> str:
        fn = self.inner_create_fn()
        name = getattr(fn, "__name__", None)
        return name if isinstance(name, str) else type(fn).__name__

    def create(self, builder: GuardBuilderBase) -> Any:
        """Call ``create_fn(builder, self)``; if that raises, log which guard it was."""
        try:
            return self.create_fn(builder, self)
        except Exception:
            self.log_failure()
            raise

    def log_failure(self) -> None:
        """Log that the guard could not be created, and the last frames of where it was made."""
        log.error("Error while creating guard:\n%s", _text_of(self))
        if self.stack:
            frames = self.stack.format()
            log.error("Created at:\n%s", "".join(frames[-4:]).rstrip())

    def is_specialized_nn_module(self) -> bool:
        kind = self.source
        return kind is not None and kind.is_specialized_nn_module()

    def is_fsdp_module(self) -> bool:
        kind = self.source
        return kind is not None and kind.is_fsdp_module()

    def is_local(self) -> bool:
        kind = self.source
        return kind is not None and kind.is_local()

    def set_export_info(
        self,
        guard_type: str,
        guarded_class: weakref.ReferenceType[Any] | None,
        code_list: list[str],
        obj_weakref: object,
    ) -> None:
        """Add what was found out while the check was built.

        A guard may be told several times, each time with one more type and more code, but always
        about the same class and object. None says nothing about either.

        Raises:
            ExportInfoError: another class, or another object while the first is alive. Nothing
                has been changed then. (Some guarded objects, such as a slice, die at once.)
        """
        listed = type(code_list) is list or (
            isinstance(code_list, (Sequence, Set)) and not isinstance(code_list, str)
        )
        need(listed, "Guard.set_export_info", "code_list", "a list of texts", code_list)
        known_class, known_object = self.guarded_class_weakref, self.obj_weakref
        if None not in (known_class, guarded_class) and not _same(known_class, guarded_class):
            raise _export_info_error(self, "guarded_class_weakref", known_class, guarded_class)
        if (
            known_object is not None
            and obj_weakref is not None
            and not _is_dead(known_object)
            and not _same(known_object, obj_weakref)
        ):
            raise _export_info_error(self, "obj_weakref", known_object, obj_weakref)
        self.guard_types = [*(self.guard_types or ()), guard_type]
        self.code_list = [*(self.code_list or ()), *code_list]
        if guarded_class is not None:
            self.guarded_class_weakref = guarded_class
        if obj_weakref is not None:
            self.obj_weakref = obj_weakref

    @staticmethod
    def weakref_to_str(obj_weakref: object) -> str:
        """Describe a weak reference, also where ``str`` of it would run a broken ``__getattr__``.

        Anything that is not a weak reference gives its ``str``.
        """
        if not isinstance(obj_weakref, weakref.ReferenceType):
            return str(obj_weakref)
        obj = obj_weakref()
        if obj is None:
            return f"<weakref at {id(obj_weakref):#x}; dead>"
        return f"<weakref at {id(obj_weakref):#x}; to '{type(obj).__name__}' at {id(obj):#x}>"

    def __str__(self) -> str:
        facts = self._facts()
        return f"Name: {facts.pop('Name')}\n" + "".join(f"    {k}: {v}\n" for k, v in facts.items())

    def __repr__(self) -> str:
        facts = ", ".join(f"{k.lower().replace(' ', '_')}={v}" for k, v in self._facts().items())
        return f"Guard({facts})"

    def _facts(self) -> dict[str, str]:
        kind = self.source
        return {
            "Name": repr(self.name),
            "Source": "" if kind is None else kind.name.lower(),
            "Create Function": self.create_fn_name(),
            "Guard Types": str(self.guard_types),
            "Code List": str(self.code_list),
            "Object Weakref": self.weakref_to_str(self.obj_weakref),
            "Guarded Class Weakref": _class_weakref_to_str(self.guarded_class_weakref),
        }


def _text_of(guard: Guard) -> str:
    try:
        return str(guard).rstrip()
    except Exception as error:  # logging it must not hide the exception that is on its way
        return f"<{guard.create_fn_name()} on a source that cannot be printed: {error!r}>"


def _class_weakref_to_str(ref: weakref.ReferenceType[Any] | None) -> str:
    try:
        return str(ref)  # names the class; weakref_to_str would name its metaclass
    except Exception:
        return Guard.weakref_to_str(ref)


def _is_dead(ref: object) -> bool:
    return isinstance(ref, weakref.ReferenceType) and ref() is None


def _same(a: object, b: object) -> bool:
    # By identity: comparing weak references compares what they refer to, and runs its __eq__.
    if isinstance(a, weakref.ReferenceType) and isinstance(b, weakref.ReferenceType):
        return a is b or (a() is not None and a() is b())
    return a is b


def _export_info_error(guard: Guard, name: str, known: object, got: object) -> ExportInfoError:
    what = "class" if name == "guarded_class_weakref" else "object"
    return ExportInfoError(
        f"guard {guard.create_fn_name()} on {guard.name!r} already has another {what}: "
        f"{name} is {Guard.weakref_to_str(known)}, got {Guard.weakref_to_str(got)}; "
        f"make a guard of its own for the second {what}",
        field=name,
        known=known,
        got=got,
    )


@dataclass(frozen=True)
class GuardEnvExpr:
    """An assumption about several inputs at once; the base of its kinds."""


@dataclass(frozen=True)
class DuplicateInputs(GuardEnvExpr):
    """Two sources hold the very same object.

    Raises:
        DuplicateSourceError: the two sources are equal.
    """

    input_source_a: Source
    input_source_b: Source

    def __post_init__(self) -> None:
        for name in ("input_source_a", "input_source_b"):
            need_source("DuplicateInputs", name, getattr(self, name))
        if self.input_source_a == self.input_source_b:
            raise DuplicateSourceError(
                "input_source_a and input_source_b must be two different sources, "
                f"got {self.input_source_a!r} twice",
                self.input_source_a,
            )


@dataclass(frozen=True)
class StorageOverlap(GuardEnvExpr):
    """Of tensors that share a storage, which may overlap and which certainly do not."""

    overlapping_sources: Sequence[Source]
    non_overlapping_sources: Sequence[Source]

    def __post_init__(self) -> None:
        for name in ("overlapping_sources", "non_overlapping_sources"):
            given = each_of(object, getattr(self, name), "StorageOverlap", name, "sources")
            for source in given:
                need_source("StorageOverlap", f"each of {name}", source)
            object.__setattr__(self, name, tuple(given))
