"""What generated check code refers to: constants, weakly held identities, known types."""

from __future__ import annotations

import contextlib
import functools
import keyword
import re
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

from guards._class_names import find_class, importable_name, plain_name
from guards._fetch import Absent, is_a
from guards._pointers import address_reader, addresses_by_id
from guards._torch_private import no_tree, torch_function_modes, tree_check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guards._value_sources import ValueSource

__all__ = ["AbsentValueError", "Emitter", "is_heap_type"]

# A global costs more to read than a local; from so many reads on it pays to make one of it.
_OFTEN = 4
_WORD = re.compile(r"[A-Za-z_]\w*")
_BUILTINS = {"type": type, "len": len}

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made at run time, which may die
_type_flags = type.__dict__["__flags__"].__get__


class AbsentValueError(LookupError):
    """Inside generated code: a value is not there, so the guards do not hold."""


def is_heap_type(cls: type) -> bool:
    """Tell whether a class was made at run time; the others live as long as the process."""
    return bool(_type_flags(cls) & _HEAP_TYPE)


def is_kept_anyway(value: object) -> bool:
    """Tell whether a value may be held strongly, since something else keeps it alive anyhow.

    So are what takes no weak reference, None and the like, classes of C, and classes that stand
    under their own name in a module.
    """
    if is_a(value, type):
        return not is_heap_type(value) or find_class(importable_name(value)) is value
    try:
        weakref.ref(value)
    except TypeError:
        return True
    return False


# Code of a class that would be asked for an attribute.
_LOOKUPS = ("__getattribute__", "__getattr__")


def may_change(cls: type) -> bool:
    """Tell whether a class is one that somebody may give look-up code to: not C's, nor torch's."""
    return is_heap_type(cls) and not _is_of_torch(cls)


def _absent(unless: str | None) -> list[str]:
    # ``__dict__`` is there, so that it is not asked of ``__getattr__``.
    return ["__getattribute__"] if unless is None else [unless, *_LOOKUPS]


def _is_of_torch(cls: type) -> bool:
    module = type.__dict__["__dict__"].__get__(cls).get("__module__")
    return is_a(module, str) and module.startswith("torch.")


def _present(value: Any) -> Any:
    if type(value) is Absent:
        raise AbsentValueError
    return value


class Death:
    """Tell whether, and when, something died without which the guards can never hold again."""

    def __init__(self) -> None:
        self.happened = False
        self._listeners: list[weakref.WeakMethod[Callable[[], None]]] = []

    def happen(self, _: object = None) -> None:
        """Tell all who asked; called from wherever the object died, so they must not wait."""
        self.happened = True
        while self._listeners:
            listener = self._listeners.pop()()
            if listener is not None:
                listener()

    def _forget(self, reference: weakref.ReferenceType[Any]) -> None:
        with contextlib.suppress(ValueError):
            self._listeners.remove(reference)  # type: ignore[arg-type]

    def tell(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when it happens, or now where it has happened.

        It is a bound method, whose object is not kept alive by this.
        """
        reference = weakref.WeakMethod(listener, self._forget)
        if reference not in self._listeners:
            self._listeners.append(reference)
        if self.happened:
            self.happen()


class CompiledLater:
    """A function of generated code that is compiled when it is first called."""

    def __init__(self, source: str, name: str, namespace: dict[str, Any]) -> None:
        self.source = source
        self._name, self._namespace = name, namespace
        self._made: Callable[[Any], bool] | None = None

    def __call__(self, L: Any, /) -> bool:
        if self._made is None:
            exec(compile(self.source, "<guards>", "exec"), self._namespace)
            self._made = self._namespace[self._name]
        return self._made(L)


class Emitter:
    """Collect what one generated function refers to, under readable names.

    Attributes:
        namespace: the globals of the function.
        truths: the names of functions that give True or False, and nothing else.
    """

    def __init__(self) -> None:
        self.truths: set[str] = set()
        self.namespace: dict[str, Any] = {"present": _present}
        self._names: dict[int, tuple[str, object]] = {}
        self._weak_names: dict[int, str] = {}
        self._weakrefs: list[weakref.ReferenceType[Any]] = []
        self._types: dict[str, int] = {}  # by id: classes die too
        self._namespaces: dict[int, str] = {}  # of classes that are kept anyway
        self._serial: dict[str, int] = {}
        self._seldom: set[str] = set()  # names that are read where a fast way failed
        self._statements: list[str] = []
        self._early: dict[str, str] = {}  # conditions, with the local that tells each
        self._first: list[str] = []
        self._vital_ones: list[weakref.ReferenceType[Any]] = []
        self._kept: list[list[object]] = []
        self.death = Death()

    def _free_name(self, hint: str) -> str:
        # Python reads other letters as their plain forms: 'ﬁ' as 'fi'.
        hint = "".join(c if c.isascii() and c.isalnum() else "_" for c in hint) or "constant"
        while True:
            number = self._serial[hint] = self._serial.get(hint, -1) + 1
            name = hint if number == 0 else f"{hint}_{number}"
            if name not in self.namespace:
                return name

    def careful(self, function: object, hint: str) -> str:
        """Name a function that is called where a fast way has failed."""
        name = self.constant(function, hint)
        self._seldom.add(name)
        return name

    def constant(self, value: object, hint: str) -> str:
        """Name a value that the function keeps alive; not for what a guard is about."""
        known = self._names.get(id(value))
        if known is not None:
            return known[0]
        name = self._free_name(hint)
        self.namespace[name] = value
        self._names[id(value)] = (name, value)
        return name

    def weakly(self, value: object, hint: str, *, vital: bool = False) -> str:
        """Write what gives a value that is held weakly, or None once it is dead.

        ``vital`` says that once it is dead, the whole check can never hold again.

        Raises:
            TypeError: the value takes no weak reference.
        """
        known = self._weak_names.get(id(value))
        if known is None or self.namespace[known]() is not value:
            reference = weakref.ref(value)
            known = self._weak_names[id(value)] = self.constant(reference, f"ref_{hint}")
        if vital:
            self.is_vital(value)
        return f"{known}()"

    def same_objects(
        self,
        values: tuple[object, ...],
        hint: str,
        variable: str = "values",
        *,
        vital: bool = True,
    ) -> str:
        """Write the test that a variable, a tuple, holds these very objects.

        Those that take weak references are held weakly: when one of them dies, nothing is the
        same any more and, unless ``vital`` is False, the whole check can never hold again.
        """
        name = self._free_name(hint)
        self.namespace[name] = addresses_by_id(values)
        kept = []
        for value in values:
            if is_kept_anyway(value):
                kept.append(value)
                continue
            self._weakrefs.append(weakref.ref(value, functools.partial(self._forget, name)))
            if vital:
                self.is_vital(value)
        self._kept.append(kept)
        read, arguments = address_reader(len(values))
        reader = self.constant(read, f"read_{len(values)}_addresses")
        return f"{reader}({arguments.replace('values', variable)}).raw == {name}"

    def ask_tree(self, tree: object, hint: str, value: str) -> str:
        """Write the test that one of torch's trees of guards holds of a value."""
        check = self.truth(tree_check(), "tree_check")
        return f"{check}({self.name_of_tree(tree, hint)}, {value})"

    def name_of_tree(self, tree: object, hint: str) -> str:
        """Name one of torch's trees of guards."""
        return self.constant(tree, f"tree_of_{hint}")

    def ends_with(self, value: object, tree: str) -> None:
        """Let a tree, given by the name it has, never hold again once a value is dead.

        torch knows some objects by their addresses alone.
        """
        self._weakrefs.append(weakref.ref(value, functools.partial(self._end_tree, tree)))

    def is_vital(self, value: object) -> None:
        """Let the whole check never hold again once a value is dead."""
        self._vital_ones.append(weakref.ref(value, self.death.happen))

    def _end_tree(self, name: str, _: object) -> None:
        self.namespace[name] = no_tree()

    def truth(self, function: object, hint: str) -> str:
        """Name a function that gives True or False, and nothing else."""
        name = self.constant(function, hint)
        self.truths.add(name)
        return name

    def _forget(self, name: str, _: object) -> None:
        self.namespace[name] = b""

    def is_type(self, variable: str, cls: type, *, vital: bool = False) -> str:
        """Write the test that a variable's class is exactly ``cls``; for ``vital`` see weakly."""
        if id(cls) not in self._names and not is_kept_anyway(cls):
            return f"type({variable}) is {self.weakly(cls, plain_name(cls), vital=vital)}"
        return f"type({variable}) is {self.constant(cls, f'type_{plain_name(cls)}')}"

    def is_same_class(self, variable: str, cls: type) -> str:
        """Write the test that a variable is a class that is kept anyway."""
        return f"{variable} is {self.constant(cls, f'type_{plain_name(cls)}')}"

    def forget_type(self, variable: str) -> None:
        """Forget a variable's class, of which the test has not been written after all."""
        self._types.pop(variable, None)

    def prove_type(self, variable: str, cls: type) -> None:
        """Remember that past this line a variable's class is exactly ``cls``."""
        self._types[variable] = id(cls)

    def has_type(self, variable: str, cls: type) -> bool:
        """Tell whether an earlier line has made sure of a variable's class."""
        return self._types.get(variable) == id(cls)

    def if_type(
        self, variable: str, cls: type, fast: str, source: ValueSource, unless: str | None = None
    ) -> str:
        """Write ``fast`` for a variable of class ``cls``, and the careful way for any other.

        ``unless`` names an attribute which the class did not have; should it be given one, a
        property perhaps, the careful way is taken too.
        """
        test = self.is_plain(variable, cls, unless)
        return f"({fast} if {test} else {self.fetch(source, variable)})" if test else fast

    def is_plain(self, variable: str, cls: type, unless: str | None = None) -> str:
        """Write the test that a variable is of class ``cls``, which still lacks ``unless``.

        Nor may it have been given look-up code of its own since. The text is empty where nothing
        is left to test.
        """
        tests = [] if self.has_type(variable, cls) else [self.is_type(variable, cls)]
        for number, base in enumerate(type.__dict__["__mro__"].__get__(cls)):
            if may_change(base) and not is_kept_anyway(base):
                names = f"type({variable}).__mro__[{number}].__dict__"
                tests += [f"{name!r} not in {names}" for name in _absent(unless)]
        early = self.still_plain(cls, unless)
        return " and ".join([*tests, early] if early else tests)

    def still_plain(self, cls: type, unless: str | None = None) -> str:
        """Write the part of ``is_plain`` that speaks of classes alone, of those kept anyway."""
        early = []
        for base in type.__dict__["__mro__"].__get__(cls):
            if may_change(base) and is_kept_anyway(base):
                names = self.names_of(base)
                early += [f"{name!r} not in {names}" for name in _absent(unless)]
        return self.early(" and ".join(early), f"plain_{plain_name(cls)}") if early else ""

    def lacks(self, variable: str, cls: type, names: Sequence[str]) -> str:
        """Write the test that the class of a variable still lacks names, and look-up code."""
        tests = []
        known = self.constant(frozenset([*names, *_LOOKUPS]), "names_to_lack")
        for number, base in enumerate(type.__dict__["__mro__"].__get__(cls)):
            if not may_change(base):
                continue
            if is_kept_anyway(base):
                told = f"{self.names_of(base)}.keys().isdisjoint({known})"
                tests.append(self.early(told, f"plain_{plain_name(cls)}"))
            else:
                own = f"type({variable}).__mro__[{number}].__dict__"
                tests.append(f"{own}.keys().isdisjoint({known})")
        return " and ".join(tests)

    def names_of(self, cls: type) -> str:
        """Name the namespace of a class that is kept anyway."""
        known = self._namespaces.get(id(cls))
        if known is None:
            own = type.__dict__["__dict__"].__get__(cls)
            known = self._namespaces[id(cls)] = self.constant(own, f"names_of_{plain_name(cls)}")
        return known

    def fetch(self, source: ValueSource, variable: str) -> str:
        """Write the careful way to reach a source from its base's variable."""
        from guards._value_sources import ChainedValueSource

        hint = type(source).__name__
        if isinstance(source, ChainedValueSource):
            reader: Callable[..., Any] = source.read
            return f"present({self.constant_of(source, reader, f'read_{hint}')}({variable}))"
        start = self.constant_of(source, source.start, f"start_{hint}")
        return f"present({start}(L, G))"

    def constant_of(self, owner: object, value: object, hint: str) -> str:
        """Name a value made for ``owner``, the same name for the same owner."""
        known = self._names.get(id(owner))
        if known is not None:
            return known[0]
        name = self.constant(value, hint)
        self._names[id(owner)] = (name, owner)
        return name

    def used_often(self, body: str) -> list[str]:
        """Write the lines that make locals of the constants which ``body`` reads often."""
        counts = Counter(_WORD.findall(body))
        names = dict.fromkeys([*_BUILTINS, *(name for name, _ in self._names.values())])
        for name in (*self._seldom, *filter(keyword.iskeyword, names)):
            counts[name] = 0
        often = [name for name in names if counts[name] >= _OFTEN]
        lines = []
        for name in often:
            known = self._free_name(f"the_{name}")
            self.namespace[known] = _BUILTINS.get(name) or self.namespace[name]
            lines.append(f"{name} = {known}")
        return lines

    def early(self, condition: str, hint: str) -> str:
        """Give a local that tells a condition, which is looked at once, before all others.

        It speaks of no value, and must not raise.
        """
        known = self._early.get(condition)
        if known is None:
            known = self._early[condition] = self.local(hint)
            self._first.append(f"{known} = {condition}")
        return known

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Write another function, which has conditions of its own to be looked at first."""
        kept = self._early, self._first
        self._early, self._first = {}, []
        yield
        self._early, self._first = kept

    def local(self, hint: str) -> str:
        """Give the name of a local that nothing else has."""
        name = self._free_name(hint)
        self.namespace[name] = None
        return name

    def no_modes(self) -> str:
        """Write the test that no mode is open, whose code torch's own attributes would run."""
        modes = self.constant(torch_function_modes, "function_modes")
        return self.early(f"not {modes}()", "no_modes")

    def take_first(self) -> list[str]:
        """Give the lines to be put in front of all others; none of them raises."""
        lines, self._first = self._first, []
        return lines

    def statement(self, line: str) -> None:
        """Put a line in front of the condition that is being written."""
        self._statements.append(line)

    def take_statements(self) -> list[str]:
        """Give the lines to be put in front of the condition just written."""
        lines, self._statements = self._statements, []
        return lines

    def compile(self, source: str, function: str, filename: str) -> Callable[..., Any]:
        """Run the definition of a function and give the function."""
        exec(compile(source, filename, "exec"), self.namespace)
        made: Callable[..., Any] = self.namespace[function]
        return made
