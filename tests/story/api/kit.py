"""A caller of the API without a network: raw ASGI, so that it can send what no client would, and leave when it likes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import jsonschema_rs

from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.testing import Canaries
from oauthbroker.web.api.call_table import OPERATIONS, PROBES, Operation
from oauthbroker.web.api.openapi import DOCUMENT, described, document, schema_of
from tests.kit.running_broker import ALICE, TEAM, Harness

TOOLS: dict[str, tuple[ToolAuth, ...]] = {
    "Tool/mail": (ToolAuth("mail", ("read", "write")),),
    "Tool/both": (ToolAuth("mail"), ToolAuth("team")),
    "Tool/idle": (),
}
LOOPBACK = ("127.0.0.1", 40000)
EVERY = (*OPERATIONS, DOCUMENT, *PROBES)
SAID = described()["operations"]
BODIES = {operation.id: SAID[operation.id].get("bodies", {}) for operation in EVERY}
PARAMETERS = {operation.id: SAID[operation.id].get("parameters", {}) for operation in EVERY}
LINES = {operation.id: SAID[operation.id]["lines"] for operation in EVERY if "lines" in SAID[operation.id]}
ANSWERS = {operation.id: SAID[operation.id]["answers"] for operation in EVERY}
Json = Any
Part = Callable[[], Awaitable[bytes]]
"""A part of a body that comes when it likes."""


def sent_with(operation: Operation) -> dict[str, Any]:
    """Return the headers that a call needs beside its caller's, as `Caller.send` takes them."""
    headers = {name: said["example"] for name, said in SAID[operation.id].get("headers", {}).items()}
    return {"headers": headers, "kind": "application/x-ndjson" if operation.id in LINES else "application/json"}


def strict(schema: Json) -> Json:
    """Return the schema with every object closed: the broker of today sends no member that its document lacks."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(part) for name, part in schema.items()}
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def validator(schema: Json) -> Json:
    """Return the strict check of a schema of the document, with all that it refers to."""
    resolved = strict({**schema, "components": document()["components"]})
    return jsonschema_rs.Draft202012Validator(resolved, validate_formats=True)


def checked(schema: str, body: bytes) -> Json:
    """Return the JSON of an answer that fits the schema of that name."""
    said = json.loads(body)
    validator(schema_of(schema)).validate(said)
    return said


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a problem, or of a result that is an error."""
        said = self.json()
        return str(said["error"]["code"] if "error" in said else said.get("code"))


@dataclass
class Exchange:
    """A request under way: what came so far, and a way to leave."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    parts: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    async def before(self, kind: str) -> None:
        """Called before a message of that type is taken."""

    async def part(self) -> bytes:
        """The next part of the body, soon."""
        return await asyncio.wait_for(self.parts.get(), 60)

    async def leave(self) -> None:
        """The caller goes away; returns when the server has done with it."""
        self.left.set()
        assert self.task is not None
        await asyncio.wait_for(self.task, 60)


@dataclass(frozen=True)
class Caller:
    """A caller with a bearer token, or without one."""

    harness: Harness
    bearer: str | None = field(default=None, repr=False)
    client: tuple[str, int] | None = LOOPBACK
    extensions: Mapping[str, Any] = field(default_factory=dict)

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.send("GET", path, **more)

    async def delete(self, path: str, **more: Any) -> Answer:
        return await self.send("DELETE", path, **more)

    async def post(self, path: str, body: Json = None, **more: Any) -> Answer:
        return await self.send("POST", path, body=json.dumps(body).encode(), **more)

    async def send(self, method: str, path: str, *, allow: Iterable[str] = (), **more: Any) -> Answer:
        """One request and its whole answer, which is swept for secrets; `allow` names kinds that may be there."""
        exchange, parts = Exchange(), list[bytes]()
        await asyncio.wait_for(self._run(exchange, method, path, **more), 60)
        while not exchange.parts.empty():
            parts.append(exchange.parts.get_nowait())
        answer = Answer(exchange.status, exchange.headers, b"".join(parts))
        where = f"the answer to {method} {path.partition('?')[0]}"
        Canaries.active().look(answer.body, where, allow=allow)
        Canaries.active().look(repr(answer.headers), where)
        return answer

    @asynccontextmanager
    async def open(self, method: str, path: str, **more: Any) -> AsyncIterator[Exchange]:
        """A request that stays open until the block ends, or the server ends it."""
        exchange = Exchange()
        exchange.task = asyncio.create_task(self._run(exchange, method, path, **more))
        try:
            yield exchange
        finally:
            await exchange.leave()

    async def _run(
        self,
        exchange: Exchange,
        method: str,
        path: str,
        *,
        body: bytes | list[bytes | Part] = b"",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        kind: str | None = "application/json",
        host: str | None = None,
    ) -> None:
        chunks: list[bytes | Part] = body if isinstance(body, list) else [body]
        said = [("host", host or urlsplit(self.harness.origin).netloc)]
        said += [("authorization", f"Bearer {self.bearer}")] if self.bearer is not None else []
        said += [("content-type", kind)] if kind is not None and method == "POST" else []
        said += list(headers.items() if isinstance(headers, Mapping) else headers)
        target, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": target, "raw_path": quote(target).encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.lower().encode(), value.encode("utf-8", "surrogateescape")) for name, value in said],
            "client": self.client, "server": ("127.0.0.1", 8420), "extensions": dict(self.extensions), "state": {},
        }  # fmt: skip
        pending = list(chunks)

        async def receive() -> dict[str, Any]:
            if pending:
                part = pending.pop(0)
                sent = part if isinstance(part, bytes) else await part()
                return {"type": "http.request", "body": sent, "more_body": bool(pending)}
            await exchange.left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await exchange.before(message["type"])
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
                exchange.started.set()
            elif message.get("body"):
                exchange.parts.put_nowait(message["body"])

        await self.harness.broker.asgi.app(scope, receive, send)


@dataclass(frozen=True)
class Callers:
    """The callers of a harness, one of each kind."""

    harness: Harness
    runtime: Caller
    operator: Caller

    @classmethod
    async def of(cls, harness: Harness) -> Callers:
        keys = harness.broker.api_keys
        runtime, operator = await keys.create("runtime", ["runtime"]), await keys.create("operator", ["operator"])
        for _, secret in (runtime, operator):
            Canaries.active().add(secret, "API key")
        return cls(harness, Caller(harness, runtime[1].reveal()), Caller(harness, operator[1].reveal()))

    @property
    def stranger(self) -> Caller:
        return Caller(self.harness)

    def holding(self, token: str | Secret) -> Caller:
        text = token.reveal() if isinstance(token, Secret) else token
        return Caller(self.harness, text)

    async def begin(self, body: Json | None = None, **more: Any) -> dict[str, Any]:
        """A turn of Alice's with tokens for all tools, or as said."""
        answer = await self.runtime.post("/v1/turns", a_turn(**more) if body is None else body, allow=["turn token"])
        assert 201 == answer.status, answer.text
        begun: dict[str, Any] = answer.json()
        for token in (begun["turnToken"], *begun["toolTokens"].values()):
            Canaries.active().add(token, "turn token")
        return begun

    async def turn(self, **more: Any) -> Caller:
        """A holder of the turn's own token."""
        return self.holding((await self.begin(**more))["turnToken"])

    async def tool(self, name: str = "Tool/mail", **more: Any) -> Caller:
        return self.holding((await self.begin(**more))["toolTokens"][name])


def a_turn(
    user: str | None = ALICE,
    team: str | None = TEAM,
    instance: str = "1700000000.000100",
    tools: Json = None,
    agent: str = "planner",
    **more: Any,
) -> dict[str, Any]:
    """What a runtime sends for the same turn as `tests.kit.running_broker.turn()`."""
    subjects = {mode: subject for mode, subject in (("user", user), ("global", team)) if subject is not None}
    turn = {
        "agentName": agent,
        "instanceKey": instance,
        "swarmRef": "Swarm/default",
        "origin": {"connector": "chat-main", "channel": "C123"},
        "auth": {"actor": {"type": "user", "id": "chat:U234567"}, "subjects": subjects},
    }
    return {"turn": turn, "tools": dict.fromkeys(TOOLS) if tools is None else tools, **more}


def path_of(operation: Operation) -> str:
    return operation.path.format(**PARAMETERS[operation.id])


def admits(operation: Operation, kind: str) -> bool:
    whole = {"turn": {"turn", "wholeTurn"}, "tool": {"turn"}}.get(kind, {kind})
    return not whole.isdisjoint(operation.who)
