"""What probes learn of the store: `/healthz` says at once that it is away, and that it is back."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Life, Notifier
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.diagnostics.health import HealthCheck
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.repeats import StoreOutage
from oauthbroker.testing import TestClock
from oauthbroker.web.gate import readiness as module
from oauthbroker.web.gate.readiness import FRESH_SECONDS, Readiness, health_routes


class Store:
    """A store that is well, away, or hangs."""

    def __init__(self) -> None:
        self.error: BrokerError | None = None
        self.hangs = False

    async def probe(self) -> None:
        if self.hangs:
            await asyncio.sleep(60)
        if self.error is not None:
            raise self.error


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> TestClock:
    return TestClock(frozen=True)


@pytest.fixture
def life() -> Life:
    return Life(Notifier())


@pytest.fixture
def ask(store: Store, clock: TestClock, life: Life) -> Any:
    """Ask `/healthz`, a moment after the question before."""
    log = json_log(io.StringIO(), clock)
    outage = StoreOutage(clock, log)
    parts: Any = {
        "config": SimpleNamespace(failure=None), "retry_store": SimpleNamespace(unstored=0),
        "audit": SimpleNamespace(failure=None), "plugins": dict,
    }  # fmt: skip
    probes = Readiness(store.probe, life, clock, may_degrade=lambda: False, outage=outage, log=log)
    route: Any = health_routes(HealthCheck(opened_here=OpenedHere(), outage=outage, **parts), probes, lambda *_: b"")[0]

    async def asked() -> bytes:
        clock.advance(FRESH_SECONDS)
        return bytes((await route.endpoint(Request({"type": "http", "query_string": b""}))).body)

    return asked


async def test_health_is_red_as_soon_as_the_disk_is_full_and_green_as_soon_as_it_has_space(
    store: Store, ask: Any
) -> None:
    assert b'{"status":"ok"}' == await ask()
    store.error = BrokerError(Code.STORE_UNAVAILABLE, note="OSError ENOSPC")
    assert b'{"status":"red","problems":["storeUnavailable"]}' == await ask()
    store.error = None
    assert b'{"status":"ok"}' == await ask()


async def test_a_store_that_hangs_makes_no_probe_of_the_process_wait(
    store: Store, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOMENT_SECONDS", 0.01)
    store.hangs = True
    async with asyncio.timeout(5):
        assert b'{"status":"ok"}' == await ask(), "the passes of the broker notice it"


async def test_the_closed_store_of_a_broker_that_stops_is_not_away(store: Store, ask: Any, life: Life) -> None:
    life.stop()
    store.error = BrokerError(Code.STORE_UNAVAILABLE, note="the store is closed")
    assert b'{"status":"ok"}' == await ask()
