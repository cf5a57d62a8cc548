"""An MCP server that needs OAuth, and the agents of each framework that use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oauthbroker import open_broker
from oauthbroker.testing import Browser, Canaries, IdentityProvider, connect_through
from tests.kit.cli import environment
from tests.kit.docs import ROOT
from tests.kit.framework_agents import python_of
from tests.kit.running_broker import BASE
from tests.story.mcp_kit import served, upstream

PROGRAMS = ROOT / "tests" / "kit" / "mcp_agents"
SECONDS = 60
RESOURCES = """\
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: tickets}}
spec:
  title: Demo Tickets
  provider: oidc
  flow: authorizationCode
  subjectMode: user
  client:
    clientId: demo
    clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/demo, key: client_secret}}}}}}
  endpoints: {{issuer: "{issuer}"}}
  scopes: [read]
  owner: {{identity: {{user: {{template: "demo:user:{{sub}}"}}}}}}
  api: {{hosts: ["http://127.0.0.1:{port}"], methods: [GET, POST, DELETE]}}
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {{name: tickets}}
spec:
  auth: {{oauthAppRef: OAuthApp/tickets, delivery: injected}}
"""


@dataclass
class McpAgents:
    """The processes of one framework's agent, and the server that they use."""

    config: Path
    idp: IdentityProvider
    framework: str
    port: int
    calls: Calls
    running: list[asyncio.subprocess.Process] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    async def start(self, *options: str) -> None:
        program = PROGRAMS / f"mcp_{self.framework.replace('-', '_')}.py"
        python = python_of(self.framework.removesuffix("-sync"), mcp=True)
        words = [python, str(program), str(self.config), f"http://127.0.0.1:{self.port}/mcp", *options]
        pipe, env = asyncio.subprocess.PIPE, environment(PYTHONDONTWRITEBYTECODE="")
        with (self.config.parent / "stderr").open("ab") as errors:
            self.running.append(
                await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=errors, env=env)
            )
        assert {"ready": True} == await self.line()

    async def ask(self, question: str, user: str = "alice", conversation: str = "") -> None:
        """Send a user's question to the newest process, by default in the user's own conversation."""
        subject = json.loads((self.config.parent / "subjects.json").read_text())[user]
        line = {"user": user, "subject": subject, "question": question, "conversation": conversation or user}
        process = self.running[-1].stdin
        assert process
        process.write(json.dumps(line).encode() + b"\n")
        await process.drain()

    async def line(self) -> dict[str, Any]:
        """Return what the agent says next."""
        out = self.running[-1].stdout
        assert out
        async with asyncio.timeout(SECONDS):
            text = (await out.readline()).decode()
        assert text, (self.config.parent / "stderr").read_text()[-4000:]
        self.said.append(text)
        found: dict[str, Any] = json.loads(text)
        return found

    async def end(self) -> tuple[dict[str, Any], int]:
        """Return how a run ends or pauses, and the number of events until then."""
        events = 0
        while "event" in (line := await self.line()):
            events += 1
        return line, events

    async def paused(self) -> dict[str, str]:
        line, _ = await self.end()
        (pause,) = line["paused"]
        assert {"authorizationUrl", "message", "sessionId"} == set(pause)
        return dict(pause)

    async def answer(self) -> str:
        line, _ = await self.end()
        return str(line["answer"])

    async def kill(self) -> None:
        process = self.running[-1]
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def consent(self, pause: dict[str, str], user: str = "alice", *, deny: bool = False) -> None:
        """Follow a link in a new browser, and agree or not."""
        async with open_broker(self.config, env={}) as broker:
            browser = Browser(apps={BASE: broker.asgi.app})
            await connect_through(browser, self.idp, pause["authorizationUrl"], user, deny=deny)

    def leaks(self) -> list[Any]:
        """Return the secrets in the files of the agent and in its lines. A checkpoint may have the link."""
        canaries = Canaries.active()
        texts = [(path.read_bytes(), path.name) for path in self.config.parent.rglob("*") if path.is_file()]
        texts.append(("".join(self.said).encode(), "a line"))
        return [find for text, name in texts for find in canaries.search(text, name, allow={"ticket"})]


@dataclass
class Calls:
    """The calls of tools at the server, by the user that their token named. `before` runs before the next one."""

    before: Callable[[], None] | None = None
    count: int = 0


@asynccontextmanager
async def serving(idp: IdentityProvider) -> AsyncIterator[tuple[int, Calls]]:
    """Serve an MCP server with OAuth on loopback."""
    calls = Calls()
    app = upstream(idp).streamable_http_app()

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await app(scope, receive, send)
        message = await receive()
        body = message["body"]
        while message.get("more_body"):
            message = await receive()
            body += message["body"]
        if b'"tools/call"' in body:
            calls.count += 1
            if calls.before is not None:
                calls.before()
                calls.before = None
        given = [{"type": "http.request", "body": body}]

        async def again() -> Any:
            return given.pop() if given else await receive()

        return await app(scope, again, send)

    async with served(counted) as (port, _stop):
        yield port, calls
