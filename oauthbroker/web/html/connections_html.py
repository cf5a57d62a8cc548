"""The pages of `/connections` as HTML: connections, waiting requests, and the questions before something ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal

from markupsafe import Markup

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import Locale
from oauthbroker.grants.connections import GrantConnection, Service
from oauthbroker.web.html.readable_times import time_element
from oauthbroker.web.html.rendering import Page, page
from oauthbroker.web.html.scope_sentences import brand_of, shown_scopes
from oauthbroker.web.html.shown_names import phrase, plain_phrase
from oauthbroker.web.words import CONNECTIONS, Words

Ending = Literal["unopened", "closed", "left"]


@dataclass(frozen=True, kw_only=True)
class UserLayout:
    """The common words of all pages of a browser session: the language, the time, where its forms go and their hidden
    fields."""

    locale: Locale
    now: datetime
    url: Callable[[str], str]
    token: Callable[[str], str] = field(repr=False)

    @property
    def text(self) -> Words:
        return CONNECTIONS[self.locale]

    def page(self, template: str, title: str, *, status: int = 200, **more: Any) -> Page:
        text = CONNECTIONS[self.locale]
        words: dict[str, Any] = {
            "kind": "layout",
            "done": "",
            "skip": text.skip,
            "text": self.text,
            "url": self.url,
            "token": self.token,
            "time": lambda moment: time_element(moment, self.now, text),
            "title": title,
        }
        return page(f"{template}.html", self.locale, status=status, referrer_policy="same-origin", **words | more)


def render_invitation(layout: UserLayout) -> Page:
    """Render the page behind the one-time link: a button and no person's data. Shows, and changes nothing."""
    return layout.page("connections_open", layout.text.open_title, kind="open")


def render_connections(layout: UserLayout, services: Sequence[Service], *, done: str = "") -> Page:
    """Render the connections and requests of the subjects of one browser session, app by app. `done`: a word of ours in
    the address for a finished action; any other word is ignored."""
    cards = [(each, _card(layout, each.connection) if each.connection else None) for each in services]
    text = layout.text
    message = {"disconnected": text.done_disconnected, "nothing": text.done_nothing}.get(done, "")
    return layout.page("connections", layout.text.title, done=message, services=cards, brand_of=brand_of)


def render_disconnect(layout: UserLayout, connection: GrantConnection) -> Page:
    """Render the question before a connection ends."""
    title = plain_phrase(layout.text.disconnect_title, app=connection.app.display_name)
    return layout.page("connections_disconnect", title, card=_card(layout, connection), it=connection)


def render_ending(ending: Ending, locale: Locale) -> Page:
    """Render the page of a browser that no browser session is open for."""
    text = CONNECTIONS[locale]
    title, lead = {
        "unopened": (text.unopened_title, text.unopened_lead),
        "closed": (text.closed_title, text.closed_lead),
        "left": (text.left_title, text.left_lead),
    }[ending]
    return render_end("connected" if ending == "left" else "expired", title, lead, locale)


def render_end(kind: str, title: str, lead: str, locale: Locale) -> Page:
    """Render the page at the end of a browser session, or in its place."""
    status = 200 if kind == "connected" else 401
    words: dict[str, Any] = {"kind": kind, "title": title, "heading": title, "lead": lead, "reference": "", "again": ""}
    return page("outcome.html", locale, status=status, **words)


def _card(layout: UserLayout, it: GrantConnection) -> dict[str, Any]:
    """Return the words of one connection's card."""
    scopes, more = shown_scopes(it.app.provider, it.grant.scopes, layout.locale)
    return {
        "it": it,
        "state": _state(layout, it),
        "scopes": scopes,
        "more": more,
        "path": f"/connections/{it.grant.id}",
    }


def _state(layout: UserLayout, it: GrantConnection) -> tuple[str, Markup]:
    """Return (its look, its words)."""
    text, grant = layout.text, it.grant
    until = Markup("") if grant.until is None else time_element(grant.until, layout.now, text)
    if grant.health == "again":
        return "bad", phrase(text.state_again)
    if grant.health == "ending":
        return "warn", phrase(text.state_ending, when=until)
    return "good", phrase(text.state_alive) if grant.until is None else phrase(text.state_until, when=until)
