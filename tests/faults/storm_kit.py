"""What both storms need: the provider's process, the nursery of brokers, and the people who agree."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from oauthbroker.broker import Broker
from oauthbroker.model.token_results import AuthorizationRequired, TokenResult
from oauthbroker.testing import Browser, Canaries, connect_through
from tests.faults.storm_worker import World, ask, broker_on, telling_store
from tests.kit.running_broker import BASE, file_store

ROOT = Path(__file__).parents[2]
PATIENCE = 60
_MOST_BYTES = 1 << 26  # of a line: the figures of ten minutes are one
Hear = Callable[[list[str]], None]


async def start(
    module: str,
    *words: str,
    before: Sequence[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
    root: Path = ROOT,
) -> asyncio.subprocess.Process:
    """Start a module of ours; `before` are words of a command that runs it, `more` is its own environment, `root` the
    checkout that it runs."""
    pipe = asyncio.subprocess.PIPE
    environment = {"PYTHONPATH": str(root), "PATH": os.environ["PATH"], "PYTHONWARNINGS": "ignore", **more}
    return await asyncio.create_subprocess_exec(
        *(*before, sys.executable, "-m", module, *words),
        stdin=pipe,
        stdout=pipe,
        cwd=root,
        env=environment,
        limit=_MOST_BYTES,
    )


async def end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()


class Provider:
    """The provider's process: it answers requests one at a time."""

    def __init__(self, process: asyncio.subprocess.Process, introduction: dict[str, Any]) -> None:
        self._process, self.introduction = process, introduction

    @classmethod
    @asynccontextmanager
    async def open(cls, apps: Mapping[str, float], people: int, lifetime: int) -> AsyncIterator[Self]:
        """`apps` by name, with the seconds for which their spent refresh tokens are forgiven."""
        process = await start("tests.faults.storm_provider")
        try:
            first = await _exchange(process, {"apps": dict(apps), "people": people, "lifetime": lifetime})
            yield cls(process, first)
        finally:
            await end(process)

    async def ask(self, word: str, *given: Any, **named: Any) -> Any:
        return await _exchange(self._process, [word, given, named])


async def _exchange(process: asyncio.subprocess.Process, line: Any) -> Any:
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(line).encode() + b"\n")
    async with asyncio.timeout(PATIENCE):
        answer = await process.stdout.readline()
    if not answer:
        raise AssertionError("the provider ended")
    return json.loads(answer)


class Nursery:
    """The process that forks brokers. `hear` gets every line they say, in words, as it comes."""

    def __init__(self, process: asyncio.subprocess.Process, hear: Hear) -> None:
        self._process, self._hear = process, hear
        self.alive: set[int] = set()
        self.up: set[int] = set()
        self.ends: list[tuple[int, int]] = []
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    @asynccontextmanager
    async def open(
        cls, orders: dict[str, Any], hear: Hear, module: str = "tests.faults.storm_worker", **how: Any
    ) -> AsyncIterator[Self]:
        """`how` as for `start`."""
        nursery = cls(await start(module, **how), hear)
        try:
            nursery.order(json.dumps(orders))
            yield nursery
        finally:
            await end(nursery._process)
            await nursery._listening

    def order(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")

    async def until(self, claim: Callable[[], bool], progress: Callable[[], object] = lambda: None) -> None:
        """Returns once something that was heard made `claim` true. Raises TimeoutError after `PATIENCE` seconds in which
        `progress` returned the same."""
        before = progress()
        async with asyncio.timeout(PATIENCE) as limit:
            while not claim():
                if (now := progress()) != before:
                    before = now
                    limit.reschedule(asyncio.get_running_loop().time() + PATIENCE)
                if self._listening.done():
                    self._listening.result()
                    raise AssertionError("the nursery ended")
                await asyncio.sleep(0.002)

    async def _listen(self) -> None:
        assert self._process.stdout
        while line := (await self._process.stdout.readline()).decode().split():
            match line:
                case ["born", pid]:
                    self.alive.add(int(pid))
                case ["up", pid]:
                    self.up.add(int(pid))
                case ["dead", pid, code]:
                    self.alive.discard(int(pid))
                    self.up.discard(int(pid))
                    self.ends.append((int(pid), int(code)))
            self._hear(line)


class People:
    """They have a broker of their own on the same store, which is never killed, and consent whenever they are asked to.

    `hear` gets the lines that its store says.
    """

    def __init__(self, broker: Broker, world: World) -> None:
        self._broker, self._world = broker, world

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, world: World, hear: Hear = lambda _: None) -> AsyncIterator[Self]:
        await file_store(folder).close()
        store = telling_store(folder)
        store.tell = lambda *words: hear([*map(str, words)])
        Canaries.active().outside.add(world.base_url)  # its pages are not ours to keep clean
        async with broker_on(store, world.apps(), background=False) as broker:
            yield cls(broker, world)

    async def ask(self, app: str, person: int) -> TokenResult:
        return await ask(self._broker, app, person)

    async def agree(self, app: str, person: int) -> AuthorizationRequired | None:
        """From a link to a grant. None when there is no link any more."""
        result = await self.ask(app, person)
        if not isinstance(result, AuthorizationRequired):
            return None
        browser = Browser(apps={BASE: self._broker.asgi.app})
        page = await connect_through(browser, self._world, result.authorization_url, f"person{person}")
        if page.status != 200:
            raise AssertionError(f"person {person} could not connect {app}: {page.status}")
        return result
