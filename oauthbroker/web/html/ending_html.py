"""The pages after an authorization: connected, a choice between elements, declined, failed, expired. No script."""

from __future__ import annotations

from typing import Literal

from oauthbroker.authorization.page_results import AuthorizationEnd
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.web.html.rendering import Page, page
from oauthbroker.web.html.scope_sentences import shown_scopes
from oauthbroker.web.html.shown_names import (
    Titles,
    plain_phrase,
    titled,
)
from oauthbroker.web.words import PAGES

Outcome = Literal["connected", "denied", "unfinished", "failed", "expired", "missing"]
CHOICE_FIELD = "choice"
_STATUS: dict[Outcome, int] = {
    "connected": 200, "denied": 200, "unfinished": 403, "failed": 500, "expired": 400, "missing": 404,
}  # fmt: skip


def render_done(ending: AuthorizationEnd, token: str, locale: Locale) -> Page:
    """Render the connected account, its permissions, and the way to the page where it can be disconnected: a button for
    a user who is proven, who has a `token` for its form, else where to get a link."""
    app = ending.app
    scopes, more_scopes = shown_scopes(app.provider, ending.scopes or (), locale)
    return page(
        "done.html",
        locale,
        referrer_policy="same-origin",
        kind="connected",
        title=plain_phrase(PAGES[locale].connected_title, app=app.display_name),
        app_name=app.display_name,
        account=ending.account,
        account_name=ending.account_name,
        chosen=ending.chosen,
        token=token,
        scopes=scopes,
        more_scopes=more_scopes,
        is_known=ending.scopes is not None and app.credential is None,
        is_partly=ending.is_partly,
        asker=ending.asker,
    )


def render_choice(ending: AuthorizationEnd, action: str, token: str, locale: Locale) -> Page:
    """Render the elements that the provider lists for this account, none of them selected."""
    app, text = ending.app.display_name, PAGES[locale]
    shown = [(it.label, [str(fact) for fact in it.facts.values() if fact != it.label]) for it in ending.candidates]
    return page(
        "choice.html",
        locale,
        referrer_policy="same-origin",
        kind="unfinished",
        title=plain_phrase(text.choice_title, app=app),
        app_name=app,
        action=action,
        token=token,
        candidates=shown,
        asker=ending.asker,
    )


def render_outcome(
    outcome: Outcome,
    code: Code | None = None,
    app_name: str | None = None,
    locale: Locale = "en",
    *,
    status: int | None = None,
    reference: str = "",
    sentence: str = "",
    again: str = "",
) -> Page:
    """Render the outcome. With a code, its sentence and status; without, the same fixed words for every cause.

    `reference` is the request id, shown on `failed` pages to quote when asking for help. `status` overrides,
    and so does `sentence`, which fills in the words of an error. `again` is the address of a page to be loaded again.
    """
    titles, lead = _ending(outcome, app_name, locale)
    lead = sentence or (BrokerError(code).message(locale) if code else lead)
    status = status or (BrokerError(code).status if code else _STATUS[outcome])
    return page(
        "outcome.html", locale, status=status, kind=outcome, **titles, lead=lead, reference=reference, again=again
    )


def _ending(outcome: Outcome, app_name: str | None, locale: Locale) -> tuple[Titles, str]:
    text = PAGES[locale]
    if outcome == "connected" and app_name:
        return titled(text.connected_title, app=app_name), text.connected_lead
    sentences: dict[Outcome, tuple[str, str]] = {
        "connected": (text.connected_title_plain, text.connected_lead),
        "denied": (text.denied_title, text.denied_lead),
        "unfinished": (text.unfinished_title, text.unfinished_lead),
        "failed": (text.failed_title, text.failed_lead),
        "expired": (text.expired_title, text.expired_lead),
        "missing": (text.missing_title, text.missing_lead),
    }
    title, lead = sentences[outcome]
    return titled(title), lead
