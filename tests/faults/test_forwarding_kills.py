"""Processes that forward events are killed at each step, or frozen: nothing is lost, and each instance's order is kept."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.broker import Broker
from oauthbroker.model.bundle import Bundle
from oauthbroker.testing.webhooks import WebhookReceiver
from tests.faults.forwarding_worker import PLACES, settings, store_of
from tests.kit import installed, nats, postgres
from tests.kit.processes import freeze
from tests.kit.waiting import until
from tests.story.forwarding_kit import enqueue, first_numbers, in_order, signing_secret

ROOT = Path(__file__).parents[2]
COUNT = 9
SECONDS = 60.0


@dataclass
class Worker:
    """A process that forwards."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    @property
    def leads(self) -> bool:
        reported = [each for each in self.lines if each in {"leads", "led"}]
        return reported[-1:] == ["leads"]

    async def listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.lines.append(line.decode().strip())

    async def leading(self) -> bool:
        return self.leads

    async def killed(self) -> None:
        assert -signal.SIGKILL == await asyncio.wait_for(self.process.wait(), SECONDS)


@asynccontextmanager
async def worker(work: dict[str, Any]) -> AsyncIterator[Worker]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.forwarding_worker", stdin=pipe, stdout=pipe, cwd=ROOT
    )
    assert process.stdin is not None
    started = Worker(process)
    listening = asyncio.create_task(started.listen())
    try:
        process.stdin.write(json.dumps(work).encode() + b"\n")
        await process.stdin.drain()
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


@pytest.fixture(params=["files", "postgres"])
def place_of_store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    database = ""
    if request.param == "postgres":
        server: postgres.Server = request.getfixturevalue("postgres_server")
        database = server.new_database(f"forwarding_{abs(hash(tmp_path))}").reveal()
    return {"folder": str(tmp_path), "database": database}


@asynccontextmanager
async def desk(work: dict[str, Any]) -> AsyncIterator[Broker]:
    """A broker on the same store that forwards nothing."""
    bundle = Bundle(settings(), {})
    async with open_broker(bundle, env={}, store=store_of(work), audit=AuditList(), background=False) as broker:
        yield broker


async def is_empty(broker: Broker) -> bool:
    return not await broker.dead_letters.states()


KILLS = [(place, times) for place in PLACES if place != "the stream has it" for times in (1, 3)]


@pytest.mark.slow
@pytest.mark.sample(4)
@pytest.mark.parametrize(("place", "times"), KILLS, ids=[f"{place}, {times}" for place, times in KILLS])
async def test_a_forwarder_that_is_killed_loses_nothing_and_keeps_the_order(
    place_of_store: dict[str, Any], place: str, times: int
):
    secret = signing_secret()
    async with WebhookReceiver(secret) as receiver, desk(place_of_store) as broker:
        work = {**place_of_store, "url": receiver.url, "secret": secret.reveal()}
        ids = await enqueue(broker, range(COUNT))
        if place_of_store["database"] and place == "a part of the queue is written":
            pytest.skip("a database writes no parts")
        async with worker({**work, "place": place, "times": times}) as first:
            await first.killed()
        async with worker(work):
            await receiver.until(COUNT, seconds=SECONDS)
            await until(lambda: is_empty(broker))
        assert set(ids) == set(receiver.taken)
        assert in_order(range(COUNT)) == first_numbers(each.event for each in receiver.received)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 4])
async def test_what_a_stream_had_when_the_forwarder_was_killed_it_has_once(tmp_path: Path, times: int):
    installed.demand([] if nats.binary() else [nats.LACKS])
    place = {"folder": str(tmp_path), "database": ""}
    async with nats.nats_server() as server, desk(place) as broker:
        await server.add_stream()
        work = {**place, "servers": [server.url]}
        await enqueue(broker, range(COUNT))
        async with worker({**work, "place": "the stream has it", "times": times}) as first:
            await first.killed()
        before = await server.stored()
        assert before, "the event came, and was not marked"
        async with worker(work):
            await until(lambda: is_empty(broker))
        stored = await server.stored()
        assert COUNT == len(stored) == len({each["eventId"] for each in stored})
        assert in_order(range(COUNT)) == first_numbers(stored)


@pytest.mark.slow
async def test_one_process_forwards_and_another_one_goes_on_when_it_is_gone(place_of_store: dict[str, Any]):
    secret = signing_secret()
    async with WebhookReceiver(secret) as receiver, desk(place_of_store) as broker:
        work = {**place_of_store, "url": receiver.url, "secret": secret.reveal()}
        async with worker(work) as first:
            await until(first.leading)
            async with worker(work) as second:
                await until(lambda: said(second, "up"))
                await enqueue(broker, range(COUNT))
                await receiver.until(COUNT, seconds=SECONDS)
                assert (True, False) == (first.leads, second.leads)
                first.process.kill()
                await enqueue(broker, range(COUNT, 2 * COUNT))
                await until(lambda: is_empty(broker))
                assert second.leads
        assert in_order(range(2 * COUNT)) == first_numbers(each.event for each in receiver.received)


async def said(of: Worker, line: str) -> bool:
    return line in of.lines


@pytest.mark.slow
async def test_a_frozen_host_loses_its_lease_and_stops_to_forward_when_it_thaws(
    postgres_server: postgres.Server, tmp_path: Path
):
    secret, url = signing_secret(), postgres_server.new_database("frozen").reveal()
    place = {"folder": str(tmp_path), "database": url}
    async with WebhookReceiver(secret) as receiver, desk(place) as broker:
        work = {**place, "url": receiver.url, "secret": secret.reveal()}
        async with worker(work) as first:
            await until(first.leading)
            async with worker(work) as second:
                await enqueue(broker, range(COUNT))
                await receiver.until(COUNT, seconds=SECONDS)
                freeze(first.process.pid)
                await enqueue(broker, range(COUNT, 2 * COUNT))
                await until(lambda: is_empty(broker))
                assert second.leads
                first.process.send_signal(signal.SIGCONT)
                await until(lambda: said(first, "led"))
                await enqueue(broker, range(2 * COUNT, 3 * COUNT))
                await until(lambda: is_empty(broker))
                assert (False, True) == (first.leads, second.leads)
        assert in_order(range(3 * COUNT)) == first_numbers(each.event for each in receiver.received)
