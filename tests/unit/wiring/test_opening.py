"""A broker is opened over a bundle: what the log says at its start, what a fault of a background task does, how it ends."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running, as_given
from tests.kit.samples import app_with

BUNDLE = Bundle(Settings(public_base_url="https://broker.example"), {"mail": app_with()}, {})


class World:
    """The clock, the store and the log of a broker that is opened."""

    def __init__(self) -> None:
        self.clock, self.text, self.audit = TestClock(), io.StringIO(), AuditList()
        self.store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock)

    @asynccontextmanager
    async def opened(self, bundle: Bundle = BUNDLE, **more: Any) -> AsyncIterator[Running]:
        log = json_log(self.text, self.clock)
        async with open_running(
            bundle, env={}, clock=self.clock, store=self.store, audit=self.audit, log=log, **more
        ) as running:
            yield running


@pytest.fixture
def world() -> World:
    return World()


def with_settings(**changes: Any) -> Bundle:
    return replace(BUNDLE, settings=replace(BUNDLE.settings, **changes))


@pytest.mark.parametrize(
    ("bundle", "background", "off"),
    [
        (BUNDLE, True, []),
        (with_settings(weaken=frozenset({"plainHttpProvider"})), True, ["plainHttpProvider"]),
        (with_settings(public_base_url="http://127.0.0.1:8420"), True, []),
        (with_settings(public_base_url="http://127.0.0.1:8420"), False, []),
    ],
)
async def test_a_running_broker_says_which_checks_are_off(
    world: World, bundle: Bundle, background: bool, off: list[str]
) -> None:
    async with world.opened(bundle, background=background):
        pass
    assert len(off) == world.text.getvalue().count("a check is off")
    assert all(each in world.text.getvalue() for each in off)
    is_plain = background and bundle.settings.public_base_url.startswith("http:")
    assert is_plain is ("pages without TLS" in world.text.getvalue())


@pytest.mark.parametrize("background", [True, False])
async def test_background_tasks_run_only_where_they_are_asked_for_and_end_with_the_broker(
    world: World, background: bool
) -> None:
    async with world.opened(background=background) as running:
        assert background is bool(running.tasks)
        tasks = list(running.tasks)
        assert not any(task.done() for task in tasks)
    assert all(task.done() for task in tasks)


@pytest.mark.parametrize("workers", [1, 4])
async def test_each_of_several_processes_takes_its_part_of_the_limits(world: World, workers: int) -> None:
    async with world.opened(background=False, workers=workers) as running:
        assert BUNDLE.settings.limits.shared_by(workers) == running.parts.limits
    assert BUNDLE.settings.limits.shared_by(4) != BUNDLE.settings.limits


async def test_a_broker_from_a_bundle_has_nothing_to_read_anew(world: World) -> None:
    assert BUNDLE is await as_given(BUNDLE)
    with pytest.raises(BrokerError) as refused:
        await as_given(None)
    assert Code.REQUEST_INVALID is refused.value.code


@pytest.mark.parametrize(
    ("fault", "told"),
    [(BrokerError(Code.STORE_UNAVAILABLE), '"storeUnavailable"'), (RuntimeError("CANARY"), '"RuntimeError"')],
)
async def test_a_fault_of_a_background_pass_is_logged_without_its_text_and_ends_nothing(
    world: World, fault: Exception, told: str
) -> None:
    async def fails() -> None:
        raise fault

    async with world.opened(background=False) as running:
        await running._try("sweep", fails)
    text = world.text.getvalue()
    assert "tending failed" in text
    assert told in text
    assert "CANARY" not in text


async def test_the_end_stops_new_exchanges_before_the_network_is_closed(world: World) -> None:
    order: list[str] = []
    async with world.opened(background=False) as running:
        for name in ("exchange", "polling", "refresh", "api_transport", "transport", "sharing"):
            part = getattr(running.parts, name)
            note_close(part, name, order)
    assert ["exchange", "polling", "refresh", "api_transport", "transport", "sharing"] == order


def note_close(part: Any, name: str, order: list[str]) -> None:
    """Let the class of this part note that it is closed, for as long as the part lives."""
    kind = type(part)

    async def close(self: Any) -> None:
        order.append(name)
        await kind.close(self)

    part.__class__ = type(kind.__name__, (kind,), {"__slots__": (), "close": close})
