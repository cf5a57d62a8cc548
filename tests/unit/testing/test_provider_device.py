"""Device authorization (RFC 8628), by the provider's clock: pace, patience, the person, and codes that are over."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from oauthbroker.testing import Browser, Client, IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.unit.testing.conftest import REDIRECT, RelyingParty

GRANT = "urn:ietf:params:oauth:grant-type:device_code"


async def begin(party: RelyingParty, **form: Any) -> dict[str, Any]:
    answer = await party.post("/device_authorization", **{"scope": "openid chat:write", **form})
    assert 200 == answer.status_code, answer.text
    return dict(answer.json())


async def poll(party: RelyingParty, device: dict[str, Any]) -> httpx2.Response:
    return await party.post("/token", grant_type=GRANT, device_code=device["device_code"])


def said(answer: httpx2.Response) -> str:
    return str(answer.json().get("error", "granted"))


async def test_a_device_gets_its_tokens_after_the_consent(party: RelyingParty, clock: TestClock):
    device = await begin(party)
    assert {
        "device_code",
        "user_code",
        "verification_uri",
        "verification_uri_complete",
        "expires_in",
        "interval",
    } == set(device)
    assert (600, 5) == (device["expires_in"], device["interval"])
    assert "authorization_pending" == said(await poll(party, device))
    party.idp.device_approve(device["user_code"], "bob")
    clock.advance(5)
    answer = (await poll(party, device)).json()
    assert "bob" == (await party.get("/api/me", answer["access_token"])).json()["login"]
    assert {"refresh_token", "id_token"} <= set(answer)
    assert 200 == (await party.refresh(answer["refresh_token"])).status_code


async def test_a_code_can_be_typed_by_people(party: RelyingParty):
    for _ in range(20):
        code = (await begin(party))["user_code"]
        assert 9 == len(code)
        assert set(code) <= set("BCDFGHJKLMNPQRSTVWXZ-")
    assert 20 == len(set(party.idp.user_codes))
    assert code == party.idp.device(code.lower().replace("-", " ")).user_code


async def test_polling_too_fast_slows_everything_down(party: RelyingParty, clock: TestClock):
    device = await begin(party)
    words = []
    for seconds in (0, 4, 9, 14.9, 20):
        clock.advance(seconds)
        words.append(said(await poll(party, device)))
    story = party.idp.device(device["user_code"])
    assert ["authorization_pending", "slow_down", "slow_down", "slow_down", "authorization_pending"] == words
    assert (20, 3) == (story.interval, story.slow_downs)
    assert words == [each.answer for each in story.polls]
    assert [0.0, 4.0, 13.0] == [(each.at - story.polls[0].at).total_seconds() for each in story.polls[:3]]


async def test_a_device_that_keeps_the_pace_is_never_slowed_down(party: RelyingParty, clock: TestClock):
    party.idp.change("bot", device_interval=2)
    device = await begin(party)
    for _ in range(10):
        assert "authorization_pending" == said(await poll(party, device))
        clock.advance(2)
    assert (2, 0) == (party.idp.device(device["user_code"]).interval, party.idp.device(device["user_code"]).slow_downs)


@pytest.mark.parametrize("ending", ["denied", "expired", "redeemed"])
async def test_an_end_is_an_end(party: RelyingParty, clock: TestClock, ending: str):
    device = await begin(party)
    if ending == "denied":
        party.idp.device_deny(device["user_code"])
    elif ending == "expired":
        clock.advance(600)
    else:
        party.idp.device_approve(device["user_code"])
        await poll(party, device)
    clock.advance(5)
    words = {"denied": "access_denied", "expired": "expired_token", "redeemed": "invalid_grant"}
    assert words[ending] == said(await poll(party, device))
    assert ending == party.idp.device(device["user_code"]).status


async def test_an_approval_after_the_end_comes_too_late(party: RelyingParty, clock: TestClock):
    party.idp.change("bot", device_lifetime=30)
    device = await begin(party)
    clock.advance(30)
    party.idp.device_approve(device["user_code"])
    assert "expired_token" == said(await poll(party, device))


async def test_another_client_cannot_redeem_the_code(party: RelyingParty):
    device = await begin(party)
    party.idp.device_approve(device["user_code"])
    party.idp.register(Client("other", redirect_uris=(REDIRECT,)))
    party.client_id = "other"
    assert "invalid_grant" == said(await poll(party, device))
    assert () == party.idp.device(device["user_code"]).polls


@pytest.mark.parametrize("complete", [True, False])
async def test_a_person_goes_through_the_pages(party: RelyingParty, complete: bool):
    device = await begin(party)
    link = device["verification_uri_complete" if complete else "verification_uri"]
    typed = "" if complete else device["user_code"].lower()
    last = await party.idp.device_agree(link, typed, "mallory", scopes=["chat:write"])
    assert "connected" in last
    answer = (await poll(party, device)).json()
    assert ("openid chat:write", "mallory") == (
        answer["scope"],
        (await party.get("/api/me", answer["access_token"])).json()["login"],
    )


async def test_a_person_says_no_on_the_page(party: RelyingParty):
    device = await begin(party)
    assert "Nothing was connected" in await party.idp.device_agree(
        device["verification_uri_complete"], deny=True, browser=Browser()
    )
    assert "access_denied" == said(await poll(party, device))


@pytest.mark.parametrize("typed", ["", "BCDF-GHJK", "<script>"])
async def test_a_wrong_code_is_refused_on_the_page(party: RelyingParty, typed: str):
    device = await begin(party)
    with pytest.raises(AssertionError, match="unknown or over"):
        await party.idp.device_agree(device["verification_uri"], typed)


async def test_a_code_is_not_decided_twice(party: RelyingParty):
    device = await begin(party)
    await party.idp.device_agree(device["verification_uri"], device["user_code"], "alice")
    with pytest.raises(AssertionError, match="unknown or over"):
        await party.idp.device_agree(device["verification_uri"], device["user_code"], "mallory")
    assert "alice" == (await party.get("/api/me", (await poll(party, device)).json()["access_token"])).json()["login"]


async def test_auto_consent_needs_only_the_code(party: RelyingParty):
    party.idp.auto_consent = "bob"
    device = await begin(party)
    assert "connected" in await party.idp.device_agree(device["verification_uri_complete"])
    assert "approved" == party.idp.device(device["user_code"]).status


async def test_the_complete_link_carries_the_code(party: RelyingParty):
    device = await begin(party)
    link = urlsplit(device["verification_uri_complete"])
    assert {"user_code": [device["user_code"]]} == parse_qs(link.query)
    page = await Browser().open(device["verification_uri_complete"])
    assert device["user_code"] in page.source
    assert "pending" == party.idp.device(device["user_code"]).status  # looking decides nothing


async def test_unknown_codes_are_a_mistake_of_the_test(idp: IdentityProvider):
    for ask in (idp.device, idp.device_approve, idp.device_deny):
        with pytest.raises(KeyError):
            ask("BCDF-GHJK")


async def test_scopes_and_clients_are_checked_like_everywhere(party: RelyingParty):
    party.idp.change("bot", scopes=frozenset({"openid"}))
    answer = await party.post("/device_authorization", scope="admin")
    assert (400, "invalid_scope") == (answer.status_code, answer.json()["error"])
    answer = await party.http.post(party.idp.url("/device_authorization"), data={"client_id": "bot"})
    assert (401, "invalid_client") == (answer.status_code, answer.json()["error"])


async def test_both_endpoints_can_be_scripted(party: RelyingParty):
    party.idp.script.device.answer(200, {"device_code": 5})
    party.idp.script.device.fields(verification_uri_complete=None, interval=None)
    assert {"device_code": 5} == await begin(party)
    device = await begin(party)
    assert not {"verification_uri_complete", "interval"} & set(device)
    party.idp.script.poll.refuse("slow_down", times=2)
    party.idp.script.client("bot").poll.answer(503, times=FOREVER)
    assert 503 == (await poll(party, device)).status_code
    assert () == party.idp.device(device["user_code"]).polls  # the provider itself never saw them
    assert (1, 2) == (party.idp.count(GRANT), party.idp.count("device"))


async def test_a_device_code_is_a_secret(party: RelyingParty):
    device = await begin(party)
    await poll(party, device)
    assert device["device_code"] not in repr(party.idp.requests)
    (find,) = party.idp.canaries.search(device["device_code"], "here")
    assert "device code" == find.kind


async def test_github_says_its_errors_with_200(party: RelyingParty):
    party.idp.change("bot", dialect="github")
    device = await begin(party)
    answer = await party.http.post(
        party.idp.url("/token"),
        data={"grant_type": GRANT, "device_code": device["device_code"]},
        auth=("bot", party.idp.client("bot").reveal_secret()),
        headers={"accept": "application/json"},
    )
    assert (200, "authorization_pending") == (answer.status_code, answer.json()["error"])
