"""Clients that change their secret, name a resource, or act for themselves."""

from __future__ import annotations

import httpx2
import pytest

from tests.unit.testing.conftest import RelyingParty

ONE, TWO = "https://one.example/api", "https://two.example/api"


async def status(party: RelyingParty, secret: str) -> int:
    form = {"grant_type": "client_credentials"}
    return (await party.http.post(party.idp.url("/token"), data=form, auth=("bot", secret))).status_code


async def test_two_secrets_overlap_until_the_old_one_is_retired(party: RelyingParty):
    old = party.idp.client("bot").reveal_secret()
    new = party.idp.rotate_secret("bot").reveal()
    assert [200, 200, 401] == [await status(party, each) for each in (old, new, "guess")]

    newest = party.idp.rotate_secret("bot", keep=False).reveal()
    assert [401, 401, 200] == [await status(party, each) for each in (old, new, newest)]
    assert ["client secret"] * 3 == [party.idp.canaries.search(each, "here")[0].kind for each in (old, new, newest)]


async def test_every_secret_serves_a_posting_client_too(party: RelyingParty):
    party.idp.change("bot", auth_method="client_secret_post")
    old = party.idp.client("bot").reveal_secret()
    party.idp.rotate_secret("bot")
    form = {"grant_type": "client_credentials", "client_id": "bot", "client_secret": old}
    assert 200 == (await party.http.post(party.idp.url("/token"), data=form)).status_code


async def post_pairs(party: RelyingParty, pairs: list[tuple[str, str]]) -> httpx2.Response:
    credentials = ("bot", party.idp.client("bot").reveal_secret())
    form: dict[str, list[str]] = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return await party.http.post(party.idp.url("/token"), data=form, auth=credentials)


async def test_resources_are_recorded_from_the_first_request_to_the_last(party: RelyingParty):
    code = await party.code(resource=[ONE, TWO])
    first = (await party.exchange(code, resource=ONE)).json()
    again = await post_pairs(
        party,
        [
            ("grant_type", "refresh_token"),
            ("refresh_token", first["refresh_token"]),
            ("resource", ONE),
            ("resource", TWO),
        ],
    )
    assert [(ONE, TWO), (ONE,), (ONE, TWO)] == [
        party.idp.seen(name)[0].resources for name in ("authorize", "authorization_code", "refresh_token")
    ]
    assert (ONE,) == party.idp.resources_of(first["access_token"])
    assert (ONE, TWO) == party.idp.resources_of(again.json()["access_token"])


async def test_a_token_request_without_a_resource_gets_all_that_was_agreed_to(party: RelyingParty):
    tokens = (await party.exchange(await party.code(resource=ONE))).json()
    assert (ONE,) == party.idp.resources_of(tokens["access_token"])


@pytest.mark.parametrize("agreed", [None, ONE])
async def test_a_resource_without_consent_is_refused(party: RelyingParty, agreed: str | None):
    tokens = (await party.exchange(await party.code(resource=agreed))).json()
    answer = await party.refresh(tokens["refresh_token"], resource=TWO)
    assert (400, "invalid_target") == (answer.status_code, answer.json()["error"])
    assert 200 == (await party.refresh(tokens["refresh_token"])).status_code  # and nothing was spent


async def test_a_repeated_parameter_is_still_refused(party: RelyingParty):
    answer = await post_pairs(party, [("grant_type", "client_credentials"), ("scope", "a"), ("scope", "a")])
    assert (400, "invalid_request") == (answer.status_code, answer.json()["error"])


async def test_a_machine_gets_its_own_scopes_only(party: RelyingParty):
    party.idp.change("bot", scopes=frozenset({"read", "write"}), access_lifetime=60)
    asked = (await party.post("/token", grant_type="client_credentials", scope="read", resource=ONE)).json()
    usual = (await party.post("/token", grant_type="client_credentials")).json()
    wider = await party.post("/token", grant_type="client_credentials", scope="read admin")

    assert ("read", "read write", 60) == (asked["scope"], usual["scope"], asked["expires_in"])
    assert "invalid_scope" == wider.json()["error"]
    assert (ONE,) == party.idp.resources_of(asked["access_token"])
    assert [] == party.idp.families("bot")  # nothing to refresh


async def test_a_public_client_gets_no_client_credentials(party: RelyingParty):
    party.idp.change("bot", auth_method="none")
    answer = await party.post("/token", grant_type="client_credentials")
    assert "unsupported_grant_type" == answer.json()["error"]
