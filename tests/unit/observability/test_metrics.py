"""Counters: a closed set of names, labels that are words of ours."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oauthbroker
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Client
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.observability.metrics import MOST_SERIES, OTHER, SECONDS, Gauge, Metric, Metrics, Timing
from oauthbroker.protocol.messages import Kind
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, UnwellStore, running, turn, user_app


def test_every_figure_is_counted() -> None:
    source = "".join(path.read_text("utf-8") for path in Path(oauthbroker.__file__).parent.rglob("*.py"))
    used = set(re.findall(r"\b((?:Metric|Timing|Gauge)\.[A-Z_]+)\b", source))
    idle = {
        str(each.value)
        for kind in (Metric, Timing, Gauge)
        for each in kind
        if f"{kind.__name__}.{each.name}" not in used
    }
    assert not idle, f"nothing counts {idle}: count each, or remove it from oauthbroker/observability/metrics.py"


def test_names_are_the_usual_ones_and_count_what_only_grows() -> None:
    assert all(re.fullmatch(r"oauthbroker_[a-z_]+_total", metric) for metric in Metric)
    assert all(re.fullmatch(r"oauthbroker_[a-z_]+_seconds", timing) for timing in Timing)


def test_counts_stand_beside_each_other_by_label() -> None:
    metrics = Metrics()
    metrics.add(Metric.TOKENS_READY, "mail")
    metrics.add(Metric.TOKENS_READY, "mail")
    metrics.add(Metric.TOKENS_READY, "files")
    assert (2, 1, 0) == tuple(metrics.value(Metric.TOKENS_READY, label) for label in ("mail", "files", "team"))
    assert 0 == metrics.value(Metric.TOKEN_ERRORS, "mail")


def test_a_time_is_counted_in_the_first_bucket_that_holds_it() -> None:
    """Upper bounds belong to their buckets, as Prometheus reads them."""
    metrics = Metrics()
    for seconds in (0.0, SECONDS[0], SECONDS[0] * 1.01, SECONDS[-1] + 1):
        metrics.time(Timing.TOKEN_CALL, seconds, "ready")
    times = metrics.times[Timing.TOKEN_CALL, ("ready",)]
    assert ([2, 1], 1) == (times.buckets[:2], times.buckets[-1])
    assert 4 == metrics.timed(Timing.TOKEN_CALL, "ready")


def test_labels_without_end_are_one_label_in_the_end() -> None:
    metrics = Metrics()
    for number in range(MOST_SERIES + 10):
        metrics.add(Metric.TOKENS_READY, f"app-{number}")
    metrics.time(Timing.PROVIDER_REQUEST, 1.0, "app-x", "code")
    assert MOST_SERIES + 2 == len(metrics.counts) + len(metrics.times)
    assert 10 == metrics.value(Metric.TOKENS_READY, OTHER)
    assert 1 == metrics.timed(Timing.PROVIDER_REQUEST, OTHER, OTHER)
    metrics.add(Metric.TOKENS_READY, "app-0")
    assert 2 == metrics.value(Metric.TOKENS_READY, "app-0")


COUNTED = st.lists(st.tuples(st.sampled_from(list(Metric)), st.text(max_size=3)), max_size=20)
TIMED = st.lists(st.tuples(st.sampled_from(list(Timing)), st.floats(0, 100), st.text(max_size=3)), max_size=20)


@given(st.lists(st.tuples(COUNTED, TIMED), max_size=4))
def test_what_several_processes_noted_adds_up_to_what_one_would_have(
    shares: list[tuple[list[tuple[Metric, str]], list[tuple[Timing, float, str]]]],
) -> None:
    one, total = Metrics(), Metrics()
    for counted, timed in shares:
        mine = Metrics()
        for each in (one, mine):
            for metric, label in counted:
                each.add(metric, label)
            for timing, seconds, label in timed:
                each.time(timing, seconds, label)
        total.absorb(json.loads(json.dumps(mine.to_json())))
    assert one.counts == total.counts
    assert {key: times.buckets for key, times in one.times.items()} == {
        key: times.buckets for key, times in total.times.items()
    }


@pytest.mark.parametrize(
    "junk",
    [
        {},
        {"counts": 1, "times": []},
        {"counts": [["oauthbroker_tokens_ready_total", ["a"]]], "times": []},
        {"counts": []},
    ],
)
def test_figures_that_cannot_be_read_add_nothing(junk: dict[str, Any]) -> None:
    metrics = Metrics()
    with pytest.raises((ValueError, KeyError, TypeError)):
        metrics.absorb(junk)
    assert not metrics.counts


def test_figures_of_another_version_are_left_out() -> None:
    metrics = Metrics()
    metrics.absorb({"counts": [["oauthbroker_of_tomorrow_total", ["a"], 1]], "times": [["x_seconds", [], [], 1.0]]})
    assert not metrics.counts
    assert not metrics.times


STATUSES = ("1xx", "2xx", "3xx", "4xx", "5xx", "none")


@pytest.mark.case("92")
async def test_labels_are_apps_codes_events_and_agents_for_any_input_of_callers(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """A label comes from a closed set: labels cannot fill the memory, and no person can be read out of them."""
    app = user_app(identity_provider)
    apps = [replace(app, client=Client("client-mail", Secret("an-old-one"), later_secrets=app.client.secrets))]
    async with running(identity_provider, apps, clock=test_clock) as harness:
        await _everything(harness)
        seen = set(harness.broker.metrics.counts)
    disk = UnwellStore(test_clock)
    async with running(identity_provider, apps, clock=test_clock, store=disk, background=False) as harness:
        await _refreshes(harness, disk)
        seen |= set(harness.broker.metrics.counts)
    words = {"auth.granted", "auth.denied", "auth.failed", "auth.revoked", "mail", *get_args(Kind), *STATUSES}
    words |= {code.value for code in Code} | {
        "GET",
        "POST",
        "/connect/{ticket}",
        "/oauth/callback/mail",
        "/connected/{app}",
    }
    assert {label for _, labels in seen for label in labels} <= words
    of_others = {Metric.EVENTS_DEAD, Metric.EVENTS_FORWARDED, Metric.AUDIT_ENTRIES_MISSING, Metric.RECORDS_RESEALED}
    assert set(Metric) - of_others <= {metric for metric, _ in seen}
    assert all(len(metric.labels) == len(labels) for metric, labels in seen)


async def _everything(harness: Harness) -> None:
    for odd in ("no-such-app", "../mail", "mail\n", "m" * 1000):
        await harness.ask(odd)
    await harness.ask("mail", ["nonsense", "x"])
    await harness.ask(of=turn(user=None))
    await harness.connected()
    await harness.connect(await harness.ask_link(of=turn(user="idp:user:U345678")), "mallory")
    await harness.events(count=2)


async def _refreshes(harness: Harness, disk: UnwellStore) -> None:
    """One that is refused, and one that the disk does not take at first; then the grant ends soon."""
    refresh = harness.idp.script.refresh
    harness.idp.script.token.fields(refresh_token_expires_in=7200 + 86_400)
    await harness.connected()
    harness.clock.advance(3600)
    refresh.answer(500)
    assert isinstance(await harness.ask(), Failed)
    harness.clock.advance(10)

    def fill(found: dict[str, Any]) -> dict[str, Any]:
        disk.refuses = 1
        return found

    refresh.alter(fill)
    assert isinstance(await harness.ask(), Ready)
    while not harness.broker.metrics.value(Metric.REFRESHES, "mail"):
        await asyncio.sleep(0.001)
    harness.clock.advance(86_400)
    assert 1 == await harness.parts.expiring.run_pass(), "a notice that it ends"
