"""The pages of `/connections` as HTML: what is connected, what waits, and the questions before something ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from markupsafe import Markup

from oauthbroker.core.errors import Locale
from oauthbroker.operations.connections import GrantConnection, Service
from oauthbroker.web.display import phrase, plain_phrase
from oauthbroker.web.rendering import Page, render
from oauthbroker.web.scopes import brand_of, scope_line
from oauthbroker.web.times import time_element
from oauthbroker.web.words import CONNECTIONS, Words

SCOPES_SHOWN = 100
Ending = Literal["unopened", "closed", "left"]


@dataclass(frozen=True, slots=True)
class Desk:
    """What every page of a visit needs: the language, the time, where its forms go and their hidden fields."""

    locale: Locale
    now: datetime
    url: Callable[[str], str]
    token: Callable[[str], str] = field(repr=False)

    @property
    def text(self) -> Words:
        return CONNECTIONS[self.locale]

    def words(self, **more: Any) -> dict[str, Any]:
        """For a template."""
        return {
            "kind": "desk",
            "done": "",
            "skip": self.text.skip,
            "text": self.text,
            "url": self.url,
            "token": self.token,
            "time": lambda moment: time_element(moment, self.now, self.text),
            **more,
        }


def render_invitation(desk: Desk) -> Page:
    """Behind the one-time link: a button, and nothing of anybody. Shows, and changes nothing."""
    html = render("connections_open.html", desk.locale, **desk.words(kind="open", title=desk.text.open_title))
    return Page(html, 200, desk.locale, "same-origin")


def render_connections(desk: Desk, services: Sequence[Service], *, done: str = "") -> Page:
    """Everything that is connected or waits for the subjects of one visit, app by app."""
    words = desk.words(
        title=desk.text.title,
        done=done,
        services=[(each, _card(desk, each.connection) if each.connection else None) for each in services],
        brand_of=brand_of,
    )
    return Page(render("connections.html", desk.locale, **words), 200, desk.locale, "same-origin")


def render_disconnect(desk: Desk, connection: GrantConnection) -> Page:
    """The question before a connection ends."""
    words = desk.words(
        title=plain_phrase(desk.text.disconnect_title, app=connection.app.display_name),
        card=_card(desk, connection),
        it=connection,
    )
    return Page(render("connections_disconnect.html", desk.locale, **words), 200, desk.locale, "same-origin")


def render_ending(ending: Ending, locale: Locale) -> Page:
    """Where nobody is, or nobody any more."""
    text = CONNECTIONS[locale]
    title, lead = {
        "unopened": (text.unopened_title, text.unopened_lead),
        "closed": (text.closed_title, text.closed_lead),
        "left": (text.left_title, text.left_lead),
    }[ending]
    kind, status = ("connected", 200) if ending == "left" else ("expired", 401)
    html = render("outcome.html", locale, kind=kind, title=title, heading=title, lead=lead, reference="")
    return Page(html, status, locale)


def _card(desk: Desk, it: GrantConnection) -> dict[str, Any]:
    """One connection, for its card."""
    return {
        "it": it,
        "state": _state(desk, it),
        "scopes": _scopes(desk.locale, it.app.provider, it.grant.scopes),
        "more": max(0, len(it.grant.scopes) - SCOPES_SHOWN),
        "path": f"/connections/{it.grant.id}",
    }


def _state(desk: Desk, it: GrantConnection) -> tuple[str, Markup]:
    """(how it looks, what it says)."""
    text, grant = desk.text, it.grant
    until = Markup("") if grant.until is None else time_element(grant.until, desk.now, text)
    if grant.health == "again":
        return "bad", phrase(text.state_again)
    if grant.health == "ending":
        return "warn", phrase(text.state_ending, when=until)
    return "good", phrase(text.state_alive) if grant.until is None else phrase(text.state_until, when=until)


def _scopes(locale: Locale, provider: str, scopes: tuple[str, ...]) -> list[Any]:
    return [scope_line(provider, scope, locale) for scope in scopes[:SCOPES_SHOWN]]


def done_words(word: str | None, text: Words) -> str:
    """What a finished action says, by a word of ours in the address; nothing for any other word."""
    return {"disconnected": text.done_disconnected}.get(word or "", "")
