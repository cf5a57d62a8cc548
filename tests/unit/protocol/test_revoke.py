from __future__ import annotations

import pytest

from oauthbroker.errors import Code
from oauthbroker.protocol.messages import encode_form
from oauthbroker.protocol.revoke import revoke_request, revoke_response
from oauthbroker.secret import Secret
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, answer, code_of, refusal, with_endpoints


def test_the_request_names_the_token_and_its_kind_as_this_client():
    request = revoke_request(APP, APP.endpoints, Secret("rt-1"), "refresh_token", clock=TestClock())
    assert ("POST", APP.endpoints.revoke_url) == (request.method, request.url)
    assert b"token=rt-1&token_type_hint=refresh_token" == encode_form(request.form or {})
    assert "Authorization" in request.headers


def test_an_app_without_a_revocation_endpoint_is_told():
    app = with_endpoints(revoke_url="")
    judge = lambda: revoke_request(app, app.endpoints, Secret("t"), "access_token", clock=TestClock())  # noqa: E731
    assert Code.APP_MISCONFIGURED == code_of(judge)


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
    assert dead is revoke_response(answer(body, status))


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
    error = refusal(lambda: revoke_response(answer(body, status, retry_after=9)))
    assert (code, retryable) == (error.code, error.retryable)
    assert (9 if retryable else None) == error.retry_after_seconds
