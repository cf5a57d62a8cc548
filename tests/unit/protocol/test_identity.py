from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import RSAKey

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner
from oauthbroker.model.owner_check import OwnerFacts
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.identity import OwnerReader, render
from oauthbroker.protocol.messages import reveal
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.protocol.userinfo import userinfo_request, userinfo_response
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import (
    APP,
    CANARY,
    CLIENT_ID,
    RawServer,
    answer,
    assert_clean,
    code_of,
    hits,
    refusal,
    site,
    with_endpoints,
    with_habits,
)

FACTS: dict[str, Any] = {
    "id": 42, "team": {"id": "T1", "name": ""}, "authed_user": {"id": "U1"}, "yes": True, "no": None, "list": ["a"], "float": 1.5,
    "odd": "a:b", "line": "a\nb", "zero": 0, "text": "team", "https://x.example/team_id": "T9", "email": "A@x.example", "big": "x" * 513,
}  # fmt: skip


@pytest.mark.parametrize(
    "template, identity",
    [
        ("slack:user:{team.id}:{authed_user.id}", "slack:user:T1:U1"),
        ("github:user:{id}", "github:user:42"),
        ("n:{zero}", "n:0"),
        ("x:{https://x.example/team_id}", "x:T9"),
        ("{id}:{id}", "42:42"),
        ("x:{id}.a:b-{zero}", "x:42.a:b-0"),
        ("mail:{email}", "mail:A@x.example"),
    ],
)
def test_a_template_is_filled_from_the_facts_and_nothing_is_folded(template, identity):
    assert identity == render(template, FACTS)


@pytest.mark.case("40")
@pytest.mark.parametrize(
    "name", ["missing", "no", "team.name", "team", "list", "yes", "float", "odd", "line", "big", "team.id.x", "text.id", "team.missing", "id.x", ".", "team."]
)  # fmt: skip
def test_a_fact_that_is_missing_or_ambiguous_makes_no_identity(name):
    assert Code.SUBJECT_UNVERIFIABLE == code_of(lambda: render(f"a:{{{name}}}:{{id}}", FACTS))


@pytest.mark.case("40", "45")
def test_an_id_with_colons_needs_a_template_that_can_hold_nothing_else():
    assert "x:user:a:b" == render("x:user:{*odd}", FACTS)
    assert "x:user:42" == render("x:user:{*id}", FACTS)
    for name in ("line", "big", "missing", "team", "no"):
        assert Code.SUBJECT_UNVERIFIABLE == code_of(partial(render, f"x:{{*{name}}}", FACTS))
    for template in ("x:{*odd}:{id}", "x:{id}:{*odd}", "x:{*odd}:y", "x:{*odd}{*id}", "x:{*}"):
        assert code_of(partial(render, template, FACTS)) in {
            Code.APP_MISCONFIGURED,
            Code.SUBJECT_UNVERIFIABLE,
        }


SEVERAL: list[Any] = [{"id": "S1"}, {"id": "S2"}]


@pytest.mark.case("40")
@pytest.mark.parametrize(
    ("template", "facts"),
    [
        ("x:{0.id}", SEVERAL),
        ("x:{1.id}", SEVERAL),
        ("x:{*0.id}", SEVERAL),
        ("x:{sites.0.id}", {"sites": SEVERAL}),
        ("x:{0.sites.0.id}", [{"sites": SEVERAL}]),
        ("x:{sites.0}", {"sites": ["S1", "S1"]}),
    ],
)
def test_the_first_of_several_accounts_identifies_no_user(template: str, facts: Any):
    """The token opens all of them, and the list may come in another order next time."""
    error = refusal(lambda: render(template, facts))
    assert (Code.SUBJECT_UNVERIFIABLE, "the answer lists several accounts") == (error.code, error.note)


@pytest.mark.parametrize(
    ("template", "facts", "identity"),
    [
        ("x:{0.id}", SEVERAL[:1], "x:S1"),
        ("x:{sites.0.id}", {"sites": SEVERAL[:1], "others": SEVERAL}, "x:S1"),
        ("x:{sites.0}:{id}", {"sites": ["S1"], "id": 7}, "x:S1:7"),
        ("x:{1.id}", {"1": {"id": "named"}}, "x:named"),
    ],
)
def test_the_only_one_of_a_list_is_as_good_as_a_member(template: str, facts: Any, identity: str):
    assert identity == render(template, facts)


@pytest.mark.parametrize("template", ["slack:team:T1", "", "{}", "a{"])
def test_a_template_without_a_fact_is_refused_since_all_users_would_be_one(template):
    assert Code.APP_MISCONFIGURED == code_of(lambda: render(template, FACTS))


@pytest.mark.case("45")
@pytest.mark.parametrize("between", ["", "-", ".", "_", "/", "@", "+", "user"])
def test_two_facts_without_a_colon_between_them_are_ambiguous(between: str):
    """A user who may choose the id `b-c` would otherwise be `c` of another team, `a-b`."""
    assert Code.APP_MISCONFIGURED == code_of(partial(render, f"x:{{team.id}}{between}{{id}}", FACTS))
    assert Code.APP_MISCONFIGURED == code_of(partial(render, f"x:{{zero}}:{{team.id}}{between}{{id}}", FACTS))


@pytest.mark.case("39", "45")
@given(st.text(), st.text(), st.text(), st.text())
def test_two_pairs_of_facts_never_render_the_same(a, b, c, d):
    """`a:b` + `c` is not `a` + `b:c`, and near misses stay apart: no case folding, no normalisation, no trimming."""
    try:
        same = render("x:{a}:{b}", {"a": a, "b": b}) == render("x:{a}:{b}", {"a": c, "b": d})
    except BrokerError:
        return
    assert same == ((a, b) == (c, d))


@pytest.mark.case("39")
@pytest.mark.parametrize("other", ["u1", "U1 ", " U1", "\uff351", "U1\u200d"])
def test_a_near_miss_is_another_identity_or_none(other):
    try:
        assert render("x:{sub}", {"sub": other}) != render("x:{sub}", {"sub": "U1"})
    except BrokerError as error:
        assert Code.SUBJECT_UNVERIFIABLE == error.code  # noqa: PT017 - unprintable ones make no identity


# --- userinfo


def test_userinfo_is_asked_with_the_token_in_the_header_and_the_presets_headers():
    app = with_habits(
        user_info_headers={
            "X-Version": "3",
            "authorization": "evil",
            "Host": "evil",
            "Accept": "application/vnd.x+json",
        }
    )
    request = userinfo_request(app, app.endpoints, Secret(f"{CANARY}-at"))
    assert ("GET", APP.endpoints.user_info_url, "application/vnd.x+json", None) == (
        request.method,
        request.url,
        request.accept,
        request.form,
    )
    assert {"X-Version": "3", "Authorization": f"Bearer {CANARY}-at"} == {
        name: reveal(value) for name, value in request.headers.items()
    }
    assert CANARY not in f"{request!r} {request.headers}"


def test_userinfo_needs_an_endpoint():
    app = with_endpoints(user_info_url="")
    assert Code.APP_MISCONFIGURED == code_of(lambda: userinfo_request(app, app.endpoints, Secret("t")))


def test_userinfo_facts_are_a_json_object():
    assert {"sub": "a", "n": 1} == userinfo_response(answer({"sub": "a", "n": 1}))


@pytest.mark.case("34")
@pytest.mark.parametrize(
    "body, status, label, code",
    [
        ({"error": "invalid_token"}, 401, "application/json", Code.SUBJECT_UNVERIFIABLE),
        ({"sub": "a"}, 401, "application/json", Code.SUBJECT_UNVERIFIABLE),
        ({"sub": "a"}, 403, "application/json", Code.SUBJECT_UNVERIFIABLE),
        ({"sub": "a"}, 302, "application/json", Code.SUBJECT_UNVERIFIABLE),
        ({"sub": "a"}, 204, "application/json", Code.SUBJECT_UNVERIFIABLE),
        (f"<html>{CANARY}".encode(), 200, "text/html", Code.SUBJECT_UNVERIFIABLE),
        (f"<html>{CANARY}".encode(), 200, "application/json", Code.SUBJECT_UNVERIFIABLE),
        (b"eyJ.eyJ.x", 200, "application/jwt", Code.SUBJECT_UNVERIFIABLE),
        (["a"], 200, "application/json", Code.SUBJECT_UNVERIFIABLE),
        (b'{"sub":"a","sub":"b"}', 200, "application/json", Code.SUBJECT_UNVERIFIABLE),
        ({"ok": False, "sub": "a"}, 200, "application/json", Code.SUBJECT_UNVERIFIABLE),
        ({"error": "x", "sub": "a"}, 200, "application/json", Code.SUBJECT_UNVERIFIABLE),
        ({}, 500, "application/json", Code.PROVIDER_UNREACHABLE),
        ({}, 429, "application/json", Code.PROVIDER_RATE_LIMITED),
    ],
)
def test_userinfo_that_does_not_tell_who_is_refused(body, status, label, code):
    assert code == code_of(lambda: userinfo_response(answer(body, status, label)))


# --- the reader

KEY = RSAKey.import_key({**RSAKey.generate_key(2048).as_dict(private=True), "kid": "k1"})
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NONCE = Secret("n-1")


def rule(source: Any, template: str) -> IdentityRule:
    return IdentityRule(source, template)


def app_at(server: RawServer, *, mode: Any = "user", owner: Owner | None = None, **endpoints: str) -> App:
    base = server.url
    known = {"issuer": base, "jwks_url": f"{base}/jwks", "user_info_url": f"{base}/me"} | endpoints
    return App(
        name="a", provider="p", flow="authorizationCode", subject_mode=mode, client=Client(CLIENT_ID),
        endpoints=Endpoints(authorization_url=f"{base}/authorize", token_url=f"{base}/token", **known),
        scopes=("openid",), redirect=APP.redirect, owner=owner or Owner(user_identity=rule("idToken", "x:{sub}")),
    )  # fmt: skip


def id_token(server: RawServer, **claims: Any) -> Secret:
    moment = int(NOW.timestamp())
    payload = {
        "iss": server.url,
        "aud": CLIENT_ID,
        "sub": "s-1",
        "exp": moment + 60,
        "iat": moment,
        "nonce": "n-1",
    } | claims
    return Secret(jwt.encode({"alg": "RS256", "kid": "k1"}, payload, KEY, algorithms=["RS256"]))


def tokens(token: Secret | None = None, facts: Mapping[str, Any] | None = None) -> TokenResponse:
    return TokenResponse(
        access_token=Secret("at"),
        token_type="bearer",
        refresh_token=None,
        lifetime_seconds=None,
        scopes=None,
        id_token=token,
        facts=facts or {},
    )


PAGES = {"/jwks": {"keys": [KEY.as_dict(private=False)]}, "/me": {"sub": "s-1", "org": "o-1"}}


@asynccontextmanager
async def owner_reader() -> AsyncIterator[OwnerReader]:
    transport, clock = Transport(plain_http_loopback=True), TestClock(NOW)
    try:
        yield OwnerReader(
            transport=transport, discovery=Discovery(transport, clock, Limits()), clock=clock, limits=Limits()
        )
    finally:
        await transport.close()


async def read(app: App, response: TokenResponse, nonce: Secret | None = NONCE) -> OwnerFacts:
    async with owner_reader() as reader:
        return await reader.read(app, response, nonce, NOW)


async def read_refused(app: App, response: TokenResponse, nonce: Secret | None = NONCE) -> Code:
    with pytest.raises(BrokerError) as caught:
        await read(app, response, nonce)
    assert_clean(caught.value)
    return caught.value.code


async def test_an_id_token_tells_the_account_and_userinfo_is_not_asked():
    async with site(PAGES) as server:
        facts = await read(app_at(server), tokens(id_token(server)))
        assert OwnerFacts(None, "x:s-1", (server.url, "s-1")) == facts
        assert 0 == hits(server, "/me")


async def test_userinfo_is_asked_with_the_token_when_a_rule_reads_it():
    owner = Owner(user_identity=rule("userInfo", "x:{org}:{sub}"))
    async with site(PAGES) as server:
        facts = await read(app_at(server, owner=owner), tokens(id_token(server)))
        assert ("x:o-1:s-1", (server.url, "s-1")) == (facts.user_identity, facts.account)
        assert b"authorization: bearer at" in next(r for r in server.requests if b"/me" in r).lower()


async def test_the_answer_of_userinfo_comes_along_for_the_facts_of_the_connection():
    owner = Owner(user_identity=rule("userInfo", "x:{org}"))
    async with site(PAGES) as server:
        assert PAGES["/me"] == (await read(app_at(server, owner=owner), tokens(id_token(server)))).user_info


@pytest.mark.parametrize(
    "claims, code",
    [
        ({"iss": "https://evil.example"}, Code.SUBJECT_MISMATCH),
        ({"aud": "another-client"}, Code.SUBJECT_MISMATCH),
        ({"azp": "another-client"}, Code.SUBJECT_MISMATCH),
        ({"exp": 1}, Code.ID_TOKEN_INVALID),
        ({"sub": ""}, Code.ID_TOKEN_INVALID),
    ],
)
async def test_an_id_token_of_a_refresh_is_another_subjects_or_invalid(claims, code):
    async with site(PAGES) as server, owner_reader() as reader:
        assert "x:s-1" == (await reader.read_again(app_at(server), tokens(id_token(server)), NOW)).user_identity
        with pytest.raises(BrokerError) as refused:
            await reader.read_again(app_at(server), tokens(id_token(server, **claims)), NOW)
    assert code is refused.value.code


async def test_a_login_is_known_by_the_claims_of_its_id_token_and_refused_without_one():
    async with site(PAGES) as server, owner_reader() as reader:
        assert "s-1" == (await reader.claims(app_at(server), tokens(id_token(server)), NONCE, NOW))["sub"]
        with pytest.raises(BrokerError) as refused:
            await reader.claims(app_at(server), tokens(), NONCE, NOW)
    assert Code.SUBJECT_UNVERIFIABLE is refused.value.code


async def test_a_provider_without_id_tokens_is_read_by_userinfo_alone():
    owner = Owner(user_identity=rule("userInfo", "x:{org}"))
    async with site(PAGES) as server:
        facts = await read(app_at(server, owner=owner, issuer="", jwks_url=""), tokens())
    assert OwnerFacts(None, "x:o-1", None) == facts


REQUIRED = (("org.wide", True), ("org.kind", "big"))


@pytest.mark.parametrize(
    ("org", "code"),
    [
        ({"wide": True, "kind": "big"}, None),
        ({"wide": True, "kind": "big", "more": 1}, None),
        ({"wide": False, "kind": "big"}, Code.SUBJECT_UNVERIFIABLE),
        ({"wide": True, "kind": "small"}, Code.SUBJECT_UNVERIFIABLE),
        ({"wide": "true", "kind": "big"}, Code.SUBJECT_UNVERIFIABLE),
        ({"wide": 1, "kind": "big"}, Code.SUBJECT_UNVERIFIABLE),
        ({"kind": "big"}, Code.SUBJECT_UNVERIFIABLE),
        ({"wide": None, "kind": "big"}, Code.SUBJECT_UNVERIFIABLE),
        (None, Code.SUBJECT_UNVERIFIABLE),
    ],
)
async def test_an_account_of_another_kind_than_the_rule_requires_identifies_no_user(org: Any, code: Code | None):
    owner = Owner(user_identity=IdentityRule("tokenResponse", "x:{user}", REQUIRED))
    async with site(PAGES) as server:
        app, response = app_at(server, owner=owner, issuer=""), tokens(None, {"user": "U1", "org": org})
        if code is None:
            assert "x:U1" == (await read(app, response)).user_identity
        else:
            assert code == await read_refused(app, response)


async def test_the_token_response_tells_without_any_further_request():
    owner = Owner(global_identity=rule("tokenResponse", "t:{team.id}"), user_identity=rule("tokenResponse", "u:{user}"))
    async with site(PAGES) as server:
        response = tokens(None, {"team": {"id": "T1"}, "user": "U1"})
        facts = await read(app_at(server, owner=owner, mode="global", issuer=""), response)
        assert (OwnerFacts("t:T1", "u:U1", None), 0) == (facts, server.connections)


@pytest.mark.case("34")
@pytest.mark.parametrize(
    "sub, code",
    [
        ("s-2", Code.SUBJECT_MISMATCH),
        ("S-1", Code.SUBJECT_MISMATCH),
        ("", Code.SUBJECT_UNVERIFIABLE),
        (None, Code.SUBJECT_UNVERIFIABLE),
        (1, Code.SUBJECT_UNVERIFIABLE),
    ],
)
async def test_userinfo_about_another_person_than_the_id_token_is_refused(sub, code):
    owner = Owner(user_identity=rule("userInfo", "x:{org}"))
    async with site(PAGES | {"/me": {"sub": sub, "org": "o-1"}}) as server:
        assert code == await read_refused(app_at(server, owner=owner), tokens(id_token(server)))


@pytest.mark.case("34")
@pytest.mark.parametrize(
    "said, account", [({}, "x:o-1"), ({"sub": "s-1"}, "x:o-1"), ({"sub": "s-2"}, Code.SUBJECT_MISMATCH)]
)
async def test_a_who_am_i_call_outside_openid_needs_no_sub_but_one_that_it_has_is_compared(said, account):
    owner = Owner(user_identity=rule("userInfo", "x:{org}"))
    async with site(PAGES | {"/me": {"org": "o-1", **said}}) as server:
        app = dataclasses.replace(app_at(server, owner=owner), habits=Habits(user_info_kind="own"))
        if isinstance(account, Code):
            assert account == await read_refused(app, tokens(id_token(server)))
        else:
            assert account == (await read(app, tokens(id_token(server)))).user_identity


@pytest.mark.case("34")
@pytest.mark.parametrize("page", [(401, {}), b"<html>", (404, {})])
async def test_userinfo_that_answers_nothing_useful_leaves_the_owner_unknown(page):
    owner = Owner(user_identity=rule("userInfo", "x:{org}"))
    async with site(PAGES | {"/me": page}) as server:
        assert Code.SUBJECT_UNVERIFIABLE == await read_refused(app_at(server, owner=owner), tokens())


@pytest.mark.case("32")
@pytest.mark.parametrize("claims", [{"aud": "x"}, {"iss": "https://evil.example"}, {"nonce": "x"}, {"exp": 1}])
async def test_a_bad_id_token_is_refused_even_if_no_rule_reads_it(claims):
    owner = Owner(user_identity=rule("tokenResponse", "u:{user}"))
    async with site(PAGES) as server:
        response = tokens(id_token(server, **claims), {"user": "U1"})
        assert Code.ID_TOKEN_INVALID == await read_refused(app_at(server, owner=owner), response)


@pytest.mark.case("40")
async def test_a_rule_that_reads_the_id_token_needs_one_that_was_verified():
    async with site(PAGES) as server:
        assert Code.SUBJECT_UNVERIFIABLE == await read_refused(app_at(server), tokens())
        unknown_issuer = app_at(server, issuer="")
        assert Code.SUBJECT_UNVERIFIABLE == await read_refused(unknown_issuer, tokens(id_token(server)))


async def test_in_global_mode_who_agreed_is_required_only_where_authorizers_are_listed():
    owner = Owner(
        global_identity=rule("tokenResponse", "t:{team}"), user_identity=rule("userInfo", "u:{missing}"), authorizers="anyone"
    )  # fmt: skip
    async with site(PAGES) as server:
        app = app_at(server, mode="global", owner=owner, issuer="")
        assert OwnerFacts("t:T1", None, None) == await read(app, tokens(None, {"team": "T1"}))
        assert 0 == server.connections
        listed = dataclasses.replace(app, owner=dataclasses.replace(owner, authorizers=("u:1",)))
        assert Code.SUBJECT_UNVERIFIABLE == await read_refused(listed, tokens(None, {"team": "T1"}))
        assert 1 == hits(server, "/me")


async def test_in_user_mode_the_global_identity_is_told_if_it_is_at_hand():
    owner = Owner(global_identity=rule("tokenResponse", "t:{team}"), user_identity=rule("tokenResponse", "u:{user}"))
    async with site(PAGES) as server:
        app = app_at(server, owner=owner, issuer="")
        assert OwnerFacts(None, "u:U1", None) == await read(app, tokens(None, {"user": "U1"}))
        assert OwnerFacts("t:T1", "u:U1", None) == await read(app, tokens(None, {"user": "U1", "team": "T1"}))
        assert Code.SUBJECT_UNVERIFIABLE == await read_refused(app, tokens(None, {"team": "T1"}))


async def test_the_account_of_a_tenant_carries_the_tenants_own_issuer():
    async with site(PAGES) as server:
        app = dataclasses.replace(
            app_at(server, issuer=""), habits=Habits(issuer_template=f"{server.url}/{{tid}}/v2.0")
        )
        facts = await read(app, tokens(id_token(server, iss=f"{server.url}/t-1/v2.0", tid="t-1")))
        assert (f"{server.url}/t-1/v2.0", "s-1") == facts.account
        assert Code.ID_TOKEN_INVALID == await read_refused(
            app, tokens(id_token(server, iss=f"{server.url}/t-1/v2.0", tid="t-2"))
        )
