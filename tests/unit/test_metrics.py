"""Counters: a closed set of names, labels that are words of ours."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.apps import Client
from oauthbroker.errors import Code
from oauthbroker.metrics import Metric, Metrics
from oauthbroker.results import Failed, Ready
from oauthbroker.secret import Secret
from oauthbroker.testing import IdentityProvider, TestClock
from tests.house import House, UnwellStore, running, turn, user_app


def test_names_are_the_usual_ones_and_count_what_only_grows() -> None:
    assert all(re.fullmatch(r"oauthbroker_[a-z_]+_total", metric) for metric in Metric)


def test_counts_stand_beside_each_other_by_label() -> None:
    metrics = Metrics()
    metrics.add(Metric.TOKENS_READY, "mail")
    metrics.add(Metric.TOKENS_READY, "mail")
    metrics.add(Metric.TOKENS_READY, "files")
    assert (2, 1, 0) == tuple(metrics.value(Metric.TOKENS_READY, label) for label in ("mail", "files", "team"))
    assert 0 == metrics.value(Metric.TOKEN_ERRORS, "mail")


@pytest.mark.case("92")
async def test_labels_are_apps_codes_events_and_agents_whatever_callers_send(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """A label comes from a closed set: nobody can fill the memory with labels, or read a person out of them."""
    app = user_app(identity_provider)
    apps = [replace(app, client=Client("client-mail", Secret("an-old-one"), later_secrets=app.client.secrets))]
    async with running(identity_provider, apps, clock=test_clock) as house:
        await _everything(house)
        seen = set(house.broker.metrics.counts)
    disk = UnwellStore(test_clock)
    async with running(identity_provider, apps, clock=test_clock, store=disk, background=False) as house:
        await _renewals(house, disk)
        seen |= set(house.broker.metrics.counts)
    events = {"auth.granted", "auth.denied", "auth.failed", "auth.revoked"}
    assert {label for _, label in seen} <= {"mail", "planner"} | events | {code.value for code in Code}
    assert set(Metric) - {Metric.EVENTS_DEAD} <= {metric for metric, _ in seen}


async def _everything(house: House) -> None:
    for odd in ("no-such-app", "../mail", "mail\n", "m" * 1000):
        await house.ask(odd)
    await house.ask("mail", ["nonsense", "x"])
    await house.ask(of=turn(user=None))
    await house.connected()
    await house.connect(await house.ask_link(of=turn(user="idp:user:U345678")), "mallory")
    await house.events(count=2)


async def _renewals(house: House, disk: UnwellStore) -> None:
    """One that is refused, and one that the disk does not take at first."""
    refresh = house.idp.script.refresh
    await house.connected()
    house.clock.advance(3600)
    refresh.answer(500)
    assert isinstance(await house.ask(), Failed)
    house.clock.advance(10)

    def fill(found: dict[str, Any]) -> dict[str, Any]:
        disk.refuses = 1
        return found

    refresh.alter(fill)
    assert isinstance(await house.ask(), Ready)
    while not house.broker.metrics.value(Metric.RENEWALS, "mail"):
        await asyncio.sleep(0.001)
