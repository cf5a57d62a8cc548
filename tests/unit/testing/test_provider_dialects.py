"""Slack's and GitHub's way of saying the same things, and clients that sign."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from tests.unit.testing.conftest import REDIRECT, RelyingParty


async def test_slack_nests_and_says_bot(party: RelyingParty):
    party.idp.change("bot", dialect="slack")
    party.scope = "chat:write,channels:read"
    answer = await party.connect()
    assert {
        "ok": True,
        "token_type": "bot",
        "scope": "chat:write,channels:read",
        "team": {"id": "T111", "name": "Team T111"},
        "authed_user": {"id": "U234567"},
        "enterprise": None,
    }.items() <= answer.items()
    assert not {"expires_in", "refresh_token", "id_token"} & set(answer)


async def test_slack_rotates_tokens_for_apps_that_want_it(party: RelyingParty):
    party.idp.change("bot", dialect="slack", access_lifetime=43200)
    answer = await party.connect()
    assert 43200 == answer["expires_in"]
    again = (await party.refresh(answer["refresh_token"])).json()
    assert (True, "bot") == (again["ok"], again["token_type"])


async def test_slack_puts_a_users_token_inside(party: RelyingParty):
    party.idp.change("bot", dialect="slack")
    answer = (await party.exchange(await party.code(scope=None, user_scope="search:read,users:read"))).json()
    assert "access_token" not in answer
    user = answer["authed_user"]
    assert ("U234567", "user", "search:read,users:read") == (user["id"], user["token_type"], user["scope"])
    assert party.idp.is_alive(user["access_token"])


async def test_slack_says_no_with_200(party: RelyingParty):
    party.idp.change("bot", dialect="slack")
    answer = await party.exchange("unknown")
    assert (200, {"ok": False, "error": "invalid_code"}) == (answer.status_code, answer.json())


async def test_slack_tells_who_it_is_and_revokes_by_the_token(party: RelyingParty):
    party.idp.change("bot", dialect="slack")
    token = (await party.connect("mallory"))["access_token"]
    assert {"ok": True, "user_id": "U666666", "team_id": "T666"}.items() <= (
        await party.get("/userinfo", token)
    ).json().items()
    headers = {"authorization": f"Bearer {token}"}
    for expected in ({"ok": True, "revoked": True}, {"ok": False, "error": "invalid_auth"}):
        assert expected == (await party.http.post(party.idp.url("/api/auth.revoke"), headers=headers)).json()
    assert not party.idp.is_alive(token)


async def test_github_answers_with_a_form_unless_asked_for_json(party: RelyingParty):
    party.idp.change("bot", dialect="github", auth_method="client_secret_post")
    party.scope = "repo gist"
    answer = await party.exchange(await party.code())
    found = dict(parse_qsl(answer.text))
    assert answer.headers["content-type"].startswith("application/x-www-form-urlencoded")
    assert {"access_token", "token_type", "scope"} == set(found)
    assert ("bearer", "repo,gist") == (found["token_type"], found["scope"])

    party.http.headers["accept"] = "application/json"
    assert {"access_token", "token_type", "scope"} == set(await party.connect())


async def test_a_form_answer_can_be_altered_too(party: RelyingParty):
    party.idp.change("bot", dialect="github")
    party.idp.script.token.alter(lambda found: {**found, "scope": "", "token_type": None})
    found = dict(parse_qsl((await party.exchange(await party.code())).text, keep_blank_values=True))
    assert ("", False) == (found["scope"], "token_type" in found)


async def test_github_says_no_with_200(party: RelyingParty):
    party.idp.change("bot", dialect="github")
    party.http.headers["accept"] = "application/json"
    answer = await party.exchange("unknown")
    assert (200, "bad_verification_code") == (answer.status_code, answer.json()["error"])


async def test_github_people_are_numbers(party: RelyingParty):
    party.idp.change("bot", dialect="github")
    party.http.headers["accept"] = "application/json"
    profile = (await party.get("/user", (await party.connect("bob"))["access_token"])).json()
    assert (1002, "bob") == (profile["id"], profile["login"])


@pytest.fixture
def key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": "mine"}, private=True)


def _assertion(party: RelyingParty, key: ECKey, **changes: Any) -> dict[str, str]:
    now = int(party.idp.clock.now().timestamp())
    claims = {
        "iss": "bot",
        "sub": "bot",
        "aud": party.idp.issuer,
        "jti": "once",
        "iat": now,
        "exp": now + 60,
        **changes,
    }
    text = jwt.encode({"alg": "ES256", "kid": "mine"}, claims, key)
    kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    return {"client_assertion_type": kind, "client_assertion": text, "client_id": "bot"}


async def test_a_client_may_prove_itself_by_a_signature(party: RelyingParty, key: ECKey):
    party.idp.change("bot", auth_method="private_key_jwt", public_keys=(key.as_dict(private=False),))
    form = {"grant_type": "authorization_code", "redirect_uri": REDIRECT, "code_verifier": party.verifier}
    for expected in (200, 401):  # the second assertion repeats its jti
        sent = {**form, "code": await party.code(), **_assertion(party, key)}
        assert expected == (await party.http.post(party.idp.url("/token"), data=sent)).status_code


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "https://other.example"},
        {"aud": ["http://127.0.0.1", "https://other.example"]},
        {"sub": "other"},
        {"iss": "other"},
        {"exp": 1},
        {"exp": 10**11},
        {"exp": "soon"},
        {"jti": 7},
    ],
)
async def test_an_assertion_must_say_the_right_things(party: RelyingParty, key: ECKey, changes: dict[str, Any]):
    party.idp.change("bot", auth_method="private_key_jwt", public_keys=(key.as_dict(private=False),))
    sent = {"grant_type": "client_credentials", **_assertion(party, key, **changes)}
    answer = await party.http.post(party.idp.url("/token"), data=sent)
    assert (401, "invalid_client") == (answer.status_code, answer.json()["error"])


async def test_an_assertion_by_a_foreign_key_is_refused(party: RelyingParty, key: ECKey):
    party.idp.change("bot", auth_method="private_key_jwt", public_keys=(key.as_dict(private=False),))
    stranger = ECKey.generate_key("P-256", {"kid": "mine"}, private=True)
    sent = {"grant_type": "client_credentials", **_assertion(party, stranger)}
    assert 401 == (await party.http.post(party.idp.url("/token"), data=sent)).status_code
