"""Which headers pass between a tool and a provider's API."""

from __future__ import annotations

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.injection.headers import incoming, outgoing

FROM_TOOL = {
    "Connection": "keep-alive, X-Private", "X-Private": "1", "Keep-Alive": "5", "TE": "trailers", "Trailer": "X-End",
    "Transfer-Encoding": "chunked", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk", "Host": "other.example",
    "Content-Length": "3", "Expect": "100-continue", "Accept-Encoding": "gzip", "Authorization": "Bearer turn",
    "Cookie": "a=b", "Proxy-Authorization": "Basic eDp5", "Proxy-Connection": "close", "DPoP": "proof",
    "X-Auth-Token": "t", "X-Access-Token": "t", "Private-Token": "t", "X-Forwarded-Host": "other.example",
    "Forwarded": "host=other.example", "X-Original-URL": "/admin", "X-Rewrite-URL": "/admin", "X-Host": "other",
    "Sec-WebSocket-Key": "k", "OAuthBroker-Scopes": "read", "OAuthBroker-Status": "forwarded", "Via": "1.1 a",
    "Traceparent": "00-1-2-00", "True-Client-IP": "10.0.0.1", "CF-Connecting-IP": "10.0.0.1", "X-Real-IP": "10.0.0.1",
    "X-Client-IP": "10.0.0.1", "Fastly-Client-IP": "10.0.0.1", "X-Cluster-Client-IP": "10.0.0.1", "X-Azure-ClientIP": "10.0.0.1",
    "X-Original-Host": "other", "X-Override-URL": "/admin", "X-Envoy-Original-Path": "/admin", "X-Remote-User": "root",
    "X-Envoy-External-Address": "10.0.0.1", "X-SSL-Client-Cert": "c", "Client-Cert": "c", "X-Remote-Addr": "10.0.0.1",
    "X-Forward-For": "10.0.0.1", "X-Forwarded-Authorization": "Bearer other", "X-Serverless-Authorization": "Bearer other",
    "X-Accel-Redirect": "/admin", "X-Originating-IP": "10.0.0.1", "Cf-Connecting-IPv6": "::1",
}  # fmt: skip
FROM_PROVIDER = {
    "Connection": "close, X-Private", "X-Private": "1", "Set-Cookie": "sid=1",
    "Proxy-Authenticate": "Basic", "Authentication-Info": "n", "Authorization": "Bearer echoed", "Alt-Svc": "h3",
    "Clear-Site-Data": '"*"', "Access-Control-Allow-Origin": "*", "OAuthBroker-Status": "forwarded",
    "Content-Security-Policy": "default-src *", "Cache-Control": "public", "Refresh": "0; url=https://other.example",
    "Transfer-Encoding": "chunked", "Strict-Transport-Security": "max-age=1", "Service-Worker-Allowed": "/",
}  # fmt: skip


def raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


@pytest.mark.case("104")
@pytest.mark.parametrize(
    "spelt",
    [str.lower, str.upper, str, lambda name: name.replace("-", "_"), lambda name: name.replace("-", ".")],
    ids=["lower", "upper", "as it is", "as CGI reads it", "as old CGI reads it"],
)
def test_no_credential_no_address_and_nothing_of_the_connection_goes_to_the_provider(spelt):
    own = {
        "Accept": "text/csv",
        "Content-Type": "text/plain",
        "If-Match": '"1"',
        "X-Api-Key": "an app's",
        "User-Agent": "t",
        "X-Ms-Client-Request-Id": "1",
        "X-Goog-User-Project": "p",
        "Notion-Version": "2022-06-28",
        "X-Client-Data": "1",
    }
    sent = outgoing(raw({spelt(name): value for name, value in FROM_TOOL.items()} | own))
    kept = {name.lower(): value for name, value in sent}
    expected = {name.lower().encode(): value.encode() for name, value in own.items()}
    assert expected | {b"accept-encoding": b"identity"} == kept


def test_a_request_without_a_user_agent_gets_ours():
    assert b"oauthbroker/" in dict(outgoing([]))[b"User-Agent"]


@pytest.mark.parametrize("own", [b"Notion-Version", b"notion_version"])
def test_a_header_that_the_api_always_wants_is_added_unless_the_tool_sends_it(own):
    usual = [(b"Notion-Version", b"2"), (b"User-Agent", b"acme")]
    assert [*usual, (b"Accept-Encoding", b"identity")] == outgoing([], usual=usual)
    assert b"1" == dict(outgoing([(own, b"1")], usual=usual))[own]
    assert b"Notion-Version" not in dict(outgoing([(b"notion_version", b"1")], usual=usual))
    assert b"2" == dict(outgoing([(own, b"1")], frozenset({b"accept"}), usual=usual))[b"Notion-Version"]


@pytest.mark.case("104")
@pytest.mark.parametrize(
    "name",
    [
        b"X-HTTP-Method-Override",
        b"X-HTTP-Method",
        b"X-Method-Override",
        b"X_HTTP_Method_Override",
        b"HTTP_METHOD",
        b"X.Http.Method",
        b"Http-Method-Override",
        b"X-HttpMethodOverride",
    ],
)
def test_a_header_that_overrides_the_checked_method_is_refused(name):
    with pytest.raises(BrokerError) as refused:
        outgoing([(name, b"DELETE")])
    assert Code.REQUEST_INVALID == refused.value.code


@pytest.mark.case("107")
def test_an_upgrade_to_websocket_is_refused():
    with pytest.raises(BrokerError) as refused:
        outgoing([(b"Connection", b"Upgrade"), (b"UPGRADE", b"WebSocket")])
    assert Code.REQUEST_INVALID == refused.value.code


@pytest.mark.case("104")
def test_no_cookie_and_no_credential_comes_back_and_no_header_that_speaks_for_us():
    own = {"Content-Type": "text/plain", "ETag": '"1"', "Location": "https://other.example/", "X-RateLimit-Left": "3"}
    kept = incoming(raw({**FROM_PROVIDER, **own, "Content-Length": "7"}))
    assert {name.lower().encode(): value.encode() for name, value in own.items()} == dict(kept), "two lengths are none"
    assert [(b"content-length", b"7")] == incoming([(b"Content-Length", b"7")])


@pytest.mark.case("110")
@pytest.mark.parametrize("coding", [b"gzip", b"br", b"GZIP", b"identity, gzip"])
def test_an_answer_in_which_no_token_could_be_masked_is_refused(coding):
    with pytest.raises(BrokerError) as refused:
        incoming([(b"Content-Encoding", coding)])
    assert Code.PROVIDER_UNREACHABLE == refused.value.code


@pytest.mark.case("104")
def test_an_app_with_a_list_of_its_own_lets_only_these_headers_pass():
    said = {"Accept": "text/csv", "Content_Type": "text/plain", "X-Tenant": "other", "User-Agent": "t", "Cookie": "a=b"}
    sent = outgoing(raw(said), frozenset({b"accept", b"content-type", b"cookie"}))
    names = [name for name, _ in sent]
    assert [b"Accept", b"Content_Type", b"User-Agent", b"Accept-Encoding"] == names, "our own stand beside them"
    assert b"t" != dict(sent)[b"User-Agent"]
