"""Ending a grant: at once here, in its own way at the provider, and never another one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.audit import GrantEnded
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import Ready
from oauthbroker.testing import IdentityProvider
from tests.kit.broker_process import ask, connected
from tests.kit.running_broker import ALICE, user_app
from tests.story.revocation_kit import audited, grant_of, secret_count

# the provider's own way


def slackish(idp: IdentityProvider) -> App:
    """The token is its own proof, and a 200 may mean no."""
    app = user_app(idp)
    way = Revocation(
        "own", "grant", authenticate="bearer", body="none", tokens="access", ok_field="revoked",
        dead_words=("invalid_auth",),
    )  # fmt: skip
    return replace(app, endpoints=replace(app.endpoints, revoke_url=idp.url("/api/auth.revoke")), revocation=way)


def githubish(idp: IdentityProvider) -> App:
    """A DELETE with the client's id in the address, HTTP Basic, and the token in a JSON body."""
    app = user_app(idp)
    way = Revocation(
        "own", "token", method="DELETE", authenticate="basic", body="json", token_field="access_token", tokens="access",
        dead_statuses=(404,),
    )  # fmt: skip
    url = idp.url("/applications/") + "{client_id}/token"
    return replace(app, endpoints=replace(app.endpoints, revoke_url=url), revocation=way)


WAYS = {"the standard": user_app, "Slack's": slackish, "GitHub's": githubish}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_provider_is_told_in_its_own_way(start, identity_provider, way):
    process = start([way(identity_provider)])
    await connected(process, identity_provider)
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    grant = await grant_of(process)
    assert (True, "done", 0) == (grant.revoked, grant.revocation, secret_count(grant))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_token_that_is_dead_already_is_no_trouble(start, identity_provider, way):
    process = start([way(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.revoke_all("client-mail", "alice")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.parametrize("taken, reported", [(0, "none"), (1, "done")], ids=["neither", "the refresh token"])
async def test_a_provider_that_takes_no_such_tokens_is_told_of_what_lives_longest_or_of_nothing(
    start, identity_provider, taken, reported
):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    for number in range(2):
        if number < taken:
            identity_provider.script.revoke.answer(200)
        else:
            identity_provider.script.revoke.answer(400, {"error": "unsupported_token_type"})
    assert reported == await process.broker.grants.revoke("mail", ALICE)
    assert (2, 0) == (identity_provider.count("revoke"), secret_count(await grant_of(process)))


@pytest.mark.parametrize(
    "status, reported, left", [(400, "done", 0), (401, "done", 0), (503, "later", 2)], ids=["no", "not you", "busy"]
)
async def test_a_refusal_of_the_access_token_alone_is_none(start, identity_provider, status, reported, left):
    """The refresh token is dead by then, and the access token ends with it or by itself."""
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(200)
    identity_provider.script.revoke.answer(status, {"error": "invalid_request"})
    assert reported == await process.broker.grants.revoke("mail", ALICE)
    assert (2, left) == (identity_provider.count("revoke"), secret_count(await grant_of(process)))


async def test_a_no_with_status_200_is_a_no(start, identity_provider):
    process = start([slackish(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(200, {"ok": False, "error": "not_allowed_token_type"})
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    assert 1 == identity_provider.living_tokens("client-mail", "alice")
    assert 2 == secret_count(await grant_of(process)), "so that it can be revoked after the repair"


async def test_an_expired_token_that_proves_itself_is_refreshed_once_more_to_be_ended(start, identity_provider):
    """Otherwise the refresh token would live on: nothing but a living token is taken there."""
    process = start([slackish(identity_provider)])
    identity_provider.change("client-mail", revoke_reach="family")
    await connected(process, identity_provider)
    process.clock.advance(3601)
    identity_provider.expire("client-mail")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 1 == identity_provider.count("refresh_token")
    assert [False] == [family.is_alive for family in identity_provider.families("client-mail")]
    assert 0 == secret_count(await grant_of(process))


async def test_an_expired_token_whose_refresh_token_is_dead_has_nothing_left_to_end(start, identity_provider):
    process = start([slackish(identity_provider)])
    await connected(process, identity_provider)
    process.clock.advance(3601)
    identity_provider.revoke_all("client-mail", "alice")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert (0, 0) == (identity_provider.count("revoke"), secret_count(await grant_of(process)))


# first here, then there


async def test_each_try_to_tell_a_provider_is_in_the_audit_log(start, identity_provider):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(503)
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    assert ["failed"] == audited(process)
    process.clock.advance(61)
    await process.parts.bulk_revocation.run_pass()
    assert ["failed", "done"] == audited(process)


async def test_an_event_that_was_not_queued_yet_survives_the_end_of_its_grant(start, identity_provider):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    await process.tend()
    await process.drain()
    assert ["granted", "revoked"] == [event.rpartition(".")[2] for event in process.heard.received]


async def test_the_relay_is_woken_before_the_provider_is_asked_and_after_it_has_answered(start, identity_provider):
    """The agent does not wait for a slow provider to hear of the end."""
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    reported: list[int] = []
    revoke = replace(
        process.parts.revoke, outbox=SimpleNamespace(notify=lambda: reported.append(identity_provider.count("revoke")))
    )
    await revoke.grant(process.broker.bundle.apps["mail"], GrantKey("mail", ALICE))
    assert [0, 2] == reported


async def test_no_call_gets_the_token_from_the_moment_the_provider_is_asked(start, identity_provider):
    process, other = start([user_app(identity_provider)]), start([user_app(identity_provider)])
    await connected(process, identity_provider)
    hold = identity_provider.script.revoke.hang()
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await hold.arrived()
    for broker in (process, other):
        assert "revoked" == (await ask(broker)).reason
    grant = await grant_of(process)
    assert (True, "pending", 2) == (grant.revoked, grant.revocation, secret_count(grant))
    audit: Any = process.parts.audit
    assert (True, []) == (GrantEnded(app="mail", grant=grant.id) in audit.entries, audited(process))
    hold.release()
    assert "done" == await revoking
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.parametrize("reach, reported", [("token", True), ("grant", False)])
async def test_a_new_login_on_top_keeps_in_mind_what_the_provider_has_still_to_hear(
    start, identity_provider, reach, reported
):
    """Where a revocation ends no more than the old tokens, they are ended later; elsewhere it would end the new login."""
    process = start([user_app(identity_provider, revocation=Revocation(reach=reach))])
    identity_provider.change("client-mail", revoke_reach=reach)
    old = await connected(process, identity_provider)
    identity_provider.script.revoke.answer(503)
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    new = await connected(process, identity_provider)
    grant = await grant_of(process)
    assert (False, 4 if reported else 2) == (grant.revoked, secret_count(grant))
    await process.parts.bulk_revocation.run_pass()
    assert [not reported, True] == [identity_provider.is_alive(it.access_token) for it in (old, new)]
    assert 2 == secret_count(await grant_of(process))
    assert isinstance(await ask(process), Ready)
    await process.tend()
    assert 0 == await process.store.count("due")


async def test_a_login_that_comes_while_the_provider_is_being_told_is_not_ended_with_the_second_token(
    start, identity_provider
):
    """The old refresh token is on its way when the person connects again: the old access token is not told any more."""
    process = start([user_app(identity_provider, revocation=Revocation(reach="grant"))])
    identity_provider.change("client-mail", revoke_reach="grant")
    await connected(process, identity_provider)
    hold = identity_provider.script.revoke.hang(after_work=True)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await hold.arrived()
    new = await connected(process, identity_provider)
    hold.release()
    await revoking
    await process.parts.bulk_revocation.run_pass()
    assert 1 == identity_provider.count("revoke")
    assert identity_provider.is_alive(new.access_token)
    grant = await grant_of(process)
    assert (False, 2) == (grant.revoked, secret_count(grant))


async def test_a_log_that_cannot_be_written_keeps_no_grant_alive(start, identity_provider, monkeypatch):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)

    def refuse(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(process.parts.audit, "write", refuse)
        assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert "revoked" == (await ask(process)).reason
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
