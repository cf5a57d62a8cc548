"""A store, a configuration and a provider for `oauthbroker serve`, and its processes, which are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.testing import Account, IdentityProvider
from oauthbroker.testing.provider.types import Client
from oauthbroker.wiring import init_store, open_vault
from tests.kit.cli import APP, BROKER, MAIN, REPOSITORY, environment, free_port
from tests.kit.processes import children_of
from tests.kit.served_api import is_there, kill

APPS, PEOPLE = 6, 40
LIMITS = (
    "  limits: {requestsPerMinute: 1000000, rejectionsPerHour: 1000}\n"
    "  advanced: {queueLeaseSeconds: 1, queueAttempts: 100}\n"
)
START_SECONDS = 90
LOOKS = 40


@dataclass(frozen=True)
class Pair:
    """A person and an app."""

    number: int

    @property
    def app(self) -> str:
        return f"app{self.number % APPS}"

    @property
    def login(self) -> str:
        return f"person{self.number // APPS % PEOPLE}"

    @property
    def subject(self) -> str:
        return f"idp:user:P{self.number // APPS % PEOPLE}"


@dataclass
class World:
    """What outlives every process."""

    folder: Path
    idp: IdentityProvider
    workers: int
    limits: str = LIMITS
    client: Mapping[str, Any] = field(default_factory=dict)  # what the provider's client is, beside the usual
    more: Mapping[str, str] = field(default_factory=dict)  # files of the configuration, by name
    before: Path | None = None  # a folder of modules that the server's processes import before all others
    port: int = field(default_factory=free_port)
    key: str = field(default="", repr=False)
    starts: int = 0

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "serve.log"

    async def make(self) -> None:
        """As the README says: write it, init, set the secret, make a key."""
        (self.folder / "config").mkdir(parents=True)
        self._write("broker", BROKER.format(base=self.base, port=self.port) + self.limits)
        secret = self.idp.canaries.mint("client secret")
        for number in range(APPS):
            app = Pair(number).app
            self._write(app, APP.format(issuer=self.idp.issuer).replace("name: mail", f"name: {app}"))
        for name, text in self.more.items():
            self._write(name, text)
        uris = tuple(f"{self.base}/oauth/callback/{Pair(number).app}" for number in range(APPS))
        self.idp.register(Client("client-mail", Secret(secret.reveal()), redirect_uris=uris, **self.client))
        for number in range(PEOPLE):
            self.idp.add_account(Account(f"person{number}", f"P{number}"))
        settings = load(self.folder / "config").settings
        init_store(settings, {}, SystemClock())
        async with open_vault(settings, env={}) as vault:
            await vault.secrets.put("mail", "client_secret", Secret(secret.reveal()))
            _, key = await vault.api_keys.create("runtime", ["runtime", "operator"])
            self.key = key.reveal()

    def _write(self, name: str, text: str) -> None:
        (self.folder / "config" / f"{name}.yaml").write_text(text, "utf-8")

    async def start(self) -> Server:
        """A server that serves, in spite of all that dead processes left behind."""
        self.starts += 1
        process = self._spawn()
        server = Server(process)
        async with asyncio.timeout(START_SECONDS):
            while not await self._answers():
                if process.poll() is not None:
                    raise AssertionError(f"it did not start: {self.log.read_text('utf-8')[-2000:]}")
                await asyncio.sleep(0.05)
        return server

    def _spawn(self) -> subprocess.Popen[bytes]:
        words = ["serve"] if self.workers == 1 else ["serve", "--workers", str(self.workers)]
        env = environment() if self.before is None else environment(PYTHONPATH=f"{self.before}:{REPOSITORY}")
        with self.log.open("ab") as stream:
            return subprocess.Popen(
                [sys.executable, "-c", MAIN, *words], env=env, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=stream, stderr=stream,
            )  # fmt: skip

    async def said_of(self, request_id: str) -> list[str]:
        """What the log tells of a request, codes and notes included. It is written after the answer, so that it may
        take a moment; nothing, when the process died before it could tell."""
        for _ in range(LOOKS):
            lines = self.log.read_text("utf-8", "replace").splitlines()
            if found := [line for line in lines if request_id and request_id in line]:
                return found
            await asyncio.sleep(0.05)
        return []

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            said = await reader.read()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            return False
        return said.startswith(b"HTTP/1.1 200")


@dataclass(frozen=True)
class Server:
    """One process, or a parent and its workers."""

    process: subprocess.Popen[bytes]

    def kill_one_worker(self, dice: random.Random) -> bool:
        """False when there is none to kill."""
        workers = children_of(self.process.pid)
        if workers:
            kill(dice.choice(workers))
        return bool(workers)

    async def kill(self) -> None:
        """The process itself. Its workers end by themselves, soon: returns when the last one is gone."""
        workers = children_of(self.process.pid)
        self.process.kill()
        self.process.wait(60)
        async with asyncio.timeout(START_SECONDS):
            while any(is_there(worker) for worker in workers):
                await asyncio.sleep(0.02)

    async def end(self) -> int:
        """In order; the status."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, START_SECONDS)

    def bury(self) -> None:
        """After a failure: nothing of ours stays behind."""
        if self.process.poll() is None:
            for worker in children_of(self.process.pid):
                kill(worker)
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
