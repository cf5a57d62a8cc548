"""Who will have to agree again: a table, and what is left open where nobody knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from oauthbroker.checkup.forecast import REASONS, AppFacts, GrantState, Why, forecast
from oauthbroker.providers import presets
from oauthbroker.records import Renewal
from oauthbroker.records.renewal import Intent
from tests.unit.records_kit import grant

NOW = datetime(2026, 2, 1, 9, tzinfo=UTC)
DAY = timedelta(days=1)
GRANT = GrantState.of(
    grant(registration="r1", scopes=("a", "b"), created_at=NOW - 100 * DAY, updated_at=NOW - 10 * DAY)
)
APP = AppFacts(("a", "b"), "r1")


def only(state: GrantState, app: AppFacts) -> tuple[Why, datetime | None, bool] | None:
    told = forecast([state], {"slack-bot": app}, NOW)
    assert len(told.outlooks) <= 1
    return (told.outlooks[0].why, told.outlooks[0].when, told.outlooks[0].certain) if told.outlooks else None


@pytest.mark.parametrize(
    ("changes", "app", "told"),
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
        ({"revoked": True}, replace(APP, most_days=1), None),
        ({"alone": True}, replace(APP, most_days=1), None),
    ],
)
def test_the_first_that_comes_is_told(changes, app: AppFacts, told):
    assert told == only(replace(GRANT, **changes), app)


def test_grants_of_apps_that_are_not_configured_are_nobodys_forecast():
    assert () == forecast([GRANT], {}, NOW).outlooks


def test_the_soonest_come_first_and_what_waits_for_a_call_last():
    ends = replace(GRANT, refreshable=False)
    grants = [
        replace(ends, subject="later", expires_at=NOW + 9 * DAY),
        replace(GRANT, app="more", subject="step-up"),
        replace(ends, subject="sooner", expires_at=NOW + DAY),
    ]
    told = forecast(grants, {"slack-bot": APP, "more": replace(APP, scopes=("c",))}, NOW)
    assert ["sooner", "later", "step-up"] == [it.subject for it in told.outlooks]
    assert ["sooner"] == [it.subject for it in told.within(NOW, 5)]


def test_what_nobody_knows_is_counted_by_app():
    grants = [GRANT, replace(GRANT, subject="b"), replace(GRANT, app="known"), replace(GRANT, refreshable=False)]
    told = forecast(grants, {"slack-bot": APP, "known": replace(APP, unused_days=9)}, NOW)
    assert {"slack-bot": 2} == told.unknown


def test_a_grants_state_has_what_is_looked_at_and_no_token():
    held = grant(renewal=Renewal(intent=Intent("x", NOW, lost=2), refused_at=NOW))
    state = GrantState.of(held)
    assert (2, NOW, True) == (state.lost, state.refused_at, state.refreshable)
    assert "printed" not in repr(state)


def test_every_reason_has_its_words():
    assert all(len(words) > 20 for words in REASONS.values())


@pytest.mark.parametrize(("name", "days"), [("spotify", (None, 180)), ("box", (60, None)), ("slack", (None, None))])
def test_presets_tell_how_long_refresh_tokens_live_where_it_is_known(name: str, days: tuple[int | None, int | None]):
    preset = presets()[name]
    assert days == (preset.refresh_token_idle_days, preset.refresh_token_days)
