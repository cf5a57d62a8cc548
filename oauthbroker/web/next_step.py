"""The pages between callback and grant, where somebody vouches for the browser first; and where private links lead."""

from __future__ import annotations

import math
from datetime import datetime

from oauthbroker.authorization.pages_service import Step
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.records.parked import grouped
from oauthbroker.web.display import HOST_LIMIT, checked_url, host_of, isolated, phrase, plain_phrase
from oauthbroker.web.rendering import Page, render
from oauthbroker.web.scopes import provider_title
from oauthbroker.web.words import PAGES


def render_next(step: Step, locale: Locale, now: datetime) -> Page:
    """The one thing that is left to do. Raises `appMisconfigured` for an address that no browser should be given."""
    if step.code is not None:
        return _code(step, step.code.reveal(), locale, now)
    if step.url is not None and step.kind == "brokerLogin":
        return _leaving(step, step.url.reveal(), locale)
    if step.url is not None:
        return _onward(step, step.url.reveal(), locale)
    return _finishing(step, locale)


def render_private(locale: Locale) -> Page:
    """Says that the link is elsewhere, and nothing about whose or what for."""
    text = PAGES[locale]
    html = render(
        "plain.html",
        locale,
        kind="missing",
        title=text.private_title,
        heading=text.private_title,
        lead=text.private_lead,
        hint=text.private_hint,
        may_change=False,
    )
    return Page(html, 200, locale)


def _code(step: Step, code: str, locale: Locale, now: datetime) -> Page:
    html = render(
        "code.html",
        locale,
        kind="device",
        title=plain_phrase(PAGES[locale].code_title, app=step.app.display_name),
        app_name=step.app.display_name,
        code=grouped(code),
        seconds=str(max(0, math.ceil((step.until - now).total_seconds()))),
    )
    return Page(html, 200, locale)


def _onward(step: Step, url: str, locale: Locale) -> Page:
    text, app = PAGES[locale], step.app.display_name
    html = render(
        "onward.html",
        locale,
        kind="leaving",
        title=plain_phrase(text.runtime_title, app=app),
        heading=phrase(text.runtime_title, app=app),
        lead=phrase(text.runtime_lead, host=isolated(host_of(url), HOST_LIMIT)),
        url=checked_url(url),
    )
    return Page(html, 200, locale)


def render_wrong_account(login_endpoint: str, locale: Locale) -> Page:
    """Somebody else logged in. It says at which login, and neither who that was nor who it should have been."""
    text, host = PAGES[locale], isolated(host_of(login_endpoint), HOST_LIMIT)
    html = render(
        "plain.html",
        locale,
        kind="failed",
        title=text.login_wrong_title,
        heading=text.login_wrong_title,
        lead=phrase(text.login_wrong_lead, host=host),
        hint=phrase(text.login_wrong_hint, host=host),
        may_change=False,
    )
    return Page(html, BrokerError(Code.SUBJECT_MISMATCH).status, locale)


def _leaving(step: Step, url: str, locale: Locale) -> Page:
    """On to the app's provider, for somebody who has logged in."""
    text, host = PAGES[locale], host_of(url)
    provider = provider_title(step.app.provider, host)
    html = render(
        "onward.html",
        locale,
        kind="leaving",
        title=plain_phrase(text.leaving_title, provider=provider),
        heading=phrase(text.leaving_title, provider=provider),
        lead=phrase(text.leaving_lead, host=isolated(host, HOST_LIMIT)),
        url=checked_url(url),
    )
    return Page(html, 200, locale)


def _finishing(step: Step, locale: Locale) -> Page:
    text, app = PAGES[locale], step.app.display_name
    html = render(
        "plain.html",
        locale,
        kind="leaving",
        title=plain_phrase(text.finishing_title, app=app),
        heading=phrase(text.finishing_title, app=app),
        lead=text.finishing_lead,
        hint="",
        may_change=True,
    )
    return Page(html, 200, locale)
