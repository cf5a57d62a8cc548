"""What a call is answered with once it is decided: after a refresh, with the team's credential, or with a link."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Settings
from oauthbroker.model.static_credential import CredentialField, Placement, StaticCredential, packed
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.records import AuthSession, Grant
from oauthbroker.records.device_authorization import Device
from oauthbroker.refresh.writeback import Refreshed
from oauthbroker.testing import TestClock
from oauthbroker.tokens.call_decisions import CallDecisions
from oauthbroker.tokens.consent_requests import ConsentRequests
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.tokens.token_call import Caller, Calls, TokenCall
from tests.kit.running_broker import ALICE, turn
from tests.kit.samples import NOW, app_with, grant_with, session_with, token_with

BASE = "https://broker.example"
APP = app_with()
KEYS = StaticCredential(
    fields=(CredentialField(name="key", title="Key"),),
    placement=Placement(kind="headers", texts={"X-Api-Key": "{key}"}),
)
REPORTED = grant_with(registration=APP.registration, token=token_with(refresh_token=Secret("a-refresh-token")))


class Manager(SimpleNamespace):
    """The parts of a manager that its answer needs, around one stored grant and one result of a refresh."""

    def __init__(self, stored: Grant | None, *, team: Grant | None = None, refreshed: Refreshed | None = None) -> None:
        async def newest(*_: object) -> Any:
            return None if stored is None else SimpleNamespace(record=stored), False

        async def refresh(_: object) -> Refreshed:
            assert refreshed is not None
            return refreshed

        async def grant(*_: object) -> Grant | None:
            return team

        clock = TestClock(NOW, frozen=True)
        super().__init__(
            clock=clock,
            decisions=CallDecisions(settings=Settings(), clock=clock),
            _newest=newest,
            refresh=SimpleNamespace(refresh=refresh),
            team=SimpleNamespace(grant=grant),
            repository=SimpleNamespace(opened_here=OpenedHere()),
        )

    async def _without_grant(self, *given: Any) -> Any:
        return await OAuthManager._without_grant(cast("Any", self), *given)

    async def answer(self, call: TokenCall) -> Code:
        with pytest.raises(BrokerError) as refused:
            await OAuthManager._answer(cast("Any", self), Caller(turn(ALICE)), call, cast("Any", None))
        return refused.value.code


def call() -> TokenCall:
    found = Calls({"mail": APP}, 300).validate(Caller(turn(ALICE)), "mail", ["read"])
    assert REPORTED.token is not None
    return found._replace(rejected=REPORTED.token.access_token)


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, Code.TOKEN_UNCHANGED), (BrokerError(Code.PROVIDER_UNREACHABLE), Code.PROVIDER_UNREACHABLE)],
    ids=["the same token again", "the provider is away"],
)
async def test_a_reported_token_that_a_refresh_left_in_place_is_not_handed_out_again(
    error: BrokerError | None, code: Code
) -> None:
    assert code is await Manager(REPORTED, refreshed=Refreshed(REPORTED, error)).answer(call())


async def test_a_team_credential_that_the_api_refused_is_told_as_unchanged_and_not_as_a_refresh_under_way() -> None:
    asked = call().with_app(replace(APP, credential=KEYS))
    token = replace(token_with(), access_token=packed({"key": "a-key"}))
    team = grant_with(registration=asked.app.registration, token=token)
    asked = asked._replace(rejected=token.access_token)
    assert Code.TOKEN_UNCHANGED is await Manager(None, team=team).answer(asked)


@pytest.mark.parametrize("apart", [False, True])
async def test_a_code_to_type_stands_in_the_answer_unless_links_are_delivered_privately(apart: bool) -> None:
    device = Device(
        code=Secret("a-code"),
        user_code="WDJB-MJHT",
        verification_uri="https://acme.example/activate",
        verification_uri_complete=None,
        interval=5,
        next_poll_at=NOW,
    )
    session = session_with(device=device, config_digest=APP.config_digest)

    async def open_session(*_: object) -> AuthSession:
        return session

    metrics, nothing = Metrics(), cast("Any", None)
    consent_requests = ConsentRequests(
        opening=cast("Any", SimpleNamespace(open_session=open_session)),
        authorization_urls=nothing,
        metrics=metrics,
        settings=Settings(public_base_url=BASE),
    )
    caller = Caller(turn(ALICE), private_links=apart)
    asked = await consent_requests.ask(caller, call(), None, "noGrant", lambda _: True)
    assert asked is not None
    assert session.ticket is not None
    link = f"{BASE}/connect" if apart else f"{BASE}/connect/{session.ticket.reveal()}"
    assert (None if apart else device.prompt, link) == (asked.device_code, asked.authorization_url)
    assert 1 == metrics.value(Metric.AUTHORIZATIONS_REQUIRED, "mail")
