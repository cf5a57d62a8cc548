"""Who will have to consent again: a table, and the cases without a known answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oauthbroker.diagnostics.forecast import REASONS, AppFacts, Why
from oauthbroker.diagnostics.inspection import Inspection
from oauthbroker.model.settings import Limits
from oauthbroker.model.static_credential import Placement, StaticCredential
from oauthbroker.providers import presets
from oauthbroker.providers.preset import TokenLimit
from oauthbroker.records import RefreshState
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.refresh_state import Intent
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.samples import app_with
from tests.unit.diagnostics.kit import forecast
from tests.unit.records.kit import grant

NOW = datetime(2026, 2, 1, 9, tzinfo=UTC)
DAY = timedelta(days=1)
GRANT = GrantView.of(
    grant(registration="r1", scopes=("a", "b"), created_at=NOW - 100 * DAY, updated_at=NOW - 10 * DAY), None, NOW
)
APP = AppFacts(scopes=("a", "b"), registration="r1")
KEY = AppFacts(scopes=(), is_static=True)


def only(state: GrantView, app: AppFacts) -> tuple[Why, datetime | None, bool] | None:
    reported = forecast([state], {"slack-bot": app}, NOW)
    assert len(reported.outlooks) <= 1
    return (
        (reported.outlooks[0].why, reported.outlooks[0].when, reported.outlooks[0].certain)
        if reported.outlooks
        else None
    )


@pytest.mark.parametrize(
    ("changes", "app", "reported"),
    [
        ({}, APP, None),
        ({"refreshable": False, "expires_at": NOW + DAY}, APP, ("noRefreshToken", NOW + DAY, True)),
        ({"refreshable": False, "expires_at": NOW - DAY}, APP, ("noRefreshToken", NOW, True)),
        ({"refreshable": False, "expires_at": None}, APP, None),
        ({"refreshable": False, "ended": "dead", "expires_at": NOW + DAY}, APP, ("ended", NOW + DAY, True)),
        ({"refreshable": False, "ended": "quarantined", "expires_at": NOW + DAY}, APP, ("ended", NOW, True)),
        ({"registration": "r0"}, APP, ("registration", NOW, True)),
        ({"registration": "r0"}, replace(APP, registration=""), None),
        ({}, replace(APP, unused_days=60), ("disuse", NOW + 50 * DAY, False)),
        ({}, replace(APP, unused_days=5), ("disuse", NOW, False)),
        ({}, replace(APP, most_days=180), ("age", NOW + 80 * DAY, False)),
        ({}, replace(APP, most_days=180, unused_days=60), ("disuse", NOW + 50 * DAY, False)),
        ({}, replace(APP, most_days=120, unused_days=60), ("age", NOW + 20 * DAY, False)),
        ({}, replace(APP, scopes=("a", "b", "c")), ("scopes", None, False)),
        (
            {"refreshable": False, "expires_at": None},
            replace(APP, access_unused_days=30),
            ("disuse", NOW + 20 * DAY, False),
        ),
        (
            {"refreshable": False, "expires_at": None, "used_at": NOW - DAY},
            replace(APP, access_unused_days=30),
            ("disuse", NOW + 29 * DAY, False),
        ),
        (
            {"refreshable": False, "expires_at": None, "used_at": NOW - 99 * DAY},
            replace(APP, access_unused_days=5),
            ("disuse", NOW, False),
        ),
        ({}, replace(APP, access_unused_days=5), None),
        ({"refreshable": False, "expires_at": NOW + DAY}, KEY, ("life", NOW + DAY, True)),
        ({"refreshable": False, "expires_at": None}, KEY, None),
        ({"refreshable": False, "expires_at": None, "health": "again"}, KEY, ("rejected", NOW, True)),
        ({"revoked": True}, replace(APP, most_days=1), None),
        ({"alone": True}, replace(APP, most_days=1), None),
    ],
)
def test_the_first_that_comes_is_told(changes, app: AppFacts, reported):
    assert reported == only(replace(GRANT, **changes), app)


def test_a_key_has_nothing_of_what_its_provider_says_of_tokens():
    """GitHub keeps ten tokens of a user for one OAuth app, and ends one that is unused for a year."""
    credential = StaticCredential(fields=(), placement=Placement(kind="headers", texts={}))
    facts = AppFacts.of(replace(app_with(), credential=credential), presets()["github"])
    assert (None, None, None) == (facts.unused_days, facts.access_unused_days, facts.limit)
    assert facts.is_static


LIMITED = replace(APP, limit=TokenLimit(count=2, per="client"))


@pytest.mark.parametrize(
    ("changes", "app", "crowded"),
    [
        ({}, LIMITED, ["1"]),
        ({}, replace(APP, limit=TokenLimit(count=1, per="client")), ["1", "2"]),
        ({}, replace(APP, limit=TokenLimit(count=3, per="client")), []),
        ({}, APP, []),
        ({"authorized_by": "another"}, LIMITED, []),
        ({"registration": "r0"}, replace(LIMITED, registration=""), []),
        ({"scopes": ("a",)}, LIMITED, ["1"]),
        ({"scopes": ("b", "a")}, replace(APP, limit=TokenLimit(count=2, per="clientAndScopes")), ["1"]),
        ({"scopes": ("a",)}, replace(APP, scopes=("a",), limit=TokenLimit(count=2, per="clientAndScopes")), []),
        ({"revoked": True}, LIMITED, []),
    ],
)
def test_the_oldest_grants_of_an_account_beyond_what_its_provider_keeps_are_told(changes, app: AppFacts, crowded):
    """Of three grants of one person, made one after the other; the last one differs in what the row says."""
    grants = [
        replace(GRANT, subject=f"of-{age}", created_at=NOW - (9 - age) * DAY, authorized_by="p") for age in (1, 2, 3)
    ]
    reported = forecast([*grants[:2], replace(grants[2], **changes)], {"slack-bot": app}, NOW)
    assert [f"of-{age}" for age in crowded] == [it.subject for it in reported.outlooks if it.why == "crowded"]
    assert not [it for it in reported.outlooks if it.certain and it.why == "crowded"]


def test_grants_of_unconfigured_apps_are_in_no_forecast():
    assert () == forecast([GRANT], {}, NOW).outlooks


def test_the_soonest_come_first_and_what_waits_for_a_call_last():
    ends = replace(GRANT, refreshable=False)
    grants = [
        replace(ends, subject="later", expires_at=NOW + 9 * DAY),
        replace(GRANT, app="more", subject="step-up"),
        replace(ends, subject="sooner", expires_at=NOW + DAY),
    ]
    reported = forecast(grants, {"slack-bot": APP, "more": replace(APP, scopes=("c",))}, NOW)
    assert ["sooner", "later", "step-up"] == [it.subject for it in reported.outlooks]
    assert ["sooner"] == [it.subject for it in reported.within(NOW, 5)]


def test_unknown_ends_are_counted_by_app():
    grants = [GRANT, replace(GRANT, subject="b"), replace(GRANT, app="known"), replace(GRANT, refreshable=False)]
    reported = forecast(grants, {"slack-bot": APP, "known": replace(APP, unused_days=9)}, NOW)
    assert {"slack-bot": 2} == reported.unknown


def test_a_grants_state_has_the_needed_fields_and_no_token():
    versioned = grant(refresh_state=RefreshState(intent=Intent("x", NOW, lost=2), refused_at=NOW))
    state = GrantView.of(versioned, None, NOW)
    assert (2, NOW, True) == (state.lost, state.refused_at, state.refreshable)
    assert "printed" not in repr(state)


def test_every_reason_has_its_words():
    assert all(len(words) > 20 for words in REASONS.values())


@pytest.mark.parametrize(
    ("name", "days"),
    [
        ("spotify", (None, 180)),
        ("box", (60, None)),
        ("slack", (None, None)),
        ("google", (180, None)),
        ("atlassian", (90, 365)),
        ("intuit", (100, 1825)),
    ],
)
def test_presets_tell_how_long_refresh_tokens_live_where_it_is_known(name: str, days: tuple[int | None, int | None]):
    preset = presets()[name]
    assert days == (preset.refresh_token_idle_days, preset.refresh_token_days)


@pytest.mark.parametrize(
    ("name", "days", "limit"),
    [
        ("github", 365, TokenLimit(count=10, per="clientAndScopes")),
        ("google", None, TokenLimit(count=100)),
        ("salesforce", None, TokenLimit(count=5)),
        ("slack", None, None),
    ],
)
def test_presets_tell_how_many_tokens_a_provider_keeps_and_how_long_unused(name, days, limit):
    facts = AppFacts.of(app_with(), presets()[name])
    assert (days, limit) == (facts.access_unused_days, facts.limit)


async def test_a_diagnosis_knows_when_a_grant_that_nothing_refreshes_was_used_last() -> None:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    repository = Repository(store)
    refreshable = grant()
    assert refreshable.token is not None
    unrefreshable = grant(subject="x", token=replace(refreshable.token, refresh_token=None))
    for each in (refreshable, unrefreshable):
        await repository.save_grant(each, expect=0)
        await repository.records("uses", GrantUse.from_plaintext).add(GrantUse.first(each.id, "planner", None, NOW))
    unused: Any = None
    inspection = Inspection(
        repository=repository, age=unused, keys=unused, kinds=KINDS, clock=TestClock(), limits=Limits()
    )
    assert {True: None, False: NOW} == {it.refreshable: it.used_at async for it in inspection.grants()}
    assert {None} == {it.used_at async for it in replace(inspection, kinds=()).grants()}


def test_a_forecast_of_many_names_the_first_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oauthbroker.diagnostics.forecast.MOST", 3)
    ends = [NOW + number * DAY for number in (9, 2, 7, 1, 5, 3, 8, 4)]
    grants = [replace(GRANT, subject=str(end), refreshable=False, expires_at=end) for end in ends]
    found = forecast(grants, {"slack-bot": APP}, NOW)
    assert ([NOW + DAY, NOW + 2 * DAY, NOW + 3 * DAY], 8) == ([it.when for it in found.outlooks], found.count)
    assert (True, False) == (found.names_all_within(NOW, 2), found.names_all_within(NOW, 3))
