"""Tokens of an answer that is refused after a consent: revoked at once, later, or not at all where that would end a
living grant (case 53)."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.audit import TokensDropped
from oauthbroker.core.secret import Secret
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.running_broker import device_app, running, user_app
from tests.story.mcp_apps_kit import mcp_app, mcp_site
from tests.story.revocation_kit import grant_of

WHOLE = {"access_token": "issued-access", "refresh_token": "issued-refresh", "token_type": "bearer"}
PAGE = {"content-type": "text/html"}


async def again(process: Process, idp: IdentityProvider, status: int) -> None:
    asked = await ask(process, switch_account=True)
    assert isinstance(asked, AuthorizationRequired)
    assert status == await complete(process, idp, asked)


def reported(idp: IdentityProvider) -> list[Any]:
    sent = [request.form["token"] for request in idp.seen("revoke")]
    return [token.reveal() if isinstance(token, Secret) else token for token in sent]


def dropped(process: Process) -> list[bool]:
    entries: Any = process.parts.audit
    return [entry.revoked for entry in entries.entries if isinstance(entry, TokensDropped)]


@pytest.mark.case("20")
async def test_a_refused_answer_at_an_mcp_server_is_revoked(identity_provider: IdentityProvider, test_clock: TestClock):
    identity_provider.takes_clients = True
    async with mcp_site(identity_provider) as site:
        app = mcp_app(site, revocation=Revocation(reach="token"))
        async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
            asked = await harness.ask_link()
            identity_provider.script.token.answer(200, WHOLE, PAGE)
            await harness.connect(asked)
            assert await harness.grant() is None
            assert ["issued-refresh", "issued-access"] == reported(identity_provider)


@pytest.mark.case("20")
async def test_a_refused_answer_to_a_device_code_is_revoked_and_ends_the_polls(start, identity_provider):
    process = start([device_app(identity_provider)])
    asked = await ask(process, "tv")
    identity_provider.script.poll.answer(200, {"refresh_token": "issued-refresh", "token_type": "bearer"})
    process.clock.advance(10)
    await process.parts.polling.once()
    assert ["issued-refresh"] == reported(identity_provider)
    assert "failed" == (await process.broker.wait(asked.auth_session_id, timeout=0)).status


@pytest.mark.case("53")
async def test_a_provider_that_is_down_is_told_later_where_the_person_has_a_record(start, identity_provider):
    process = start([user_app(identity_provider)])
    ready = await connected(process, identity_provider)
    identity_provider.script.token.answer(200, WHOLE, PAGE)
    identity_provider.script.revoke.answer(503, times=FOREVER)
    await again(process, identity_provider, 502)
    assert [False] == dropped(process)
    identity_provider.script.revoke.reset()
    process.clock.advance(120)
    asked = identity_provider.count("revoke")
    await process.parts.bulk_revocation.run_pass()
    assert ["issued-refresh", "issued-access"] == reported(identity_provider)[asked:]
    assert identity_provider.is_alive(ready.access_token)
    assert not (await grant_of(process)).revocation_pending


@pytest.mark.case("53")
async def test_a_refused_answer_that_repeats_a_living_grants_token_ends_nothing(start, identity_provider):
    process = start([user_app(identity_provider)])
    ready = await connected(process, identity_provider)
    token = (await grant_of(process)).token
    assert token is not None
    assert token.refresh_token is not None
    identity_provider.script.token.answer(200, {**WHOLE, "refresh_token": token.refresh_token.reveal()}, PAGE)
    await again(process, identity_provider, 502)
    assert ([], [False]) == (reported(identity_provider), dropped(process))
    assert identity_provider.is_alive(ready.access_token)


@pytest.mark.case("53")
@pytest.mark.parametrize("takes", ["refresh", "access", "both"])
async def test_a_token_that_came_alone_is_sent_with_its_own_hint(start, identity_provider, takes):
    """A provider that revokes only refresh tokens must get the one that came without an access token."""
    process = start([user_app(identity_provider, revocation=Revocation(reach="token", tokens=takes))])
    token = (await connected_token(process, identity_provider)).refresh_token
    await process.parts.revoke.tokens(process.broker.bundle.apps["mail"], IssuedTokens.of(token, None))
    hints = [request.form["token_type_hint"] for request in identity_provider.seen("revoke")]
    assert ([] if takes == "access" else ["refresh_token"]) == hints


@pytest.mark.case("53")
@pytest.mark.parametrize(("account", "ends"), [("alice", True), ("bob", False)])
async def test_where_a_revocation_ends_the_whole_grant_only_the_persons_own_tokens_are_revoked(
    start, identity_provider, account, ends
):
    """She has no grant that could end. Whether the other account has one at this client is not known."""
    process = start([user_app(identity_provider, revocation=Revocation(reach="grant"))])
    asked = await ask(process)
    assert isinstance(asked, AuthorizationRequired)
    if ends:
        identity_provider.script.token.fields(scope="openid read write everything")
    assert await complete(process, identity_provider, asked, account) in {403, 502}
    assert "failed" == (await process.broker.wait(asked.auth_session_id, timeout=0)).status
    assert ([ends], 2 * ends) == (dropped(process), len(reported(identity_provider)))


async def connected_token(process: Process, idp: IdentityProvider) -> Any:
    await connected(process, idp)
    return (await grant_of(process)).token
