"""Load on a server that is being killed: people connect, tools ask for tokens, an agent consumes its events.

Every answer that a caller got is written down at once, in order. A call without an answer may have had its effect or not.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx2

from oauthbroker.testing import Browser, IdentityProvider, connect_through
from tests.faults.server_world import APPS, PEOPLE, Pair, World

PATIENCE = 30
PAUSE = 0.03  # while no server answers
FORESEEN = {200, 201, 204, 401, 409, 503}
AGENT = "planner"


class Lost(Exception):
    """There was no answer. `sent`: the request may have arrived."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("sent" if sent else "not sent")
        self.sent = sent


@dataclass(frozen=True)
class Unforeseen:
    """An answer that no server may give, even when it is killed under load. The log has details by its id."""

    what: str
    request_id: str

    async def reported(self, world: World) -> str:
        return f"{self.what}; the log: {await world.said_of(self.request_id)}"


@dataclass
class Ledger:
    """What the callers know."""

    lines: list[tuple[str, ...]] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    unforeseen: list[Unforeseen] = field(default_factory=list)
    lost: int = 0

    def say(self, *words: str) -> None:
        self.lines.append(words)

    def said(self, word: str) -> Iterator[tuple[str, ...]]:
        return (line[1:] for line in self.lines if line[0] == word)

    @property
    def granted(self) -> dict[str, str]:
        """Session -> pair: their page was shown."""
        return {session: pair for session, pair in self.said("granted")}  # noqa: C416  (two words, not any number)

    @property
    def disconnected(self) -> dict[str, bool]:
        """Pair -> whether its end was answered: from the request on, no caller expects a token."""
        asked = {pair: False for (pair,) in self.said("disconnecting")}
        return asked | {pair: True for (pair,) in self.said("disconnected")}

    @property
    def uncertain(self) -> Counter[str]:
        """Pairs whose refresh was sent and never answered, and how often."""
        return Counter(pair for (pair,) in self.said("refresh lost"))


class Line:
    """One caller's connection, kept while it lives."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world, self._ledger = world, ledger
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.request_id = ""  # of the last answer

    async def call(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        """Raises Lost."""
        text = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._world.port}\r\nContent-Length: {len(text)}\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {token or self._world.key}\r\n\r\n"
        )
        sent = False
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = self._ends or await asyncio.open_connection("127.0.0.1", self._world.port)
                self._ends, sent = (reader, writer), True
                writer.write(head.encode() + text)
                await writer.drain()
                status, said, self.request_id = await self._read(reader)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            self._ledger.lost += sent
            raise Lost(sent=sent) from None
        self._ledger.answers[status] += 1
        if status == 503 and not self.request_id:  # a proxy's own: no broker has begun it, and callers repeat it
            raise Lost(sent=False)
        if status not in FORESEEN:
            self._ledger.unforeseen.append(
                Unforeseen(f"{method} {path.partition('?')[0]}: {status} {said}", self.request_id)
            )
        return status, said

    async def _read(self, reader: asyncio.StreamReader) -> tuple[int, Any, str]:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(lines[0].split(" ")[1]), json.loads(body) if body else None, headers.get("x-request-id", "")

    def close(self) -> None:
        if self._ends is not None:
            self._ends[1].close()
            self._ends = None


@dataclass
class Load:
    """All callers."""

    world: World
    ledger: Ledger
    dice: random.Random
    _next: int = 0
    _ending: set[int] = field(
        default_factory=set
    )  # a grant is ended by one caller at a time: the second one gets a 404

    @property
    def idp(self) -> IdentityProvider:
        return self.world.idp

    @asynccontextmanager
    async def running(self, people: int, tools: int) -> AsyncIterator[None]:
        """Run users and tools until the block ends. Then each call has been answered, or never will be."""
        tasks = [asyncio.create_task(self._as_caller(self._connect_for_ever)) for _ in range(people)]
        tasks += [asyncio.create_task(self._as_caller(self._work_for_ever)) for _ in range(tools)]
        try:
            yield
        finally:
            for task in tasks:
                if task.done():
                    task.result()
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def consuming(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self._as_caller(self._consume_for_ever))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _as_caller(self, story: Callable[[Line], Awaitable[None]]) -> None:
        with closing(Line(self.world, self.ledger)) as line:
            await story(line)

    async def _connect_for_ever(self, line: Line) -> None:
        while self._next < APPS * PEOPLE:
            pair, self._next = Pair(self._next), self._next + 1
            while True:
                try:
                    await self._connect(line, pair)
                    break
                except (Lost, httpx2.TransportError):
                    await asyncio.sleep(PAUSE)

    async def _connect(self, line: Line, pair: Pair) -> None:
        """One person's story, from the tool that asks to the page that says it worked."""
        turn_id, token = await self._begin(line, pair)
        status, asked = await line.call("POST", "/v1/tokens", {"oauthAppRef": f"OAuthApp/{pair.app}"}, token=token)
        if status == 200 and asked["status"] == "authorization_required":
            page = await connect_through(Browser(), self.idp, asked["authorizationUrl"], pair.login)
            if page.status == 200:
                self.ledger.say("granted", asked["authSessionId"], str(pair.number))
        await self._end(line, turn_id, token)

    async def _work_for_ever(self, line: Line) -> None:
        while True:
            connected = [int(number) for number in self.ledger.granted.values()]
            if not connected:
                await asyncio.sleep(PAUSE)
                continue
            pair = Pair(self.dice.choice(connected))
            try:
                await self._work(line, pair)
                if self.dice.random() < 0.08 and self._is_settled(pair) and pair.number not in self._ending:
                    self._ending.add(pair.number)
                    try:
                        await self._disconnect(line, pair)
                    finally:
                        self._ending.discard(pair.number)
            except Lost:
                await asyncio.sleep(PAUSE)

    async def _work(self, line: Line, pair: Pair) -> None:
        """Run a tool's turn: tokens, at times a refresh, and mostly an end."""
        turn_id, token = await self._begin(line, pair)
        body = {"oauthAppRef": f"OAuthApp/{pair.app}"}
        for _ in range(self.dice.randrange(1, 6)):
            status, answer = await line.call("POST", "/v1/tokens", body, token=token)
            if status == 200 and answer["status"] == "ready":
                self.ledger.say("ready", str(pair.number))
        if self.dice.random() < 0.15 and status == 200 and answer["status"] == "ready":
            await self._refresh(line, pair, token, answer["accessToken"])
        if self.dice.random() < 0.8:
            await self._end(line, turn_id, token)

    def _is_settled(self, pair: Pair) -> bool:
        """This user is not connected again, so that it is known which tokens the provider ends with one grant."""
        return pair.number // APPS + 1 < self._next // APPS

    async def _disconnect(self, line: Line, pair: Pair) -> None:
        """An operator ends a grant."""
        status, found = await line.call("GET", f"/v1/grants?app={pair.app}&subject={quote(pair.subject)}&state=live")
        if status != 200 or not found["grants"]:
            return
        self.ledger.say("disconnecting", str(pair.number))
        status, _ = await line.call("DELETE", f"/v1/grants/{quote(found['grants'][0]['grantId'])}")
        if status == 200:
            self.ledger.say("disconnected", str(pair.number))

    async def _refresh(self, line: Line, pair: Pair, token: str, access: str) -> None:
        body = {"oauthAppRef": f"OAuthApp/{pair.app}", "accessToken": access}
        try:
            _, answer = await line.call("POST", "/v1/tokens/rejected", body, token=token)
        except Lost as lost:
            if lost.sent:
                self.ledger.say("refresh lost", str(pair.number))
            raise
        if answer.get("status") == "ready":
            self.ledger.say("refreshed", str(pair.number))

    async def _begin(self, line: Line, pair: Pair) -> tuple[str, str]:
        auth = {"actor": {"type": "user", "id": "chat:U1"}, "subjects": {"user": pair.subject}}
        turn = {"agentName": AGENT, "instanceKey": f"of {pair.number}", "swarmRef": "Swarm/default", "auth": auth}
        status, begun = await line.call("POST", "/v1/turns", {"turn": turn})
        if status != 201:
            raise AssertionError(await Unforeseen(f"no turn: {status} {begun}", line.request_id).reported(self.world))
        self.ledger.say("begun", begun["turnToken"])
        return begun["turnId"], begun["turnToken"]

    async def _end(self, line: Line, turn_id: str, token: str) -> None:
        """From the request on the outcome is open; from the answer on it has ended."""
        self.ledger.say("ending", token)
        status, _ = await line.call("DELETE", f"/v1/turns/{turn_id}")
        if status == 204:
            self.ledger.say("ended", token)

    async def _consume_for_ever(self, line: Line) -> None:
        while True:
            try:
                status, leased = await line.call("GET", f"/v1/agents/{AGENT}/events?wait=1")
                if status != 200:
                    self.ledger.say("quiet")
                    continue
                event = leased["event"]["eventId"]
                self.ledger.say("received", event)
                status, _ = await line.call(
                    "POST", f"/v1/agents/{AGENT}/events/{event}/ack", {"lease": leased["lease"]}
                )
                if status == 204:
                    self.ledger.say("acked", event)
            except Lost:
                await asyncio.sleep(PAUSE)
