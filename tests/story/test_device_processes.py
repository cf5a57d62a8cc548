"""Polling across processes that are real, on time that is real: one asks, and when it is killed another one goes on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.running_broker import file_store, register

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "story" / "device_worker.py"
INTERVAL = 1  # second, so that the test is short

pytestmark = pytest.mark.slow


class Worker:
    """One broker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def obey(self, **orders: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(orders).encode() + b"\n")
        async with asyncio.timeout(60):
            answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


Start = Callable[[], Awaitable[Worker]]


@pytest.fixture
async def idp() -> AsyncIterator[IdentityProvider]:
    async with IdentityProvider() as idp:
        register(idp, "tv")
        idp.change("client-tv", device_interval=INTERVAL)
        yield idp


@pytest.fixture
async def start(idp: IdentityProvider, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a broker process on the same files; returns once it polls."""
    started: list[Worker] = []
    await file_store(tmp_path).close()  # the keyring is made once
    Canaries.active().excuse(tmp_path / "kek")

    async def run() -> Worker:
        pipe = asyncio.subprocess.PIPE
        environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        worker = Worker(
            await asyncio.create_subprocess_exec(
                sys.executable, str(WORKER), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL,
                cwd=ROOT, env=environment,
            )
        )  # fmt: skip
        started.append(worker)
        secret = idp.client("client-tv").reveal_secret()
        assert {"status": "here"} == await worker.obey(folder=str(tmp_path), endpoints=idp.endpoints, secret=secret)
        return worker

    yield run
    for worker in started:
        await worker.kill()


async def test_three_processes_poll_like_one_and_the_others_replace_a_killed_one(idp: IdentityProvider, start: Start):
    first, second, third = [await start() for _ in range(3)]
    asked = await first.obey(do="ask")
    code = asked["deviceCode"]["userCode"]
    Canaries.active().add(code, "user code")
    others = await asyncio.gather(second.obey(do="ask"), third.obey(do="ask"))
    assert {asked["authSessionId"]} == {each["authSessionId"] for each in others}
    await _polled(idp, code, 4)
    await first.kill()
    before = len(idp.device(code).polls)
    await _polled(idp, code, before + 2)
    idp.device_approve(code)
    ends = await asyncio.gather(
        *(each.obey(**{"do": "wait", "for": asked["authSessionId"]}) for each in (second, third))
    )
    assert [{"status": "completed"}] * 2 == ends
    assert ["ready"] * 2 == [(await each.obey(do="ask"))["status"] for each in (second, third)]
    polls = idp.device(code).polls
    assert 1 == idp.count("device")
    assert ["granted"] == [poll.answer for poll in polls if poll.answer != "authorization_pending"]
    assert all((later.at - earlier.at).total_seconds() > INTERVAL - 0.1 for earlier, later in pairwise(polls))


async def _polled(idp: IdentityProvider, code: str, times: int) -> None:
    async with asyncio.timeout(60):
        while len(idp.device(code).polls) < times:
            await asyncio.sleep(0.05)
