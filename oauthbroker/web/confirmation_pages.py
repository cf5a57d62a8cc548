"""The pages between callback and grant, where the runtime or a login confirms the browser; and of private links."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from oauthbroker.authorization.pages_service import Step
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.records.parked_code import grouped
from oauthbroker.web.consent_html import render_leaving, render_onward
from oauthbroker.web.rendering import Page, page
from oauthbroker.web.shown_names import HOST_LIMIT, host_of, isolated, phrase, plain_phrase, titled
from oauthbroker.web.words import PAGES


def render_next(step: Step, locale: Locale, now: datetime) -> Page:
    """Render the one step that is left. Raises `appMisconfigured` for an address that no browser should be given."""
    text, app = PAGES[locale], step.app.display_name
    if step.code is not None:
        return page(
            "confirmation_code.html",
            locale,
            kind="device",
            title=plain_phrase(text.code_title, app=app),
            app_name=app,
            code=grouped(step.code.reveal()),
            seconds=str(max(0, math.ceil((step.until - now).total_seconds()))),
        )
    if step.url is None:
        titles, lead = titled(text.finishing_title, app=app), text.finishing_lead
        return page("message.html", locale, kind="leaving", **titles, lead=lead, hint="", may_change=True)
    url = step.url.reveal()
    if step.kind == "brokerLogin":
        return render_leaving(url, step.app.provider, host_of(url), locale)
    return render_onward(url, titled(text.runtime_title, app=app), text.runtime_lead, host_of(url), locale)


def render_private(locale: Locale) -> Page:
    """Says that the link is elsewhere, and neither for whom nor for which app."""
    text = PAGES[locale]
    words: dict[str, Any] = {"lead": text.private_lead, "hint": text.private_hint, "may_change": False}
    return page("message.html", locale, kind="missing", **titled(text.private_title), **words)


def render_wrong_account(login_endpoint: str, locale: Locale) -> Page:
    """Render the refusal of another account. Says at which login, and names neither account."""
    text, host = PAGES[locale], isolated(host_of(login_endpoint), HOST_LIMIT)
    lead, hint = phrase(text.login_wrong_lead, host=host), phrase(text.login_wrong_hint, host=host)
    words: dict[str, Any] = {"status": BrokerError(Code.SUBJECT_MISMATCH).status, "may_change": False}
    return page("message.html", locale, kind="failed", **titled(text.login_wrong_title), lead=lead, hint=hint, **words)
