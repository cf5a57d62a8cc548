"""Lines 5 to 11 of a token call, one after another: which answer each state of a grant leads to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.scope_ceiling import ScopeNeed
from oauthbroker.records import Grant, RefreshState, Token
from oauthbroker.records.open_facts import Candidate, OpenFacts
from oauthbroker.records.refresh_state import Intent
from oauthbroker.refresh.writeback import Refreshed
from oauthbroker.tokens.decision import (
    Decision,
    Need,
    RefreshToken,
    Refuse,
    RequestConsent,
    UseToken,
    decide,
    is_early,
    settle,
    step_up,
)
from tests.kit.samples import NOW, app_with, grant_with, token_with

USE, DEGRADED, REFRESH = UseToken(degraded=False), UseToken(degraded=True), RefreshToken()
UNSATISFIABLE = Refuse(Code.MIN_TTL_UNSATISFIABLE)
EXPIRED, UNCERTAIN = RequestConsent("expired"), RequestConsent("refreshUncertain")
RESTS = NOW + timedelta(seconds=300)
INTENT = Intent("an-attempt", NOW)
CHOICE = OpenFacts(
    candidates=(Candidate(label="Acme", facts={"site": "1"}), Candidate(label="Beta", facts={"site": "2"}))
)


def need(*scopes: str, ttl: int | None = None, **changes: Any) -> Need:
    fields: dict[str, Any] = {"scopes": frozenset(scopes or ("read",)), "ttl": ttl, "default_ttl": 60}
    return Need(**{**fields, **changes})


def refreshable(lives: float | None = 3600, lifetime: int | None = 3600, **state: Any) -> Grant:
    token = token_with(lives, lifetime, refresh_token=Secret("rt"))
    return grant_with(token=token, refresh_state=RefreshState(**state))


def unrefreshable(lives: float | None = 3600, lifetime: int | None = 3600, **state: Any) -> Grant:
    return grant_with(token=token_with(lives, lifetime), refresh_state=RefreshState(**state))


@pytest.mark.parametrize(
    ("lifetime", "asked", "expected"),
    [(3600, None, 60), (120, None, 60), (100, None, 50), (None, None, 60), (3600, 10, 10), (100, 90, 90), (3600, 0, 0)],
)
def test_a_token_must_still_live_for_the_callers_minimum_or_the_default(
    lifetime: int | None, asked: int | None, expected: float
) -> None:
    """The default is lowered to half the lifetime of a short-lived token."""
    assert expected == need(ttl=asked).enough(token_with(lifetime=lifetime))


# A grant of a user. Each row: grant, need, the answer.
BY_LINE: dict[str, tuple[Grant | None, Need, Decision]] = {
    "no grant": (None, need(), RequestConsent("noGrant")),
    "made with another client": (grant_with(registration="other"), need(), RequestConsent("noGrant")),
    "the app has another client now": (grant_with(), need(registration="new"), RequestConsent("noGrant")),
    "made with the client that the app has": (grant_with(registration="new"), need(registration="new"), USE),
    "revoked": (grant_with(revoked=True), need(), RequestConsent("revoked")),
    "without a token": (grant_with(token=None), need(), RequestConsent("revoked")),
    "quarantined": (refreshable(ended="quarantined"), need(), RequestConsent("revoked")),
    "its key was rejected": (grant_with(rejected=True), need(), RequestConsent("keyRejected")),
    "one of several sites must be chosen": (grant_with(open_facts=CHOICE), need(), RequestConsent("choiceNeeded")),
    "a fact is missing, and there is no choice": (grant_with(open_facts=OpenFacts(missing=("site",))), need(), USE),
    "a scope is missing": (grant_with(), need("read", "write"), RequestConsent("scopes")),
    "the missing scope was declined": (
        grant_with(declined={"write": 1}), need("read", "write"), RequestConsent("scopesDeclined"),
    ),
    "another scope was declined": (grant_with(declined={"admin": 1}), need("write"), RequestConsent("scopes")),
    "a declined scope is not needed": (grant_with(declined={"admin": 1}), need("read"), USE),
    "a scope is missing of an expired token": (refreshable(0), need("write"), RequestConsent("scopes")),
    "fresh": (refreshable(), need(), USE),
    "it never ends": (unrefreshable(None, None), need(), USE),
    "a second more than needed": (refreshable(61), need(), USE),
    "just too short": (refreshable(60), need(), REFRESH),
    "just too short for the caller": (refreshable(600), need(ttl=600), REFRESH),
    "long enough for the caller": (refreshable(601), need(ttl=600), USE),
    "fresh, dead refresh token": (refreshable(ended="dead"), need(), USE),
    "more than any token lives": (refreshable(), need(ttl=3600), UNSATISFIABLE),
    "a second less than a token lives": (refreshable(3000), need(ttl=3599), REFRESH),
    "more than any token lives, and it is expired": (refreshable(0), need(ttl=3600), REFRESH),
    "more than any token lives, and it has a second left": (refreshable(1), need(ttl=3600), UNSATISFIABLE),
    "the same without a refresh token": (unrefreshable(0), need(ttl=3600), UNSATISFIABLE),
    "an unknown lifetime is tried": (refreshable(100, None), need(ttl=3600), REFRESH),
    "expired": (refreshable(0), need(), REFRESH),
    "expired, refresh token resting": (refreshable(0, rests_until=RESTS), need(), EXPIRED),
    "expired, rest over": (refreshable(0, rests_until=NOW), need(), REFRESH),
    "expired, no refresh token": (unrefreshable(0), need(), EXPIRED),
    "expired, refresh token dead": (refreshable(0, ended="dead"), need(), EXPIRED),
    "expired, an answer was lost": (refreshable(0, ended="uncertain"), need(), UNCERTAIN),
    "resting after a lost answer": (refreshable(0, rests_until=RESTS, intent=INTENT), need(), UNCERTAIN),
    "short, no refresh token": (unrefreshable(30), need(), DEGRADED),
    "a second left, no refresh token": (unrefreshable(1), need(), DEGRADED),
    "short for the caller, no refresh token": (unrefreshable(30), need(ttl=60), EXPIRED),
    "short, and refreshing has ended": (refreshable(30, ended="dead"), need(), EXPIRED),
    "short, refresh token resting": (refreshable(30, rests_until=RESTS), need(), DEGRADED),
}  # fmt: skip


@pytest.mark.parametrize(("grant", "asked", "expected"), BY_LINE.values(), ids=BY_LINE)
def test_the_first_line_that_matches_wins(grant: Grant | None, asked: Need, expected: Decision) -> None:
    assert expected == decide(grant, asked, NOW)


FUTURE = NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    ("grant", "alone", "expected"),
    [
        (replace(refreshable(3700), updated_at=FUTURE), False, REFRESH),
        (replace(unrefreshable(3700), updated_at=FUTURE), False, DEGRADED),
        (replace(unrefreshable(3700), updated_at=FUTURE), True, REFRESH),
    ],
)
def test_a_token_from_before_the_clock_was_set_back_is_not_taken_for_fresh(
    grant: Grant, alone: bool, expected: Decision
) -> None:
    assert expected == decide(grant, need(alone=alone), NOW)


# Client credentials: no user is asked.
ASKED = RefreshState(asked=("read", "write"))
ALONE: dict[str, tuple[Grant | None, Need, Decision]] = {
    "no grant": (None, need(), REFRESH),
    "made with another client": (grant_with(registration="other"), need(), REFRESH),
    "revoked": (grant_with(revoked=True), need(), REFRESH),
    "without a token": (grant_with(token=None), need(), REFRESH),
    "fresh": (grant_with(), need(), USE),
    "fresh, with its client": (grant_with(registration="new"), need(registration="new"), USE),
    "a scope was never asked for": (grant_with(), need("write"), REFRESH),
    "a scope was asked for and not granted": (
        grant_with(refresh_state=ASKED), need("write"), Refuse(Code.SCOPE_INSUFFICIENT),
    ),
    "one of two was asked for": (grant_with(refresh_state=ASKED), need("write", "admin"), REFRESH),
    "just too short": (unrefreshable(60), need(), REFRESH),
    "long enough": (unrefreshable(61), need(), USE),
    "more than any token lives": (unrefreshable(), need(ttl=3600), UNSATISFIABLE),
    "more than any token lives, and it is expired": (unrefreshable(0), need(ttl=3600), REFRESH),
    "more than any token lives, and it has a second left": (unrefreshable(1), need(ttl=3600), UNSATISFIABLE),
    "less than a token lives": (unrefreshable(100), need(ttl=3599), REFRESH),
    "an unknown lifetime": (unrefreshable(100, None), need(ttl=3600), REFRESH),
}  # fmt: skip


@pytest.mark.parametrize(("grant", "asked", "expected"), ALONE.values(), ids=ALONE)
def test_client_credentials_ask_the_provider_and_no_user(grant: Grant | None, asked: Need, expected: Decision) -> None:
    assert expected == decide(grant, asked._replace(alone=True), NOW)


@pytest.mark.parametrize(
    ("token", "ttl", "expected"),
    [
        (token_with(1801), 3000, True),
        (token_with(1800), 3000, False),
        (token_with(1801), None, False),
        (token_with(1801), 0, True),
        (None, 3000, False),
        (token_with(1801, None), 3000, False),
        (token_with(61, 100), 90, True),
        (token_with(60, 100), 90, False),
        (token_with(None, 100), 90, True),
    ],
)
def test_a_token_is_early_for_half_its_lifetime_and_at_least_the_default(
    token: Token | None, ttl: int | None, expected: bool
) -> None:
    assert expected is is_early(grant_with(token=token), need(ttl=ttl), NOW)


# After an attempt to refresh.
DOWN = BrokerError(Code.PROVIDER_UNREACHABLE, retry_after_seconds=7)
REFUSED_DOWN = Refuse(Code.PROVIDER_UNREACHABLE, 7)
MISMATCH = BrokerError(Code.SUBJECT_MISMATCH)
SETTLED: dict[str, tuple[Refreshed, Need, Decision]] = {
    "refreshed": (Refreshed(refreshable()), need(), USE),
    "no grant and an error": (Refreshed(None, DOWN), need(), REFUSED_DOWN),
    "no grant and no error": (Refreshed(None), need(), RequestConsent("noGrant")),
    "another account answered": (Refreshed(refreshable(), MISMATCH), need(), Refuse(Code.SUBJECT_MISMATCH)),
    "fresh meanwhile, and an error": (Refreshed(refreshable(), DOWN), need(), USE),
    "ended": (Refreshed(refreshable(0, ended="dead"), BrokerError(Code.REAUTH_REQUIRED)), need(), EXPIRED),
    "down, and the token lives": (Refreshed(refreshable(30), DOWN), need(), DEGRADED),
    "down, and the token lives too short for the caller": (Refreshed(refreshable(30), DOWN), need(ttl=60), REFUSED_DOWN),
    "down, and the token has a second left": (Refreshed(refreshable(1), DOWN), need(), DEGRADED),
    "down, and the token is over": (Refreshed(refreshable(0), DOWN), need(), REFUSED_DOWN),
    **{
        f"an answer that is {code.value}, and the token is over": (
            Refreshed(refreshable(0), BrokerError(code, retry_after_seconds=7)), need(), REFUSED_DOWN,
        )
        for code in (Code.TOKEN_RESPONSE_INVALID, Code.ID_TOKEN_INVALID, Code.SCOPE_EXCEEDED)
    },
    "given up, and its rest is over": (Refreshed(refreshable(0, rests_until=NOW), DOWN), need(), EXPIRED),
    "given up after a lost answer": (
        Refreshed(refreshable(0, rests_until=NOW, intent=INTENT), DOWN), need(), UNCERTAIN,
    ),
    "given up, and the token lives": (Refreshed(refreshable(30, rests_until=NOW), DOWN), need(), DEGRADED),
    "a new token shorter than the caller's minimum": (Refreshed(refreshable(30, 7200)), need(ttl=60), UNSATISFIABLE),
    "a new token that was over when it came": (
        Refreshed(refreshable(0)), need(), Refuse(Code.PROVIDER_UNREACHABLE, 1),
    ),
    "a new token issued for no time": (Refreshed(refreshable(0, 0)), need(), Refuse(Code.PROVIDER_UNREACHABLE, 1)),
    "a new token whose lifetime is unknown": (
        Refreshed(refreshable(0, None)), need(), Refuse(Code.PROVIDER_UNREACHABLE, 1),
    ),
    "client credentials, no grant, no error": (
        Refreshed(None), need(alone=True), Refuse(Code.PROVIDER_UNREACHABLE, 1),
    ),
    "client credentials, the grant was revoked": (
        Refreshed(replace(unrefreshable(30), revoked=True)), need(alone=True), Refuse(Code.PROVIDER_UNREACHABLE, 1),
    ),
    "client credentials, a scope is missing and down": (
        Refreshed(unrefreshable(), DOWN), need("write", alone=True), REFUSED_DOWN,
    ),
    "client credentials, a scope is missing": (
        Refreshed(unrefreshable()), need("write", alone=True), Refuse(Code.PROVIDER_UNREACHABLE, 1),
    ),
    "client credentials, down and the token lives": (Refreshed(unrefreshable(30), DOWN), need(alone=True), DEGRADED),
}  # fmt: skip


@pytest.mark.parametrize(("refreshed", "asked", "expected"), SETTLED.values(), ids=SETTLED)
def test_after_a_refresh_a_living_token_is_better_than_an_error(
    refreshed: Refreshed, asked: Need, expected: Decision
) -> None:
    assert expected == settle(refreshed, asked, NOW)


WRITE = ScopeNeed(frozenset({"write"}), ("write",))


@pytest.mark.parametrize(
    ("grant", "reason", "expected"),
    [
        (grant_with(), "scopes", ("read", "write")),
        (None, "scopes", ("write",)),
        (grant_with(revoked=True), "revoked", ("write",)),
        (grant_with(), "noGrant", ("write",)),
        (grant_with(scopes=("gone",)), "scopes", ("write",)),
    ],
)
def test_a_step_up_asks_for_the_granted_scopes_too(grant: Grant | None, reason: Any, expected: tuple[str, ...]) -> None:
    assert expected == step_up(app_with(), WRITE, grant, reason)
