"""What one revocation ends, as far as it reaches, and the ways there are to ask for it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from oauthbroker.testing import Client
from tests.unit.testing.conftest import REDIRECT, RelyingParty


async def alive(party: RelyingParty, *answers: dict[str, Any]) -> list[bool]:
    return [party.idp.is_alive(answer["access_token"]) for answer in answers]


async def refreshable(party: RelyingParty, *answers: dict[str, Any]) -> list[bool]:
    return [(await party.refresh(answer["refresh_token"])).status_code == 200 for answer in answers]


REACH: dict[tuple[str, str], tuple[list[bool], list[bool]]] = {
    # (reach, token given back): what of (this login, the same person's other login, bob) lives on: access, refresh
    ("only", "access_token"): ([False, True, True], [True, True, True]),
    ("only", "refresh_token"): ([True, True, True], [False, True, True]),
    ("token", "access_token"): ([False, True, True], [True, True, True]),
    ("token", "refresh_token"): ([False, True, True], [False, True, True]),
    ("family", "access_token"): ([False, True, True], [False, True, True]),
    ("family", "refresh_token"): ([False, True, True], [False, True, True]),
    ("grant", "access_token"): ([False, False, True], [False, False, True]),
    ("grant", "refresh_token"): ([False, False, True], [False, False, True]),
}


@pytest.mark.parametrize("reach, given", REACH, ids=str)
async def test_a_revocation_reaches_so_far_and_no_further(party: RelyingParty, reach: str, given: str):
    party.idp.change("bot", revoke_reach=reach)
    logins = [await party.connect("alice"), await party.connect("alice"), await party.connect("bob")]
    assert 200 == (await party.post("/revoke", token=logins[0][given])).status_code
    living, refresh_works = REACH[reach, given]
    ended = living.count(False) + refresh_works.count(False)
    (revocation,) = party.idp.revocations
    assert ("bot", "alice", given.removesuffix("_token"), ended) == (
        revocation.client_id, revocation.login, revocation.kind, revocation.ended,
    )  # fmt: skip
    assert living == await alive(party, *logins)
    assert refresh_works == await refreshable(party, *logins)


async def test_a_strange_token_ends_nothing(party: RelyingParty):
    tokens = await party.connect()
    party.idp.register(Client("other", redirect_uris=(REDIRECT,)))
    party.client_id = "other"
    for token in (tokens["refresh_token"], "unheard-of"):
        assert 200 == (await party.post("/revoke", token=token)).status_code
    assert [("", 0), ("", 0)] == [(one.kind, one.ended) for one in party.idp.revocations]
    assert party.idp.families()[0].is_alive


async def test_a_revoked_family_says_why(party: RelyingParty):
    tokens = await party.connect()
    await party.post("/revoke", token=tokens["refresh_token"])
    assert ["revocation"] == [family.ended_by for family in party.idp.families()]


async def test_a_token_can_be_its_own_credential(party: RelyingParty):
    tokens = await party.connect()
    url = party.idp.url("/api/token/revoke")
    bearer = {"authorization": f"Bearer {tokens['access_token']}"}
    assert 401 == (await party.http.post(url)).status_code
    assert [204, 401] == [(await party.http.post(url, headers=bearer)).status_code for _ in range(2)]
    assert [False] == await alive(party, tokens)
    assert [("access", 1)] == [(one.kind, one.ended) for one in party.idp.revocations]
    assert 2 == party.idp.count("revoke", "bot")


async def delete(party: RelyingParty, what: str, body: Any, secret: str | None = None) -> httpx2.Response:
    secret = secret or party.idp.client("bot").reveal_secret()
    url = party.idp.url(f"/applications/{party.client_id}/{what}")
    return await party.http.request("DELETE", url, json=body, auth=("bot", secret))


@pytest.mark.parametrize("what, others", [("token", [True, True]), ("grant", [False, True])])
async def test_an_application_can_delete_a_token_or_the_whole_grant(party: RelyingParty, what: str, others: list[bool]):
    party.idp.change("bot", dialect="github", access_lifetime=3600)
    logins = [(await party.exchange(await party.code(login), scope="repo")) for login in ("alice", "alice", "bob")]
    found = [dict(httpx2.QueryParams(answer.text)) for answer in logins]
    assert 204 == (await delete(party, what, {"access_token": found[0]["access_token"]})).status_code
    assert [False, *others] == await alive(party, *found)
    assert found[0]["access_token"] not in repr(party.idp.requests)


async def test_an_application_is_told_the_fault(party: RelyingParty):
    tokens = await party.connect()
    body = {"access_token": tokens["access_token"]}
    answers = [
        await delete(party, "token", body, secret="guess"),
        await delete(party, "token", {"access_token": "unheard-of"}),
        await delete(party, "token", ["x"]),
        await delete(party, "nothing", body),
    ]
    party.client_id = "other"
    answers.append(await delete(party, "token", body))
    assert [401, 404, 422, 404, 404] == [answer.status_code for answer in answers]
    assert [True] == await alive(party, tokens)
    assert [] == party.idp.revocations


async def test_slack_counts_too(party: RelyingParty):
    party.idp.change("bot", dialect="slack")
    tokens = await party.connect()
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    assert (await party.http.post(party.idp.url("/api/auth.revoke"), headers=headers)).json()["ok"]
    assert [("bot", 1)] == [(one.client_id, one.ended) for one in party.idp.revocations]
