from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints, IdentityRule, Owner
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.discovery import Discovery, endpoints_used, relies_on_discovery
from oauthbroker.protocol.metadata import WrongIssuer, keys_response, metadata_addresses, metadata_response
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, ISSUER, RawServer, answer, assert_clean, code_of, hits, site

OIDC = "/.well-known/openid-configuration"
OAUTH = "/.well-known/oauth-authorization-server"


def key(kid: str | None = "k1", **extra: Any) -> dict[str, Any]:
    made: dict[str, Any] = RSAKey.generate_key(2048).as_dict(private=False)
    return {**made, **({} if kid is None else {"kid": kid}), **extra}


def short_key() -> dict[str, Any]:
    numbers = rsa.generate_private_key(65537, 1024).public_key().public_numbers()  # noqa: S505 - it is to be refused
    n = base64.urlsafe_b64encode(numbers.n.to_bytes(128, "big")).rstrip(b"=").decode()
    return {"kty": "RSA", "n": n, "e": "AQAB"}


K1, K2 = key("k1"), key("k2")

# --- the document


@pytest.mark.parametrize(
    "issuer, oidc, oauth",
    [
        ("https://a.example", f"https://a.example{OIDC}", f"https://a.example{OAUTH}"),
        ("https://a.example/", f"https://a.example{OIDC}", f"https://a.example{OAUTH}"),
        ("https://a.example:8/t/1", f"https://a.example:8/t/1{OIDC}", f"https://a.example:8{OAUTH}/t/1"),
        ("https://a.example/t/", f"https://a.example/t{OIDC}", f"https://a.example{OAUTH}/t"),
    ],
)
def test_the_document_lies_where_the_two_specifications_say(issuer, oidc, oauth):
    assert (oidc, oauth) == metadata_addresses(issuer)


@pytest.mark.parametrize(
    "issuer, order",
    [
        ("https://a.example", [f"https://a.example{OAUTH}", f"https://a.example{OIDC}"]),
        (
            "https://a.example/t/1",
            [f"https://a.example{OAUTH}/t/1", f"https://a.example{OIDC}/t/1", f"https://a.example/t/1{OIDC}"],
        ),
    ],
)
def test_mcp_has_an_order_of_its_own(issuer, order):
    assert order == [*metadata_addresses(issuer, mcp=True)]


def test_endpoints_and_the_promise_of_iss_are_read():
    document = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/a",
        "token_endpoint": f"{ISSUER}/t",
        "revocation_endpoint": f"{ISSUER}/r",
        "userinfo_endpoint": f"{ISSUER}/u",
        "jwks_uri": f"{ISSUER}/j",
        "device_authorization_endpoint": f"{ISSUER}/d",
        "pushed_authorization_request_endpoint": f"{ISSUER}/p",
        "require_pushed_authorization_requests": True,
        "authorization_response_iss_parameter_supported": True,
        "code_challenge_methods_supported": ["plain", "S256"],
        "anything": {"else": 1},
    }
    metadata = metadata_response(ISSUER, "", answer(document))
    expected = Endpoints(
        authorization_url=f"{ISSUER}/a", token_url=f"{ISSUER}/t", revoke_url=f"{ISSUER}/r", user_info_url=f"{ISSUER}/u", issuer=ISSUER, jwks_url=f"{ISSUER}/j", device_authorization_url=f"{ISSUER}/d",
        pushed_authorization_url=f"{ISSUER}/p",
    )  # fmt: skip
    assert (expected, True, True) == (metadata.endpoints, metadata.issuer_promised, metadata.push_required)


def test_the_lists_of_scopes_and_of_client_authentication_are_read():
    document = {"issuer": ISSUER, "scopes_supported": ["a", "b"], "token_endpoint_auth_methods_supported": ["none"]}
    metadata = metadata_response(ISSUER, "", answer(document))
    assert (("a", "b"), ("none",)) == (metadata.scopes, metadata.auth_methods)


@pytest.mark.parametrize("said", [None, False, "true", 1])
def test_iss_is_promised_and_pushing_required_only_by_a_plain_true(said):
    names = ("authorization_response_iss_parameter_supported", "require_pushed_authorization_requests")
    metadata = metadata_response(ISSUER, "", answer({"issuer": ISSUER, **dict.fromkeys(names, said)}))
    assert (False, False) == (metadata.issuer_promised, metadata.push_required)


@pytest.mark.case("7")
@pytest.mark.parametrize(
    "said", [None, "", "https://evil.example", f"{ISSUER}/", ISSUER.upper(), f" {ISSUER}", [ISSUER], 5]
)
def test_a_document_of_another_issuer_is_refused_byte_for_byte(said):
    assert Code.APP_MISCONFIGURED == code_of(lambda: metadata_response(ISSUER, "", answer({"issuer": said})))


@pytest.mark.parametrize(
    "said, found",
    [("https://evil.example", "https://evil.example"), ("", ""), ("evil", ""), ("https://a b", ""), (5, "")],
)
def test_another_issuer_is_named_to_the_operator_if_it_is_an_address(said, found):
    with pytest.raises(WrongIssuer) as wrong:
        metadata_response(ISSUER, "", answer({"issuer": said}))
    assert found == wrong.value.found


@pytest.mark.parametrize(
    "said, accepted",
    [
        ("https://login.example/{tenantid}/v2.0", True),
        ("https://login.example/common/v2.0", True),
        ("https://login.example/{tenantid}/v1.0", False),
        ("https://evil.example/{tenantid}/v2.0", False),
        ("https://login.example/t-1/v2.0", False),
    ],
)
def test_a_provider_of_many_tenants_may_name_its_template(said, accepted):
    def validate() -> object:
        return metadata_response(
            "https://login.example/common/v2.0", "https://login.example/{tid}/v2.0", answer({"issuer": said})
        )

    if accepted:
        assert validate()
    else:
        assert Code.APP_MISCONFIGURED == code_of(validate)


@pytest.mark.parametrize(
    "body, status, code",
    [
        ({"issuer": ISSUER, "token_endpoint": 5}, 200, Code.APP_MISCONFIGURED),
        ({"issuer": ISSUER, "jwks_uri": None}, 200, Code.APP_MISCONFIGURED),
        (f"<html>{CANARY}".encode(), 200, Code.APP_MISCONFIGURED),
        ([], 200, Code.APP_MISCONFIGURED),
        ({"issuer": ISSUER}, 404, Code.APP_MISCONFIGURED),
        ({"issuer": ISSUER}, 301, Code.APP_MISCONFIGURED),
        ({"issuer": ISSUER}, 500, Code.PROVIDER_UNREACHABLE),
        ({"issuer": ISSUER}, 429, Code.PROVIDER_RATE_LIMITED),
    ],
)
def test_a_document_that_cannot_be_relied_on_is_refused(body, status, code):
    assert code == code_of(lambda: metadata_response(ISSUER, "", answer(body, status)))


# --- the key set


def test_signing_keys_of_every_kind_are_read_in_order():
    entries = [
        K1,
        {**ECKey.generate_key("P-256").as_dict(private=False), "kid": "e"},
        {**OKPKey.generate_key("Ed25519").as_dict(private=False), "kid": "o"},
    ]
    keys = keys_response(answer({"keys": entries}))
    assert ["k1", "e", "o"] == [each.kid for each in keys]


@pytest.mark.case("33")
@pytest.mark.parametrize(
    "entry",
    [
        None, 5, "key", [], {}, {"kty": "RSA"}, {"kty": "RSA", "n": "!", "e": "AQAB"}, {"kty": "XYZ", "x": 1}, {"kty": ["RSA"]},
        {**K2, "n": 5}, {**K2, "kid": 5}, {**K2, "use": "enc"}, {**K2, "use": 5}, {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
        OctKey.generate_key(256).as_dict(private=True), short_key(),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")  # of the short key
def test_a_broken_or_strange_entry_is_passed_over(entry):
    assert ["k1"] == [each.kid for each in keys_response(answer({"keys": [entry, K1]}))]


def test_a_published_private_key_is_not_accepted():
    (taken,) = keys_response(answer({"keys": [RSAKey.generate_key(2048).as_dict(private=True)]}))
    assert not taken.is_private


@pytest.mark.case("33")
def test_only_so_many_keys_are_read():
    small = ECKey.generate_key("P-256").as_dict(private=False)
    assert 100 == len(keys_response(answer({"keys": [small] * 1000})))


@pytest.mark.case("33")
@pytest.mark.parametrize(
    "body, status, code",
    [
        ({}, 200, Code.APP_MISCONFIGURED), ({"keys": {}}, 200, Code.APP_MISCONFIGURED), (b"<html>", 200, Code.APP_MISCONFIGURED),
        ({"keys": []}, 404, Code.APP_MISCONFIGURED), ({"keys": []}, 500, Code.PROVIDER_UNREACHABLE), ({"keys": []}, 429, Code.PROVIDER_RATE_LIMITED),
    ],
)  # fmt: skip
def test_no_key_set_is_a_fault_with_a_name(body, status, code):
    assert code == code_of(lambda: keys_response(answer(body, status)))


# --- asking and remembering


@pytest.fixture
async def transport():
    transport = Transport(plain_http_loopback=True)
    yield transport
    await transport.close()


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def discovery(transport, clock) -> Discovery:
    return Discovery(transport, clock, Limits(provider_seconds=2.0))


def app_of(server: RawServer, path: str = "", **endpoints: str) -> App:
    return dataclasses.replace(
        APP, endpoints=Endpoints(issuer=server.url + path, **endpoints), habits=Habits(always_scopes=("openid",))
    )


def document(server: RawServer, path: str = "", **members: Any) -> dict[str, Any]:
    base = server.url + path
    return {
        "issuer": base, "authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token",
        "userinfo_endpoint": f"{base}/me", "jwks_uri": f"{base}/jwks",
    } | members  # fmt: skip


async def refused(awaitable: Any) -> Code:
    with pytest.raises(BrokerError) as caught:
        await awaitable
    assert_clean(caught.value)
    return caught.value.code


async def test_empty_endpoints_of_the_app_are_filled_and_its_own_stay(discovery):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages[OIDC] = document(server)
        endpoints = await discovery.endpoints(app_of(server, token_url="https://own.example/token"))
    assert ("https://own.example/token", f"{server.url}/authorize", f"{server.url}/me", "") == (
        endpoints.token_url, endpoints.authorization_url, endpoints.user_info_url, endpoints.revoke_url,
    )  # fmt: skip


async def test_an_authorization_server_without_oidc_is_found_by_its_own_address(discovery):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages[f"{OAUTH}/tenant"] = document(server, "/tenant", authorization_response_iss_parameter_supported=True)
        app = app_of(server, "/tenant")
        assert f"{server.url}/tenant/token" == (await discovery.endpoints(app)).token_url
        assert await discovery.issuer_promised(app)


async def test_a_document_is_asked_for_once_a_day_however_many_ask_at_once(discovery, clock):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages[OIDC] = document(server)
        app = app_of(server)
        await asyncio.gather(*(discovery.endpoints(app) for _ in range(20)), discovery.issuer_promised(app))
        clock.advance(24 * 3600 - 1)
        await discovery.endpoints(app)
        assert 1 == hits(server, OIDC)
        clock.advance(1)
        await discovery.endpoints(app)
        assert 2 == hits(server, OIDC)


async def test_a_failure_is_remembered_for_half_a_minute(discovery, clock):
    pages: dict[str, Any] = {OIDC: (500, {})}
    async with site(pages) as server:
        app = app_of(server)
        for _ in range(5):
            assert Code.PROVIDER_UNREACHABLE == await refused(discovery.endpoints(app))
        assert 1 == hits(server, OIDC)
        pages[OIDC] = document(server)
        clock.advance(30)
        assert f"{server.url}/token" == (await discovery.endpoints(app)).token_url


async def test_a_document_of_another_issuer_is_refused(discovery):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages[OIDC] = document(server, issuer="https://evil.example")
        assert Code.APP_MISCONFIGURED == await refused(discovery.endpoints(app_of(server)))


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "http://10.0.0.1/a",
        "https://u@id.example/",
        "https://id.example/\r\n",
        "file:///etc/passwd",
        "/a",
    ],
)
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
async def test_an_address_out_of_a_document_is_data(discovery, name, address):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages[OIDC] = document(server, **{name: address})
        assert Code.APP_MISCONFIGURED == await refused(discovery.endpoints(app_of(server)))


async def test_plain_http_discovery_needs_its_loud_switch(clock):
    transport = Transport()
    async with site({}) as server:
        assert Code.APP_MISCONFIGURED == await refused(Discovery(transport, clock, Limits()).endpoints(app_of(server)))
        assert 0 == server.connections
    await transport.close()


async def test_a_complete_app_sends_no_discovery_request(discovery):
    async with site({}) as server:
        everything = dict.fromkeys(("authorization_url", "token_url", "jwks_url"), f"{server.url}/x")
        app = app_of(server, **everything)
        assert app.endpoints == await discovery.endpoints(app)
        assert not await discovery.issuer_promised(app)
        assert await discovery.issuer_promised(dataclasses.replace(app, habits=Habits(issuer_promised=True)))
        assert 0 == server.connections


@pytest.mark.parametrize(
    "endpoints, owner, openid, relies",
    [
        ({}, Owner(), False, False),
        ({"issuer": ISSUER}, Owner(), False, True),
        ({"issuer": ISSUER, "token_url": "t"}, Owner(), False, True),
        ({"issuer": ISSUER, "token_url": "t", "authorization_url": "a"}, Owner(), False, False),
        ({"issuer": ISSUER, "token_url": "t", "authorization_url": "a"}, Owner(), True, True),
        ({"issuer": ISSUER, "token_url": "t", "authorization_url": "a", "jwks_url": "j"}, Owner(), True, False),
        ({"issuer": ISSUER, "token_url": "t", "authorization_url": "a"}, Owner(user_identity=IdentityRule("idToken", "{sub}")), False, True),
        ({"issuer": ISSUER, "token_url": "t", "authorization_url": "a"}, Owner(global_identity=IdentityRule("userInfo", "{org}")), False, True),
        ({"issuer": ISSUER, "token_url": "t", "authorization_url": "a", "user_info_url": "u"}, Owner(global_identity=IdentityRule("userInfo", "{org}")), False, False),
        ({"token_url": "t"}, Owner(), True, False),
    ],
)  # fmt: skip
def test_only_an_app_that_lacks_something_it_needs_relies_on_discovery(endpoints, owner, openid, relies):
    habits = Habits(always_scopes=("openid",) if openid else ())
    assert relies is relies_on_discovery(
        dataclasses.replace(APP, endpoints=Endpoints(**endpoints), owner=owner, habits=habits)
    )


@pytest.mark.case("18")
@pytest.mark.parametrize("methods", [["plain"], []])
@pytest.mark.parametrize("flow", ["authorizationCode", "deviceCode", "clientCredentials"])
async def test_a_provider_without_s256_gets_no_person_sent_to_it_and_serves_the_other_flows(discovery, methods, flow):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages[OIDC] = document(server, code_challenge_methods_supported=methods)
        app = dataclasses.replace(app_of(server), flow=flow)
        if flow == "authorizationCode":
            assert Code.APP_MISCONFIGURED == await refused(discovery.endpoints(app))
        else:
            assert f"{server.url}/token" == (await discovery.endpoints(app)).token_url


MCP_NEEDS = [
    ({}, Code.MCP_PKCE_MISSING, None),
    ({"code_challenge_methods_supported": ["plain"]}, Code.MCP_PKCE_MISSING, Code.APP_MISCONFIGURED),
    ({"code_challenge_methods_supported": ["S256"]}, None, None),
    ({"code_challenge_methods_supported": ["S256"], "require_signed_request_object": True}, Code.MCP_UNSUPPORTED, None),
]


@pytest.mark.case("18")
@pytest.mark.parametrize("members, for_mcp, for_others", MCP_NEEDS)
@pytest.mark.parametrize("is_mcp", [True, False])
async def test_an_mcp_server_has_to_promise_s256_and_to_take_unsigned_requests(
    discovery, members, for_mcp, for_others, is_mcp
):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages[OIDC] = document(server, **members)
        app = dataclasses.replace(app_of(server), mcp=McpServer("https://m.example") if is_mcp else None)
        if (expected := for_mcp if is_mcp else for_others) is None:
            assert f"{server.url}/token" == (await discovery.metadata(app)).endpoints.token_url
        else:
            assert expected is await refused(discovery.metadata(app))


@pytest.mark.parametrize("required", [True, False])
async def test_an_app_that_requires_pushing_learns_where_to(discovery, required):
    pages: dict[str, Any] = {}
    everything = ("authorization_url", "token_url", "jwks_url")
    async with site(pages) as server:
        par = {"pushed_authorization_request_endpoint": f"{server.url}/par"}
        pages[OIDC] = document(server, **par, require_pushed_authorization_requests=required)
        app = app_of(server, **dict.fromkeys(everything, f"{server.url}/x"))
        assert (app.endpoints, False) == await discovery.for_authorization(app)
        assert "" == app.endpoints.pushed_authorization_url
        assert 0 == hits(server, OIDC)
        app = dataclasses.replace(app, pushed_authorization="required")
        endpoints, must_push = await discovery.for_authorization(app)
        assert (f"{server.url}/par", True) == (endpoints.pushed_authorization_url, must_push)
        endpoints, must_push = await discovery.for_authorization(app_of(server))
        assert (f"{server.url}/par", required) == (endpoints.pushed_authorization_url, must_push)
        assert 1 == hits(server, OIDC)


def test_a_client_that_asks_for_itself_needs_a_token_endpoint_only():
    machine = dataclasses.replace(APP, flow="clientCredentials", habits=Habits(always_scopes=("openid",)))
    for endpoints, relies in ((Endpoints(issuer=ISSUER, token_url="t"), False), (Endpoints(issuer=ISSUER), True)):
        assert relies is relies_on_discovery(dataclasses.replace(machine, endpoints=endpoints))


# --- keys over time


@pytest.mark.case("33")
async def test_a_key_rotated_just_before_signing_is_fetched_at_once(discovery):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages |= {OIDC: document(server), "/jwks": {"keys": [K1]}}
        app = app_of(server)
        assert ["k1"] == [each.kid for each in await discovery.signing_keys(app, "k1")]
        pages["/jwks"] = {"keys": [K1, K2]}
        assert ["k1", "k2"] == [each.kid for each in await discovery.signing_keys(app, "k2")]
        assert 2 == hits(server, "/jwks")


@pytest.mark.case("33")
async def test_a_flood_of_unknown_key_ids_costs_one_request_a_minute(discovery, clock):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages |= {OIDC: document(server), "/jwks": {"keys": [K1]}}
        app = app_of(server)
        for minute in range(3):
            keys = await asyncio.gather(*(discovery.signing_keys(app, f"kid-{minute}-{n}") for n in range(30)))
            assert {("k1",)} == {tuple(each.kid for each in found) for found in keys}
            assert 2 + minute == hits(server, "/jwks")
            clock.advance(60)


@pytest.mark.parametrize("kid", [None, "k1"])
async def test_a_token_without_a_key_id_never_makes_us_fetch_again(discovery, kid):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages |= {OIDC: document(server), "/jwks": {"keys": [key(kid)]}}
        for _ in range(5):
            assert 1 == len(await discovery.signing_keys(app_of(server), None))
        assert 1 == hits(server, "/jwks")


@pytest.mark.case("33")
async def test_a_key_set_that_fails_is_named_and_asked_again_later(discovery, clock):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages |= {OIDC: document(server), "/jwks": (500, {})}
        app = app_of(server)
        for _ in range(5):
            assert Code.PROVIDER_UNREACHABLE == await refused(discovery.signing_keys(app, "k1"))
        assert 1 == hits(server, "/jwks")
        pages["/jwks"] = {"keys": [K1]}
        clock.advance(30)
        assert 1 == len(await discovery.signing_keys(app, "k1"))


@pytest.mark.case("33")
async def test_a_failed_refetch_leaves_the_known_keys_usable(discovery, clock):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages |= {OIDC: document(server), "/jwks": {"keys": [K1]}}
        app = app_of(server)
        await discovery.signing_keys(app, "k1")
        pages["/jwks"] = (500, {})
        assert Code.PROVIDER_UNREACHABLE == await refused(discovery.signing_keys(app, "k2"))
        assert 1 == len(await discovery.signing_keys(app, "k1"))
        for _ in range(5):  # within the minute there is no new request, and a forgery cannot be told
            assert Code.PROVIDER_UNREACHABLE == await refused(discovery.signing_keys(app, "k2"))
        assert 2 == hits(server, "/jwks")
        pages["/jwks"] = {"keys": [K1, K2]}
        clock.advance(60)
        assert 2 == len(await discovery.signing_keys(app, "k2"))
        assert 2 == len(await discovery.signing_keys(app, "k3"))
        assert 3 == hits(server, "/jwks")


@pytest.mark.case("33")
async def test_keys_that_do_not_fit_are_asked_for_again_once_a_minute(discovery, clock):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages |= {OIDC: document(server), "/jwks": {"keys": [key(None)]}}
        app = app_of(server)
        seen = await discovery.signing_keys(app, None)
        newer = [await discovery.newer_keys(app, seen) for _ in range(5)]
        assert 2 == hits(server, "/jwks")
        assert all(found is newer[0] is not seen for found in newer)
        assert newer[0] is await discovery.newer_keys(app, newer[0])
        clock.advance(60)
        assert newer[0] is not await discovery.newer_keys(app, newer[0])
        assert 3 == hits(server, "/jwks")


@pytest.mark.case("33")
async def test_a_key_set_of_five_megabytes_is_cut_off(discovery):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages |= {OIDC: document(server), "/jwks": json.dumps({"keys": [K1], "pad": "x" * 5_000_000}).encode()}
        assert Code.PROVIDER_UNREACHABLE == await refused(discovery.signing_keys(app_of(server), "k1"))


async def test_keys_without_an_address_are_a_configuration_fault(discovery):
    app = dataclasses.replace(APP, endpoints=dataclasses.replace(APP.endpoints, jwks_url=""))
    assert Code.APP_MISCONFIGURED == await refused(discovery.signing_keys(app, "k1"))


async def test_a_caller_who_leaves_does_not_block_the_next(discovery):
    pages: dict[str, Any] = {}
    async with site(pages) as server:
        pages[OIDC] = document(server)
        leaving = asyncio.create_task(discovery.endpoints(app_of(server)))
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await discovery.endpoints(app_of(server))).token_url


@pytest.mark.parametrize(
    "changes, used, unused",
    [
        ({}, {"token_url", "authorization_url", "revoke_url", "refresh_url", "pushed_authorization_url"}, set()),
        ({"revocation": Revocation("none")}, {"token_url"}, {"revoke_url"}),
        (
            {"flow": "clientCredentials"},
            {"token_url"},
            {"refresh_url", "authorization_url", "pushed_authorization_url"},
        ),
        ({"flow": "deviceCode"}, {"refresh_url"}, {"pushed_authorization_url"}),
        ({"pushed_authorization": "never"}, {"authorization_url"}, {"pushed_authorization_url"}),
    ],
)
def test_the_endpoints_that_an_app_may_use_follow_from_its_flow_and_its_options(changes, used, unused):
    found = endpoints_used(dataclasses.replace(APP, **changes))
    assert used <= found
    assert not unused & found
