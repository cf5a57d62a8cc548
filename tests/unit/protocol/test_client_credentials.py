"""Client credentials: the request, and the parts of an answer that belong to a grant without a person."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.provider_habits import Habits
from oauthbroker.protocol.client_credentials import client_credentials_request, client_credentials_response
from oauthbroker.protocol.messages import pairs_of
from oauthbroker.protocol.token_endpoint import RefusedTokens
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, CLIENT_ID, answer, code_of, refusal, with_client, with_habits

TOKENS = {"access_token": f"{CANARY}-access", "token_type": "Bearer", "expires_in": 3600, "scope": "read write"}


def asked(app: Any = APP, scopes: tuple[str, ...] = ("read", "write")) -> list[tuple[str, str]]:
    request = client_credentials_request(app, app.endpoints, scopes, clock=TestClock())
    assert app.endpoints.token_url == request.url
    return pairs_of(request.form or {})


def test_the_request_has_scopes_and_client_authentication() -> None:
    """RFC 6749 section 4.4.2."""
    assert [("grant_type", "client_credentials"), ("scope", "read write")] == asked()
    assert "Authorization" in client_credentials_request(APP, APP.endpoints, (), clock=TestClock()).headers
    post = asked(with_client(auth_method="client_secret_post"))
    assert {"client_id": CLIENT_ID, "client_secret": f"{CANARY}-client-secret"}.items() <= dict(post).items()


def test_no_scopes_name_none_and_the_separator_is_the_providers() -> None:
    assert [("grant_type", "client_credentials")] == asked(scopes=())
    assert ("scope", "read,write") in asked(with_habits(scope_separator=",", scope_param="user_scope"))
    assert ("scope", "read write") in asked(with_habits(always_scopes=("openid",)))


def test_resource_and_the_apps_own_parameters_go_along_but_override_nothing() -> None:
    habits = Habits(token_params={"audience": "https://api.example", "grant_type": "password", "scope": "everything"})
    app = dataclasses.replace(APP, habits=habits, resource=("https://a.example", "https://b.example"))
    assert [
        ("audience", "https://api.example"),
        ("grant_type", "client_credentials"),
        ("resource", "https://a.example"),
        ("resource", "https://b.example"),
        ("scope", "read write"),
    ] == sorted(asked(app))


def test_a_public_client_has_none() -> None:
    app = with_client(auth_method="none", client_secret=None)
    assert Code.APP_MISCONFIGURED is code_of(lambda: asked(app))


def test_a_token_is_taken_and_what_does_not_belong_to_it_is_dropped() -> None:
    """RFC 6749 section 4.4.3: a refresh token should not come along; it would not be needed."""
    found = client_credentials_response(APP, answer({**TOKENS, "refresh_token": "r", "id_token": "a.b.c"}))
    assert (None, None, 3600, ("read", "write")) == (
        found.refresh_token, found.id_token, found.lifetime_seconds, found.scopes,
    )  # fmt: skip
    assert f"{CANARY}-access" == found.access_token.reveal()
    assert 1 == len(found.issued.secrets)


@pytest.mark.parametrize(
    "status, body, code",
    [
        (401, {"error": "invalid_client"}, Code.APP_MISCONFIGURED),
        (400, {"error": "invalid_scope"}, Code.APP_MISCONFIGURED),
        (400, {"error": "invalid_grant", "error_description": CANARY}, Code.APP_MISCONFIGURED),
        (400, {"error": "unauthorized_client"}, Code.APP_MISCONFIGURED),
        (403, {"error": CANARY}, Code.APP_MISCONFIGURED),
        (400, {"error": "temporarily_unavailable"}, Code.PROVIDER_UNREACHABLE),
        (503, b"", Code.PROVIDER_UNREACHABLE),
        (429, b"", Code.PROVIDER_RATE_LIMITED),
        (200, {}, Code.TOKEN_RESPONSE_INVALID),
        (200, b"<html>", Code.TOKEN_RESPONSE_INVALID),
    ],
)
def test_no_refusal_is_a_persons_to_fix(status: int, body: Any, code: Code) -> None:
    assert code is code_of(lambda: client_credentials_response(APP, answer(body, status)))


@pytest.mark.case("27")
def test_an_unasked_kind_of_token_is_refused_and_can_be_given_back() -> None:
    error = refusal(lambda: client_credentials_response(APP, answer({**TOKENS, "token_type": "DPoP"})))
    assert isinstance(error, RefusedTokens)
    assert (Code.TOKEN_RESPONSE_INVALID, 1) == (error.code, len(error.tokens))
