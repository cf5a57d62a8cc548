"""The provider, honest: strict about everything a real one is strict about."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from oauthbroker.core.secret import Secret
from oauthbroker.testing import Account, Browser, Client, IdentityProvider, TestClock
from tests.unit.testing.conftest import REDIRECT, RelyingParty, answered


async def test_a_person_agrees_and_the_client_gets_tokens(party: RelyingParty):
    callback = await party.idp.agree(party.authorization_url(), "bob")
    found = answered(callback)
    answer = (await party.exchange(found["code"])).json()

    assert REDIRECT == callback.partition("?")[0]
    assert {"code", "state", "iss"} == set(found)
    assert (party.state, party.idp.issuer) == (found["state"], found["iss"])
    assert ("Bearer", 3600, "openid email chat:write") == (answer["token_type"], answer["expires_in"], answer["scope"])
    assert "bob" == (await party.get("/api/me", answer["access_token"])).json()["login"]


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
async def test_the_id_token_verifies_against_the_published_keys(party: RelyingParty, clock: TestClock, alg: str):
    party.idp.change("bot", id_token_alg=alg)
    answer = await party.connect("bob")
    keys = KeySet.import_key_set((await party.get("/jwks")).json())
    token = jwt.decode(answer["id_token"], keys, algorithms=[alg])

    now = int(clock.now().timestamp())
    assert alg == token.header["alg"]
    assert {
        "iss": party.idp.issuer,
        "sub": "U345678",
        "aud": "bot",
        "nonce": party.nonce,
        "iat": now,
        "exp": now + 3600,
        "email": "bob@people.example",
    }.items() <= token.claims.items()


async def test_discovery_names_the_endpoints_under_both_well_known_paths(party: RelyingParty):
    for path in ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"):
        document = (await party.get(path)).json()
        assert party.idp.issuer == document["issuer"]
        for name in ("authorization", "token", "userinfo", "revocation"):
            assert document[f"{name}_endpoint"].startswith(party.idp.base_url)
        assert ["S256"] == document["code_challenge_methods_supported"]
    assert 2 == party.idp.count("discovery")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"scope": "chat:write chat:delete"}, "invalid_scope"),
        ({"scope": ["chat:write", "chat:write"]}, "invalid_request"),
    ],
)
async def test_a_wrong_authorization_request_goes_back_with_an_error(
    party: RelyingParty, changes: dict[str, Any], error: str
):
    party.idp.change("bot", scopes=frozenset({"openid", "email", "chat:write"}))
    found = answered(await party.idp.agree(party.authorization_url(**changes)))
    assert (error, party.state) == (found["error"], found["state"])
    assert "code" not in found


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "nobody"},
        {"redirect_uri": None},
        {"redirect_uri": REDIRECT + "/"},
        {"redirect_uri": REDIRECT + "?x=1"},
        {"redirect_uri": "http://127.0.0.1:10/callback/bot"},
    ],
)
async def test_a_strange_client_or_address_is_never_redirected_to(party: RelyingParty, changes: dict[str, Any]):
    with pytest.raises(AssertionError, match="refused with 400"):
        await party.idp.agree(party.authorization_url(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"code_verifier": "x" * 43},
        {"code_verifier": ""},
        {"redirect_uri": REDIRECT + "/"},
    ],
)
async def test_a_code_is_bound_to_its_verifier_and_address(party: RelyingParty, changes: dict[str, Any]):
    answer = await party.exchange(await party.code(), **changes)
    assert (400, "invalid_grant") == (answer.status_code, answer.json()["error"])


async def test_an_unknown_code_is_refused(party: RelyingParty):
    assert "invalid_grant" == (await party.exchange("made-up")).json()["error"]


async def test_a_code_works_once_and_its_reuse_revokes_the_tokens(party: RelyingParty):
    code = await party.code()
    first = (await party.exchange(code)).json()
    assert 200 == (await party.get("/api/me", first["access_token"])).status_code

    assert "invalid_grant" == (await party.exchange(code)).json()["error"]
    assert 401 == (await party.get("/api/me", first["access_token"])).status_code
    assert "invalid_grant" == (await party.refresh(first["refresh_token"])).json()["error"]


async def test_a_code_lives_a_minute(party: RelyingParty, clock: TestClock):
    code = await party.code()
    clock.advance(61)
    assert "invalid_grant" == (await party.exchange(code)).json()["error"]


async def test_a_code_of_another_client_is_refused(party: RelyingParty):
    party.idp.register(Client("other", redirect_uris=(REDIRECT,)))
    code = await party.code()
    party.client_id = "other"
    assert "invalid_grant" == (await party.exchange(code)).json()["error"]


METHODS = ["client_secret_basic", "client_secret_post", "none"]


@pytest.mark.parametrize("registered", METHODS)
@pytest.mark.parametrize("used", METHODS)
async def test_only_the_registered_client_authentication_is_accepted(party: RelyingParty, registered: str, used: str):
    party.idp.change("bot", auth_method=registered)
    form = {
        "grant_type": "authorization_code",
        "code": await party.code(),
        "redirect_uri": REDIRECT,
        "code_verifier": party.verifier,
    }
    party.idp.change("bot", auth_method="client_secret_basic")  # so that there is a secret to try with
    secret = party.idp.client("bot").reveal_secret()
    party.idp.change("bot", auth_method=registered)
    if used != "client_secret_basic":
        form["client_id"] = "bot"
    if used == "client_secret_post":
        form["client_secret"] = secret
    credentials = httpx2.BasicAuth("bot", secret) if used == "client_secret_basic" else httpx2.Auth()
    answer = await party.http.post(party.idp.url("/token"), data=form, auth=credentials)

    if used == registered:
        assert 200 == answer.status_code
    else:
        assert (401, "invalid_client") == (answer.status_code, answer.json()["error"])


async def test_two_client_authentications_at_once_are_refused(party: RelyingParty):
    answer = await party.exchange(await party.code(), client_secret="also")
    assert (400, "invalid_request") == (answer.status_code, answer.json()["error"])


async def test_a_wrong_secret_is_invalid_client(party: RelyingParty):
    answer = await party.http.post(
        party.idp.url("/token"), data={"grant_type": "authorization_code"}, auth=("bot", "guess")
    )
    assert (401, "invalid_client") == (answer.status_code, answer.json()["error"])
    assert answer.headers["www-authenticate"].startswith("Basic")


async def test_refreshing_rotates_and_reuse_kills_the_family(party: RelyingParty):
    first = await party.connect()
    second = (await party.refresh(first["refresh_token"])).json()
    assert first["refresh_token"] != second["refresh_token"]
    assert first["access_token"] != second["access_token"]

    assert "invalid_grant" == (await party.refresh(first["refresh_token"])).json()["error"]
    assert "invalid_grant" == (await party.refresh(second["refresh_token"])).json()["error"]
    assert not party.idp.is_alive(second["access_token"])


async def test_a_grace_window_forgives_reuse(party: RelyingParty, clock: TestClock):
    party.idp.change("bot", reuse_grace=10)
    first = await party.connect()
    assert 200 == (await party.refresh(first["refresh_token"])).status_code
    clock.advance(9)
    assert 200 == (await party.refresh(first["refresh_token"])).status_code
    clock.advance(1)
    assert 400 == (await party.refresh(first["refresh_token"])).status_code


async def test_without_rotation_no_refresh_token_comes_back(party: RelyingParty):
    party.idp.change("bot", rotate_refresh=False)
    first = await party.connect()
    for _ in range(2):
        answer = (await party.refresh(first["refresh_token"], scope="chat:write")).json()
        assert "refresh_token" not in answer
        assert "chat:write" == answer["scope"]
    wider = await party.refresh(first["refresh_token"], scope="admin")
    assert "invalid_scope" == wider.json()["error"]


async def test_access_tokens_expire_by_the_injected_clock(party: RelyingParty, clock: TestClock):
    token = (await party.connect())["access_token"]
    clock.advance(3599)
    assert 200 == (await party.get("/api/messages", token)).status_code
    clock.advance(1)
    assert 401 == (await party.get("/api/messages", token)).status_code
    assert 401 == (await party.get("/api/messages")).status_code


async def test_expire_ends_access_tokens_and_leaves_refresh_tokens(party: RelyingParty):
    first = await party.connect()
    party.idp.expire("bot")
    assert not party.idp.is_alive(Secret(first["access_token"]))
    assert 200 == (await party.refresh(first["refresh_token"])).status_code


async def test_a_client_can_be_without_expiry_and_without_refresh(party: RelyingParty, clock: TestClock):
    party.idp.change("bot", access_lifetime=None, issue_refresh=False)
    answer = await party.connect()
    clock.advance(10**8)
    assert {"access_token", "token_type", "scope", "id_token"} == set(answer)
    assert party.idp.is_alive(answer["access_token"])


@pytest.mark.parametrize(("reach", "survivors"), [("token", 1), ("grant", 0)])
async def test_revocation_reaches_as_far_as_the_client_says(party: RelyingParty, reach: str, survivors: int):
    party.idp.change("bot", revoke_reach=reach)
    await party.connect("alice")
    again = RelyingParty(party.idp, party.http)
    tokens = await again.connect("alice")
    bob = await RelyingParty(party.idp, party.http).connect("bob")

    assert 200 == (await party.post("/revoke", token=tokens["refresh_token"])).status_code
    assert survivors == party.idp.living_tokens("bot", "alice")
    assert party.idp.is_alive(bob["access_token"])
    assert 200 == (await party.post("/revoke", token="unknown")).status_code


async def test_a_foreign_client_revokes_nothing(party: RelyingParty):
    party.idp.register(Client("other", redirect_uris=(REDIRECT,)))
    token = (await party.connect())["access_token"]
    party.client_id = "other"
    assert 200 == (await party.post("/revoke", token=token)).status_code
    assert party.idp.is_alive(token)


async def test_denying_and_unticking_scopes_reach_the_client(party: RelyingParty):
    denied = answered(await party.idp.agree(party.authorization_url(), deny=True))
    assert ("access_denied", party.state) == (denied["error"], denied["state"])

    callback = await party.idp.agree(party.authorization_url(), scopes=["openid"])
    assert "openid" == (await party.exchange(answered(callback)["code"])).json()["scope"]


async def test_one_browser_can_switch_accounts(party: RelyingParty):
    browser = Browser()
    for login in ("alice", "mallory", "mallory"):
        callback = await party.idp.agree(party.authorization_url(), login, browser=browser)
        token = (await party.exchange(answered(callback)["code"])).json()["access_token"]
        assert login == (await party.get("/api/me", token)).json()["login"]
    assert 2 == party.idp.count("login") - 1  # the second time mallory was signed in already; switching adds a GET


async def test_auto_consent_shows_no_page(party: RelyingParty):
    party.idp.auto_consent = "mallory"
    browser = Browser()
    page = await browser.open(party.authorization_url())
    assert page.location is not None
    assert REDIRECT == page.location.partition("?")[0]
    assert 0 == party.idp.count("consent")


async def test_the_person_sees_who_asks_for_what(party: RelyingParty):
    party.idp.change("bot", name="<b>Planner & Co</b>")
    browser = Browser()
    page = await browser.open(party.authorization_url())
    assert "<b>Planner & Co</b>" in page.text
    assert "Alice Arden" in page.text
    page = await browser.submit({"login": "alice"})
    assert {"openid", "email", "chat:write"} <= set(page.text.split())
    assert "<script" not in page.source
    assert "default-src 'none'" in page.header("content-security-policy")


async def test_two_providers_are_two_issuers():
    async with IdentityProvider() as one, IdentityProvider() as two:
        assert one.issuer != two.issuer
        assert urlsplit(one.issuer).hostname == urlsplit(two.issuer).hostname == "127.0.0.1"


def test_it_runs_in_a_thread_for_those_without_a_loop():
    with IdentityProvider() as idp:
        answer = httpx2.get(idp.url("/jwks"), trust_env=False)
    assert 200 == answer.status_code
    assert 1 == idp.count("jwks")
    with pytest.raises(httpx2.TransportError):
        httpx2.get(idp.url("/jwks"), trust_env=False)


async def test_requests_are_recorded_without_secrets(party: RelyingParty):
    tokens = await party.connect()
    await party.get("/api/me", tokens["access_token"])
    (seen,) = party.idp.seen("authorization_code")

    assert seen.has_code_verifier
    assert seen.form["code_verifier"] == Secret(party.verifier)
    assert REDIRECT == seen.form["redirect_uri"]
    assert "Basic ***" == seen.headers["authorization"]
    shown = repr(party.idp.requests)
    for secret in (party.verifier, tokens["access_token"], tokens["refresh_token"]):
        assert secret not in shown
    assert (1, 1, 1) == tuple(party.idp.count(name) for name in ("token", "authorize", "resource"))


async def test_everything_secret_is_a_canary(party: RelyingParty):
    tokens = await party.connect()
    for kind, text in {
        "access token": tokens["access_token"],
        "refresh token": tokens["refresh_token"],
        "ID token": tokens["id_token"],
        "client secret": party.idp.client("bot").reveal_secret(),
        "code verifier": party.verifier,
        "state": party.state,
        "nonce": party.nonce,
    }.items():
        (find,) = [one for one in party.idp.canaries.search(f"<{text}>", "here") if one.kind == kind]
        assert ("plain", "here") == (find.form, find.where)


async def test_accounts_carry_what_a_test_gives_them(party: RelyingParty):
    party.idp.add_account(Account("dora", "U9", "T9", number=99, name="Dora", claims={"hd": "corp.example"}))
    tokens = await party.connect("dora")
    assert "corp.example" == (await party.get("/userinfo", tokens["access_token"])).json()["hd"]


async def test_the_resource_can_demand_a_scope(party: RelyingParty):
    token = (await party.connect())["access_token"]
    party.idp.resource_scope = "chat:write"
    assert 200 == (await party.get("/api/messages", token)).status_code
    party.idp.resource_scope = "admin"
    answer = await party.get("/api/messages", token)
    assert 403 == answer.status_code
    assert "insufficient_scope" in answer.headers["www-authenticate"]


async def test_client_credentials_give_a_machine_token(party: RelyingParty):
    answer = (await party.post("/token", grant_type="client_credentials", scope="chat:write")).json()
    assert "refresh_token" not in answer
    assert "id_token" not in answer
    assert "bot" == (await party.get("/api/me", answer["access_token"])).json()["login"]


def test_a_client_without_a_secret_says_so():
    with pytest.raises(LookupError, match="not registered yet"):
        Client("bot").reveal_secret()


async def test_openid_is_no_choice_of_the_user_and_a_scope_that_the_page_does_not_offer_fails_the_test(
    party: RelyingParty,
):
    answer = answered(await party.idp.agree(party.authorization_url(), scopes=["email"]))
    assert "openid email" == (await party.exchange(answer["code"])).json()["scope"]
    with pytest.raises(ValueError, match=r"no scope on its consent page 'chat:wrte'\. Did you mean 'chat:write'"):
        await party.idp.agree(party.authorization_url(), scopes=["chat:wrte"])
