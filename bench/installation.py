"""A configuration folder with a store, a grant and a port, as an operator has them, and the server over it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bench.bench_token_call import SUBJECT, grant
from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock
from oauthbroker.repository.repository import Repository
from oauthbroker.wiring import init_store
from oauthbroker.wiring.opening import open_running

BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: http://127.0.0.1:{port}
  listen: {{host: 127.0.0.1, port: {port}}}
  store: {{root: ../store{more}}}
  keys: {{file: ../keys/broker.kek}}
  weaken: [plainHttpProvider]
  limits: {{requestsPerMinute: 1000000}}
"""
APP = """\
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: mail}
spec:
  provider: example
  flow: authorizationCode
  subjectMode: user
  client: {clientId: client, authMethod: none}
  endpoints: {authorizationUrl: "https://idp.example/authorize", tokenUrl: "https://idp.example/token"}
  scopes: [read, write]
  owner: {identity: {user: {from: tokenResponse, template: "idp:user:{id}"}}}
"""
TURN = Turn("planner", "thread", auth=TurnAuth(subjects={"user": SUBJECT}))
START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def write_config(folder: Path, port: int, variable: str = "", consistency: str = "strict") -> Path:
    """Write a configuration and return its folder. `variable` names the one with the URL of a database; without it the
    store is files."""
    config = folder / "config"
    config.mkdir(parents=True, exist_ok=True)
    more = f", url: {{valueFrom: {{env: {variable}}}}}, consistency: {consistency}" if variable else ""
    (config / "broker.yaml").write_text(BROKER.format(port=port, more=more), "utf-8")
    (config / "mail.yaml").write_text(APP, "utf-8")
    return config


async def install(folder: Path, port: int, variable: str = "", consistency: str = "strict") -> None:
    """Write a configuration, make its store, and store one grant that is ready."""
    config = write_config(folder, port, variable, consistency)
    loaded = load(config)
    init_store(loaded.settings, os.environ, SystemClock())
    async with open_running(config, env=os.environ, clock=SystemClock(), background=False) as running:
        repository: Repository = running.parts.repository
        held = replace(grant(SUBJECT), registration=running.broker.bundle.apps["mail"].registration)
        await repository.save_grant(held, expect=0)


async def turn_token(folder: Path) -> str:
    """Begin a turn, as an agent runtime does, and return its token."""
    async with open_broker(folder / "config", env=os.environ, background=False) as broker:
        return (await broker.turns.begin(TURN)).token.reveal()


@asynccontextmanager
async def serving(folder: Path, port: int, workers: int) -> AsyncIterator[None]:
    """Run `oauthbroker serve` until the end of the block."""
    server = _started(folder, workers)
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _is_ready(port):
                if server.poll() is not None:
                    raise RuntimeError((folder / "serve.log").read_text("utf-8")[-500:])
                await asyncio.sleep(0.05)
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.wait, START_SECONDS)


def _started(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "oauthbroker", "serve", *(["--workers", str(workers)] if workers > 1 else [])]
    with (folder / "serve.log").open("ab") as log:
        return subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


async def _is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    try:
        return (await reader.read()).startswith(b"HTTP/1.1 200")
    finally:
        writer.close()
