"""The pages of `/admin` as HTML: tables, which become cards on a narrow screen, and questions before something ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.trail import AuditLine
from oauthbroker.core.clock import from_iso
from oauthbroker.core.errors import Locale
from oauthbroker.operations.dead_letters import DeadLetter, QueueState
from oauthbroker.operations.grant_pages import Found, GrantFilter
from oauthbroker.operations.open_circuits import Seen
from oauthbroker.operations.overview import AppState, AuditEntries, WaitingSession
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.use import GrantUse
from oauthbroker.web.display import plain_phrase
from oauthbroker.web.rendering import Page, render
from oauthbroker.web.scopes import scope_line
from oauthbroker.web.times import field_of, stamp_element, time_element
from oauthbroker.web.words import ADMIN, CONNECTIONS, Words

HOME = "/admin"
STATES = ("alive", "ending", "again", "ended")
_PLACES = ("", "/grants", "/waiting", "/queues", "/circuits", "/audit")


@dataclass(frozen=True, slots=True)
class Office:
    """What every page of an operator's visit needs."""

    locale: Locale
    now: datetime
    url: Callable[[str], str]
    token: Callable[[str], str] = field(repr=False)
    done: str = ""

    @property
    def text(self) -> Words:
        return ADMIN[self.locale]

    def page(self, template: str, title: str, place: str = "", *, status: int = 200, **words: Any) -> Page:
        """`place` is where the page stands in the navigation."""
        desk = CONNECTIONS[self.locale]
        names = dict(zip(_PLACES, self._labels(), strict=True))
        html = render(
            f"admin_{template}.html",
            self.locale,
            kind="desk" if template != "login" else "login",
            title=title,
            text=self.text,
            skip=desk.skip,
            url=self.url,
            token=self.token,
            done=self._done_words(),
            places=[(HOME + path, label, path == place) for path, label in names.items()],
            time=lambda moment: time_element(moment, self.now, desk),
            badge=self._badge,
            **words,
        )
        return Page(html, status, self.locale, "same-origin")

    def _labels(self) -> tuple[str, ...]:
        text = self.text
        return (text.overview, text.grants, text.waiting, text.queues, text.circuits, text.audit)

    def _badge(self, state: str) -> tuple[str, str]:
        """(how it looks, what it says) of a light or a grant's state."""
        looks = {
            "alive": "good",
            "ending": "warn",
            "again": "bad",
            "ended": "",
            "good": "good",
            "warn": "warn",
            "bad": "bad",
        }
        prefix = "light" if state in {"good", "warn", "bad"} else "state"
        return looks[state], getattr(self.text, f"{prefix}_{state}")

    def _done_words(self) -> str:
        """What a finished action says, by a word of ours in the address; nothing for any other word."""
        known = ("revoked", "cancelled", "retried", "dropped", "nothing")
        return getattr(self.text, f"done_{self.done}") if self.done in known else ""


def render_login(office: Office, *, from_here: bool, wrong: str = "", status: int = 200) -> Page:
    """`from_here`: whoever looks may come in without a key. `wrong` says why the last key did not do."""
    return office.page("login", office.text.login_title, from_here=from_here, wrong=wrong, status=status)


def render_left(office: Office) -> Page:
    text = office.text
    title, lead = text.left_title, text.left_lead
    html = render("outcome.html", office.locale, kind="connected", title=title, heading=title, lead=lead, reference="")
    return Page(html, 200, office.locale)


def render_overview(office: Office, apps: Sequence[AppState], *, trouble: bool) -> Page:
    alive = sum(each.counts["alive"] + each.counts["ending"] for each in apps)
    return office.page(
        "overview",
        office.text.overview,
        apps=apps,
        alive=alive,
        trouble=trouble,
        of=lambda name: office.url(_asking("/grants", app=name)),
    )


def render_grants(office: Office, found: Found, wanted: GrantFilter, apps: Sequence[str]) -> Page:
    def at(page: int) -> str:
        return office.url(_asking("/grants", q=wanted.text, app=wanted.app or "", health=wanted.health, page=str(page)))

    return office.page(
        "grants", office.text.grants, "/grants", found=found, wanted=wanted, apps=apps, states=STATES, at=at
    )


def render_grant(office: Office, row: GrantView, use: GrantUse | None, audit_name: str) -> Page:
    scopes = [scope_line(row.provider, scope, office.locale) for scope in row.scopes[:100]]
    title = plain_phrase(office.text.grant_title, app=row.app)
    return office.page("grant", title, "/grants", row=row, use=use, audit_name=audit_name, scopes=scopes)


def render_revoke(office: Office, row: GrantView) -> Page:
    return office.page("revoke", plain_phrase(office.text.revoke_title, app=row.app), "/grants", row=row)


def render_waiting(office: Office, waiting: Sequence[WaitingSession]) -> Page:
    return office.page("waiting", office.text.waiting, "/waiting", waiting=waiting)


def render_queues(office: Office, queues: Sequence[QueueState], dead: Sequence[DeadLetter]) -> Page:
    def drop(letter: DeadLetter) -> str:
        return office.url(_asking("/queues/drop", queue=letter.queue, event=letter.id))

    return office.page("queues", office.text.queues, "/queues", queues=queues, dead=dead, drop=drop)


def render_drop(office: Office, letter: DeadLetter) -> Page:
    return office.page("drop", office.text.drop_title, "/queues", letter=letter)


def render_circuits(office: Office, circuits: Sequence[Seen]) -> Page:
    text = office.text
    names = {"renewals": text.what_refreshes, "revocations": text.what_revocations, "device codes": text.what_devices}
    return office.page("circuits", text.circuits, "/circuits", circuits=circuits, names=names)


def render_audit(
    office: Office,
    lines: Sequence[AuditLine],
    known: Mapping[str, GrantView],
    entries: AuditEntries,
    *,
    apps: Sequence[str],
) -> Page:
    """`known` are the grants that lines speak of, by what the log calls them."""
    return office.page(
        "audit",
        office.text.audit,
        "/audit",
        lines=[(line, from_iso(line.at), _details(line), known.get(line.grant or "")) for line in lines],
        entries=entries,
        field_of=field_of,
        stamp=stamp_element,
        apps=apps,
        types=AuditEntry.names(),
    )


def _asking(place: str, **words: str) -> str:
    """A path below HOME with what is asked for."""
    return f"{HOME}{place}?" + urlencode({name: word for name, word in words.items() if word}, errors="replace")


def _details(line: AuditLine) -> list[tuple[str, str]]:
    """Names and values of an entry, without what says nothing."""
    return [(name, str(value)) for name, value in line.fields.items() if value not in (None, False, "")]
