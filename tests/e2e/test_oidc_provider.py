"""The main job against a provider and a browser that we did not write: oidc-provider on Node, Chromium by Playwright."""

from __future__ import annotations

import pytest

from oauthbroker import Code
from tests.e2e.bundle import turn
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PROFILE = {"sub": "alice", "name": "Alice Example", "team": "T111"}


@pytest.mark.parametrize("app, asked_userinfo", [("personal", 0), ("shared", 1), ("signed", 0), ("public", 0)])
async def test_after_a_person_agreed_in_a_browser_the_agent_goes_on_with_a_token(stage: Stage, app, asked_userinfo):
    """User mode learns the account from the ID token, global mode (`shared`) from userinfo, with an authorizer.
    Each app authenticates to the provider in another way, at the pushed request and at the exchange."""
    asked = await stage.ask(app)
    block = await stage.broker.pending(turn())
    assert block is not None
    assert [(asked.auth_session_id, asked.authorization_url)] == [
        (item["authSessionId"], item["authorizationUrl"]) for item in block["items"]
    ]
    alice = await stage.person()
    await alice.agree(asked.authorization_url, "alice")
    assert f"{stage.home}/connected/{app}" == alice.page.url
    assert f"{stage.apps[app].title} is connected" in await alice.text()

    event = await stage.next_event()
    assert ("auth.granted", turn().resume_target) == (event.type, event.target)
    assert stage.apps[app].subject == event.payload["subject"]
    assert (1, asked_userinfo) == (await stage.provider.count("token"), await stage.provider.count("userinfo"))
    assert 1 == await stage.provider.count("pushed_authorization_request", 201)  # it is told in the metadata
    assert (200, PROFILE) == await stage.use(await stage.token(app))
    assert await stage.broker.pending(turn()) is None
    assert [] == alice.shared_circuits


@pytest.mark.parametrize("stage", ["apart"], indirect=True)
async def test_a_link_made_in_one_process_works_in_another_that_serves_the_pages(stage: Stage):
    """`oauthbroker init` and `oauthbroker serve` as a user types them; the agent lives elsewhere, on the same store."""
    asked = await stage.ask("shared")
    alice = await stage.person()
    await alice.agree(asked.authorization_url, "alice")
    assert f"{stage.home}/connected/shared" == alice.page.url
    assert "completed" == (await stage.broker.wait(asked.auth_session_id, timeout=60)).status
    assert "auth.granted" == (await stage.next_event()).type
    assert await stage.broker.events.lease("planner") is None
    assert (200, PROFILE) == await stage.use(await stage.token("shared"))
    assert [] == alice.shared_circuits


async def test_the_whole_story_needs_no_script(stage: Stage):
    alice = await stage.person(java_script_enabled=False)
    await alice.agree((await stage.ask("personal")).authorization_url, "alice")
    assert "is connected" in await alice.text()
    assert (200, PROFILE) == await stage.use(await stage.token("personal"))


async def test_a_person_who_goes_back_from_the_provider_can_start_again(stage: Stage):
    alice = await stage.person()
    await alice.leave((await stage.ask("personal")).authorization_url)
    await alice.page.go_back()
    await alice.page.get_by_role("heading", name="Connect Example notes?").wait_for()
    await alice.press("Continue to")
    await alice.sign_in("alice")
    await alice.consent()
    assert "is connected" in await alice.text()
    assert "auth.granted" == (await stage.next_event()).type
    assert await stage.broker.events.lease("planner") is None
    assert [] == alice.shared_circuits


async def test_a_direct_link_leads_straight_to_the_provider_and_the_block_to_our_page(stage: Stage):
    asked = await stage.ask("direct")
    assert asked.authorization_url.startswith(stage.provider.issuer + "/auth?")
    assert 0 == await stage.provider.count("pushed_authorization_request")
    block = await stage.broker.pending(turn())
    assert block is not None
    assert block["items"][0]["authorizationUrl"].startswith(stage.home + "/connect/")
    alice = await stage.person()
    await alice.open(asked.authorization_url)
    await alice.sign_in("alice")
    await alice.consent()
    assert f"{stage.home}/connected/direct" == alice.page.url
    assert "auth.granted" == (await stage.next_event()).type
    assert (200, PROFILE) == await stage.use(await stage.token("direct"))
    assert [] == alice.shared_circuits


async def test_a_no_at_the_provider_wakes_the_agent_and_grants_nothing(stage: Stage):
    alice = await stage.person()
    await alice.leave((await stage.ask("personal")).authorization_url)
    await alice.sign_in("alice")
    await alice.refuse()
    assert "Nothing was connected" in await alice.text()
    assert "aborted" not in await alice.page.content()  # the provider's words
    assert "auth.denied" == (await stage.next_event()).type
    assert 0 == await stage.provider.count("token")
    assert "noGrant" == (await stage.ask("personal")).reason
    assert [] == alice.shared_circuits


async def test_a_no_on_our_page_never_reaches_the_provider(stage: Stage):
    asked = await stage.ask("shared")
    alice = await stage.person()
    await alice.open(asked.authorization_url)
    await alice.press("Cancel")
    await alice.page.wait_for_url(f"{stage.home}/declined/shared")
    assert "Nothing was connected" in await alice.text()
    assert "failed" == (await stage.broker.wait(asked.auth_session_id, timeout=60)).status
    assert 0 == await stage.provider.count("authorization")
    assert [] == alice.shared_circuits


@pytest.mark.case("42")
async def test_a_person_who_may_not_connect_it_for_the_team_connects_nothing(stage: Stage):
    """bob is of the team, but no authorizer: the provider is happy, we are not."""
    bob = await stage.person()
    asked = await stage.ask("shared")
    await bob.agree(asked.authorization_url, "bob")
    assert 403 == bob.last.status
    assert "auth.failed" == (await stage.next_event()).type
    assert Code.SUBJECT_FORBIDDEN == (await stage.broker.wait(asked.auth_session_id, timeout=60)).code
    assert 0 == await stage.provider.count("revocation")
    assert "noGrant" == (await stage.ask("shared")).reason
    assert [] == bob.shared_circuits


@pytest.mark.case("4")
async def test_a_person_who_took_too_long_is_told_so_and_the_code_is_never_sent(stage: Stage):
    alice = await stage.person()
    asked = await stage.ask("personal")
    await alice.leave(asked.authorization_url)
    await alice.sign_in("alice")
    stage.clock.advance(601)
    await alice.consent()
    assert "This link no longer works" in await alice.text()
    assert 0 == await stage.provider.count("token")
    assert "expired" == (await stage.broker.wait(asked.auth_session_id, timeout=60)).status
    assert [] == alice.shared_circuits


async def test_a_grant_revoked_here_is_revoked_at_the_provider(stage: Stage):
    await stage.connected("personal")
    token = await stage.token("personal")
    assert (200, PROFILE) == await stage.use(token)
    assert await stage.broker.revoke("personal", subject="example:user:alice")
    assert "auth.revoked" == (await stage.next_event()).type
    assert 1 <= await stage.provider.count("revocation", 200)
    assert 401 == (await stage.use(token))[0]
    assert "revoked" == (await stage.ask("personal")).reason
