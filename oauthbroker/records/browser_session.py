"""BrowserSession: a user or operator on the broker's pages, from the link or the login to the end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from oauthbroker.core.clock import has_passed
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import digest_of, has_digest
from oauthbroker.records import codec
from oauthbroker.records.codec import APART, OPTIONAL

Pages = Literal["connections", "admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """One browser session. `subjects` are those of a user on `connections`; `operator` is the person on `admin`,
    `key` the API key or the digest of the login that proved it, empty for a loopback peer; `proved_at` is when that
    person last signed in at the login. It stores the hash of a ticket until the link is
    opened, then the hash of a cookie; never both, and never the ticket or the cookie itself."""

    locator: str = field(metadata=APART)
    pages: Pages
    created_at: datetime
    expires_at: datetime
    subjects: tuple[tuple[str, str], ...] = field(default=(), metadata=APART)
    operator: str = ""
    key: str = ""
    ticket_hash: str | None = None
    cookie_hash: str | None = None
    proved_at: datetime | None = field(default=None, metadata=OPTIONAL)

    @property
    def id(self) -> str:
        return f"browser-session-{self.locator}"

    def __repr__(self) -> str:
        return f"BrowserSession({self.id[:12]}..., {self.pages}, {'open' if self.cookie_hash else 'invited'})"

    def subject(self, mode: str) -> str | None:
        """Return the subject in that mode; None if the session has none."""
        return dict(self.subjects).get(mode)

    def is_invited_by(self, ticket: str, now: datetime) -> bool:
        return has_digest(ticket, self.ticket_hash) and not self.is_past(now)

    def is_open_for(self, cookie: str, now: datetime) -> bool:
        return has_digest(cookie, self.cookie_hash) and not self.is_past(now)

    def is_past(self, now: datetime) -> bool:
        return has_passed(self.expires_at, self.created_at, now)

    def ended(self, at: datetime, since: datetime | None) -> BrowserSession:  # noqa: ARG002  (its own beginning bounds it)
        return replace(self, expires_at=min(at, self.expires_at))

    def opened(self, cookie: str, until: datetime) -> BrowserSession:
        """Return the session opened by a browser: its ticket is used up."""
        return replace(self, ticket_hash=None, cookie_hash=digest_of(cookie), expires_at=until)

    def to_plaintext(self) -> bytes:
        spec = {"subjects": dict(self.subjects), **codec.members(self)}
        return codec.encode("BrowserSession", {"metadata": {"name": self.id}, "spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> BrowserSession:
        data = codec.decode("BrowserSession", body)
        locator, subjects = (
            data["metadata"]["name"].removeprefix("browser-session-"),
            subjects_of(data["spec"]["subjects"]),
        )
        return codec.made(cls, data["spec"], locator=locator, subjects=subjects)


def subjects_of(subjects: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the subjects as the record stores them."""
    return tuple(sorted(subjects.items()))
