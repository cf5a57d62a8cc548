"""Revocation at a provider that ends a whole grant with any of its tokens: which tokens die there, and which live."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, Ready
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.protocol.issued_tokens import IssuedTokens
from tests.e2e.bundle import turn
from tests.e2e.person import Person
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

ALICE = "example:user:alice"


async def again(stage: Stage, person: Person, app: str, **wish: Any) -> Ready:
    """The same person agrees once more: the provider knows her browser and makes it the same grant."""
    asked = await stage.broker.oauth(turn()).get_access_token(app, **wish)
    assert isinstance(asked, AuthorizationRequired)
    await person.open(asked.authorization_url)
    await person.press("Continue to")
    await person.page.wait_for_url(f"{stage.home}/connected/{app}")
    assert "auth.granted" == (await stage.next_event()).type
    return await stage.token(app)


async def refresh_token(stage: Stage, app: str) -> Secret:
    versioned = await stage.parts.repository.grant(GrantKey(app, ALICE))
    assert versioned is not None
    assert versioned.record.token is not None
    assert versioned.record.token.refresh_token is not None
    return versioned.record.token.refresh_token


async def status(stage: Stage, token: Ready) -> int:
    return (await stage.use(token))[0]


@pytest.mark.case("53")
async def test_ending_one_of_two_grants_that_the_provider_takes_for_one_leaves_the_other_alive(stage: Stage):
    """Two OAuthApps share a client, and alice agreed to both. Telling the provider of one would end the other."""
    alice = await stage.connected("personal")
    first, second = await stage.token("personal"), await again(stage, alice, "personal-too")
    assert "shared" == await stage.broker.grants.revoke("personal", ALICE)
    assert "revoked" == (await stage.ask("personal")).reason
    assert (0, 200) == (await stage.provider.count("revocation"), await status(stage, second))
    assert "done" == await stage.broker.grants.revoke("personal-too", ALICE)
    assert [401, 401] == [await status(stage, token) for token in (first, second)], "they were one grant over there"
    assert [] == alice.shared_circuits


async def test_both_are_told_when_both_are_meant(stage: Stage):
    alice = await stage.connected("personal")
    tokens = [await stage.token("personal"), await again(stage, alice, "personal-too")]
    figures = await stage.broker.grants.revoke_all(subject=ALICE)
    assert (2, 2, 0) == (figures.ended, figures.count("done"), figures.left)
    assert [401, 401] == [await status(stage, token) for token in tokens]


async def test_one_persons_revocation_leaves_another_ones_grant_alone(stage: Stage):
    await stage.connected("personal", "alice")
    await stage.connected("personal", "bob")
    bobs = await stage.token("personal", "bob")
    assert "done" == await stage.broker.grants.revoke("personal", ALICE)
    assert 200 == await status(stage, bobs)


@pytest.mark.case("53")
async def test_connecting_again_revokes_nothing_because_the_old_login_shares_the_new_ones_grant(stage: Stage):
    alice = await stage.connected("personal")
    old = await refresh_token(stage, "personal")
    new = await again(stage, alice, "personal", switch_account=True)
    assert (0, 200) == (await stage.provider.count("revocation"), await status(stage, new))
    assert await stage.parts.revoke.tokens(stage.broker.bundle.apps["personal"], IssuedTokens.of(old, old))
    assert 401 == await status(stage, new), "this is what telling it of the old token would have done"


@pytest.mark.case("53")
async def test_a_login_after_a_revocation_that_the_provider_has_not_heard_of_yet_is_not_ended_by_it(stage: Stage):
    """The provider was not told in time; now it must not be: its grant is the new login's."""
    alice = await stage.connected("personal")
    assert await stage.parts.revoke.write_tombstone(GrantKey("personal", ALICE)) is not None
    stage.parts.revoke.outbox.notify()
    assert "auth.revoked" == (await stage.next_event()).type
    new = await again(stage, alice, "personal")
    await stage.parts.bulk_revocation.run_pass()
    assert (0, 200) == (await stage.provider.count("revocation"), await status(stage, new))
