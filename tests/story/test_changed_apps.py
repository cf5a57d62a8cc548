"""An app whose registration changes loses its grants; one whose other settings change keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from oauthbroker.model.apps import Client
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.broker_process import granted_event_ids
from tests.kit.running_broker import ALICE, file_store, running, scopes_last_asked_for, stored_grant, user_app


@asynccontextmanager
async def two_providers(clock: TestClock, canaries: Canaries) -> AsyncIterator[list[IdentityProvider]]:
    with (
        IdentityProvider(clock=clock, canaries=canaries) as one,
        IdentityProvider(clock=clock, canaries=canaries) as two,
    ):
        yield [one, two]


async def test_an_app_that_points_elsewhere_now_asks_again_and_the_old_tokens_stay_here(
    test_clock: TestClock, canaries: Canaries, tmp_path: Path
):
    """Neither are they handed out as if they were the new provider's, nor shown to it; nor is its account refused."""
    async with two_providers(test_clock, canaries) as (one, two):
        async with running(one, [user_app(one)], clock=test_clock, store=file_store(tmp_path, test_clock)) as harness:
            old = await harness.connected()
        async with running(two, [user_app(two)], clock=test_clock, store=file_store(tmp_path, test_clock)) as harness:
            asked = await harness.ask_link()
            assert "noGrant" == asked.reason
            assert 200 == (await harness.connect(asked)).status
            new = await harness.ask()
            assert isinstance(new, Ready)
            assert two.is_alive(new.access_token)
            grant = await harness.grant()
            assert grant is not None
            assert grant.pinned is not None
            assert two.endpoints["issuer"] == grant.pinned[0]
            assert "later" == await harness.broker.grants.revoke("mail", ALICE), "the old client has to be told, too"
        assert [] == [seen for seen in two.requests if old.access_token.reveal() in repr(texts(seen.fields))]
        assert one.is_alive(old.access_token)


def texts(fields: tuple[tuple[str, Any], ...]) -> list[str]:
    return [getattr(value, "reveal", lambda value=value: value)() for _, value in fields]


async def test_revoking_never_shows_a_provider_the_tokens_of_another_one(
    test_clock: TestClock, canaries: Canaries, tmp_path: Path
):
    async with two_providers(test_clock, canaries) as (one, two):
        async with running(one, [user_app(one)], clock=test_clock, store=file_store(tmp_path, test_clock)) as harness:
            old = await harness.connected()
        async with running(two, [user_app(two)], clock=test_clock, store=file_store(tmp_path, test_clock)) as harness:
            assert "later" == await harness.broker.grants.revoke("mail", ALICE)
            grant = await harness.grant()
            assert grant is not None
            assert (True, True) == (grant.revoked, grant.revocation_pending)
            assert isinstance(await harness.ask(), AuthorizationRequired)
        assert [] == two.requests
        assert one.is_alive(old.access_token)


async def test_a_grant_of_another_registration_leaves_nothing_in_the_next_but_the_events_it_owed(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    """The same provider and person, another client: the refresh token would have no client, the scopes no consent."""
    app, store = user_app(identity_provider), file_store(tmp_path, test_clock)
    async with running(identity_provider, [app], clock=test_clock, store=store, background=False) as harness:
        old = await harness.ask_link(scopes=["read"])
        assert 200 == (await harness.connect(old)).status
    other = replace(user_app(identity_provider, "other", redirect=app.redirect), name="mail")
    identity_provider.change("client-other", redirect_uris=(app.redirect.uri,), issue_refresh=False)
    store = file_store(tmp_path, test_clock)
    async with running(identity_provider, [other], clock=test_clock, store=store, background=False) as harness:
        new = await harness.ask_link(scopes=["write"])
        assert "noGrant" == new.reason
        assert 200 == (await harness.connect(new)).status
        assert ["openid", "write"] == scopes_last_asked_for(harness)
        grant = await stored_grant(harness)
        assert (("write",), None) == (grant.scopes, grant.token.refresh_token)
        assert granted_event_ids(old, new) == [event.id for event in grant.outbox]


async def test_an_app_whose_other_facts_change_keeps_its_grants(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    app = user_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, store=file_store(tmp_path, test_clock)) as harness:
        before = await harness.connected(scopes=["read"])
    changed = replace(app, title="Post", scopes=("read", "write"), redirect=replace(app.redirect, link="direct"))
    changed = replace(changed, client=Client(app.client.client_id, app.client.client_secret, "client_secret_post"))
    async with running(
        identity_provider, [changed], clock=test_clock, store=file_store(tmp_path, test_clock)
    ) as harness:
        after = await harness.ask(scopes=["read"])
        assert isinstance(after, Ready)
        assert before.access_token.reveal() == after.access_token.reveal()
