"""Refresh requests, one by one: which can fail how, for whom, and what the provider knows of a family afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from joserfc import jwt

from oauthbroker.testing import Client, IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.provider.endpoint_script import EndpointScript
from tests.unit.testing.conftest import REDIRECT, RelyingParty

Order = Callable[[EndpointScript], None]


@pytest.fixture
async def other(idp: IdentityProvider) -> AsyncIterator[RelyingParty]:
    """A second client of the same provider."""
    idp.register(Client("other", redirect_uris=(REDIRECT,)))
    async with httpx2.AsyncClient(trust_env=False) as http:
        yield RelyingParty(idp, http, client_id="other")


# --- what a family is


async def test_a_family_counts_its_generations_and_redemptions(party: RelyingParty):
    first = await party.connect("bob")
    second = (await party.refresh(first["refresh_token"])).json()
    await party.refresh(second["refresh_token"])

    (family,) = party.idp.families("bot", "bob")
    assert ("bot", "bob", 3, {1: 1, 2: 1}, 0, "") == (
        family.client_id, family.login, family.generation, family.redeemed, family.reused, family.ended_by,
    )  # fmt: skip
    assert family.is_alive
    assert [1, 2] == [seen.generation for seen in party.idp.seen("refresh_token", "bot")]
    assert [0] == [seen.generation for seen in party.idp.seen("authorization_code")]
    assert (1, 2) == tuple(party.idp.generation_of(one["refresh_token"]) for one in (first, second))
    assert [] == party.idp.families("bot", "alice")


async def test_reuse_is_told_apart_from_other_endings(party: RelyingParty):
    reused = await party.connect("bob")
    await party.refresh(reused["refresh_token"])
    await party.refresh(reused["refresh_token"])
    await party.connect("alice")
    party.idp.revoke_all("bot", "alice")
    code = await party.code("mallory")
    await party.exchange(code)
    await party.exchange(code)

    found = {family.login: (family.ended_by, family.reused) for family in party.idp.families()}
    assert {"bob": ("reuse", 1), "alice": ("person", 0), "mallory": ("codeReuse", 0)} == found


async def test_the_first_reason_of_an_end_stays(party: RelyingParty):
    tokens = await party.connect()
    party.idp.revoke_all("bot")
    await party.post("/revoke", token=tokens["refresh_token"])
    assert ["person"] == [family.ended_by for family in party.idp.families()]


async def test_a_grace_window_shows_as_two_redemptions_of_one_generation(party: RelyingParty):
    party.idp.change("bot", reuse_grace=10)
    first = await party.connect()
    for _ in range(2):
        assert 200 == (await party.refresh(first["refresh_token"])).status_code
    (family,) = party.idp.families()
    assert ({1: 2}, 0, True) == (family.redeemed, family.reused, family.is_alive)


async def test_refusals_are_counted_by_grant_type_and_client(party: RelyingParty, other: RelyingParty):
    await party.refresh("made-up")
    await other.exchange("made-up")
    assert ["invalid_grant"] == [one.error for one in party.idp.refusals("refresh_token", "bot")]
    assert ["unknown code"] == [one.why for one in party.idp.refusals(client_id="other")]
    assert (1, 0) == (party.idp.count("refresh_token", "bot"), party.idp.count("refresh_token", "other"))


async def test_a_refresh_token_can_expire(party: RelyingParty, clock: TestClock):
    party.idp.change("bot", refresh_lifetime=100)
    tokens = await party.connect()
    clock.advance(100)
    assert "invalid_grant" == (await party.refresh(tokens["refresh_token"])).json()["error"]
    assert ["the refresh token has expired"] == [one.why for one in party.idp.refusals("refresh_token")]
    assert party.idp.families()[0].is_alive  # it expired, it was not revoked


async def test_without_rotation_the_same_refresh_token_can_come_back(party: RelyingParty):
    party.idp.change("bot", rotate_refresh=False, repeat_refresh=True)
    first = await party.connect()
    answers = [(await party.refresh(first["refresh_token"])).json() for _ in range(2)]
    assert {first["refresh_token"]} == {answer["refresh_token"] for answer in answers}
    assert {1: 2} == party.idp.families()[0].redeemed


# --- what can go wrong with one request

UNPROCESSED: dict[str, tuple[Order, int]] = {
    "a bare 400": (lambda s: s.answer(400), 400),
    "invalid_grant": (lambda s: s.refuse(), 400),
    "invalid_client": (lambda s: s.refuse("invalid_client", 401), 401),
    "401 without JSON": (lambda s: s.answer(401, b"", {"content-type": "text/html"}), 401),
    "a server error": (lambda s: s.answer(500, "<h1>sorry</h1>", {"content-type": "text/html"}), 500),
    "busy": (lambda s: s.busy(), 429),
}


@pytest.mark.parametrize("order, status", UNPROCESSED.values(), ids=UNPROCESSED)
async def test_a_refused_refresh_leaves_the_token_as_it_was(party: RelyingParty, order: Order, status: int):
    tokens = await party.connect()
    order(party.idp.script.refresh)
    assert status == (await party.refresh(tokens["refresh_token"])).status_code
    assert {} == party.idp.families()[0].redeemed
    assert 200 == (await party.refresh(tokens["refresh_token"])).status_code


@pytest.mark.parametrize("said", ["120", "-1", "1e9", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"])
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_sent_as_given(party: RelyingParty, said: str, status: int):
    party.idp.script.refresh.busy(said, status)
    answer = await party.refresh("any")
    assert (status, said) == (answer.status_code, answer.headers["retry-after"])


async def test_a_lost_answer_has_spent_the_token_and_a_cut_one_has_not(party: RelyingParty):
    tokens = await party.connect()
    party.idp.script.refresh.close_after_accept()
    party.idp.script.refresh.close_after_accept(after_work=True)
    redeemed = []
    for _ in range(2):
        with pytest.raises(httpx2.RemoteProtocolError):
            await party.refresh(tokens["refresh_token"])
        redeemed.append(party.idp.families()[0].redeemed.get(1, 0))
    assert [0, 1] == redeemed


@pytest.mark.parametrize("after_work, redeemed", [(False, 0), (True, 1)])
async def test_a_hanging_refresh_is_processed_before_or_after(party: RelyingParty, after_work: bool, redeemed: int):
    tokens = await party.connect()
    hold = party.idp.script.refresh.hang(after_work=after_work)
    task = asyncio.create_task(party.refresh(tokens["refresh_token"]))
    await hold.arrived()
    assert redeemed == party.idp.families()[0].redeemed.get(1, 0)
    hold.release()
    assert 200 == (await task).status_code


@pytest.mark.parametrize(
    "values, expected",
    [
        ({"refresh_token": None}, {"refresh_token": None}),
        ({"refresh_token": ""}, {"refresh_token": ""}),
        ({"scope": None}, {"scope": None}),
        ({"scope": "openid"}, {"scope": "openid"}),
        ({"scope": "openid admin"}, {"scope": "openid admin"}),
        ({"expires_in": 0, "token_type": "mac"}, {"expires_in": 0, "token_type": "mac"}),
    ],
)
async def test_members_of_a_refresh_answer_can_be_set(
    party: RelyingParty, values: dict[str, Any], expected: dict[str, Any]
):
    tokens = await party.connect()
    party.idp.script.refresh.fields(**values)
    answer = (await party.refresh(tokens["refresh_token"])).json()
    assert expected == {name: answer.get(name) for name in expected}
    assert "access_token" in answer


@pytest.mark.parametrize(
    "claims", [{"iss": "https://evil.example"}, {"sub": "U666666"}, {"aud": "other"}, {"azp": "other"}]
)
async def test_the_id_token_of_a_refresh_answer_can_lie(party: RelyingParty, claims: dict[str, str]):
    party.idp.script.refresh.alter_id_token(claims=claims)
    tokens = await party.connect()  # the exchange is left in peace
    answer = (await party.refresh(tokens["refresh_token"])).json()
    honest, forged = (
        jwt.decode(one["id_token"], party.idp.keys.key("RS256"), algorithms=["RS256"]).claims
        for one in (tokens, answer)
    )
    assert claims.items() <= forged.items()
    assert not claims.items() <= honest.items()


async def test_an_answer_can_be_told_again_late_or_to_another(party: RelyingParty, clock: TestClock):
    alice, bob = await party.connect("alice"), await party.connect("bob")
    (reported,) = party.idp.token_responses("bot", "bob")
    assert bob == reported.document
    party.idp.script.refresh.answer(200, reported.document)
    assert bob == (await party.refresh(alice["refresh_token"])).json()

    clock.advance(3600)
    party.idp.script.refresh.answer(200, party.idp.token_responses("bot", "alice")[0].document, after_work=True)
    past = (await party.refresh(alice["refresh_token"])).json()
    assert not party.idp.is_alive(past["access_token"])
    assert ["authorization_code", "refresh_token"] == [
        one.grant_type for one in party.idp.token_responses("bot", "alice")
    ]


# --- for whom


async def test_refresh_fails_and_the_exchange_does_not(party: RelyingParty):
    party.idp.script.refresh.answer(500, times=FOREVER)
    tokens = await party.connect()
    assert 500 == (await party.refresh(tokens["refresh_token"])).status_code
    party.idp.script.reset()
    assert 200 == (await party.refresh(tokens["refresh_token"])).status_code


async def test_one_clients_refresh_hangs_and_anothers_does_not(party: RelyingParty, other: RelyingParty):
    mine, theirs = await party.connect(), await other.connect()
    hold = party.idp.script.client("bot").refresh.hang(times=FOREVER)
    task = asyncio.create_task(party.refresh(mine["refresh_token"]))
    await hold.arrived()
    assert 200 == (await other.refresh(theirs["refresh_token"])).status_code
    hold.release()
    assert 200 == (await task).status_code


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
async def test_a_client_is_known_however_it_says_who_it_is(party: RelyingParty, method: str):
    party.idp.change("bot", auth_method=method)
    party.idp.script.client("bot").token.answer(418)
    assert 418 == (await party.refresh("any")).status_code
    assert 400 == (await party.refresh("any")).status_code
    assert 2 == party.idp.count("token", "bot")


async def test_the_narrower_script_goes_first_and_the_others_wait(party: RelyingParty):
    script = party.idp.script
    script.token.answer(504)
    script.refresh.answer(503)
    script.client("bot").token.answer(502)
    script.client("bot").refresh.answer(501)
    statuses = [(await party.refresh("any")).status_code for _ in range(5)]
    assert [501, 502, 503, 504, 400] == statuses


async def test_the_narrower_alteration_has_the_last_word(party: RelyingParty):
    party.idp.script.token.fields(scope="everybody", expires_in=7)
    party.idp.script.client("bot").token.fields(scope="bot")
    answer = await party.connect()
    assert ("bot", 7) == (answer["scope"], answer["expires_in"])


async def test_a_token_and_a_sign_in_belong_to_their_client(party: RelyingParty):
    tokens = await party.connect()
    party.idp.register(Client("other", redirect_uris=(REDIRECT,)))
    await party.get("/userinfo", tokens["access_token"])
    assert 1 == party.idp.count("userinfo", "bot") == party.idp.count("consent", "bot")
    assert 0 == party.idp.count("userinfo", "other")
