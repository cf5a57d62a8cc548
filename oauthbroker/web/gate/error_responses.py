"""Errors as answers: RFC 9457 JSON for machines, a page for people. The same code and status in both, and the same
sentence unless that is for programs."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from oauthbroker.authorization.page_results import AlreadyConnected
from oauthbroker.core.accept_headers import prefers
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.web.gate.browsers import FormRefusedError
from oauthbroker.web.html.ending_html import Outcome, render_outcome
from oauthbroker.web.html.rendering import Page
from oauthbroker.web.middleware.access_log import note_refusal, request_id
from oauthbroker.web.middleware.security_headers import security_headers
from oauthbroker.web.words import ERRORS, PAGES, locale_of

_OUTCOMES: dict[Code, Outcome] = {
    Code.PROVIDER_DENIED: "denied",
    Code.ADMIN_CONSENT_NEEDED: "unfinished",
    Code.INTERACTION_NEEDED: "unfinished",
    Code.CONNECTION_UNFINISHED: "unfinished",
    Code.STATE_UNKNOWN: "expired",
    Code.STATE_EXPIRED: "expired",
    Code.STATE_USED: "expired",
}
_OF_HTTP = {404: Code.NOT_FOUND, 405: Code.METHOD_NOT_ALLOWED}


def wants_page(headers: Headers) -> bool:
    """Return whether a person is looking: browsers name text/html in Accept. API clients do not, or prefer JSON."""
    return prefers(headers.get("accept"), "text/html", "application/json", on_a_tie=True)


def error_page(error: BrokerError, locale: Locale, *, reference: str = "", status: int | None = None) -> Page:
    """Render an error for a person; `reference` is the request id to quote. `status` overrides the code's own."""
    if isinstance(error, AlreadyConnected):
        name, text = error.app_name, PAGES[locale]
        leads = {"person": text.connected_lead_own, "program": text.connected_lead_program}
        said = leads.get(error.asker, text.connected_lead)
        return render_outcome("connected", error.code, name, locale, reference=reference, status=status, sentence=said)
    outcome = "missing" if error.hint == "linkCut" else _OUTCOMES.get(error.code, "failed")
    page = error.page if isinstance(error, FormRefusedError) else ""
    return render_outcome(
        outcome,
        error.code,
        None,
        locale,
        reference=reference,
        status=status,
        sentence=_sentence(error, locale),
        again=page,
    )


def _sentence(error: BrokerError, locale: Locale) -> str:
    """Return the sentence for a person: that of pages, unless the error knows more of its case."""
    knows_more = error.hint or error.sentence or (error.lasting and error.code is Code.STORE_UNAVAILABLE)
    return error.message(locale) if knows_more else ERRORS[locale].get(error.code, error.message(locale))


def problem(
    error: BrokerError,
    locale: Locale = "en",
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a problem (RFC 9457) with our code, and where a request is wrong. `status` overrides the code's own."""
    extra: dict[str, Any] = {
        "detail": error.explained(locale),
        "code": error.code.value,
        "retryable": error.retryable,
    }
    if error.retry_after_seconds is not None:
        extra["retryAfterSeconds"] = error.retry_after_seconds
    if error.errors:
        extra["errors"] = list(error.errors)
    said = {**_headers_of(error), "content-language": locale, **(headers or {})}
    return _problem(status or error.status, said, extra)


def refusal(error: BrokerError, request: Request, default: Locale) -> Response:
    """Return the problem as the API answers it, without regard to Accept."""
    note_refusal(request.scope, error)
    return problem(error, locale_of(request.headers.get("accept-language"), default))


def _headers_of(error: BrokerError) -> dict[str, str]:
    """Return the headers that HTTP demands (RFC 9110 sections 10.2.3 and 15.5.2)."""
    headers: dict[str, str] = {}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(error.retry_after_seconds)
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return headers


def _problem(status: int, headers: Mapping[str, str], extra: Mapping[str, Any]) -> JSONResponse:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, **extra}
    return JSONResponse(body, status, {**security_headers(), **headers}, media_type="application/problem+json")


def answer(error: BrokerError, request: Request, default: Locale, *, status: int | None = None) -> Response:
    """Return the error in the form and language the caller asked for."""
    note_refusal(request.scope, error)
    locale = locale_of(request.headers.get("accept-language"), default)
    if not wants_page(request.headers):
        return problem(error, locale, status=status)
    response = error_page(error, locale, reference=request_id(request.scope), status=status).response()
    response.headers.update(_headers_of(error))
    return response


def bare_answer(status: int, request: Request, default: Locale, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with HTTP's own refusals: 404 and 405, whose page says no code, and those without a code: above all the
    500 with its reference only."""
    code, locale = _OF_HTTP.get(status), locale_of(request.headers.get("accept-language"), default)
    if not wants_page(request.headers):
        if code is None:
            return _problem(status, headers or {}, {})
        return problem(BrokerError(code), locale, headers=headers)
    outcome: Outcome = "failed" if status >= 500 else "missing"
    page = render_outcome(outcome, None, None, locale, status=status, reference=request_id(request.scope))
    response = page.response()
    response.headers.update(headers or {})
    return response
