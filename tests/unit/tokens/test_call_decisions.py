"""How a call is decided by its grant, beside the token itself: a new account, demanded claims, a kept connection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oauthbroker.model.settings import Settings
from oauthbroker.records import Grant
from oauthbroker.testing import TestClock
from oauthbroker.tokens.call_decisions import CallDecisions
from oauthbroker.tokens.consent_requests import _is_kept
from oauthbroker.tokens.decision import Decision, RequestConsent
from oauthbroker.tokens.token_call import Caller, Calls, TokenCall
from tests.kit.running_broker import ALICE, turn
from tests.kit.samples import NOW, app_with, grant_with

APP = app_with()
LIVE = grant_with(scopes=("read", "write"), registration=APP.registration)
REVOKED = replace(LIVE, revoked=True)


def call(*scopes: str) -> TokenCall:
    return Calls({"mail": APP}, 300).validate(Caller(turn(ALICE)), "mail", scopes or None)


@pytest.mark.parametrize(
    ("grant", "switches", "kept"),
    [(LIVE, False, True), (LIVE, True, False), (REVOKED, False, False), (None, False, False)],
)
def test_a_consent_asks_for_the_same_connection_unless_it_was_revoked_or_another_account_is_wanted(
    grant: Grant | None, switches: bool, kept: bool
) -> None:
    assert kept is _is_kept(call()._replace(switch_account=switches), grant)


@pytest.mark.parametrize(
    ("grant", "asked", "answer"),
    [
        (LIVE, ("read",), RequestConsent("expired")),
        (replace(LIVE, scopes=("read",)), ("write",), RequestConsent("scopes")),
        (REVOKED, ("read",), RequestConsent("revoked")),
    ],
)
def test_claims_that_an_api_demands_ask_the_user_again_and_the_reason_stays_that_of_the_grant(
    grant: Grant, asked: tuple[str, ...], answer: Decision
) -> None:
    assert grant.token is not None
    demanded = call(*asked)._replace(claims='{"access_token": {}}', rejected=grant.token.access_token)
    decisions = CallDecisions(settings=Settings(), clock=TestClock(NOW))
    assert answer == decisions.decide(demanded, grant)
