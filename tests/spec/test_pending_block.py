"""12.5.8: what an agent is told of waiting authorizations."""

from __future__ import annotations

import json

import pytest

from oauthbroker import Turn
from oauthbroker.core.clock import printed
from oauthbroker.testing import Canaries
from tests.kit.running_broker import BOB, Harness, turn
from tests.spec.kit import secrets_of


@pytest.mark.rule("12.5.8")
@pytest.mark.parametrize("app, mode", [("mail", "user"), ("team", "global")])
async def test_a_waiting_session_is_reported_with_the_members_of_the_specification(
    harness: Harness, app: str, mode: str
) -> None:
    """And `provider`, a member of ours; the link is the one the tool was given."""
    asked = await harness.ask_link(app)
    assert {
        "type": "auth.pending",
        "items": [
            {
                "authSessionId": asked.auth_session_id,
                "oauthAppRef": {"kind": "OAuthApp", "name": app},
                "provider": "oidc",
                "subjectMode": mode,
                "authorizationUrl": asked.authorization_url,
                "expiresAt": printed(asked.expires_at),
                "message": asked.message,
            }
        ],
    } == await harness.broker.pending(turn())


@pytest.mark.rule("12.5.8")
async def test_nothing_waits_nothing_is_told(harness: Harness) -> None:
    """No block rather than an empty one."""
    assert None is await harness.broker.pending(turn())
    await harness.connected()
    assert None is await harness.broker.pending(turn())


@pytest.mark.rule("12.5.8")
@pytest.mark.case("91")
async def test_a_block_holds_the_opaque_link_and_no_other_secret(harness: Harness, canaries: Canaries) -> None:
    """No state, no verifier, no nonce, no client id, no provider's URL, also after a browser has taken it up."""
    asked = await harness.ask_link()
    await harness.to_provider(asked, harness.browser())
    for kind, secret in (await secrets_of(harness)).items():
        if not kind.startswith("ticket"):
            canaries.add(secret, kind.rpartition(" ")[0])
    said = json.dumps(await harness.broker.pending(turn()))
    assert asked.authorization_url in said
    assert [] == canaries.search(said, "the block", allow=["ticket"])
    for word in ("client-mail", harness.idp.base_url, "state=", "code_challenge", "U234567"):
        assert word not in said


@pytest.mark.rule("12.5.8")
@pytest.mark.parametrize(
    "of",
    [
        turn(user=BOB),
        turn(agent="writer"),
        turn(instance="another thread"),
        turn(user=None),
        Turn("planner", "1700000000.000100"),
        Turn("planner", "1700000000.000100", "Swarm/other", auth=turn().auth),
    ],
    ids=["another person", "another agent", "another conversation", "nobody", "no auth", "another swarm"],
)
async def test_a_link_is_shown_to_its_own_user_only(harness: Harness, of: Turn) -> None:
    """Only the same agent in the same conversation, acting for the same subject, may hand the link out."""
    await harness.ask_link()
    assert None is await harness.broker.pending(of)


@pytest.mark.rule("12.5.8")
async def test_a_granted_denied_cancelled_or_expired_request_is_no_longer_shown(harness: Harness) -> None:
    """A block never sends a person to a page that says no."""
    links = [await harness.ask_link(scopes=[scope]) for scope in ("read", "write", "admin")]
    other = await harness.ask_link("files")
    await harness.connect(links[0])
    await harness.connect(links[1], deny=True)
    assert await harness.broker.cancel(links[2].auth_session_id)
    block = await harness.broker.pending(turn())
    assert block is not None
    assert [other.auth_session_id] == [item["authSessionId"] for item in block["items"]]
    harness.clock.advance(601)
    assert None is await harness.broker.pending(turn())
