"""The example agents as processes: each in the environment of its framework, on one configuration, to be killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oauthbroker import Broker, Turn, TurnAuth, open_broker
from oauthbroker.testing import Browser, Canaries, IdentityProvider, connect_through
from oauthbroker.testing.canary import Find
from tests.kit import installed
from tests.kit.cli import environment
from tests.kit.docs import ROOT
from tests.kit.running_broker import BASE

EXAMPLES = ROOT / "examples" / "frameworks"
PLAIN = "plain"
HERE = frozenset({PLAIN, "pydantic-ai"})  # they run in the environment of the tests, whose pins they fit
SECONDS = 60


def python_of(framework: str, *, mcp: bool = False) -> str:
    """Return the interpreter of a framework's environment. Skip without it, or fail where E2E=required. `mcp`: the
    framework's MCP client is in it, too."""
    if framework in HERE and not mcp:
        return sys.executable
    found = ROOT / f".venv-{framework}" / "bin" / "python"
    made = (found.parents[1] / ".installed").exists()
    installed.demand([] if made else [f"the environment of {framework} (make frameworks)"])
    return str(found)


@dataclass
class Agents:
    """The agent's processes, one after another."""

    config: Path
    idp: IdentityProvider
    framework: str
    programs: Path = EXAMPLES
    running: list[asyncio.subprocess.Process] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def turn(self) -> Turn:
        """The turn of the agents' user."""
        origin = json.loads((self.config / "origin.json").read_text())
        return Turn("planner", "thread-1", origin=origin, auth=TurnAuth(subjects={"user": origin["user"]}))

    async def start(self, question: str = "") -> None:
        program = self.programs / f"{self.framework.replace('-', '_')}_agent.py"
        words = [python_of(self.framework), str(program), str(self.config), *([question] if question else [])]
        env = environment(PYTHONDONTWRITEBYTECODE="")
        with (self.config.parent / "stderr").open("ab") as errors:
            self.running.append(
                await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, stderr=errors, env=env)
            )

    async def line(self) -> dict[str, Any]:
        """Return what an agent says next: `paused` or `answer`."""
        out = self.running[-1].stdout
        assert out
        async with asyncio.timeout(SECONDS):
            text = (await out.readline()).decode()
        assert text, (self.config.parent / "stderr").read_text()
        self.said.append(text)
        found: dict[str, Any] = json.loads(text)
        return found

    async def kill(self) -> None:
        """Kill the newest process as `kill -9` does, and keep its last lines."""
        process = self.running[-1]
        assert process.stdout
        if process.returncode is None:
            process.kill()
        self.said += (await process.stdout.read()).decode().splitlines(keepends=True)
        await process.wait()

    @asynccontextmanager
    async def broker(self, **more: Any) -> AsyncIterator[Broker]:
        """Open a broker on the same store, as the process that serves the pages."""
        async with open_broker(self.config, env={}, **more) as broker:
            yield broker

    async def consent(self, pause: dict[str, str], person: str = "alice", *, deny: bool = False) -> None:
        """Follow a link in a new browser, and agree or not."""
        async with self.broker() as broker:
            browser = Browser(apps={BASE: broker.asgi.app})
            await connect_through(browser, self.idp, pause["authorizationUrl"], person, deny=deny)

    def leaks(self, canaries: Canaries) -> Iterator[Find]:
        """Yield the secrets in the files of the agent and in its lines. A checkpoint may have the link."""
        for path in self.config.parent.rglob("*"):
            if path.is_file():
                yield from canaries.search(path.read_bytes(), path.name, allow={"ticket"})
        yield from canaries.search("".join(self.said), "a line", allow={"ticket"})
