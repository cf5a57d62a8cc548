"""Pushed authorization requests (RFC 9126): once, soon, by the client that pushed, and nothing beside."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from oauthbroker.testing import Client, TestClock
from tests.unit.testing.conftest import REDIRECT, RelyingParty, answered


async def push(party: RelyingParty, **changes: Any) -> httpx2.Response:
    return await party.post("/par", **dict(parse_qsl(urlsplit(party.authorization_url(**changes)).query)))


def link(party: RelyingParty, request_uri: str, **more: str) -> str:
    fields = {"client_id": party.client_id, "request_uri": request_uri, **more}
    return party.idp.url("/authorize") + "?" + urlencode(fields)


async def test_a_pushed_request_leads_to_a_code(party: RelyingParty):
    answer = await push(party)
    assert (201, 60) == (answer.status_code, answer.json()["expires_in"])
    found = answered(await party.idp.agree(link(party, answer.json()["request_uri"]), "bob"))
    assert party.state == found["state"]
    assert 200 == (await party.exchange(found["code"])).status_code
    assert (1, 1) == (party.idp.count("par"), party.idp.count("authorize"))
    assert {"client_id", "request_uri"} == set(party.idp.seen("authorize")[0].form)


async def test_a_request_uri_is_good_once(party: RelyingParty):
    url = link(party, (await push(party)).json()["request_uri"])
    await party.idp.agree(url)
    with pytest.raises(AssertionError, match="refused with 400"):
        await party.idp.agree(url)


async def test_a_request_uri_lives_a_minute(party: RelyingParty, clock: TestClock):
    url = link(party, (await push(party)).json()["request_uri"])
    clock.advance(60)
    with pytest.raises(AssertionError, match="refused with 400"):
        await party.idp.agree(url)


@pytest.mark.parametrize("more", [{"state": "x" * 16}, {"scope": "admin"}, {"redirect_uri": REDIRECT}])
async def test_nothing_may_stand_beside_it(party: RelyingParty, more: dict[str, str]):
    url = link(party, (await push(party)).json()["request_uri"], **more)
    with pytest.raises(AssertionError, match="refused with 400"):
        await party.idp.agree(url)


async def test_another_client_cannot_use_it(party: RelyingParty):
    request_uri = (await push(party)).json()["request_uri"]
    party.idp.register(Client("other", redirect_uris=(REDIRECT,)))
    party.client_id = "other"
    with pytest.raises(AssertionError, match="refused with 400"):
        await party.idp.agree(link(party, request_uri))


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"redirect_uri": REDIRECT + "/"}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"client_id": "other"}, "invalid_request"),
        ({"request_uri": "urn:x"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"scope": "admin"}, "invalid_scope"),
    ],
)
async def test_a_wrong_request_is_refused_at_once(party: RelyingParty, changes: dict[str, str], error: str):
    party.idp.change("bot", scopes=frozenset({"openid"}))
    answer = await push(party, **{"scope": "openid", **changes})
    assert (400, error) == (answer.status_code, answer.json()["error"])


async def test_the_client_has_to_prove_itself(party: RelyingParty):
    answer = await party.http.post(party.idp.url("/par"), data={"client_id": "bot", "redirect_uri": REDIRECT})
    assert (401, "invalid_client") == (answer.status_code, answer.json()["error"])


async def test_a_client_that_posts_its_secret_does_not_push_it(party: RelyingParty):
    party.idp.change("bot", auth_method="client_secret_post")
    found = answered(await party.idp.agree(link(party, (await push(party)).json()["request_uri"])))
    assert "code" in found


async def test_required_means_required(party: RelyingParty):
    party.idp.par = "required"
    with pytest.raises(AssertionError, match="have to be pushed"):
        await party.idp.agree(party.authorization_url())
    assert "code" in answered(await party.idp.agree(link(party, (await push(party)).json()["request_uri"])))


@pytest.mark.parametrize(
    "word, reported", [("off", (None, None)), ("offered", ("/par", False)), ("required", ("/par", True))]
)
async def test_the_metadata_lists_the_supported_features(party: RelyingParty, word: Any, reported: tuple[Any, Any]):
    party.idp.par = word
    document = (await party.get("/.well-known/oauth-authorization-server")).json()
    url = document.get("pushed_authorization_request_endpoint")
    assert reported == (
        url and url.removeprefix(party.idp.base_url),
        document.get("require_pushed_authorization_requests"),
    )


@pytest.mark.parametrize("word, named", [("off", False), ("offered", True), ("required", True)])
async def test_the_endpoints_of_an_app_name_it_where_it_is_offered(party: RelyingParty, word: Any, named: bool):
    party.idp.par = word
    assert named == (party.idp.endpoints.get("pushedAuthorizationUrl") == party.idp.url("/par"))


async def test_it_can_be_scripted(party: RelyingParty):
    party.idp.script.par.busy(7, 503)
    party.idp.script.par.fields(expires_in=None)
    assert "7" == (await push(party)).headers["retry-after"]
    assert {"request_uri"} == set((await push(party)).json())
