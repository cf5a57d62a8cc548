"""Who calls during a soak: tools, people, devices, agents, operators, and callers that send rubbish or hang up.

Each ends its own turns, grants and visits. Those left open on purpose end by themselves within a minute.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Any
from urllib.parse import quote

from oauthbroker.testing import Browser, Canaries, connect_through
from tests.faults.server_world import Pair, World

AGENTS = ("planner", "writer")
READY = range(12)  # pairs that stay connected
CHANGING = range(12, 20)  # pairs that people connect and end, over and over
TURN_SECONDS = 40
PATIENCE = 60
Answer = tuple[int, Any]


class Line:
    """One caller's connection, kept while it lives."""

    def __init__(self, world: World, answers: Counter[str]) -> None:
        self._world, self._answers = world, answers
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any = None, *, token: str = "") -> Answer:
        """One call; once more where the connection was closed while it was idle."""
        text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._world.port}\r\nContent-Length: {len(text)}\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {token or self._world.key}\r\n\r\n"
        ).encode()
        for left in (1, 0):
            try:
                async with asyncio.timeout(PATIENCE):
                    return await self._ask(head + text)
            except (OSError, asyncio.IncompleteReadError):
                self.close()
                if not left:
                    raise
        raise AssertionError

    async def _ask(self, request: bytes) -> Answer:
        self._ends = self._ends or await asyncio.open_connection("127.0.0.1", self._world.port)
        reader, writer = self._ends
        writer.write(request)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        status = int(lines[0].split(" ")[1])
        self._answers[f"{status // 100}xx"] += 1
        return status, json.loads(body) if "json" in headers.get("content-type", "") else body

    async def hang_up(self, request: str) -> None:
        """Sends it on a connection of its own and goes away."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._world.port)
        writer.write(request.format(key=self._world.key).encode())
        await writer.drain()
        await asyncio.sleep(0.3)
        writer.transport.abort()
        self._answers["hung up"] += 1

    def close(self) -> None:
        if self._ends is not None:
            self._ends[1].close()
            self._ends = None


class Load:
    """All callers. They stop between two stories while `going` is not set."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world, self.dice = world, dice
        self.answers = Counter[str]()
        self.stories = Counter[str]()
        self.going = asyncio.Event()
        self._busy = 0
        self._free = [Pair(number) for number in CHANGING]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stories = [self._tool] * 4 + [self._person] * 2 + [self._device, self._browser_user, self._operator, self._rude]
        consumers = [asyncio.create_task(self._for_ever(self._agent(agent), 0.0)) for agent in AGENTS]
        tasks = [asyncio.create_task(self._for_ever(story, 0.1)) for story in stories]
        try:
            yield
        finally:
            for task in (*tasks, *consumers):
                if task.done():
                    task.result()
                task.cancel()
            await asyncio.gather(*tasks, *consumers, return_exceptions=True)

    async def rest(self, seconds: float) -> None:
        """No calls: everything under way ends, and idle connections are closed by the server."""
        self.going.clear()
        async with asyncio.timeout(PATIENCE):
            while self._busy:  # noqa: ASYNC110 - stories come and go
                await asyncio.sleep(0.1)
        await asyncio.sleep(seconds)

    async def connect_everybody(self) -> None:
        """Each pair once: what lasts is there from the start."""
        with closing(Line(self.world, self.answers)) as line:
            for number in (*READY, *CHANGING):
                await self._connect(line, Pair(number))
            await self._connect_device(line)

    async def _for_ever(self, story: Callable[[Line], Awaitable[None]], pause: float) -> None:
        while True:
            await self.going.wait()
            self._busy += 1
            try:
                with closing(Line(self.world, self.answers)) as line:
                    for _ in range(10):
                        await story(line)
                        self.stories[getattr(story, "__name__", "agent").strip("_")] += 1
                        await asyncio.sleep(pause * self.dice.random() * 2)
                        if not self.going.is_set():
                            break
            finally:
                self._busy -= 1

    async def _begin(self, line: Line, pair: Pair, subject: str = "") -> tuple[str, str]:
        auth = {"actor": {"type": "user", "id": "chat:U1"}, "subjects": {"user": subject or pair.subject}}
        agent = AGENTS[pair.number % len(AGENTS)]
        turn = {"agentName": agent, "instanceKey": f"of {pair.number}", "swarmRef": "Swarm/default", "auth": auth}
        body = {"turn": turn, "ttlSeconds": TURN_SECONDS}
        begun = await self._well(line, "POST", "/v1/turns", body)
        return begun["turnId"], begun["turnToken"]

    async def _well(self, line: Line, method: str, path: str, body: Any = None, *, token: str = "") -> Any:
        status, said = await line.call(method, path, body, token=token)
        if status >= 300:
            raise AssertionError(f"{method} {path}: {status} {said}")
        return said

    async def _tool(self, line: Line) -> None:
        """Ask for tokens in a turn of a connected person. Most are warm; each lives 20 seconds, so many end."""
        pair = Pair(self.dice.choice(READY))
        turn_id, token = await self._begin(line, pair)
        body = {"oauthAppRef": f"OAuthApp/{pair.app}", "minTtlSeconds": self.dice.choice((0, 0, 0, 5))}
        for _ in range(15):
            answer = await self._well(line, "POST", "/v1/tokens", body, token=token)
        if self.dice.random() < 0.1 and answer["status"] == "ready":
            rejected = {"oauthAppRef": body["oauthAppRef"], "accessToken": answer["accessToken"]}
            await self._well(line, "POST", "/v1/tokens/rejected", rejected, token=token)
        narrow = await self._well(line, "POST", "/v1/turn/narrow", {"apps": [{"oauthAppRef": pair.app}]}, token=token)
        await self._well(line, "GET", "/v1/apps", token=narrow["turnToken"])
        await self._well(line, "GET", "/v1/turn/pending", token=token)
        if self.dice.random() < 0.95:  # the other ones run out
            await self._well(line, "DELETE", f"/v1/turns/{turn_id}")
            await line.call("POST", "/v1/tokens", body, token=token)

    async def _person(self, line: Line) -> None:
        """A person connects and is disconnected again; or says no, takes it back, or never comes."""
        pair = self._free.pop(0)
        try:
            await self._disconnect(line, pair)
            await self._connect(line, pair, self.dice.choice(("agrees", "agrees", "denies", "cancels", "never comes")))
        finally:
            self._free.append(pair)

    async def _connect(self, line: Line, pair: Pair, how: str = "agrees") -> None:
        turn_id, token = await self._begin(line, pair)
        asked = await self._well(line, "POST", "/v1/tokens", {"oauthAppRef": f"OAuthApp/{pair.app}"}, token=token)
        if asked["status"] == "authorization_required":
            session = asked["authSessionId"]
            if how == "cancels":
                await self._well(line, "DELETE", f"/v1/auth-sessions/{session}")
            elif how != "never comes":
                browser = Browser(canaries=Canaries(), timeout=PATIENCE)
                link = asked["authorizationUrl"]
                await connect_through(browser, self.world.idp, link, pair.login, deny=how == "denies")
            await self._well(line, "GET", f"/v1/auth-sessions/{session}")
        await self._well(line, "DELETE", f"/v1/turns/{turn_id}")

    async def _disconnect(self, line: Line, pair: Pair) -> None:
        found = await self._well(line, "GET", f"/v1/grants?app={pair.app}&subject={quote(pair.subject)}&state=live")
        for grant in found["grants"]:
            await line.call("DELETE", f"/v1/grants/{quote(grant['grantId'])}")

    async def _device(self, line: Line) -> None:
        """A person types a code; its poller hears of it within seconds."""
        await self._connect_device(line)
        await asyncio.sleep(1)

    async def _connect_device(self, line: Line) -> None:
        pair, app = Pair(0), "tv"
        found = await self._well(line, "GET", f"/v1/grants?app={app}&state=live")
        for grant in found["grants"]:
            await line.call("DELETE", f"/v1/grants/{quote(grant['grantId'])}")
        turn_id, token = await self._begin(line, pair)
        asked = await self._well(line, "POST", "/v1/tokens", {"oauthAppRef": app}, token=token)
        if asked["status"] == "authorization_required":
            self.world.idp.device_approve(asked["deviceCode"]["userCode"], pair.login)
            for _ in range(PATIENCE * 2):
                said = await self._well(line, "GET", f"/v1/auth-sessions/{asked['authSessionId']}")
                if said["status"] != "pending":
                    break
                await asyncio.sleep(0.5)
        await self._well(line, "DELETE", f"/v1/turns/{turn_id}")

    async def _browser_user(self, line: Line) -> None:
        """A person looks at the connections and leaves."""
        subjects = {"user": Pair(self.dice.choice(READY)).subject}
        made = await self._well(line, "POST", "/v1/connections", {"subjects": subjects})
        browser = Browser(canaries=Canaries(), timeout=PATIENCE)
        await browser.open(made["url"])
        await browser.submit()
        page = await browser.follow()
        leave = next(form for form in page.document.forms if form.action.endswith("/leave"))
        await browser.submit(form=leave)
        await asyncio.sleep(1)

    async def _operator(self, line: Line) -> None:
        """Lists, figures, probes."""
        for path in (
            "/v1/grants?limit=5", "/v1/auth-sessions?limit=5", "/v1/queues", f"/v1/agents/{AGENTS[0]}/dead-letters",
            "/metrics", "/healthz", "/readyz", "/v1/openapi.json",
        ):  # fmt: skip
            await self._well(line, "GET", path)
            await asyncio.sleep(0.1)

    async def _rude(self, line: Line) -> None:
        """Rubbish, and callers that go away while they are answered or wait."""
        await line.call("POST", "/v1/tokens", {"oauthAppRef": "OAuthApp/app0", "subject": "idp:user:P1"})
        await line.call("POST", "/v1/turns", b"{")
        await line.call("GET", f"/nowhere/{self.dice.random()}")
        await line.call("GET", f"/connect/{self.dice.randbytes(32).hex()}")
        await line.call("GET", "/oauth/callback/app0?state=x&code=y")
        for half in (
            "POST /v1/turns HTTP/1.1\r\n",
            HEAD + "Content-Length: 100\r\n\r\n{{",
            "\0\0\r\n\r\n",
            LONG,
            STREAM,
        ):
            with suppress(OSError):
                await line.hang_up(half)
        await asyncio.sleep(1)

    def _agent(self, agent: str) -> Callable[[Line], Awaitable[None]]:
        async def consume(line: Line) -> None:
            status, leased = await line.call("GET", f"/v1/agents/{agent}/events?wait=1")
            if status == 200:
                how = "nack" if self.dice.random() < 0.05 else "ack"
                path = f"/v1/agents/{agent}/events/{quote(leased['event']['eventId'])}/{how}"
                await line.call("POST", path, {"lease": leased["lease"]})

        return consume

    async def settle_events(self) -> None:
        """Every event that is left, also those that were given back."""
        with closing(Line(self.world, self.answers)) as line:
            for agent in AGENTS:
                async with asyncio.timeout(2 * PATIENCE):
                    while await self._is_waiting(line, agent):
                        await self._agent(agent)(line)

    async def _is_waiting(self, line: Line, agent: str) -> bool:
        queues = (await self._well(line, "GET", "/v1/queues"))["queues"]
        return any(each["agentName"] == agent and each["waiting"] for each in queues)


HEAD = "POST /v1/turns HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
LONG = "GET /v1/agents/idle/events?wait=30 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
STREAM = LONG.replace("?wait=30", "").replace("\r\n\r\n", "\r\nAccept: text/event-stream\r\n\r\n")
