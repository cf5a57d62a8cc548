"""What people see between link and grant: connect, leaving, and how it ended. Server-rendered, no script."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import segno
from markupsafe import Markup, escape

from oauthbroker.core.clock import printed
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.model.results import DevicePrompt
from oauthbroker.model.turn import SubjectMode
from oauthbroker.web.display import HOST_LIMIT, breakable, checked_url, isolated, phrase, plain_phrase
from oauthbroker.web.rendering import Page, render
from oauthbroker.web.scopes import provider_title, scope_line
from oauthbroker.web.words import PAGES, Words

Outcome = Literal["connected", "denied", "failed", "expired", "missing"]
CSRF_FIELD, DECISION_FIELD = "csrf", "decision"
CONTINUE, CANCEL = "continue", "cancel"
_SCOPES_SHOWN = 100
_STATUS: dict[Outcome, int] = {"connected": 200, "denied": 200, "failed": 500, "expired": 400, "missing": 404}


@dataclass(frozen=True, slots=True)
class ConnectView:
    """Everything the connect page says. `csrf_token` goes into the form and nowhere else;
    `login_host` is where the broker's own login is, if that comes first. Titles are what the runtime says."""

    agent_name: str
    app_name: str
    provider: str
    provider_host: str
    subject: str
    subject_mode: SubjectMode
    scopes: tuple[str, ...]
    expires_at: datetime
    now: datetime
    csrf_token: str = field(default="", repr=False)
    login_host: str = ""
    agent_title: str | None = None
    subject_title: str | None = None


@dataclass(frozen=True, slots=True)
class DoneView:
    """What a person is told at the end: `scopes` None and `account` empty are not known, or not for this browser."""

    app_name: str
    provider: str
    scopes: tuple[str, ...] | None
    account: str
    connections_url: str


def render_connect(view: ConnectView, locale: Locale) -> Page:
    """Who asks for what, for whom, and where it leads. Shows, and changes nothing.

    Referrer-Policy is `same-origin`: with `no-referrer` browsers send `Origin: null` on the form's POST.
    """
    text = PAGES[locale]
    html = render(
        "connect.html",
        locale,
        kind="connect",
        title=plain_phrase(text.connect_title, app=view.app_name),
        **_request_words(view, locale),
    )
    return Page(html, 200, locale, "same-origin")


def render_device(view: ConnectView, prompt: DevicePrompt, locale: Locale) -> Page:
    """The same in the device code flow (RFC 8628 section 3.3): the code, and the address and QR code of where it is
    typed. A link on it looks again, as nothing may change under somebody who reads; nothing on it needs a script.

    Raises `appMisconfigured` for an address that no browser should be given.
    """
    text, url = PAGES[locale], prompt.verification_uri_complete or prompt.verification_uri
    html = render(
        "device.html",
        locale,
        kind="device",
        title=plain_phrase(text.device_title, app=view.app_name),
        user_code=prompt.user_code,
        address=breakable(checked_url(prompt.verification_uri)),
        url=checked_url(url),
        is_complete=url is prompt.verification_uri_complete,
        qr=qr_svg(url),
        host=isolated(view.provider_host, HOST_LIMIT),
        **_request_words(view, locale),
    )
    return Page(html, 200, locale, "same-origin")


@lru_cache(maxsize=64)
def qr_svg(address: str) -> Markup:
    """Return an address as a QR code: SVG of one path, without a style that our Content-Security-Policy forbids.

    Remembered, because drawing it takes 40 times as long as the rest of its page, which a person reloads while waiting.
    """
    return Markup(segno.make_qr(address, error="m").svg_inline(omitsize=True, border=4, svgclass=None, lineclass=None))  # noqa: S704


def _request_words(view: ConnectView, locale: Locale) -> dict[str, Any]:
    """Who asks for what, for whom, until when."""
    text = PAGES[locale]
    return {
        "view": view,
        "agent": view.agent_title or view.agent_name,
        "provider": provider_title(view.provider, view.provider_host),
        "sharing": text.subject_shared if view.subject_mode == "global" else text.subject_personal,
        "expiry": Markup('<time datetime="{}">{}</time>').format(printed(view.expires_at), _expiry(view, text)),
        "scopes": [scope_line(view.provider, scope, locale) for scope in view.scopes[:_SCOPES_SHOWN]],
        "more_scopes": max(0, len(view.scopes) - _SCOPES_SHOWN),
    }


def _expiry(view: ConnectView, text: Words) -> str:
    minutes = max(0, math.ceil((view.expires_at - view.now).total_seconds() / 60))
    return text.expiry.format(minutes=minutes, time=f"{view.expires_at.astimezone(UTC):%H:%M}")


def render_interstitial(url: str, view: ConnectView, locale: Locale) -> Page:
    """The step to the provider: a refresh and a link, because a redirect out of a form dies on CSP `form-action`.

    `url` is the authorization URL we built; raises `appMisconfigured` for one that no browser should be given.
    """
    text = PAGES[locale]
    provider = provider_title(view.provider, view.provider_host)
    html = render(
        "leaving.html",
        locale,
        kind="leaving",
        title=plain_phrase(text.leaving_title, provider=provider),
        view=view,
        provider=provider,
        url=checked_url(url),
    )
    return Page(html, 200, locale)


def render_done(view: DoneView, locale: Locale) -> Page:
    """It is connected: with which account, what it may do, and where it can be ended."""
    text, scopes = PAGES[locale], view.scopes or ()
    html = render(
        "done.html",
        locale,
        kind="connected",
        title=plain_phrase(text.connected_title, app=view.app_name),
        view=view,
        scopes=[scope_line(view.provider, scope, locale) for scope in scopes[:_SCOPES_SHOWN]],
        more_scopes=max(0, len(scopes) - _SCOPES_SHOWN),
        is_known=view.scopes is not None,
    )
    return Page(html, 200, locale)


def render_outcome(
    outcome: Outcome,
    code: Code | None = None,
    app_name: str | None = None,
    locale: Locale = "en",
    *,
    status: int | None = None,
    reference: str = "",
) -> Page:
    """How it ended. With a code, its sentence and status; without, the same fixed words for every cause.

    `reference` is the request id, shown on `failed` pages to quote when asking for help. `status` overrides.
    """
    text = PAGES[locale]
    heading, title, lead = _ending(outcome, code, app_name, locale)
    html = render(
        "outcome.html", locale, kind=outcome, title=title, heading=heading, lead=lead, reference=reference, text=text
    )
    return Page(html, status or (BrokerError(code).status if code else _STATUS[outcome]), locale)


def _ending(outcome: Outcome, code: Code | None, app_name: str | None, locale: Locale) -> tuple[Markup, str, str]:
    text = PAGES[locale]
    if outcome == "connected" and app_name:
        heading, title = phrase(text.connected_title, app=app_name), plain_phrase(text.connected_title, app=app_name)
        return heading, title, BrokerError(code).message(locale) if code else text.connected_lead
    titles: dict[Outcome, tuple[str, str]] = {
        "connected": (text.connected_title_plain, text.connected_lead),
        "denied": (text.denied_title, text.denied_lead),
        "failed": (text.failed_title, text.failed_lead),
        "expired": (text.expired_title, text.expired_lead),
        "missing": (text.missing_title, text.missing_lead),
    }
    title, lead = titles[outcome]
    return escape(title), title, BrokerError(code).message(locale) if code else lead
