"""12.5.6: Authorization Code with PKCE, step by step."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.repository.repository import Repository
from tests.kit.running_broker import ALICE, BASE, BOB, TEAM, Harness, file_store, tree, turn


def query_of(url: str) -> dict[str, str]:
    found = parse_qs(urlsplit(url).query)
    assert all(len(values) == 1 for values in found.values())
    return {name: values[0] for name, values in found.items()}


def s256(verifier: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


@pytest.mark.rule("12.5.6-1")
async def test_1_before_the_link_is_given_the_session_lies_sealed_in_the_store(filed: Harness, tmp_path: Path) -> None:
    """With its verifier and its state; neither can be read from the disk."""
    asked = await filed.ask_link()
    attempt = (await filed.session(asked)).attempt
    assert attempt.verifier is not None
    for content in tree(tmp_path / "store").values():
        assert attempt.verifier.reveal().encode() not in content
        assert attempt.state.reveal().encode() not in content


@pytest.mark.rule("12.5.6-1")
async def test_1_two_sessions_share_no_secret(harness: Harness) -> None:
    """Every session, and every browser that takes one up, has values of its own."""
    one, other = await harness.ask_link(scopes=["read"]), await harness.ask_link(scopes=["write"])
    first = [(await harness.session(asked)).attempt for asked in (one, other)]
    await harness.to_provider(one, harness.browser())
    taken = (await harness.session(one)).attempt
    seen = [secret.reveal() for each in (*first, taken) for secret in (each.state, each.verifier, each.nonce) if secret]
    assert 9 == len(seen) == len(set(seen))


@pytest.mark.rule("12.5.6-2")
@pytest.mark.parametrize("app", ["mail", "team"])
async def test_2_the_providers_url_carries_the_s256_challenge_and_the_state_of_the_session(
    harness: Harness, app: str
) -> None:
    """The challenge is that of the stored verifier; the URL the agent sees before carries neither."""
    asked = await harness.ask_link(app)
    url = await harness.to_provider(asked, harness.browser())
    attempt, query = (await harness.session(asked)).attempt, query_of(url)
    assert attempt.verifier is not None
    assert ("S256", s256(attempt.verifier.reveal())) == (query["code_challenge_method"], query["code_challenge"])
    assert attempt.state.matches(query["state"])
    assert ("code", f"client-{app}", f"{BASE}/oauth/callback/{app}") == (
        query["response_type"],
        query["client_id"],
        query["redirect_uri"],
    )
    assert ["openid", "read", "write", "admin"] == query["scope"].split(" ")
    assert "" == urlsplit(asked.authorization_url).query


Spoil = Callable[[Harness, AuthorizationRequired], Awaitable[None]]


async def _completed(harness: Harness, asked: AuthorizationRequired) -> None:
    await harness.connect(asked)
    await harness.broker.revoke("mail", subject=ALICE)


async def _expired(harness: Harness, asked: AuthorizationRequired) -> None:
    harness.clock.advance(601)


async def _cancelled(harness: Harness, asked: AuthorizationRequired) -> None:
    assert await harness.broker.cancel(asked.auth_session_id)


async def _retaken(harness: Harness, asked: AuthorizationRequired) -> None:
    await harness.to_provider(asked, harness.browser())


@pytest.mark.rule("12.5.6-3")
@pytest.mark.parametrize("spoil", [_completed, _expired, _cancelled, _retaken], ids=lambda it: it.__name__[1:])
async def test_3_a_callback_of_a_session_that_is_no_longer_pending_makes_no_grant(
    harness: Harness, spoil: Spoil
) -> None:
    """Ended, expired, withdrawn, or taken up by a later browser: the code is not even sent."""
    asked, person = await harness.ask_link(), harness.browser()
    callback = await harness.way_back(asked, person)
    await spoil(harness, asked)
    before = harness.idp.count("token")
    page = await person.follow(callback)
    assert page.status >= 400
    assert before == harness.idp.count("token")
    grant = await harness.grant()
    assert grant is None or grant.revoked


@pytest.mark.rule("12.5.6-3")
@pytest.mark.parametrize("known", ["the session's id", "the secret half"])
async def test_3_only_the_exact_state_finds_the_session(harness: Harness, known: str) -> None:
    """Knowing the public half, the session's id, is not enough; nor is a state that was never issued."""
    asked, person = await harness.ask_link(), harness.browser()
    callback = await harness.way_back(asked, person)
    state = query_of(callback)["state"]
    forged = state[:22] + "A" * 43 if known == "the session's id" else "A" * 22 + state[22:]
    page = await person.follow(callback.replace(state, forged))
    assert 400 == page.status
    assert (0, None) == (harness.idp.count("token"), await harness.grant())
    assert 303 == (await person.follow(callback)).status


@pytest.mark.rule("12.5.6-3")
async def test_3_one_callback_is_one_exchange(harness: Harness) -> None:
    """The second time is refused, and the first one's grant stays."""
    asked, person = await harness.ask_link(), harness.browser()
    callback = await harness.way_back(asked, person)
    assert 303 == (await person.follow(callback)).status
    await person.follow(callback)
    assert person.page.status >= 400
    assert 1 == harness.idp.count("authorization_code")
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.rule("12.5.6-4")
async def test_4_the_exchange_sends_the_verifier_that_was_stored(harness: Harness) -> None:
    """And the redirect URI of this very app; the provider compares both."""
    asked, person = await harness.ask_link(), harness.browser()
    callback = await harness.way_back(asked, person)
    stored = (await harness.session(asked)).attempt.verifier
    await person.follow(callback)
    [seen] = harness.idp.seen("authorization_code")
    assert stored == seen.form["code_verifier"]
    assert f"{BASE}/oauth/callback/mail" == seen.form["redirect_uri"]
    assert isinstance(seen.form["code"], Secret)


@pytest.mark.rule("12.5.6-5")
@pytest.mark.case("38")
async def test_5_in_user_mode_another_persons_account_is_refused_and_makes_no_grant(harness: Harness) -> None:
    """Bob agrees on Alice's link: neither of them has a grant, and neither is told of the other."""
    asked = await harness.ask_link()
    page = await harness.connect(asked, "bob")
    assert 403 == page.status
    assert (None, None) == (await harness.grant("mail", ALICE), await harness.grant("mail", BOB))
    [event] = await harness.events()
    assert ("auth.failed", "subjectMismatch") == (event["type"], event["payload"]["code"])
    outcome = await harness.broker.wait(asked.auth_session_id, timeout=0)
    assert ("failed", Code.SUBJECT_MISMATCH) == (outcome.status, outcome.code)
    for said in (page.source, str(event["payload"])):
        assert "U345678" not in said
        assert "bob" not in said.lower()


@pytest.mark.rule("12.5.6-5")
@pytest.mark.case("42")
@pytest.mark.parametrize("account, code", [("bob", "subjectForbidden"), ("mallory", "subjectMismatch")])
async def test_5_in_global_mode_team_and_authorizer_are_compared(harness: Harness, account: str, code: str) -> None:
    """A member who may not speak for the team, and a stranger from another one, connect nothing."""
    await harness.connect(await harness.ask_link("team"), account)
    assert None is await harness.grant("team", TEAM)
    [event] = await harness.events()
    assert code == event["payload"]["code"]


@pytest.mark.rule("12.5.6-6")
async def test_6_success_stores_the_grant_completes_the_session_and_spends_it(harness: Harness) -> None:
    """Afterwards the link leads nowhere and the callback is refused."""
    asked, person = await harness.ask_link(), harness.browser()
    callback = await harness.way_back(asked, person)
    await person.follow(callback)
    grant = await harness.grant()
    assert grant is not None
    assert (False, asked.auth_session_id) == (grant.revoked, grant.auth_session_id)
    assert "completed" == (await harness.session(asked)).status
    assert (await harness.browser().open(asked.authorization_url)).status >= 400
    assert (await person.follow(callback)).status >= 400


@pytest.mark.rule("12.5.6-6")
async def test_6_the_grant_lies_sealed_in_the_store_when_the_person_reads_that_it_is_done(
    filed: Harness, tmp_path: Path
) -> None:
    """Read back by another opening of the same store, with the same key."""
    ready = await filed.connected()
    versioned = await Repository(file_store(tmp_path, filed.clock)).grant(GrantKey("mail", ALICE))
    assert versioned is not None
    assert versioned.record.token is not None
    assert ready.access_token == versioned.record.token.access_token
    assert all(ready.access_token.reveal().encode() not in content for content in tree(tmp_path).values())


@pytest.mark.rule("12.5.6-7")
async def test_7_the_event_goes_to_the_agent_that_waits_with_origin_and_auth_of_its_turn(harness: Harness) -> None:
    """One `auth.granted` in that agent's queue, ready to be the input of its next turn; nothing for any other agent."""
    of = turn(agent="writer", instance="thread-9")
    asked = await harness.ask_link(of=of)
    await harness.connect(asked)
    [event] = await harness.events("writer")
    assert "auth.granted" == event["type"]
    assert ("writer", "thread-9", {"kind": "Swarm", "name": "default"}) == (
        event["agentName"],
        event["instanceKey"],
        event["swarmRef"],
    )
    assert of.auth is not None
    assert (dict(of.origin), of.auth.to_json()) == (event["origin"], event["auth"])
    assert {
        "oauthAppRef": {"kind": "OAuthApp", "name": "mail"},
        "provider": "oidc",
        "subject": ALICE,
        "authSessionId": asked.auth_session_id,
        "scopesGranted": ["read", "write", "admin"],
        "grantId": (await _grant_id(harness)),
    } == event["payload"]
    assert None is await harness.event("planner", wait=0)


@pytest.mark.rule("12.5.6-7")
async def test_7_all_turns_that_wait_for_the_same_grant_go_on(harness: Harness) -> None:
    """Two agents asked, one person agreed once: each gets an event of its own session."""
    asked = {agent: await harness.ask_link(of=turn(agent=agent)) for agent in ("planner", "writer")}
    assert 2 == len({result.auth_session_id for result in asked.values()})
    await harness.connect(asked["writer"])
    for agent, result in asked.items():
        [event] = await harness.events(agent)
        assert ("auth.granted", result.auth_session_id) == (event["type"], event["payload"]["authSessionId"])


async def _grant_id(harness: Harness) -> str:
    grant = await harness.grant()
    assert grant is not None
    return grant.id
