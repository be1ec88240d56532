"""The command `opspec`: finds the verb, runs it, and turns every failure into an exit code.

A verb is a module with two functions:

    def add_parser(subparsers) -> argparse.ArgumentParser    its options, help and examples
    def run(args: argparse.Namespace) -> int                 does the work, gives the exit code

Only the module of the verb that was asked for is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn, Protocol, cast

from opspec._version import __version__
from opspec.diagnostics import OpspecError, near_matches

__all__ = ["EXIT_CODES", "VERBS", "Subparsers", "main"]

EXIT_CODES = {
    0: "fine",
    1: "faults in the specs, or with --check and diff: something is out of date or differs",
    2: "wrong usage",
    3: "the machine failed: what a run writes cannot be written or compared, memory ran out",
    70: "a fault of opspec itself; OPSPEC_DEBUG=1 shows where",
    130: "interrupted",
    141: "who read the output closed it, as `| head` does",
}

# Verb → (module, what it does). The modules are imported when they are asked for.
VERBS: dict[str, tuple[str, str]] = {
    "check": ("opspec.check", "find the faults in spec files"),
    "show": ("opspec.show", "say what the specs know of one operator"),
    "import": ("opspec.importer", "write specs from the registry of the installed torch"),
    "diff": ("opspec.diff", "compare specs with the installed torch, or with other specs"),
    "codegen": ("opspec.codegen", "generate code from the specs, or check that it is current"),
}

_EXAMPLES = """\
examples:
  opspec check                          check the specs/ of this folder
  opspec check my_ops.yaml              check one file
  opspec show aten::addmv.out           what the specs know of one overload
  opspec show addmv --json              all overloads of a name, for a program
  opspec codegen                        write the generated code of all packages
  opspec codegen --check                say what is out of date, and write nothing
  opspec diff                           what the installed torch has that the specs lack

`opspec VERB --help` has more on each verb.
"""


class Subparsers(Protocol):
    """What `add_parser` of a verb is given: argparse's collection of parsers."""

    def add_parser(self, name: str, **options: object) -> argparse.ArgumentParser:
        """Add the parser of one verb; options as of `argparse.ArgumentParser`."""


class _Parser(argparse.ArgumentParser):
    """An argument parser that names near matches and takes no abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        verb = message.partition("invalid choice: '")[2].partition("'")[0]
        near = near_matches(verb, VERBS) if verb else []
        if near:
            message = f"no verb is called {verb}; did you mean {near[0]}?"
        elif verb and self.prog == "opspec":
            message = f"no verb is called {verb}; the verbs are {', '.join(VERBS)}"
        self.exit(2, f"{self.prog}: {message}\ntry: {self.prog} --help\n")


def _parser(verb: str | None) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
    parser = _Parser(
        prog="opspec",
        description="Read, check and compare operator specs, and generate code from them.",
        epilog=f"{_EXAMPLES}\nexit codes:\n{codes}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"opspec {__version__}")
    subparsers = parser.add_subparsers(
        title="verbs", metavar="VERB", dest="verb", required=True, parser_class=_Parser
    )
    module = None
    for name, (path, meaning) in VERBS.items():
        if name == verb:
            module = importlib.import_module(path)
            module.add_parser(cast(Subparsers, subparsers))
        else:
            subparsers.add_parser(name, help=meaning, add_help=False)
    return parser, module


def _run(arguments: Sequence[str]) -> int:
    verb = next((word for word in arguments if not word.startswith("-")), None)
    parser, module = _parser(verb if verb in VERBS else None)
    args = parser.parse_args(arguments)
    if module is None:  # pragma: no cover  (argparse has refused everything else)
        parser.error("no verb")
    return int(module.run(args))


def _say(text: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # nobody can hear it
            print(text, file=sys.stderr, flush=True)


def _mute() -> None:
    # The interpreter flushes stdout at its end, and would complain about the closed pipe again.
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments (default: those of the process).

    Gives the exit code; never raises for what a user, a file or the machine did.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Names of files need not be text, and a terminal need not know every character.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse: --help, --version, wrong usage
        return stop.code if isinstance(stop.code, int) else 2
    except BrokenPipeError:
        _mute()
        return 141  # as a program has it that SIGPIPE ended
    except KeyboardInterrupt:
        _say("opspec: interrupted")
        return 130
    except OpspecError as error:
        _say(f"opspec: {error}")
        return error.exit_code
    except MemoryError:
        _say("opspec: out of memory")
        return 3
    except OSError as error:
        _mute()
        what = f"{error.filename}: " if error.filename else ""
        _say(f"opspec: {what}{(error.strerror or str(error)).lower()}")
        return 3
    except Exception as error:
        if os.environ.get("OPSPEC_DEBUG"):
            raise
        _say(
            f"opspec: a fault of opspec itself: {type(error).__name__}: {error}\n"
            "  set OPSPEC_DEBUG=1 to see where, and report it with the spec that shows it"
        )
        return 70
