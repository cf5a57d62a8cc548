"""The pages between link and grant: connect, leaving, and confirmation of the browser by the runtime or a
login. Server-rendered, no script."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import segno
from markupsafe import Markup

from oauthbroker.authorization.credential_entry import FieldsRefused
from oauthbroker.authorization.page_results import Invitation, Step
from oauthbroker.core.clock import printed
from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.shapes import shaped, without_stray_joiners
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.provider_api import ApiHost
from oauthbroker.model.token_results import DevicePrompt
from oauthbroker.records.pending_code import grouped
from oauthbroker.web.html.rendering import Page, page
from oauthbroker.web.html.scope_sentences import provider_title, scope_line, shown_scopes
from oauthbroker.web.html.shown_names import (
    HOST_LIMIT,
    Titles,
    breakable,
    checked_url,
    host_of,
    isolated,
    phrase,
    plain_phrase,
    titled,
)
from oauthbroker.web.words import PAGES, Words

DECISION_FIELD = "decision"
PARAM, LABEL, LONGEST_LABEL = "param.", "label", 40  # fields of the form
CREDENTIAL = "credential."
CONTINUE, CANCEL = "continue", "cancel"
# The fields are at fault.
REFUSED = frozenset({Code.CREDENTIAL_REFUSED, Code.SUBJECT_MISMATCH, Code.SUBJECT_UNVERIFIABLE})
_HOSTS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ConnectView:
    """A request for consent as its page shows it `now`. `csrf_token` goes into the form and nowhere else. `typed`
    are values that were refused, `refused` is why a credential was."""

    asked: Invitation
    now: datetime
    csrf_token: str = field(default="", repr=False)
    _: KW_ONLY
    typed: Mapping[str, str] | None = None
    refused: BrokerError | None = None

    @property
    def app_name(self) -> str:
        return self.asked.app.display_name

    @property
    def provider_host(self) -> str:
        """Return the host of the provider, empty as long as it depends on what the person types."""
        return host_of(self.asked.authorization_endpoint) if self.asked.authorization_endpoint else ""

    def problem_of(self, param: ConnectParam) -> bool:
        """Tell whether the typed value of a parameter was refused."""
        return self.typed is not None and param.typed(self.typed.get(param.name, "")) is None

    @property
    def login_host(self) -> str:
        """Return the host of the broker's own login, if that comes first."""
        return host_of(self.asked.login_endpoint) if self.asked.login_endpoint else ""


def render_connect(view: ConnectView, locale: Locale) -> Page:
    """Render the agent, the app, the subject, and the host where the button leads.

    Referrer-Policy is `same-origin`: with `no-referrer` browsers send `Origin: null` on the form's POST.
    """
    title = plain_phrase(PAGES[locale].connect_title, app=view.app_name)
    words = _request_words(view, locale)
    status = 200 if view.typed is None else 400
    return page(
        "connect.html", locale, status=status, referrer_policy="same-origin", kind="connect", title=title, **words
    )


def render_credential(view: ConnectView, locale: Locale) -> Page:
    """Render the request for a static credential. The typed values are never shown again: refused fields come back
    empty, with their problems. As `render_connect` otherwise."""
    text, refused = PAGES[locale], view.refused
    problems = refused.problems if isinstance(refused, FieldsRefused) else {}
    asked = [field.name for field in view.asked.fields]
    problem = "" if refused is None or problems else refused.message(locale)
    words = {
        "missing": text.credential_missing,
        "characters": text.credential_characters,
        "long": text.credential_long,
        "pattern": text.credential_pattern,
    }
    if refused is not None and refused.code is Code.SUBJECT_MISMATCH:
        problem = text.credential_mismatch
    if problems and not problems.keys() & set(asked):
        problem = text.credential_unknown
    wrong = {name: words.get(why, text.param_wrong) for name, why in problems.items()}
    is_refused = refused is not None and refused.code in REFUSED
    return page(
        "credential.html",
        locale,
        status=200 if refused is None and view.typed is None else refused.status if refused is not None else 400,
        referrer_policy="same-origin",
        kind="connect",
        title=plain_phrase(text.connect_title, app=view.app_name),
        problem=problem,
        wrong_fields=wrong,
        refused=is_refused,
        first_wrong=next((name for name in asked if name in wrong or is_refused), ""),
        is_checked=view.asked.app.credential is not None and view.asked.app.credential.verification is not None,
        **_request_words(view, locale),
    )


def _hosts(asked: Invitation) -> list[str]:
    """Return the hosts that a credential is sent to, as far as they are known."""
    hosts = asked.app.api.hosts if asked.app.credential is not None else ()
    known = [host.name if isinstance(host, ApiHost) else host.host_in(asked.app.params) for host in hosts]
    return [name for name in known if name][:_HOSTS_SHOWN]


def typed_credential(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the typed values of a static credential, by field."""
    return {name.removeprefix(CREDENTIAL): text for name, text in fields.items() if name.startswith(CREDENTIAL)}


def typed_params(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the typed values of the connection's parameters."""
    return {name.removeprefix(PARAM): text for name, text in fields.items() if name.startswith(PARAM)}


def typed_label(fields: Mapping[str, str]) -> str:
    """Return the person's own name for the account: printable, in one line, at most 40 characters."""
    said = " ".join(shaped(fields.get(LABEL, "")).split())
    return without_stray_joiners(said[:LONGEST_LABEL]).strip()


def render_device(view: ConnectView, prompt: DevicePrompt, locale: Locale) -> Page:
    """Render the request for consent of the device code flow (RFC 8628 section 3.3): the code, and the address and QR
    code of where it is typed. A link on it looks again: the page needs no script and must not change under its reader.
    Raises `appMisconfigured` for an address that no browser should be given."""
    url = prompt.verification_uri_complete or prompt.verification_uri
    return page(
        "device.html",
        locale,
        referrer_policy="same-origin",
        kind="device",
        title=plain_phrase(PAGES[locale].device_title, app=view.app_name),
        user_code=prompt.user_code,
        address=breakable(checked_url(prompt.verification_uri)),
        url=checked_url(url),
        is_complete=url is prompt.verification_uri_complete,
        qr=qr_svg(url),
        host=isolated(view.provider_host, HOST_LIMIT),
        **_request_words(view, locale),
    )


@lru_cache(maxsize=64)
def qr_svg(address: str) -> Markup:
    """Return an address as a QR code: SVG of one path, without a style that our Content-Security-Policy forbids.

    Remembered, because drawing it takes 40 times as long as the rest of its page, which a person reloads while waiting.
    """
    return Markup(segno.make_qr(address, error="m").svg_inline(omitsize=True, border=4, svgclass=None, lineclass=None))  # noqa: S704


def _request_words(view: ConnectView, locale: Locale) -> dict[str, Any]:
    """Return the request for consent: the agent, its scopes, the subject, the expiry."""
    text, asked = PAGES[locale], view.asked
    provider = asked.app.provider
    scopes, more_scopes = shown_scopes(provider, asked.scopes, locale)
    return {
        "view": view,
        "asked": asked,
        "agent": asked.agent_title or asked.agent_name,
        "used_at": _hosts(asked),
        "provider": provider_title(provider, view.provider_host) or asked.app.display_name,
        "sharing": text.subject_shared if asked.app.subject_mode == "global" else text.subject_personal,
        "expiry": Markup('<time datetime="{}">{}</time>').format(printed(asked.expires_at), _expiry(view, text)),
        "scopes": scopes,
        "more_scopes": more_scopes,
        "scopes_for_user": [scope_line(provider, scope, locale) for scope in asked.scopes_for_user],
    }


def _expiry(view: ConnectView, text: Words) -> str:
    until = view.asked.expires_at
    minutes = max(0, math.ceil((until - view.now).total_seconds() / 60))
    return text.expiry.format(minutes=minutes, time=f"{until.astimezone(UTC):%H:%M}")


def render_leaving(url: str, provider: str, host: str, locale: Locale) -> Page:
    """Render the step to a provider's host."""
    text = PAGES[locale]
    return render_onward(
        url, titled(text.leaving_title, provider=provider_title(provider, host)), text.leaving_lead, host, locale
    )


def render_onward(url: str, titles: Titles, lead: str, host: str, locale: Locale) -> Page:
    """Render a step to another host: a refresh and a link, because a redirect out of a form dies on CSP `form-action`.
    Raises `appMisconfigured` for a URL that no browser should be given."""
    words: dict[str, Any] = {"lead": phrase(lead, host=isolated(host, HOST_LIMIT)), "url": checked_url(url)}
    return page("leaving.html", locale, kind="leaving", **titles, **words)


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
    """Say that the link is elsewhere, and neither for whom nor for which app."""
    text = PAGES[locale]
    words: dict[str, Any] = {"lead": text.private_lead, "hint": text.private_hint, "may_change": False}
    return page("message.html", locale, kind="missing", **titled(text.private_title), **words)


def render_wrong_account(login_endpoint: str, locale: Locale) -> Page:
    """Render the refusal of another account. Says at which login, and names neither account."""
    text, host = PAGES[locale], isolated(host_of(login_endpoint), HOST_LIMIT)
    lead, hint = phrase(text.login_wrong_lead, host=host), phrase(text.login_wrong_hint, host=host)
    words: dict[str, Any] = {"status": BrokerError(Code.SUBJECT_MISMATCH).status, "may_change": False}
    return page("message.html", locale, kind="failed", **titled(text.login_wrong_title), lead=lead, hint=hint, **words)
