"""The pages of `/admin` as HTML: tables, which become cards on a narrow screen, and questions before something ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from oauthbroker.admin.open_circuits import Seen
from oauthbroker.admin.overview import AppState, AuditEntries
from oauthbroker.audit import AuditEntry
from oauthbroker.audit.lines import AuditLine
from oauthbroker.audit.plugin_entry import PluginAuditEntry
from oauthbroker.core.clock import from_iso
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.dead_letters import DeadLetter
from oauthbroker.events.port import QueueDepth
from oauthbroker.grants.grant_pages import Found, GrantFilter
from oauthbroker.plugins.plugin_pages import PluginView
from oauthbroker.records import AuthSession
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.use import GrantUse
from oauthbroker.web.html.connections_html import UserLayout, render_end
from oauthbroker.web.html.plugin_pages import PluginPagesServed
from oauthbroker.web.html.readable_times import field_of, stamp_element
from oauthbroker.web.html.rendering import Page
from oauthbroker.web.html.scope_sentences import shown_scopes
from oauthbroker.web.html.shown_names import host_of, plain_phrase, shown, whole_word
from oauthbroker.web.words import ADMIN, Words

HOME = "/admin"
STATES = ("alive", "ending", "again", "ended")
_LOOKS = {"alive": "good", "ending": "warn", "again": "bad", "ended": ""}
_PLACES = ("", "/grants", "/waiting", "/queues", "/circuits", "/audit")


@dataclass(frozen=True, kw_only=True)
class AdminLayout(UserLayout):
    """The common words of all pages of an operator's browser session."""

    done: str = ""
    plugins: tuple[PluginPagesServed, ...] = ()

    @property
    def text(self) -> Words:
        return ADMIN[self.locale]

    def page(self, template: str, title: str, place: str = "", **more: Any) -> Page:
        """`place` is where the page stands in the navigation."""
        text = self.text
        labels = (text.overview, text.grants, text.waiting, text.queues, text.circuits, text.audit)
        paths = [
            *zip(_PLACES, labels, strict=True),
            *((each.home, each.words[self.locale].nav) for each in self.plugins),
        ]
        places = [(HOME + path, label, path == place) for path, label in paths]
        words: dict[str, Any] = {"done": self._done_words(), "places": places, "badge": self._badge}
        return super().page(template if "/" in template else f"admin_{template}", title, **words | more)

    def _badge(self, state: str) -> tuple[str, str]:
        """Return (its look, its words) of an app's health or a grant's state."""
        prefix = "health" if state in {"good", "warn", "bad"} else "state"
        return _LOOKS.get(state, state), getattr(self.text, f"{prefix}_{state}")

    def _done_words(self) -> str:
        """Return the sentence for a finished action, by a word of ours in the address; empty for any other word."""
        known = ("revoked", "cancelled", "retried", "dropped", "nothing")
        return getattr(self.text, f"done_{self.done}") if self.done in known else ""


def render_login(layout: AdminLayout, host: str = "", *, from_here: bool, wrong: str = "", status: int = 200) -> Page:
    """`host` is the address of the login's page; without one, operators come with a key. `from_here`: the user may
    come in without either. `wrong` says why the last try was refused."""
    title, login = layout.text.login_title, host and host_of(host)
    return layout.page("login", title, kind="login", host=login, from_here=from_here, wrong=wrong, status=status)


def render_again(layout: AdminLayout, host: str, to: str) -> Page:
    return layout.page("again", layout.text.again_title, host=host_of(host), to=to)


def wrong_words(layout: AdminLayout, refused: BrokerError, host: str) -> str:
    """Return the sentence for a refused sign-in."""
    text = layout.text
    if not host:
        return text.login_role if refused.code is Code.NOT_ALLOWED else text.login_wrong
    if refused.code is Code.NOT_ALLOWED:
        return text.login_not_operator if refused.note == "operator" else text.login_too_weak
    return text.login_failed


def render_left(layout: AdminLayout, *, by_key: bool) -> Page:
    lead = layout.text.left_lead if by_key else layout.text.left_lead_login
    return render_end("connected", layout.text.left_title, lead, layout.locale)


def render_overview(layout: AdminLayout, apps: Sequence[AppState], *, failure: bool) -> Page:
    alive = sum(each.counts["alive"] + each.counts["ending"] for each in apps)
    words: dict[str, Any] = {"apps": apps, "alive": alive, "failure": failure}
    return layout.page(
        "overview", layout.text.overview, of=lambda name: layout.url(_asking("/grants", app=name)), **words
    )


def render_grants(layout: AdminLayout, found: Found, wanted: GrantFilter, apps: Sequence[str]) -> Page:
    def at(page: int, after: str | None = wanted.after) -> str:
        asked = {"q": wanted.text, "app": wanted.app or "", "health": wanted.health, "after": after or ""}
        return layout.url(_asking("/grants", **asked, page=str(page)))

    return layout.page(
        "grants", layout.text.grants, "/grants", found=found, wanted=wanted, apps=apps, states=STATES, at=at
    )


def render_grant(layout: AdminLayout, row: GrantView, use: GrantUse | None, audit_name: str) -> Page:
    scopes, _ = shown_scopes(row.provider, row.scopes, layout.locale)
    title = plain_phrase(layout.text.grant_title, app=row.app)
    return layout.page("grant", title, "/grants", row=row, use=use, audit_name=audit_name, scopes=scopes)


def render_revoke(layout: AdminLayout, row: GrantView) -> Page:
    return layout.page("revoke", plain_phrase(layout.text.revoke_title, app=row.app), "/grants", row=row)


def render_waiting(layout: AdminLayout, waiting: Sequence[AuthSession]) -> Page:
    return layout.page("waiting", layout.text.waiting, "/waiting", waiting=waiting)


def render_queues(layout: AdminLayout, queues: Sequence[QueueDepth], dead: Sequence[DeadLetter]) -> Page:
    def drop(letter: DeadLetter) -> str:
        return layout.url(_asking("/queues/drop", queue=letter.queue, event=letter.id))

    return layout.page("queues", layout.text.queues, "/queues", queues=queues, dead=dead, drop=drop)


def render_drop(layout: AdminLayout, letter: DeadLetter) -> Page:
    return layout.page("drop", layout.text.drop_title, "/queues", letter=letter)


def render_circuits(layout: AdminLayout, circuits: Sequence[Seen]) -> Page:
    text = layout.text
    names = {"refreshes": text.what_refreshes, "revocations": text.what_revocations, "device codes": text.what_devices}
    return layout.page("circuits", text.circuits, "/circuits", circuits=circuits, names=names)


def render_audit(
    layout: AdminLayout,
    lines: Sequence[AuditLine],
    known: Mapping[str, GrantView],
    entries: AuditEntries,
    *,
    apps: Sequence[str],
) -> Page:
    """`known` are the grants of the lines, by their names in the log."""
    asked = {"app": entries.app, "type": entries.type, "grant": entries.grant, "subject": entries.subject}
    moments = {"since": field_of(entries.since), "until": field_of(entries.until)}
    return layout.page(
        "audit",
        layout.text.audit,
        "/audit",
        lines=[(line, from_iso(line.at), known.get(line.grant or "")) for line in lines],
        entries=entries,
        field_of=field_of,
        stamp=stamp_element,
        apps=apps,
        types=[*AuditEntry.names(), *PluginAuditEntry.names()],
        whole=whole_word,
        csv=layout.url(_asking("/audit.csv", **asked, **moments)),
    )


def render_plugin(layout: AdminLayout, plugin: PluginPagesServed, view: PluginView) -> Page:
    """Render a page of a plug-in. Its template has `view`, `words`, and `here` for addresses of its own pages."""

    def here(path: str = "", **query: str) -> str:
        return layout.url(_asking(plugin.home + quote(path, safe="/@:", errors="replace"), **query))

    return layout.page(
        f"plugin/{view.template}",
        shown(view.title, 200),
        plugin.home,
        view=view.values,
        words=plugin.words[layout.locale],
        here=here,
        stamp=stamp_element,
        folder=plugin.folder,
    )


def _asking(place: str, **words: str) -> str:
    """Return a path below HOME with a query."""
    query = urlencode({name: word for name, word in words.items() if word}, errors="replace")
    return f"{HOME}{place}?{query}" if query else HOME + place
