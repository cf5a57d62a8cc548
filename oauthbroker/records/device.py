"""What a session of the device code flow keeps (RFC 8628 section 3.2): the sealed code, and what its person is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from oauthbroker.clock import from_iso, to_iso
from oauthbroker.records import codec
from oauthbroker.results import DevicePrompt
from oauthbroker.secret import Secret

FLOW = "device_code"


@dataclass(frozen=True, slots=True, repr=False)
class Device:
    """A device authorization under way.

    `code` is what we poll with; None once the session has ended. `interval` are the seconds between two polls, grown
    by `slow_down`; `next_poll_at` is the earliest moment of the next one, for whoever did not hear the answer to the
    latest. `unsure`: the latest poll may have redeemed the code without our hearing of it. `ticket_hash` recognises
    the link of a session that has ended.
    """

    code: Secret | None
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    interval: int
    next_poll_at: datetime
    unsure: bool = False
    ticket_hash: str = ""

    def __repr__(self) -> str:
        return f"Device(every {self.interval} s{', unsure' if self.unsure else ''})"

    @property
    def prompt(self) -> DevicePrompt:
        """What the person is told."""
        return DevicePrompt(self.verification_uri, self.verification_uri_complete, self.user_code, self.interval)

    def asking(self, next_poll_at: datetime) -> Device:
        """A poll is about to leave: nobody else asks before `next_poll_at`, and its answer may get lost."""
        return replace(self, next_poll_at=next_poll_at, unsure=True)

    def answered(self, next_poll_at: datetime, interval: int) -> Device:
        """The provider said that nobody has agreed yet."""
        return replace(self, next_poll_at=next_poll_at, interval=interval, unsure=False)

    def postponed(self, next_poll_at: datetime) -> Device:
        """The provider could not be asked, or did not answer."""
        return replace(self, next_poll_at=next_poll_at)

    def spent(self, ticket: Secret | None) -> Device:
        """After the end: enough to tell the person who holds the link how it ended, nothing to use."""
        return replace(self, code=None, ticket_hash=ticket_hash(ticket.reveal()) if ticket is not None else "")

    def was_shown_under(self, ticket: str) -> bool:
        """Whether `ticket` was the link's of this session, which has ended."""
        return bool(self.ticket_hash) and Secret(self.ticket_hash).matches(ticket_hash(ticket))

    def to_json(self) -> dict[str, Any]:
        """`spec.flow` of the record. It holds the code in clear: for the seal only."""
        return {
            "type": FLOW,
            "deviceCode": codec.reveal(self.code),
            "userCode": self.user_code,
            "verificationUri": self.verification_uri,
            "verificationUriComplete": self.verification_uri_complete,
            "interval": self.interval,
            "nextPollAt": to_iso(self.next_poll_at),
            "unsure": self.unsure,
            "ticketHash": self.ticket_hash,
        }

    @classmethod
    def from_json(cls, flow: Mapping[str, Any]) -> Device:
        return cls(
            code=codec.conceal(flow["deviceCode"]),
            user_code=flow["userCode"],
            verification_uri=flow["verificationUri"],
            verification_uri_complete=flow["verificationUriComplete"],
            interval=flow["interval"],
            next_poll_at=from_iso(flow["nextPollAt"]),
            unsure=flow["unsure"],
            ticket_hash=flow["ticketHash"],
        )


def ticket_hash(ticket: str) -> str:
    return sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()
