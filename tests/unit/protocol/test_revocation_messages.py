from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any
from urllib.parse import parse_qs

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.protocol.messages import ProviderRequest, encode_form, encode_json, reveal
from oauthbroker.protocol.revocation_messages import also_in_body, revoke_request, revoke_response, takes
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, answer, code_of, refusal, with_endpoints

TOKEN = Secret("tk-1")


def own(url: str = "https://id.example/gone", client: Client | None = None, **way: Any) -> App:
    app = with_endpoints(revoke_url=url)
    revocation = Revocation("own", "grant", **way)
    return dataclasses.replace(app, revocation=revocation, client=client or Client("client 1", Secret("s3cret")))


def asked(app: App) -> ProviderRequest:
    return revoke_request(app, app.endpoints, TOKEN, "access_token", clock=TestClock())


def headers(request: ProviderRequest) -> dict[str, str]:
    return {name: reveal(value) for name, value in request.headers.items()}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_the_request_names_the_token_and_its_kind_as_this_client():
    request = revoke_request(APP, APP.endpoints, Secret("rt-1"), "refresh_token", clock=TestClock())
    assert ("POST", APP.endpoints.revoke_url) == (request.method, request.url)
    assert b"token=rt-1&token_type_hint=refresh_token" == encode_form(request.form or {})
    assert "Authorization" in request.headers


@pytest.mark.parametrize("app", [with_endpoints(revoke_url=""), own("")], ids=["rfc7009", "own"])
def test_an_app_without_a_revocation_endpoint_is_told(app):
    assert Code.APP_MISCONFIGURED == code_of(lambda: asked(app))


# --- a provider's own way, as its preset says it


def test_the_token_itself_may_be_the_proof():
    """As Slack wants it."""
    request = asked(own(authenticate="bearer", body="none"))
    assert ("POST", None, {"Authorization": "Bearer tk-1"}) == (request.method, request.form, headers(request))


def test_a_client_may_have_to_prove_itself_otherwise_than_at_the_token_endpoint():
    """As GitHub wants it: DELETE, the client id in the address, HTTP Basic, and the token in a JSON body."""
    posts = Client("client 1", Secret("s3cret"), "client_secret_post")
    way: dict[str, Any] = {"method": "DELETE", "authenticate": "basic", "body": "json", "token_field": "access_token"}
    request = asked(own("https://api.id.example/applications/{client_id}/token", posts, **way))
    assert ("DELETE", "https://api.id.example/applications/client%201/token") == (request.method, request.url)
    assert ("json", {"access_token": "tk-1"}) == (request.encoding, json.loads(encode_json(request.form or {})))
    assert {"Authorization": basic("client+1", "s3cret")} == headers(request)


def test_the_address_of_a_standard_revocation_may_name_the_client_too():
    app = own("https://id.example/clients/{client_id}/revoke")
    standard = dataclasses.replace(app, revocation=Revocation())
    assert "https://id.example/clients/client%201/revoke" == asked(standard).url


@pytest.mark.parametrize(
    "method, members",
    [
        ("client_secret_post", {"token": "tk-1", "client_id": "client 1", "client_secret": "s3cret"}),
        ("client_secret_basic", {"token": "tk-1"}),
    ],
)
def test_the_client_proves_itself_as_ever_in_a_body_of_json_too(method, members):
    request = asked(own(client=Client("client 1", Secret("s3cret"), method), body="json"))
    assert members == json.loads(encode_json(request.form or {}))


def test_members_and_headers_may_quote_the_client_and_the_token():
    """As Square, Miro and Shopify want it."""
    request = asked(
        own(
            authenticate="none",
            body="json",
            token_field="accessToken",
            params={"clientId": "{client_id}", "clientSecret": "{client_secret}", "kind": "user"},
            headers={"Authorization": "Client {client_secret}", "X-Access-Token": "{token}", "X-Version": "1"},
        )
    )
    assert {"clientId": "client 1", "clientSecret": "s3cret", "kind": "user", "accessToken": "tk-1"} == json.loads(
        encode_json(request.form or {})
    )
    assert {"Authorization": "Client s3cret", "X-Access-Token": "tk-1", "X-Version": "1"} == headers(request)
    secret = [value for value in (*request.headers.values(), *(request.form or {}).values()) if "s3cret" in str(value)]
    assert [] == secret, "filled in, it is a Secret until it is on the wire"


def test_a_secret_that_is_not_there_is_the_operators_to_fix():
    app = own(client=Client("client 1"), authenticate="none", params={"secret": "{client_secret}"})
    assert Code.APP_MISCONFIGURED == code_of(lambda: asked(app))


def test_a_token_need_not_stand_in_the_body():
    request = asked(own(authenticate="bearer", token_field="", params={"a": "b"}))
    assert b"a=b" == encode_form(request.form or {})


@pytest.mark.parametrize(
    "way, refresh, access",
    [
        (Revocation(), True, True),
        (Revocation(tokens="access"), False, True),
        (Revocation(tokens="refresh"), True, False),
        (Revocation("none", "none"), False, False),
    ],
)
def test_a_provider_is_told_of_those_tokens_that_it_takes(way, refresh, access):
    assert (refresh, access) == (takes(way, "refresh_token"), takes(way, "access_token"))


# --- what comes back


@pytest.mark.parametrize(
    "status, body, dead",
    [
        (200, b"", True),
        (200, b"<html>", True),
        (204, b"", True),
        (400, {"error": "invalid_token"}, True),
        (400, {"error": "unsupported_token_type"}, False),
    ],
)
def test_the_answer_says_whether_the_token_is_dead(status, body, dead):
    assert dead is revoke_response(APP, answer(body, status))


SLACKISH = own(ok_field="ok", dead_words=("token_revoked",), dead_statuses=(404,))


@pytest.mark.parametrize(
    "status, body, result",
    [
        (200, {"ok": True, "revoked": True}, True),
        (200, {"ok": False, "error": "token_revoked"}, True),
        (401, {"error": "token_revoked"}, True),
        (404, b"", True),
        (200, {"ok": False, "error": "not_authed"}, Code.APP_MISCONFIGURED),
        (200, {"ok": "true"}, Code.APP_MISCONFIGURED),
        (200, b"", Code.APP_MISCONFIGURED),
        (200, b"<html>ok</html>", Code.APP_MISCONFIGURED),
        (200, {"error": CANARY}, Code.APP_MISCONFIGURED),
        (200, {"ok": False, "error": ["token_revoked"]}, Code.APP_MISCONFIGURED),
        (403, {"ok": True}, Code.APP_MISCONFIGURED),
        (200, {"ok": False, "error": "ratelimited"}, Code.PROVIDER_RATE_LIMITED),
        (503, {"ok": True}, Code.PROVIDER_UNREACHABLE),
        (500, {"error": "token_revoked"}, Code.PROVIDER_UNREACHABLE),
    ],
)
def test_a_200_that_says_no_is_a_no(status, body, result):
    def validate() -> bool:
        return revoke_response(SLACKISH, answer(body, status))

    assert result == (code_of(validate) if isinstance(result, Code) else validate())


@pytest.mark.parametrize(
    "status, body, code, retryable",
    [
        (500, b"", Code.PROVIDER_UNREACHABLE, True),
        (503, {"error": "x"}, Code.PROVIDER_UNREACHABLE, True),
        (429, b"", Code.PROVIDER_RATE_LIMITED, True),
        (401, {"error": "invalid_client"}, Code.APP_MISCONFIGURED, False),
        (400, {"error": "invalid_client", "error_description": CANARY}, Code.APP_MISCONFIGURED, False),
        (400, {"error": CANARY}, Code.APP_MISCONFIGURED, False),
        (400, CANARY.encode(), Code.APP_MISCONFIGURED, False),
        (404, b"", Code.APP_MISCONFIGURED, False),
        (302, b"", Code.APP_MISCONFIGURED, False),
    ],
)
def test_a_refused_revocation_says_whether_to_try_again(status, body, code, retryable):
    error = refusal(lambda: revoke_response(APP, answer(body, status, retry_after=9)))
    assert (code, retryable) == (error.code, error.retryable)
    assert (9 if retryable else None) == error.retry_after_seconds


@pytest.mark.parametrize(
    ("method", "is_mcp", "again"),
    [
        ("client_secret_basic", True, True),
        ("none", True, True),
        ("client_secret_post", True, False),
        ("client_secret_basic", False, False),
        ("none", False, False),
    ],
)
def test_a_refused_revocation_at_an_mcp_server_is_sent_again_with_the_secret_in_its_body(method, is_mcp, again):
    client = Client("client 1", None if method == "none" else Secret("s3cret"), method)
    app = dataclasses.replace(APP, client=client, mcp=McpServer("https://m.example") if is_mcp else None)
    assert again is also_in_body(app)


@pytest.mark.parametrize(("method", "sent"), [("client_secret_basic", "s3cret"), ("none", "")])
def test_the_second_attempt_has_the_secret_or_an_empty_one_in_its_body(method, sent):
    client = Client("client 1", Secret("s3cret") if sent else None, method)
    app = dataclasses.replace(APP, client=client)
    first, second = (
        revoke_request(app, app.endpoints, TOKEN, "access_token", clock=TestClock(), in_body=in_body)
        for in_body in (False, True)
    )
    assert first.form is not None
    assert second.form is not None
    assert "client_secret" not in first.form
    assert [sent] == parse_qs(encode_form(second.form).decode(), keep_blank_values=True)["client_secret"]
