"""Lines of agent processes: whole, with the call that wrote them, without tokens, and within bounds."""

from __future__ import annotations

import asyncio
import contextvars
import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

import pytest

from oauthbroker.tools.calling.call_life import CallLife, calling
from oauthbroker.tools.orchestration import agent_output
from oauthbroker.tools.orchestration.agent_output import (
    MARK,
    MOST_BYTES,
    MOST_SHOWN,
    MOST_TEXT,
    AgentOutput,
    OutputStream,
)
from oauthbroker.tools.types.results import TRUNCATED
from tests.unit.tools.kit import TOKEN, scrub

LOG = logging.getLogger("tests.agent_output")


class Pipe:
    """A stream of an agent process, and the lines in it."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.raw: BinaryIO = open(writing, "wb", buffering=0)  # noqa: SIM115, PTH123
        self.stream = OutputStream(self.raw)

    def close(self) -> None:
        self.stream._file.close()
        self.raw.close()
        os.close(self.reading)

    def lines(self) -> list[Any]:
        """Return the lines that were written since, as `[tool, level, source, text]`."""
        os.set_blocking(self.reading, False)
        got = b""
        try:
            while piece := os.read(self.reading, 1 << 20):
                got += piece
        except BlockingIOError:
            pass
        return [json.loads(line.removeprefix(MARK)) for line in got.decode().split("\n")[:-1]]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_a_line_is_sent_when_it_ends_and_flush_sends_one_that_has_begun(pipe: Pipe):
    print("a", 1, file=pipe.stream)
    print("b", end="", file=pipe.stream)
    assert [["", logging.INFO, "printed", "a 1"]] == pipe.lines()
    print("c\nd", file=pipe.stream)
    assert ["bc", "d"] == [line[3] for line in pipe.lines()]
    print("e", end="", file=pipe.stream, flush=True)
    assert ["e"] == [line[3] for line in pipe.lines()]


def test_lines_of_calls_in_threads_do_not_mix_and_have_the_name_of_their_tool(pipe: Pipe):
    def work(name: str) -> None:
        calling.set(CallLife(name))
        for number in range(50):
            print(name, *[number] * 20, file=pipe.stream)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(work, f"t{n}__run")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = pipe.lines()
    assert 8 * 50 == len(lines)
    for tool, _, _, text in lines:
        name, *numbers = text.split()
        assert tool == name
        assert 20 == len(numbers)
        assert 1 == len(set(numbers))


def test_a_call_that_was_given_up_does_not_seem_to_go_on(pipe: Pipe):
    life = CallLife("notes__add")
    life.is_over = True
    pipe.stream.send("sent", call=life)
    assert [["notes__add (given up)", logging.INFO, "printed", "sent"]] == pipe.lines()


def test_a_long_line_is_cut_at_a_space_so_that_no_token_is_cut(pipe: Pipe, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(agent_output, "MOST_TEXT", 1000)
    print(f"{TOKEN} " * 200, file=pipe.stream)
    ((_, _, _, text),) = pipe.lines()
    assert {TOKEN, "..."} == set(text.split())
    print("x" * MOST_TEXT, file=pipe.stream)
    assert [" ..."] == [line[3] for line in pipe.lines()]


def test_half_characters_and_other_texts_are_sent(pipe: Pipe):
    print("\ud800", "\x1b[31m", "책", file=pipe.stream)
    assert ["\ud800 \x1b[31m 책"] == [line[3] for line in pipe.lines()]


def test_the_end_of_the_orchestrator_is_no_error_of_a_print():
    pipe = Pipe()
    os.close(pipe.reading)
    print("unread", file=pipe.stream)
    pipe.raw.close()


async def logged(*pieces: bytes, caplog: Any, name: str = "Agent/planner/thread-1") -> list[str]:
    stream = asyncio.StreamReader()
    reading = asyncio.create_task(AgentOutput(name, LOG, scrub).read(stream))
    for piece in pieces:
        stream.feed_data(piece)
        await asyncio.sleep(0)
    stream.feed_eof()
    with caplog.at_level(logging.DEBUG):
        await reading
    return [record.message for record in caplog.records if record.name == LOG.name]


def sent(text: str, *, tool: str = "notes__add", level: int = logging.INFO, source: str = "printed") -> bytes:
    return f"{MARK}{json.dumps([tool, level, source, text])}\n".encode()


@pytest.mark.rule("turns.ours-31")
async def test_a_line_is_logged_with_agent_instance_and_tool(caplog: Any):
    reported = await logged(
        sent("a"), sent("b", level=logging.ERROR, source="tools.x"), b"from a program\n", sent("c", tool=""), b"end",
        caplog=caplog,
    )  # fmt: skip
    who = "Agent/planner/thread-1"
    assert [
        f"{who} notes__add printed: a",
        f"{who} notes__add tools.x: b",
        f"{who} printed: from a program",
        f"{who} printed: c",
        f"{who} printed: end",
    ] == reported
    levels = [record.levelname for record in caplog.records if record.name == LOG.name]
    assert ["INFO", "ERROR", "INFO", "INFO", "INFO"] == levels


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
@pytest.mark.rule("turns.ours-25")
async def test_a_token_that_comes_in_pieces_reaches_no_log(size: int, caplog: Any):
    data = sent(f"it is {TOKEN}") + f"raw {TOKEN}\n".encode() + b"x" * MOST_SHOWN + f" {TOKEN}\n".encode()
    cut = MOST_SHOWN - len(TRUNCATED) - len(TOKEN) // 2
    data += b"y" * (cut - 1) + f" {TOKEN} {'z' * MOST_SHOWN}\n".encode()
    reported = "\n".join(await logged(*[data[n : n + size] for n in range(0, len(data), size)], caplog=caplog))
    assert "it is ***" in reported
    assert "raw ***" in reported
    assert TOKEN[:9] not in reported


JUNK = {
    "no JSON": f"{MARK}{{\n", "another JSON": f"{MARK}[1, 2]\n", "a deep one": MARK + "[" * 100_000 + "\n", "a level that is none": f'{MARK}["a", 99, "b", "c"]\n',
    "an empty one": f"{MARK}\n", "two": f"{MARK}{MARK}x\n", "no text": "\udcff\n", "control characters": "a\x1b[2J\x00b\rc\n",
}  # fmt: skip


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
async def test_junk_is_one_printable_line_and_the_next_one_is_read(junk: str, caplog: Any):
    reported = await logged(junk.encode("utf-8", "surrogateescape"), sent("next"), caplog=caplog)
    assert "Agent/planner/thread-1 notes__add printed: next" == reported[-1]
    assert len(reported) <= 3
    assert all(line.isprintable() for line in reported)


async def test_an_instance_key_starts_no_line_of_its_own(caplog: Any):
    (reported,) = await logged(sent("a"), caplog=caplog, name="Agent/planner/x\nERROR all is lost")
    assert "Agent/planner/x\ufffdERROR all is lost notes__add printed: a" == reported


async def test_a_line_without_an_end_is_bounded(caplog: Any):
    (reported, after) = await logged(
        *[b"x" * 100_000] * (MOST_BYTES // 100_000 * 3), b"\n", sent("next"), caplog=caplog
    )
    assert MOST_SHOWN + 100 > len(reported)
    assert "next" in after


@pytest.mark.rule("turns.ours-31")
async def test_more_lines_than_the_log_takes_are_left_out_and_the_operator_is_told(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent_output, "MOST_LINES", 10)
    reported = await logged(*[sent(str(number)) for number in range(1000)], caplog=caplog)
    assert 11 == len(reported)
    assert "more than 10 lines in 10 seconds, the others are left out" in reported[-1]
    caplog.clear()
    monkeypatch.setattr(agent_output, "SPAN_SECONDS", 0)
    assert 1000 == len(await logged(*[sent(str(number)) for number in range(1000)], caplog=caplog)), "a new span"


def test_the_stream_is_a_text_stream(pipe: Pipe):
    assert isinstance(pipe.stream, io.TextIOBase)
    assert pipe.stream.writable()
    assert not pipe.stream.isatty()
    assert pipe.stream.fileno() == pipe.raw.fileno()
    pipe.stream.buffer.write(b"raw\n")
