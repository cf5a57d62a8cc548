"""An error is the same to a machine and to a person: one code, one status, and a sentence that its reader can follow."""

from __future__ import annotations

import json
import re

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.web.gate.error_responses import error_page, problem, wants_page
from oauthbroker.web.words import ERRORS
from tests.unit.web.kit import Document, a_site, ask


@pytest.mark.parametrize("code", list(Code))
def test_every_code_is_a_problem_with_its_status_and_sentence(code):
    error = BrokerError(code, note="for the log only", mode="user")
    response = problem(error, "ko")
    body = json.loads(bytes(response.body))
    assert response.status_code == body["status"] == error.status
    assert body["detail"] == error.explained("ko")
    assert (body["type"], body["code"], body["retryable"]) == ("about:blank", code.value, error.retryable)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["content-language"] == "ko"
    shown = "for the log only" in bytes(response.body).decode()
    assert (code is Code.REQUEST_INVALID) == shown, "a wrong request is named to its caller"


def test_when_to_come_back_is_reported_in_header_and_body():
    response = problem(BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=30))
    assert response.headers["retry-after"] == "30"
    assert json.loads(bytes(response.body))["retryAfterSeconds"] == 30


@pytest.mark.parametrize("code", [code for code in Code if code.status == 401])
def test_every_401_names_the_scheme(code):
    """RFC 9110 section 15.5.2."""
    assert problem(BrokerError(code)).headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "code, title",
    [
        (Code.PROVIDER_DENIED, "Nothing was connected"),
        (Code.STATE_UNKNOWN, "This link no longer works"),
        (Code.STATE_EXPIRED, "This link no longer works"),
        (Code.STATE_USED, "This link no longer works"),
        (Code.OWNER_BINDING_FAILED, "This did not work"),
    ],
)
def test_an_error_ends_on_the_page_that_fits_it(code, title):
    page = error_page(BrokerError(code), "en", reference="r-1")
    assert Document(page.html).one("h1").text == title
    assert page.status == BrokerError(code).status
    assert ("r-1" in page.html) == (title == "This did not work")


@pytest.mark.parametrize("locale, words", [("en", "new one"), ("ko", "새 링크를 요청")])
@pytest.mark.parametrize("code", [Code.STATE_UNKNOWN, Code.STATE_EXPIRED, Code.STATE_USED])
def test_a_link_that_no_longer_works_says_where_to_get_another(code, locale, words):
    assert words in Document(error_page(BrokerError(code), locale).html).text


@pytest.mark.parametrize(
    "accept, page",
    [
        ("text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("TEXT/HTML", True),
        ("text/html, */*", True),
        ("text/html;charset=utf-8", True),
        ("application/json, text/html;q=0.5", False),
        ("application/json;q=0.5, text/html;q=0", False),
        ("text/html;q=0", False),
        ("*/*", False),
        ("application/json", False),
        (None, False),
    ],
)
def test_browsers_get_pages_and_programs_get_json(accept, page):
    assert wants_page(Headers({"accept": accept} if accept else {})) is page


async def test_form_and_language_follow_the_request():
    async def refuse(_request: Request) -> Response:
        raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=9)

    site = a_site([Route("/", refuse)], locale="ko")
    page = await ask(site.app, "/", headers=[("accept", "text/html")])
    english = await ask(site.app, "/", headers=[("accept", "text/html"), ("accept-language", "en")])
    machine = await ask(site.app, "/", headers=[("accept-language", "en")])
    assert ERRORS["ko"][Code.RATE_LIMITED] in page.text
    assert ERRORS["en"][Code.RATE_LIMITED] in english.text
    assert BrokerError(Code.RATE_LIMITED).message("en") == machine.json["detail"]
    assert [answer.headers["retry-after"] for answer in (page, english, machine)] == ["9"] * 3
    assert page.headers["content-language"] == "ko"


# What the API, tools and commands alone are told.
FOR_PROGRAMS = {
    Code.OAUTH_APP_NOT_FOUND, Code.SUBJECT_UNAVAILABLE, Code.ACCOUNT_REQUIRED, Code.ACCOUNT_FORBIDDEN,
    Code.ACCOUNTS_INVALID, Code.SCOPE_NOT_ALLOWED, Code.APP_FORBIDDEN, Code.MIN_TTL_UNSATISFIABLE,
    Code.DEVICE_CODE_UNSUPPORTED, Code.SCOPE_INSUFFICIENT, Code.REAUTH_REQUIRED, Code.REFRESH_IN_PROGRESS,
    Code.REFRESH_REFUSED, Code.REFRESH_UNCERTAIN, Code.FACT_MISSING, Code.UNAUTHENTICATED, Code.TURN_ENDED,
    Code.LEASE_LOST, Code.IDEMPOTENCY_CONFLICT, Code.AGENT_FORWARDED, Code.UNSUPPORTED_MEDIA_TYPE,
    Code.TOKEN_INJECTED_ONLY, Code.API_NOT_DECLARED, Code.API_HOST_FORBIDDEN, Code.API_METHOD_FORBIDDEN,
    Code.API_PATH_FORBIDDEN, Code.BODY_NOT_REPEATABLE, Code.BROKER_UNREACHABLE, Code.BROKER_ANSWER_INVALID,
    Code.METHOD_NOT_ALLOWED, Code.NOT_FOUND, Code.STORE_FORMAT,
}  # fmt: skip
OF_PROGRAMS = re.compile(
    r"OAuthApp|turn\.|spec\.|Seconds\b|\bSend only|\bSend less|\bcalls?\b|\bAsk again|oauthbroker (?!audit|check)|\bbundle\b"
)


@pytest.mark.parametrize("code", sorted({*Code} - FOR_PROGRAMS))
def test_a_page_says_nothing_that_only_a_program_could_do(code: Code):
    said = Document(error_page(BrokerError(code), "en").html).text
    assert [] == OF_PROGRAMS.findall(said), said


def test_a_sentence_that_knows_more_of_its_case_goes_before_that_of_pages():
    refused = BrokerError(Code.OWNER_BINDING_FAILED)
    refused.hint = "signInRefused"
    assert refused.message("en") in Document(error_page(refused, "en").html).text
    lasting = BrokerError(Code.STORE_UNAVAILABLE, lasting=True)
    assert lasting.message("en") in Document(error_page(lasting, "en").html).text
