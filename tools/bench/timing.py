"""Ratios that mean something on a noisy machine: one process, alternating, medians, warmed up."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 2e-3


@dataclass(frozen=True, slots=True)
class Statement:
    """Code to time, as text so that no call of a closure is timed with it, and its names."""

    code: str
    names: Mapping[str, object]

    def timer(self) -> timeit.Timer:
        """Make a timer for it, of the processor time: other programs may be busy as well."""
        return timeit.Timer(self.code, timer=time.thread_time, globals=dict(self.names))


def alternate(*statements: Statement, rounds: int = 75) -> list[float]:
    """Give the median seconds of one execution of each statement.

    Every round times each of them once, for about two milliseconds, in an order that rotates: what
    disturbs the machine for a while disturbs all of them.
    """
    timers = [statement.timer() for statement in statements]
    counts = []
    for timer in timers:
        timer.timeit(1)  # torch loads parts of itself at the first use, for a second or more
        count, seconds = timer.autorange()
        counts.append(max(1, round(count * SAMPLE_SECONDS / seconds)))
    samples: list[list[float]] = [[] for _ in timers]
    enabled = gc.isenabled()
    gc.disable()
    try:
        for start in range(rounds):
            for step in range(len(timers)):
                which = (start + step) % len(timers)
                seconds = timers[which].timeit(counts[which])
                samples[which].append(seconds / counts[which])
            gc.collect(0)
    finally:
        if enabled:
            gc.enable()
    return [statistics.median(each) for each in samples]


def alternate_slow(*works: Callable[[], float], rounds: int = 5) -> list[float]:
    """Give the median of what each callable returns, over rounds that run each of them once."""
    samples: list[list[float]] = [[] for _ in works]
    for start in range(rounds):
        for step in range(len(works)):
            which = (start + step) % len(works)
            samples[which].append(works[which]())
    return [statistics.median(each) for each in samples]


def in_new_process(code: str, *arguments: str, cwd: Path | None = None) -> dict[str, float]:
    """Run code in a new interpreter, and give the JSON object that it prints on its last line."""
    command = [sys.executable, "-c", code, *arguments]
    out = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout
    figures: dict[str, float] = json.loads(out.splitlines()[-1])
    return figures


def seconds_of(command: Sequence[str | Path], *, cwd: Path) -> float:
    """Give the processor time that a command takes, which a busy machine disturbs least.

    Raises:
        subprocess.CalledProcessError: It fails.
    """
    before = os.times()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        done.check_returncode()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system
