"""Pushed authorization requests: the pushed members, the checks of the answer, and the members left for the browser."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import Habits
from oauthbroker.protocol.authorization_request import authorization_url
from oauthbroker.protocol.messages import ProviderRequest, pairs_of
from oauthbroker.protocol.par import par_request, par_response, pushed_url
from oauthbroker.records import Attempt
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, CLIENT_ID, ISSUER, answer, code_of, refusal, with_endpoints

PAR = f"{ISSUER}/par"
URN = f"urn:ietf:params:oauth:request_uri:{CANARY}"
ATTEMPT = Attempt(
    state=Secret(f"{CANARY}-state"), challenge="challenge-1", verifier=None, nonce=Secret(f"{CANARY}-nonce")
)
SCOPES = ("read", "openid")


def pushing(app: App = APP, **changes: Any) -> App:
    endpoints = dataclasses.replace(app.endpoints, pushed_authorization_url=PAR)
    return dataclasses.replace(app, endpoints=endpoints, **changes)


def pushed(app: App) -> ProviderRequest:
    return par_request(app, app.endpoints, ATTEMPT, SCOPES, clock=TestClock())


def with_method(method: Any, secret: str | None = "s") -> App:
    client = dataclasses.replace(APP.client, auth_method=method, client_secret=Secret(secret) if secret else None)
    return pushing(client=client)


@pytest.mark.parametrize("resource", [(), ("https://api.example/a", "https://api.example/b")])
def test_exactly_what_the_url_would_say_is_pushed(resource: tuple[str, ...]) -> None:
    """RFC 9126 section 2.1, RFC 8707 section 2."""
    app = pushing(resource=resource, habits=Habits(authorize_params={"prompt": "consent"}))
    url = authorization_url(app, app.endpoints, ATTEMPT, SCOPES)
    request = pushed(app)
    assert ("POST", PAR) == (request.method, request.url)
    assert request.form is not None
    assert sorted(parse_qsl(urlsplit(url).query)) == sorted(pairs_of(request.form))
    assert resource == tuple(value for name, value in pairs_of(request.form) if name == "resource")


@pytest.mark.parametrize(
    "app, members, header",
    [
        (with_method("client_secret_basic"), {}, True),
        (with_method("client_secret_post"), {"client_secret": "s"}, False),
        (with_method("none", None), {}, False),
    ],
)
def test_the_client_proves_itself_as_at_the_token_endpoint(app: App, members: Any, header: bool) -> None:
    request = pushed(app)
    said = dict(pairs_of(request.form or {}))
    assert CLIENT_ID == said["client_id"]
    assert members == {name: said[name] for name in said if name.startswith("client_") and name != "client_id"}
    assert header == ("Authorization" in request.headers)


def test_no_parameter_of_an_app_replaces_the_proof_or_the_request() -> None:
    evil = dict.fromkeys(
        ("client_secret", "client_assertion", "client_assertion_type", "request_uri", "request", "state", "client_id",
         "redirect_uri", "response_mode", "code_challenge"), "evil",
    )  # fmt: skip
    request = pushed(pushing(habits=Habits(authorize_params=evil)))
    assert "evil" not in dict(pairs_of(request.form or {})).values()


def test_without_the_endpoint_nothing_is_pushed() -> None:
    assert Code.APP_MISCONFIGURED is code_of(lambda: pushed(APP))


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize("uri", [URN, "https://id.example/requests/7?x=1#y", "a:b", "urn:" + "x" * 1000])
@pytest.mark.parametrize("lifetime", [1, 60, 10**9])
def test_an_answer_that_is_believed(status: int, uri: str, lifetime: int) -> None:
    found = par_response(APP, answer({"request_uri": uri, "expires_in": lifetime, "more": 1}, status))
    assert uri == found.reveal()
    assert uri not in repr(found)


GOOD = {"request_uri": URN, "expires_in": 60}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"request_uri": URN},
        {"expires_in": 60},
        *({**GOOD, "expires_in": bad} for bad in (0, -1, True, "60", 1.5, None, [60])),
        *(
            {**GOOD, "request_uri": bad}
            for bad in ("", "no-scheme", ":x", "1a:b", 7, None, ["urn:x"], "urn:", "urn:a b")
        ),
        *({**GOOD, "request_uri": f"urn:a{bad}b"} for bad in ("\r\n", "\x00", "\t", "\x7f", "é", "\u202e")),
        {**GOOD, "request_uri": "urn:" + "x" * 1024},
        {**GOOD, "error": "invalid_request"},
        {**GOOD, "error": None},
        b'{"request_uri": "urn:a", "request_uri": "urn:b", "expires_in": 60}',
        b'{"request_uri": "urn:a", "expires_in": 6',
        b"<html></html>",
        [GOOD],
        b"",
    ],
    ids=str,
)
def test_an_answer_that_is_none(body: Any) -> None:
    assert Code.APP_MISCONFIGURED is code_of(lambda: par_response(APP, answer(body, 201)))


@pytest.mark.parametrize(
    "status, body, code, note",
    [
        (400, {"error": "invalid_request", "error_description": CANARY}, Code.APP_MISCONFIGURED, "invalid_request"),
        (401, {"error": "invalid_client"}, Code.APP_MISCONFIGURED, "invalid_client"),
        (400, {"error": CANARY}, Code.APP_MISCONFIGURED, "outside RFC 9126"),
        (400, {"error": [CANARY]}, Code.APP_MISCONFIGURED, "outside RFC 9126"),
        (404, CANARY, Code.APP_MISCONFIGURED, "outside RFC 9126"),
        (302, {**GOOD}, Code.APP_MISCONFIGURED, ""),
        (204, b"", Code.APP_MISCONFIGURED, ""),
        (413, b"", Code.APP_MISCONFIGURED, ""),
        (400, {"error": "temporarily_unavailable"}, Code.PROVIDER_UNREACHABLE, "temporarily_unavailable"),
        (500, GOOD, Code.PROVIDER_UNREACHABLE, ""),
        (503, b"", Code.PROVIDER_UNREACHABLE, ""),
        (429, b"", Code.PROVIDER_RATE_LIMITED, ""),
    ],
)
def test_a_refusal_is_reported_in_our_words(status: int, body: Any, code: Code, note: str) -> None:
    error = refusal(lambda: par_response(APP, answer(body, status, retry_after=7)))
    assert code is error.code
    assert note in (error.note or "")
    waits = status in {429, 500, 503}
    assert (7 if waits else None) == error.retry_after_seconds


def test_a_label_that_is_not_json_is_not_read() -> None:
    assert Code.APP_MISCONFIGURED is code_of(lambda: par_response(APP, answer(GOOD, 201, "text/html")))


@given(st.binary(max_size=60))
def test_junk_never_gets_through(body: bytes) -> None:
    refusal(lambda: par_response(APP, answer(body, 201)))


def test_the_browser_carries_the_number_and_who_asks_and_nothing_else() -> None:
    app = with_endpoints(authorization_url=f"{ISSUER}/authorize?tenant=7")
    app = pushing(app, habits=Habits(authorize_params={"prompt": "consent"}))
    url = pushed_url(app, app.endpoints, Secret(URN))
    assert [("tenant", "7"), ("client_id", CLIENT_ID), ("request_uri", URN)] == parse_qsl(urlsplit(url).query)
