"""Long work is shown in place on a terminal, as lines elsewhere, and not at all when it is soon done."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from oauthbroker.cli.output.progress import ShownProgress, described, progress
from oauthbroker.core.progress import Count, unseen
from oauthbroker.testing import TestClock

CLEAR = "\r\x1b[K"
Step = tuple[float, str, int, int | None]


def written(steps: Sequence[Step], *, in_place: bool) -> str:
    clock, stream = TestClock(), io.StringIO()
    shown = ShownProgress(stream, clock, in_place=in_place)
    for seconds, what, done, total in steps:
        clock.advance(seconds)
        shown(what, done, total)
    shown.clear()
    return stream.getvalue()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("records copied", 1_200, 5_000, 400.0), "1,200 of 5,000 records copied (24 %), 400 a second, 0:00:10 left"),
        (("records copied", 1_200, None, 400.0), "1,200 records copied, 400 a second"),
        (("checks done", 1, 12, 0.5), "1 of 12 checks done (8 %), 0:00:22 left"),
        (("checks done", 0, 12, 0.0), "0 of 12 checks done (0 %)"),
        (("records copied", 7, 5, 1.0), "7 of 7 records copied (100 %), 1 a second, 0:00:00 left"),
        (("records copied", 0, 0, 0.0), "0 of 0 records copied"),
        (("bytes read", 10**9, 10**11, 1e7), "1,000,000,000 of 100,000,000,000 bytes read (1 %), 10,000,000 a second, 2:45:00 left"),
    ],
)  # fmt: skip
def test_a_count_says_the_known_parts(given: tuple[str, int, int | None, float], text: str):
    assert text == described(*given)


@pytest.mark.parametrize("in_place", [True, False])
def test_work_that_is_soon_done_shows_nothing(in_place: bool):
    assert "" == written([(0.1, "records copied", done, 4) for done in (1, 2, 3, 4)], in_place=in_place)


def test_a_terminal_shows_one_line_in_place_and_is_clean_at_the_end():
    shown = written([(0.3, "records copied", done, 9) for done in range(10)], in_place=True)
    assert shown.startswith(f"{CLEAR}1 of 9 records copied (11 %)")
    assert "\n" not in shown
    assert shown.endswith(CLEAR)


def test_elsewhere_a_line_comes_every_few_seconds_with_the_rate_of_its_own_step():
    steps = [(1.0, "records copied", done * 10, 120) for done in range(12)]
    steps += [(1.0, "records compared", done, 120) for done in range(4)]
    assert [
        "40 of 120 records copied (33 %), 10 a second, 0:00:08 left",
        "90 of 120 records copied (75 %), 10 a second, 0:00:03 left",
        "2 of 120 records compared (1 %), 1 a second, 0:01:58 left",
    ] == written(steps, in_place=False).splitlines()


@contextmanager
def terminal(columns: int) -> Iterator[tuple[io.TextIOWrapper, int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(theirs, "w") as stream:
        yield stream, ours
    os.close(ours)


@pytest.mark.parametrize("columns", [0, 20, 200])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_line_fits_the_terminal_with_json_too(columns: int, as_json: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("oauthbroker.cli.output.progress.SOON", 0)
    with terminal(columns) as (stream, ours):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress(as_json=as_json) as shown:
            shown("records copied", 1_000, 2_000)
        screen = ""
        while screen.count(CLEAR) < 2:  # a terminal may hand on each write by itself
            screen += os.read(ours, 4096).decode()
    line = "1,000 of 2,000 records copied (50 %)"
    assert f"{CLEAR}{line[: (columns or 80) - 1]}{CLEAR}" == screen


def test_with_json_and_no_terminal_nothing_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oauthbroker.cli.output.progress.SELDOM", 0)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with progress(as_json=True) as shown:
        shown("records copied", 1, 2)
    assert "" == stream.getvalue()
    with progress() as shown:
        shown("records copied", 1, 2)
    assert "1 of 2 records copied (50 %)\n" == stream.getvalue()


def test_a_terminal_that_is_gone_does_not_stop_the_work():
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError

    clock = TestClock()
    shown = ShownProgress(Gone(), clock, in_place=True)
    clock.advance(1)
    shown("records copied", 1, 2)
    shown.clear()


def test_a_count_reports_each_change():
    seen: list[tuple[str, int, int | None]] = []
    count = Count("lines", 3, lambda *each: seen.append(each))
    count.add()
    count.add(2)
    assert [("lines", 1, 3), ("lines", 3, 3)] == seen
    Count("lines", None, unseen).add()
