"""A session's device authorization (RFC 8628 section 3.2): the sealed code, and the prompt for its user."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import Secret, digest_of, has_digest
from oauthbroker.model.token_results import DevicePrompt
from oauthbroker.records import codec
from oauthbroker.records.codec import named

FLOW = "device_code"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Device:
    """A device authorization under way.

    `code` is used to poll; None once the session has ended. `interval` is in seconds between two polls, extended by
    `slow_down`; `next_poll_at` is the earliest time of the next poll, also for a process that did not see the last
    answer. `unsure`: the latest poll may have redeemed the code, but its answer was lost. `ticket_hash` recognises the
    link of an ended session.
    """

    code: Secret | None = field(metadata=named("deviceCode"))
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
        """Return the prompt for the user."""
        return DevicePrompt(
            verification_uri=self.verification_uri,
            verification_uri_complete=self.verification_uri_complete,
            user_code=self.user_code,
            interval=self.interval,
        )

    def asking(self, next_poll_at: datetime) -> Device:
        """Return the state before a poll: no other process polls before `next_poll_at`, and the answer may get lost."""
        return replace(self, next_poll_at=next_poll_at, unsure=True)

    def answered(self, next_poll_at: datetime, interval: int) -> Device:
        """Return the state after the answer "authorization pending"."""
        return replace(self, next_poll_at=next_poll_at, interval=interval, unsure=False)

    def postponed(self, next_poll_at: datetime) -> Device:
        """Return the state after a poll that was not sent or not answered."""
        return replace(self, next_poll_at=next_poll_at)

    def dated_back(self, at: datetime) -> Device:
        """Return the state for a clock that was set back to `at` since the last poll."""
        return replace(self, next_poll_at=min(self.next_poll_at, at + timedelta(seconds=self.interval)))

    def spent(self, ticket: Secret | None) -> Device:
        """Return the state after the end: enough to tell the holder of the link the outcome, and no usable secret."""
        return replace(self, code=None, ticket_hash=digest_of(ticket.reveal()) if ticket is not None else "")

    def was_shown_under(self, ticket: str) -> bool:
        """Tell whether `ticket` belongs to the link of this ended session."""
        return has_digest(ticket, self.ticket_hash)

    def to_json(self) -> dict[str, Any]:
        """Return `spec.flow` of the record. It holds the code in clear: for the seal only."""
        return {"type": FLOW, **codec.members(self)}
