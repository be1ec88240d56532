"""The command: verbs, help, exit codes, and never a traceback."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from opspec import check
from opspec.cli import EXIT_CODES, VERBS, main
from opspec.diagnostics import OpspecError
from opspec.progress import Progress
from opspec.writer import WriteError

Files = Mapping[str, "str | bytes"]
Write = Callable[[Files], Path]
Capture = pytest.CaptureFixture[str]

GOOD = "- func: good(Tensor self) -> Tensor\n"


def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
    """Start the command as a user does, in a process of its own."""
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "opspec", *arguments],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )


# Help and wrong usage


def test_help_teaches_by_example_and_documents_exit_codes(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for verb, (_, meaning) in VERBS.items():
        assert f"    {verb:<9} {meaning}" in text
        assert f"opspec {verb}" in text or verb == "import"
    assert set(EXIT_CODES) == {0, 1, 2, 3, 70, 130, 141}
    for code, meaning in EXIT_CODES.items():
        assert f"  {code:<4} {meaning}" in text


@pytest.mark.parametrize("verb", ["check", "show"])
def test_help_of_a_verb_has_examples(verb: str, capsys: Capture) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "examples:\n" in text
    assert f"  opspec {verb} " in text


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("opspec ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            [],
            "opspec: the following arguments are required: VERB\ntry: opspec --help\n",
        ),
        (["chek"], "opspec: no verb is called chek; did you mean check?\ntry: opspec --help\n"),
        (
            ["zzz"],
            "opspec: no verb is called zzz; the verbs are check, show, import, diff, codegen\n"
            "try: opspec --help\n",
        ),
        (
            ["show"],
            "opspec show: the following arguments are required: OP\ntry: opspec show --help\n",
        ),
        (
            ["check", "--note"],
            "opspec: unrecognized arguments: --note\ntry: opspec --help\n",
        ),
    ],
)
def test_wrong_usage_is_told_in_full(arguments: list[str], told: str, capsys: Capture) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == told


def test_only_the_module_of_the_verb_is_imported() -> None:
    program = (
        "import sys\n"
        "from opspec.cli import main\n"
        "main(['check', '--help'])\n"
        "print(sorted(sys.modules.keys() & {'opspec.importer', 'opspec.diff', 'opspec.codegen', "
        "'opspec.show', 'torch'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


# check


def test_check_of_good_specs(write_specs: Write, capsys: Capture) -> None:
    write_specs({"specs/mine.yaml": GOOD})
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "1 operator: no errors\n"


def test_check_of_bad_specs(write_specs: Write, capsys: Capture) -> None:
    write_specs(
        {
            "specs/a.yaml": "- func: f(Tensr self) -> Tensor\n- tags: core\n",
            "specs/b.yaml": "",
            "specs/aten/c.yaml": "- func: f_(Tensor self) -> Tensor\n",
        }
    )
    assert main(["check"]) == 1
    assert capsys.readouterr().out == (
        "specs/a.yaml:1:11: error: unknown type Tensr\n"
        "  - func: f(Tensr self) -> Tensor\n"
        "            ^^^^^\n"
        "  did you mean Tensor?\n"
        "specs/a.yaml:2:3: error: the entry has no func\n"
        "  - tags: core\n"
        "    ^\n"
        "  write func: and a schema, such as mm(Tensor self, Tensor mat2) -> Tensor\n"
        "specs/b.yaml:1:1: error: the file is empty\n"
        "  write entries like `- func: mm(Tensor self, Tensor mat2) -> Tensor`\n"
        "3 errors in 2 files, 1 note (--notes shows them)\n"
    )


def test_check_shows_notes_when_asked(write_specs: Write, capsys: Capture) -> None:
    write_specs({"specs/aten/a.yaml": "- func: f_(Tensor self) -> Tensor\n  autogen: f.out\n"})
    assert main(["check", "--notes", "specs"]) == 0
    assert capsys.readouterr().out == (
        "specs/aten/a.yaml:1:9: note: f_ has the name of an in-place operator, but writes to no "
        "argument\n"
        "  - func: f_(Tensor self) -> Tensor\n"
        "          ^^\n"
        "  mark what it writes, as in Tensor(a!) self, or take the last underscore away\n"
        "specs/aten/a.yaml:2:3: warning: 1 entries name variants under autogen; they are not "
        "expanded\n"
        "    autogen: f.out\n"
        "    ^^^^^^^\n"
        "  list a variant as an entry of its own where you need it\n"
        "1 operator: no errors, 1 warning, 1 note\n"
    )


def test_check_without_specs(write_specs: Write, capsys: Capture) -> None:
    write_specs({})
    assert main(["check"]) == 1
    assert capsys.readouterr().err == (
        "opspec: there is no folder specs here: name the files or folders to read\n"
    )


# show

SHOWN = (
    "- func: scale(Tensor self, *, float by=0.5) -> Tensor\n  tags: [pointwise]\n"
    "  doc: Multiply by a number.\n"
    "- func: scale.out(Tensor self, *, float by=0.5, Tensor(a!) out) -> Tensor(a!)\n"
)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("scale", ["mylib::scale", "mylib::scale.out"]),
        ("mylib::scale", ["mylib::scale", "mylib::scale.out"]),
        ("mylib.scale", ["mylib::scale", "mylib::scale.out"]),
        ("torch.ops.mylib.scale", ["mylib::scale", "mylib::scale.out"]),
        ("ops.mylib.scale.out", ["mylib::scale.out"]),
        ("mylib::scale.out", ["mylib::scale.out"]),
        ("scale.out", ["mylib::scale.out"]),
        ("mylib::scale.default", ["mylib::scale"]),
        ("scale.default", ["mylib::scale"]),
    ],
)
def test_show_takes_every_spelling(
    written: str, shown: list[str], write_specs: Write, capsys: Capture
) -> None:
    write_specs({"specs/mylib.yaml": SHOWN})
    assert main(["show", written, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["qualified_name"] for entry in found] == shown


def test_show_for_a_reader(write_specs: Write, capsys: Capture) -> None:
    write_specs({"specs/mylib.yaml": SHOWN})
    assert main(["show", "scale"]) == 0
    assert capsys.readouterr().out == (
        "mylib::scale\n"
        "  mylib::scale(Tensor self, *, float by=0.5) -> Tensor\n"
        "\n"
        "  Multiply by a number.\n"
        "\n"
        "  from          specs/mylib.yaml:1:9, family mylib\n"
        "  tags          pointwise\n"
        "  writes        nothing\n"
        "  composite     no\n"
        "  random        no\n"
        "  reads data    no\n"
        "  output shape  static\n"
        "\n"
        "mylib::scale.out\n"
        "  mylib::scale.out(Tensor self, *, float by=0.5, Tensor(a!) out) -> Tensor(a!)\n"
        "\n"
        "  from          specs/mylib.yaml:4:9, family mylib\n"
        "  tags          none\n"
        "  writes        out\n"
        "  composite     no\n"
        "  random        no\n"
        "  reads data    no\n"
        "  output shape  static\n"
    )


def test_show_for_a_program(write_specs: Write, capsys: Capture) -> None:
    write_specs({"specs/mylib.yaml": SHOWN})
    assert main(["show", "scale.out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "qualified_name": "mylib::scale.out",
            "namespace": "mylib",
            "name": "scale",
            "overload": "out",
            "schema": (
                "mylib::scale.out(Tensor self, *, float by=0.5, Tensor(a!) out) -> Tensor(a!)"
            ),
            "torch_schema": (
                "mylib::scale.out(Tensor self, *, float by=0.5, Tensor(a!) out) -> Tensor(a!)"
            ),
            "family": "mylib",
            "tags": [],
            "composite": "no",
            "random": False,
            "reads_data": "no",
            "output_shape": "static",
            "also_writes": [],
            "doc": None,
            "imported": False,
            "scripted": False,
            "arguments": [
                {
                    "name": "self",
                    "type": "Tensor",
                    "default": None,
                    "keyword_only": False,
                    "alias": None,
                    "written": False,
                },
                {
                    "name": "by",
                    "type": "float",
                    "default": "0.5",
                    "keyword_only": True,
                    "alias": None,
                    "written": False,
                },
                {
                    "name": "out",
                    "type": "Tensor(a!)",
                    "default": None,
                    "keyword_only": True,
                    "alias": "(a!)",
                    "written": True,
                },
            ],
            "returns": [{"name": None, "type": "Tensor(a!)"}],
            "file": "specs/mylib.yaml",
            "line": 4,
            "column": 9,
        }
    ]


def test_show_of_an_unknown_operator(write_specs: Write, capsys: Capture) -> None:
    write_specs({"specs/mylib.yaml": SHOWN, "specs/aten/a.yaml": GOOD})
    assert main(["show", "mylib::scael"]) == 1
    assert capsys.readouterr().err == (
        "opspec: the specs have no operator mylib::scael; did you mean mylib::scale or "
        "mylib::scale.out?\n"
    )
    assert main(["show", "goood"]) == 1
    assert capsys.readouterr().err == (
        "opspec: the specs have no operator goood; did you mean aten::good?\n"
    )
    assert main(["show", "?"]) == 1
    assert capsys.readouterr().err == "opspec: the specs have no operator ?\n"


def test_show_works_beside_faults_and_says_so(write_specs: Write, capsys: Capture) -> None:
    write_specs({"specs/mylib.yaml": SHOWN + "- tags: core\n"})
    assert main(["show", "scale.out"]) == 0
    assert capsys.readouterr().err == ("opspec: the specs have faults; `opspec check` shows them\n")
    assert main(["show", "gone", "--specs", "specs/mylib.yaml"]) == 1
    assert "specs/mylib.yaml:5:3: error: the entry has no func" in capsys.readouterr().err


# What the machine does to the command


def failing(error: BaseException) -> SimpleNamespace:
    """Make a verb that fails."""

    def run(args: argparse.Namespace) -> int:
        raise error

    return SimpleNamespace(add_parser=check.add_parser, run=run)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyboardInterrupt(), 130, "opspec: interrupted\n"),
        (MemoryError(), 3, "opspec: out of memory\n"),
        (
            OSError(28, "No space left on device", "x.py"),
            3,
            "opspec: x.py: no space left on device\n",
        ),
        (OSError(28, "No space left on device"), 3, "opspec: no space left on device\n"),
        (OpspecError("bad specs"), 1, "opspec: bad specs\n"),
        (
            WriteError(Path("x.py"), "cannot write this file: it is read-only"),
            3,
            "opspec: x.py: error: cannot write this file: it is read-only\n",
        ),
        (BrokenPipeError(), 141, ""),
        (
            RecursionError("too deep"),
            70,
            "opspec: a fault of opspec itself: RecursionError: too deep\n"
            "  set OPSPEC_DEBUG=1 to see where, and report it with the spec that shows it\n",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_failure_becomes_an_exit_code(
    error: BaseException,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.setitem(sys.modules, "opspec.check", failing(error))
    assert main(["check"]) == code
    assert capsys.readouterr().err == told


def test_fault_of_opspec_is_shown_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSPEC_DEBUG", "1")
    monkeypatch.setitem(sys.modules, "opspec.check", failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["check"])


@pytest.fixture
def many_faults(write_specs: Write) -> None:
    """Write more faults than a pipe holds."""
    write_specs({"specs/mine.yaml": "- func: f(Tensr self) -> Tensor\n" * 5000})


@pytest.mark.slow
@pytest.mark.usefixtures("many_faults")
def test_closed_pipe_ends_quietly() -> None:
    process = start("check")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.slow
@pytest.mark.usefixtures("many_faults")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_full_disk_is_told() -> None:
    with open("/dev/full", "w") as full:
        process = start("check", stdout=full)
        _, told = process.communicate()
    assert told == "opspec: no space left on device\n"
    assert process.returncode == 3


@pytest.mark.slow
@pytest.mark.usefixtures("many_faults")
def test_closed_streams_are_no_fault() -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m opspec check {closed} | cat"],
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_ends_with_one_line(write_specs: Write) -> None:
    write_specs(
        {f"specs/n{n}.yaml": "- func: f(Tensr self) -> Tensor\n" * 20_000 for n in range(20)}
    )
    # A shell's background job ignores interrupts, and so would what it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = start("check")
    signal.signal(signal.SIGINT, before)
    time.sleep(1.0)  # no event tells that the reading has begun
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode in (130, -signal.SIGINT)
    assert told in ("opspec: interrupted\n", "")


@pytest.mark.slow
def test_names_that_are_no_text_are_printed(write_specs: Write) -> None:
    root = write_specs({})
    os.mkdir(root / "specs")
    with open(os.fsencode(root) + b"/specs/\xff.yaml", "wb"):
        pass
    process = start("check", env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"})
    told, errors = process.communicate()
    assert errors == ""
    assert "\\udcff.yaml:1:1: error: the file is empty" in told
    assert process.returncode == 1


# Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of the progress line."""
    clock = Clock()
    monkeypatch.setattr("opspec.progress.time.monotonic", clock)
    return clock


def test_progress_shows_after_a_second_and_wipes_itself(clock: Clock) -> None:
    terminal = Terminal()
    with Progress("reading specs", terminal) as progress:
        progress(1, 83)
        assert terminal.getvalue() == ""
        clock.now = 1.5
        progress(12, 83)
        progress(13, 83)  # too soon
        clock.now = 1.7
        progress(14, 83)
    line = "\r\x1b[Kreading specs {}/83"
    assert terminal.getvalue() == line.format(12) + line.format(14) + "\r\x1b[K"


def test_progress_is_quiet_when_nobody_watches(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress("reading specs", stream) as progress:
        clock.now = 60.0
        progress(1, 2)
    assert stream.getvalue() == ""


def test_progress_is_quiet_when_it_was_quick(clock: Clock) -> None:
    terminal = Terminal()
    with Progress("reading specs", terminal) as progress:
        progress(1, 2)
    assert terminal.getvalue() == ""
