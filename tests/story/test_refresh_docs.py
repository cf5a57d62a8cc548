"""docs/refresh.md and refresh-results.md are held to the product: every row of the table is played, and answers exactly what
the page says."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metric
from oauthbroker.records import Intent
from oauthbroker.records.refresh_state import LONGEST_REST, UNCLEAR_SECONDS
from oauthbroker.refresh import background
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.refresh.refusal_assessment import LONG_SECONDS
from oauthbroker.refresh.retry_store import FIRST_PAUSES, LONGEST_PAUSE
from oauthbroker.refresh.suspects import ALL
from oauthbroker.refresh.transaction import PROVIDER_CALLS
from oauthbroker.store.postgres.contact import LEASE_SECONDS, grace_of
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.story import (  # noqa: F401 - the scenarios register themselves in SCENARIOS
    refresh_docs_scenarios,
    refresh_docs_scenarios_provider,
)
from tests.story.refresh_docs import (
    DOCS,
    LIMITS,
    PAGE,
    RESULTS,
    SCENARIOS,
    SHOWN,
    LastingStore,
    Scenario,
    reported,
    told,
    written,
)

NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)
PLAYED = [
    pytest.param(row, scenario, id=f"{row} {number}")
    for row, scenarios in SCENARIOS.items()
    for number, scenario in enumerate(scenarios)
]


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """Nothing runs in the background, and the disk fails when it is told to."""
    app, disk = user_app(identity_provider), LastingStore(test_clock)
    async with running(
        identity_provider, [app], clock=test_clock, store=disk, limits=LIMITS, background=False
    ) as harness:
        yield harness


def test_every_scenario_has_its_row_and_the_page_has_exactly_these_rows() -> None:
    assert len(SHOWN) > 30
    assert set(SHOWN) == set(SCENARIOS)
    page = RESULTS.read_text("utf-8")
    assert written(page) == page, "make cases"


@pytest.mark.sample(30)
@pytest.mark.parametrize("row, scenario", PLAYED)
async def test_a_row_of_the_table_is_what_happens(harness: Harness, row: str, scenario: Scenario) -> None:
    expected, person = told(row), SHOWN[row][1]
    before = [versioned.record.id async for versioned in harness.repository.sessions()]
    assert [] == before
    assert expected == [reported(answer) for answer in await scenario(harness)]
    asked = any("authorization_required" in words for words in expected)
    assert ("a link" in person) is asked
    assert (person == "nothing") is not asked
    waiting = [
        versioned.record.id async for versioned in harness.repository.sessions() if versioned.record.status == "pending"
    ]
    assert len(waiting) == (1 if asked else 0)


OWN = {"refreshInProgress", "storeUnavailable", "rateLimited", "minTtlUnsatisfiable"}  # errors that no provider caused
PLAYED_ELSEWHERE = {"somebody_else_beside_the_token"}  # in a broker of its own
FAILING = [
    pytest.param(row, scenario, id=f"{row} {number}")
    for row, scenarios in SCENARIOS.items()
    for number, scenario in enumerate(scenarios)
    if told(row)[0][0] == "error" and told(row)[0][1] not in OWN and scenario.__name__ not in PLAYED_ELSEWHERE
    if "gives the same token again" not in row  # such a refresh has worked: the caller alone can tell
]


@pytest.mark.parametrize("row, scenario", FAILING)
async def test_each_way_in_which_a_provider_fails_a_refresh_is_in_log_and_metrics(
    harness: Harness, row: str, scenario: Scenario
) -> None:
    await scenario(harness)
    counts = harness.broker.metrics.counts
    assert sum(times for (metric, _), times in counts.items() if metric is Metric.REFRESH_FAILURES)
    lines = [json.loads(line) for line in harness.log.getvalue().splitlines()]
    assert [it for it in lines if it["level"] in {"warning", "error"} and it.get("code") and it.get("app") == "mail"]


def test_the_numbers_on_the_page_are_the_numbers_in_the_code() -> None:
    limits, troubleshooting = Limits(), DOCS.joinpath("troubleshooting.md").read_text("utf-8")
    intents = Intent("", NOON), Intent("", NOON, 100, noticed=True), Intent("", NOON, 100)
    assert [1, 300, 8] == [intent.retry_at.timestamp() - NOON.timestamp() for intent in intents]
    assert "; up to 8 s where our own process died" in PAGE
    assert "and again five minutes later" in PAGE
    assert 300 == UNCLEAR_SECONDS
    assert "1 s, then twice as long each time, up to 5 min" in PAGE
    assert (5, "five times `limits.providerSeconds`" in PAGE) == (PROVIDER_CALLS, True)
    assert f"`limits.rejectionsPerHour` times ({limits.rejections_per_hour})" in PAGE
    assert f"or {limits.default_min_ttl_seconds} s if it says nothing" in PAGE
    assert (5, True) == (LONGEST_PAUSE, max(FIRST_PAUSES) < LONGEST_PAUSE < grace_of(LEASE_SECONDS))
    assert "as long as it lives, at least every five seconds" in troubleshooting
    assert (24, "At most 24 are refreshed at once" in PAGE) == (background.AT_ONCE, True)


async def test_three_failures_to_connect_open_the_circuit_for_as_long_as_the_page_says() -> None:
    clock = TestClock(seed=1)
    circuits = Circuits(clock)
    assert "open it for 1 s and then longer and longer, up to 5 s" in PAGE
    for _ in range(2):
        circuits.failed("files", BrokerError(Code.PROVIDER_UNREACHABLE))
    assert 0 == circuits.pause("files")
    circuits.failed("files", BrokerError(Code.PROVIDER_UNREACHABLE))
    assert 0 < circuits.pause("files") <= 1
    for _ in range(20):
        circuits.failed("files", BrokerError(Code.PROVIDER_UNREACHABLE))
    assert 2.5 <= circuits.pause("files") <= 5


async def test_failures_of_grants_pause_for_as_long_as_the_page_says() -> None:
    circuits, down = Circuits(TestClock(seed=1)), BrokerError(Code.PROVIDER_UNREACHABLE)
    assert "three failures in a row for 1 s and then longer and longer, up to 15 s, a refusal up to a minute" in PAGE
    for _ in range(20):
        circuits.failed("mail", down, "one", own=True)
        circuits.failed("mail", BrokerError(Code.APP_MISCONFIGURED), "two", own=True)
    assert 7.5 <= circuits.pause("mail", "one") <= 15
    assert 30 <= circuits.pause("mail", "two") <= 60
    assert f"when {ALL} grants have failed within a minute and none has worked: at first for 1 s" in PAGE
    for number in range(ALL):
        assert 0 == circuits.pause("mail", "another")
        circuits.failed("mail", down, f"{number}", own=True)
    assert 0 < circuits.pause("mail", "another") <= 1


def test_the_table_of_assessments_has_the_numbers_of_the_code() -> None:
    assert (300, 3600, 3600) == (UNCLEAR_SECONDS, LONG_SECONDS, LONGEST_REST)
    for words in ("after 5 minutes, a link", "after an hour, a link", "at most once an hour"):
        assert words in PAGE


async def test_the_tool_of_the_page_does_what_its_test_on_the_page_says(harness: Harness) -> None:
    space: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/refresh.md", "exec"), space)  # noqa: S102 - the page's code is under test
    await harness.connected()
    await space["test_my_tool_survives_the_night"](harness.idp, harness.clock, harness.broker, turn())


if __name__ == "__main__":  # make cases
    RESULTS.write_text(written(RESULTS.read_text("utf-8")), "utf-8")
