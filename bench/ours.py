"""A process with a broker over a store that its parent filled: python -m bench.ours <folder> <port of the slow server>.

It measures the token call, waits with others for one expired grant, and says how much memory it takes.
"""

from __future__ import annotations

import asyncio
import io
import random
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from bench.answering import Answer, answer, memory_mib
from bench.bench_token_call import app, grant
from bench.figures import MS, US, Work, a_round
from bench.hasty import Hasty
from bench.slow_server import API, ENDPOINT
from oauthbroker import Turn, TurnAuth
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.observability.logging import json_log
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running

AT_ONCE = 8
HERE = "http://127.0.0.1"


def subject(number: int) -> str:
    return f"idp:user:{number}"


def app_at(port: int) -> App:
    endpoints = Endpoints(authorization_url=f"{HERE}:{port}/authorize", token_url=f"{HERE}:{port}{ENDPOINT}")
    return replace(app(), client=Client("client", Secret("s" * 40)), endpoints=endpoints)


async def fill(folder: Path, numbers: range, port: int = 0) -> None:
    """Store grants whose token never ends."""
    store = open_file_store(folder, fs=Hasty())
    repository, left = Repository(store), iter(numbers)

    async def some() -> None:
        for number in left:
            held = replace(grant(subject(number)), registration=app_at(port).registration)
            await repository.save_grant(held, expect=0)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    await store.close()


def with_token(port: int, of: str, access: str, life: float) -> Grant:
    """Return a grant whose token ends in `life` seconds."""
    made, now = grant(of), datetime.now(UTC)
    ends = now + timedelta(seconds=life)
    token = Token(
        access_token=Secret(access),
        token_type="bearer",
        refresh_token=Secret("r" * 200),
        expires_at=ends,
        lifetime_seconds=3600,
    )
    return replace(made, token=token, registration=app_at(port).registration)


class Measured:
    """A broker and the calls that a parent asks for."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self._running: Running | None = None
        self._client = httpx2.AsyncClient()
        self._opening: Any = None
        self._asked: dict[str, Work] = {}

    async def open(self, _request: Mapping[str, Any]) -> Answer:
        """Open the broker, anew if it is open. The first time includes its imports."""
        await self.close({})
        root, clock = self._folder / "store", SystemClock()
        settings = Settings(store_root=str(root), weaken=frozenset({"plainHttpProvider"}))
        began = time.perf_counter()
        self._opening = open_running(
            Bundle(settings, {"mail": app_at(self._port)}),
            env={},
            clock=clock,
            store=open_file_store(self._folder),
            log=json_log(io.StringIO(), clock),
            background=False,
        )
        self._running = await self._opening.__aenter__()
        return {"ms": (time.perf_counter() - began) * MS, "mib": memory_mib()}

    async def close(self, _request: Mapping[str, Any]) -> Answer:
        if self._opening is not None:
            await self._opening.__aexit__(None, None, None)
            self._opening = None
            self._asked.clear()
        return {}

    def _ask(self, of: str) -> Work:
        """Return the call of one context, which a turn keeps."""
        if of not in self._asked:
            self._asked[of] = self._new(of)
        return self._asked[of]

    def _new(self, of: str) -> Work:
        assert self._running is not None
        oauth = self._running.broker.oauth(Turn("planner", "1", auth=TurnAuth(subjects={"user": of})))
        return lambda: oauth.get_access_token("mail")

    async def warm(self, request: Mapping[str, Any]) -> Answer:
        return {"us": await a_round(self._ask(subject(request["subject"])), request["batch"])}

    async def cold(self, request: Mapping[str, Any]) -> Answer:
        """Ask for grants in any order, each from a new context, and none of them from the cache."""
        assert self._running is not None
        cache = self._running.parts.repository._cache  # noqa: SLF001  (as a fresh process finds it)
        dice = random.Random(request["round"])

        async def one() -> object:
            cache.clear()
            return await self._new(subject(dice.randrange(request["grants"])))()

        return {"us": await a_round(one, request["batch"])}

    async def at(self, request: Mapping[str, Any]) -> Answer:
        """Ask at a moment of the system's monotonic clock, and return when the token was there, in ms after it."""
        ask = self._ask(request["subject"])
        await asyncio.sleep(max(0.0, request["at"] - time.monotonic()))
        found = await ask()
        if not isinstance(found, Ready):
            raise TypeError(f"{found} instead of a token")
        return {"ms": (time.monotonic() - request["at"]) * MS}

    async def busy(self, request: Mapping[str, Any]) -> Answer:
        """Ask until a moment; return how often, and the time of a call."""
        ask, taken = self._ask(request["subject"]), list[float]()
        await asyncio.sleep(max(0.0, request["at"] - time.monotonic()))
        while time.monotonic() < request["until"]:
            taken.append(await a_round(ask, 10))
        return {"calls": len(taken) * 10, "us": statistics.median(taken), "p99": sorted(taken)[int(len(taken) * 0.99)]}

    async def storm(self, request: Mapping[str, Any]) -> Answer:
        """Ask for so many grants at once, each until its token is there."""
        taken = list[float]()

        async def one(ask: Work) -> None:
            while not isinstance(found := await ask(), Ready):
                if not isinstance(found, Failed) or not found.retryable:
                    raise TypeError(f"{found} instead of a token")
                await asyncio.sleep(found.retry_after_seconds or 1)
            taken.append((time.monotonic() - began) * MS)

        began = time.monotonic()
        await asyncio.gather(*(one(self._new(subject(number))) for number in range(request["grants"])))
        return {"seconds": max(taken) / MS, "p99": sorted(taken)[int(len(taken) * 0.99)]}

    async def calls(self, request: Mapping[str, Any]) -> Answer:
        """Do what a tool does, so many times in parallel: take the token, call the API."""
        ask = self._ask(request["subject"])

        async def one() -> None:
            found = await ask()
            if not isinstance(found, Ready):
                raise TypeError(f"{found} instead of a token")
            headers = {"Authorization": f"Bearer {found.access_token.reveal()}"}
            answered = await self._client.post(f"{HERE}:{self._port}{API}", headers=headers)
            answered.raise_for_status()

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(request["count"])))
        return {"seconds": (time.perf_counter() - began) * US / US}

    async def memory(self, _request: Mapping[str, Any]) -> Answer:
        return {"mib": memory_mib()}


async def main(folder: str, port: str) -> None:
    measured = Measured(Path(folder), int(port))
    works = ("open", "close", "warm", "cold", "at", "busy", "storm", "calls", "memory")
    try:
        await answer({name: getattr(measured, name) for name in works})
    finally:
        await measured.close({})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
