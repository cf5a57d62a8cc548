"""The parts of the orchestrator: the IPC, the pause after crashes, and processes that end with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any, Self

import pytest

from oauthbroker.tools.orchestration.agent_user import MODULE
from oauthbroker.tools.orchestration.ipc import MOST_LINE, IpcRefused, Peer, PeerGone
from oauthbroker.tools.orchestration.processes import pause_ms


@pytest.mark.rule("turns.ours-22")
def test_the_pause_after_crashes_in_a_row():
    expected = [0, 0, 0, 0, 0, *(min(1000 * 2 ** (n - 1), 300_000) for n in range(1, 17))]
    assert expected == [pause_ms(crashes) for crashes in range(21)]


class Pair:
    """Two ends in this process."""

    def __init__(self) -> None:
        self.served: list[tuple[str, dict[str, Any]]] = []
        self.ended = asyncio.Event()
        self.answer: Any = None

    async def __aenter__(self) -> Self:
        self.sockets = socket.socketpair()
        streams = [await asyncio.open_unix_connection(sock=each, limit=MOST_LINE) for each in self.sockets]
        self.ours, self.theirs = Peer(streams[0], "orchestrator", "agent"), Peer(streams[1], "agent", "orchestrator")
        self.raw = streams[1][1]
        self.runs = [asyncio.create_task(peer.run(self.serve)) for peer in (self.ours, self.theirs)]
        return self

    async def serve(self, kind: str, payload: dict[str, Any]) -> Any:
        self.served.append((kind, payload))
        if kind == "refused":
            raise IpcRefused("E_NO", "because", "try later")
        if kind == "broken":
            raise KeyError("s3cret")
        if kind == "never":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.ended.set()
                raise
        return self.answer if kind == "given" else {"answer": payload}

    async def __aexit__(self, *_: object) -> None:
        for run in self.runs:
            run.cancel()
        await asyncio.gather(*self.runs, return_exceptions=True)


@pytest.mark.rule("turns.ours-23")
async def test_questions_are_answered_both_ways_and_matched_by_their_correlation_id():
    async with Pair() as pair:
        answers = await asyncio.gather(*(pair.ours.ask("count", {"n": n}) for n in range(20)), pair.theirs.ask("x", {}))
        assert [*({"answer": {"n": n}} for n in range(20)), {"answer": {}}] == answers
        assert list(range(20)) == [asked["n"] for kind, asked in pair.served if kind == "count"], "in order"


async def test_a_refusal_comes_with_its_code_and_a_fault_without_its_text():
    async with Pair() as pair:
        with pytest.raises(IpcRefused) as refused:
            await pair.ours.ask("refused", {})
        assert ("E_NO", "because", "try later") == (refused.value.code, refused.value.message, refused.value.suggestion)
        with pytest.raises(IpcRefused, match=r"^the answer failed with KeyError$"):
            await pair.ours.ask("broken", {})


@pytest.mark.rule("turns.ours-23")
async def test_a_question_that_is_cancelled_is_taken_back_and_the_other_end_stops_its_work():
    async with Pair() as pair:
        asking, other = (asyncio.create_task(pair.ours.ask("never", {})) for _ in range(2))
        while len(pair.served) < 2:
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait_for(pair.ended.wait(), 60)
        assert {"answer": {}} == await pair.ours.ask("count", {}), "the connection goes on"
        assert not other.done()
        other.cancel()


async def test_all_questions_fail_when_the_other_end_is_gone():
    async with Pair() as pair:
        waiting = [asyncio.create_task(pair.ours.ask("never", {})) for _ in range(3)]
        await asyncio.sleep(0.05)
        pair.raw.close()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [PeerGone] * 3 == [type(each) for each in ends]
        await pair.runs[0]
        with pytest.raises(PeerGone):
            await pair.ours.ask("count", {})


async def test_the_connection_is_closed_when_its_end_is_cancelled_while_work_is_under_way():
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def serve(kind: str, payload: dict[str, Any]) -> None:
        try:
            begun.set()
            await asyncio.sleep(600)
        finally:
            cancelled.set()
            await asyncio.sleep(600)

    async with Pair() as pair:
        run, writer = asyncio.create_task(pair.ours.run(serve)), pair.ours._writer
        pair.runs[0].cancel()
        asking = asyncio.create_task(pair.theirs.ask("count", {}))
        await asyncio.wait_for(begun.wait(), 60)
        pair.raw.close()
        await asyncio.wait_for(cancelled.wait(), 60)
        run.cancel()
        await asyncio.gather(run, asking, return_exceptions=True)
        assert writer.is_closing()


@pytest.mark.rule("turns.ours-23")
async def test_a_message_that_is_too_large_or_no_json_fails_its_question_and_not_the_connection():
    async with Pair() as pair:
        answer = await pair.ours.ask("count", {"text": "x" * (MOST_LINE // 2)})
        assert MOST_LINE // 2 == len(answer["answer"]["text"]), "nearly the most comes back whole"
        for payload, problem in (
            (
                {"text": "x" * MOST_LINE},
                "a message between processes has [0-9]+ bytes, and 8388608 are allowed: use less",
            ),
            ({"text": {1}}, "a message between processes is not JSON: TypeError"),
            ({"number": float("nan")}, "a message between processes is not JSON: ValueError"),
        ):
            with pytest.raises(IpcRefused, match=f"^{problem}$"):
                await pair.ours.ask("count", payload)
            pair.answer = payload
            with pytest.raises(IpcRefused, match=f"^{problem}$"):
                await pair.ours.ask("given", {})
        assert {"answer": {}} == await pair.ours.ask("count", {}), "the connection goes on"
        assert "count" == pair.served[-1][0]


@pytest.mark.parametrize("line", [b"no json\n", b"[1]\n", b"x" * (MOST_LINE + 2) + b"\n", b'{"type": "event"'])
async def test_junk_ends_the_connection(line):
    async with Pair() as pair:
        waiting = asyncio.create_task(pair.ours.ask("never", {}))
        await asyncio.sleep(0)
        pair.raw.write(line)
        pair.raw.write_eof()
        with pytest.raises(PeerGone):
            await asyncio.wait_for(waiting, 60)


@pytest.mark.parametrize("message", [
    {}, {"type": "event"}, {"type": "event", "payload": 7}, {"type": "event", "payload": {"type": 7}}, {"type": "other"},
    {"type": "event", "payload": {"metadata": {"inReplyTo": "unknown"}, "payload": {}}},
])  # fmt: skip
async def test_a_message_that_means_nothing_is_passed_over(message):
    async with Pair() as pair:
        pair.raw.write(json.dumps(message).encode() + b"\n")
        assert {"answer": {}} == await pair.ours.ask("count", {})


@pytest.mark.rule("turns.ours-23")
async def test_a_shutdown_is_acknowledged_after_the_questions_under_way():
    async with Pair() as pair:
        asked = asyncio.create_task(pair.ours.ask("count", {}))
        await pair.ours.shut_down()
        await asyncio.wait_for(pair.theirs.shutdown_asked.wait(), 60)
        await pair.theirs.acknowledge_shutdown()
        await asyncio.wait_for(pair.ours.shutdown_acknowledged.wait(), 60)
        assert asked.done()


@pytest.mark.rule("turns.ours-24")
def test_an_agent_process_ends_with_its_orchestrator_and_its_children_too():
    """The orchestrator is a process that starts an agent process, which starts a child, and is killed."""
    code = (
        "import os, socket, subprocess, sys, time\n"
        "ours, theirs = socket.socketpair()\n"
        f"agent = subprocess.Popen([sys.executable, '-I', '-m', '{MODULE}', str(theirs.fileno())],"
        " pass_fds=(theirs.fileno(),), start_new_session=True)\n"
        "theirs.close(); print(agent.pid, flush=True); time.sleep(60)\n"
    )
    orchestrator = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert orchestrator.stdout is not None
    agent = int(orchestrator.stdout.readline())
    os.kill(agent, 0)
    orchestrator.kill()
    orchestrator.wait()
    orchestrator.stdout.close()
    for _ in range(200):
        try:
            os.kill(agent, 0)
            with open(f"/proc/{agent}/stat") as stat:  # noqa: PTH123
                if " Z " in stat.read():
                    return
        except (ProcessLookupError, FileNotFoundError):
            return
        signal.sigtimedwait([], 0.05)
    raise AssertionError("it lives on")
