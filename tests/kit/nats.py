"""A private nats-server with JetStream for tests: its own folder and port of loopback, ended with the block."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from tests.kit.installed import memory

LACKS = "a NATS server (package nats-server)"
SUBJECT = "agents.events"


def binary() -> str | None:
    """Return the distribution's nats-server, which lies where only root's PATH leads; None without one."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


@dataclass
class NatsServer:
    """A server that can be stopped and started again on its port, with its stored messages. `config` are further lines
    of its configuration."""

    folder: Path
    port: int
    config: str = ""
    scheme: str = "nats"
    login: dict[str, Any] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    async def start(self) -> None:
        program = binary()
        assert program is not None, LACKS
        path = self.folder / "nats.conf"
        path.write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self.folder}/js" }}\n{self.config}'
        )
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, "-c", path], stderr=log)  # noqa: ASYNC220  (it is only started)
        for _ in range(500):
            await asyncio.sleep(0.02)
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
        raise AssertionError((self.folder / "log").read_text())

    def stop(self) -> None:
        """Kill the server, as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = Client()
        await client.connect(self.url, **self.login)
        try:
            yield client
        finally:
            await client.close()

    async def add_stream(self, **config: Any) -> None:
        async with self.client() as client:
            await client.jetstream().add_stream(name="EVENTS", subjects=[f"{SUBJECT.partition('.')[0]}.>"], **config)

    async def stored(self) -> list[dict[str, Any]]:
        """Return the events in the stream, in its order."""
        async with self.client() as client:
            stream = client.jetstream()
            state = (await stream.stream_info("EVENTS")).state
            numbers = range(state.first_seq, state.last_seq + 1)
            found = [await stream.get_msg("EVENTS", number) for number in numbers if state.messages]
            assert all((each.headers or {})["Nats-Msg-Id"] == json.loads(each.data or b"")["eventId"] for each in found)
            return [json.loads(each.data or b"") for each in found]

    async def until(self, count: int, *, seconds: float = 30.0) -> list[dict[str, Any]]:
        """Wait until the stream has so many events."""
        async with asyncio.timeout(seconds):
            while len(found := await self.stored()) < count:
                await asyncio.sleep(0.05)
        return found


@asynccontextmanager
async def nats_server(config: str = "", *, scheme: str = "nats", **login: Any) -> AsyncIterator[NatsServer]:
    """Run a server without a stream."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="nats", dir=memory()) as name:
        server = NatsServer(Path(name), port, config, scheme, login)
        await server.start()
        try:
            yield server
        finally:
            server.stop()
