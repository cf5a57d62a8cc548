"""Count the calls of a piece of work, with the table of counts that a path may have (call_counts.json).

Calls are counted and not seconds, so that a busy machine changes nothing. `python -m tests.kit.call_counts` measures all
of them and prints them beside the table; with NAME=COUNT it records a count anew.
"""

from __future__ import annotations

import dis
import json
import sys
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import oauthbroker
from oauthbroker.core import dataclasses
from tests.kit.paths_entered import NOT_OURS, folder_of

PACKAGE = Path(oauthbroker.__file__).parent
TABLE = Path(__file__).with_name("call_counts.json")
TESTS = "tests/unit/test_call_counts.py"
MARGIN = 1.05  # times the recorded count
BELOW = 0.6  # a count that fell further has to be recorded, so that it cannot come back
MEASURED: dict[str, int] = {}


def counts_of(work: Coroutine[Any, Any, object]) -> Counter[str]:
    """Run work that waits for nothing, and count the calls of each function, those in C included."""
    calls = Counter[str]()

    def on_call(frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            calls[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"] += 1
        elif event == "c_call":
            calls[function.__qualname__] += 1

    is_over = False
    before = sys.getprofile()
    sys.setprofile(on_call)
    try:
        work.send(None)
    except StopIteration:
        is_over = True
    finally:
        sys.setprofile(before)
    work.close()
    assert is_over, "the work waits: its calls cannot be counted in one step"
    calls -= Counter({"setprofile": 1})
    return calls


@dataclass
class Steps:
    """The calls of each function of the package, and the moves: calls in another file than the call before, by these
    files. A coroutine that goes on after a wait is no call."""

    calls: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)


class StepCounter:
    """Counts while its block runs, in all steps of the event loop and on the threads that began after `watching`."""

    def __init__(self) -> None:
        self._steps: Steps | None = None
        self._thread = threading.local()

    @contextmanager
    def counting(self) -> Iterator[Steps]:
        steps = Steps()
        self._steps, self._thread = steps, threading.local()
        try:
            yield steps
        finally:
            self._steps = None

    def on_call(self, frame: FrameType, event: str, _: Any) -> None:
        steps, code = self._steps, frame.f_code
        if event != "call" or steps is None or not _is_ours(code) or frame.f_lasti > _beginning(code):
            return
        file = code.co_filename.removeprefix(f"{PACKAGE}/")
        steps.calls[f"{file}: {code.co_qualname}"] += 1
        before = getattr(self._thread, "file", "")
        if before != file:
            steps.moves[f"{before} -> {file}"] += 1
        self._thread.file = file


@contextmanager
def watching() -> Iterator[StepCounter]:
    """Yield a counter. What runs on a thread that is older is not counted: the provider of a test, for one."""
    counter, before = StepCounter(), sys.getprofile()
    threading.setprofile(counter.on_call)
    sys.setprofile(counter.on_call)
    try:
        yield counter
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@cache
def _is_ours(code: CodeType) -> bool:
    """Tell whether code is counted: of the package, and no method that a dataclass has of its own."""
    return folder_of(code.co_filename) not in {"", *NOT_OURS} and code.co_filename != dataclasses.__file__


@cache
def _beginning(code: CodeType) -> int:
    """Return the last offset at which a frame of this code has done nothing yet: a coroutine's is made before it runs."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME" and each.arg == 0)


def complaint(name: str, calls: Counter[str]) -> str:
    """Return the fault of the number of calls, with a list of them; empty if it is in bounds."""
    known, now = int(json.loads(TABLE.read_text("utf-8"))[name]), calls.total()
    MEASURED.setdefault(name, now)
    if known * BELOW <= now <= known * MARGIN:
        return ""
    listed = "\n".join(f"{count:>5} {function}" for function, count in calls.most_common())
    record = f"python -m tests.kit.call_counts {name}={now}"
    return f"{name}: {now} calls instead of about {known}. If that is meant: `{record}`\n{listed}"


def record(words: list[str]) -> None:
    table: dict[str, int] = json.loads(TABLE.read_text("utf-8"))
    for word in words:
        name, _, count = word.partition("=")
        table[name] = int(count)
    TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=0) + "\n", "utf-8")


def measure() -> None:
    """Print each count as it is now and as it is recorded."""
    pytest.main(["-q", "-p", "no:xdist", "--no-header", TESTS])
    for name, known in json.loads(TABLE.read_text("utf-8")).items():
        print(f"{MEASURED.get(name, '-'):>6} now {known:>6} recorded  {name}")


def main(words: list[str]) -> None:
    if words:
        record(words)
    else:
        measure()


if __name__ == "__main__":
    from tests.kit import call_counts  # the module that the tests import, and fill

    call_counts.main(sys.argv[1:])
