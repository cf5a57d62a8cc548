"""VisitRecord: a user or operator on the broker's pages, from the link or the login to the end."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from oauthbroker.core.clock import from_iso, has_passed, to_iso
from oauthbroker.records import codec

Pages = Literal["connections", "admin"]


def hash_of(secret: str) -> str:
    """Return the hash of the secret. 256 random bits cannot be guessed, so a fast hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One browser session. `subjects` are those of a user on `connections`; `operator` is the person on `admin`,
    `key` the API key that proved it, empty for a loopback peer. It stores the hash of a ticket until the link is
    opened, then the hash of a cookie; never both, and never the ticket or the cookie itself."""

    locator: str
    pages: Pages
    created_at: datetime
    expires_at: datetime
    subjects: tuple[tuple[str, str], ...] = ()
    operator: str = ""
    key: str = ""
    ticket_hash: str | None = None
    cookie_hash: str | None = None

    @property
    def id(self) -> str:
        return f"visit-{self.locator}"

    def __repr__(self) -> str:
        return f"Visit({self.id[:12]}..., {self.pages}, {'open' if self.cookie_hash else 'invited'})"

    def subject(self, mode: str) -> str | None:
        """Return the subject in that mode; None if the session has none."""
        return dict(self.subjects).get(mode)

    def is_invited_by(self, ticket: str, now: datetime) -> bool:
        return _matches(self.ticket_hash, ticket) and not self.is_past(now)

    def is_open_for(self, cookie: str, now: datetime) -> bool:
        return _matches(self.cookie_hash, cookie) and not self.is_past(now)

    def is_past(self, now: datetime) -> bool:
        return has_passed(self.expires_at, self.created_at, now)

    def ended(self, at: datetime, since: datetime | None) -> BrowserSession:  # noqa: ARG002  (its own beginning bounds it)
        return replace(self, expires_at=min(at, self.expires_at))

    def opened(self, cookie: str, until: datetime) -> BrowserSession:
        """Return the session opened by a browser: its ticket is used up."""
        return replace(self, ticket_hash=None, cookie_hash=hash_of(cookie), expires_at=until)

    def to_plaintext(self) -> bytes:
        spec: dict[str, Any] = {
            "pages": self.pages,
            "subjects": dict(self.subjects),
            "operator": self.operator,
            "key": self.key,
            "ticketHash": self.ticket_hash,
            "cookieHash": self.cookie_hash,
            "createdAt": to_iso(self.created_at),
            "expiresAt": to_iso(self.expires_at),
        }
        return codec.encode("VisitRecord", {"metadata": {"name": self.id}, "spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> BrowserSession:
        data = codec.decode("VisitRecord", body)
        spec = data["spec"]
        return cls(
            locator=data["metadata"]["name"].removeprefix("visit-"),
            pages=spec["pages"],
            created_at=from_iso(spec["createdAt"]),
            expires_at=from_iso(spec["expiresAt"]),
            subjects=subjects_of(spec["subjects"]),
            operator=spec["operator"],
            key=spec["key"],
            ticket_hash=spec["ticketHash"],
            cookie_hash=spec["cookieHash"],
        )


def subjects_of(subjects: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the subjects as the record stores them."""
    return tuple(sorted(subjects.items()))


def _matches(kept: str | None, shown: str) -> bool:
    return kept is not None and hmac.compare_digest(kept, hash_of(shown))
