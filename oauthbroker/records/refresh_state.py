"""What a grant remembers of its renewals: the attempt under way, what was lost, and whether they have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from oauthbroker.clock import from_iso, to_iso
from oauthbroker.errors import Code
from oauthbroker.records import codec
from oauthbroker.secret import Secret

Ended = Literal["", "dead", "uncertain", "quarantined"]
"""Why no renewal is tried any more: the provider said so, it said so after an answer of it was lost, or it answered
with somebody else's account. "" while renewals may go on."""

UNCLEAR_SECONDS = 300  # a refusal in no words we know counts as the one word if it comes again after that long
_LONGEST_PAUSE = 300
_LONGEST_AFTER_A_CRASH = 8


@dataclass(frozen=True, slots=True)
class Intent:
    """Written before a refresh token is sent. Whoever finds one knows that the token may be spent.

    `attempt` fences: only the attempt that the grant names may commit. `lost` counts the answers that were lost
    before this attempt; `at` is when it was sent or, once the loss was `noticed`, when that was.
    """

    attempt: str
    at: datetime
    lost: int = 0
    noticed: bool = False

    @property
    def retry_at(self) -> datetime:
        """When the old token may be tried again: 1 s after the first lost answer, then longer, because many providers
        forgive a token that is used twice within seconds; at most 5 min after a provider's silence, and 8 s after a
        death of ours, which says nothing against the provider."""
        longest = _LONGEST_PAUSE if self.noticed else _LONGEST_AFTER_A_CRASH
        return self.at + timedelta(seconds=min(2 ** min(self.lost, 20), longest))


@dataclass(frozen=True, slots=True)
class Renewal:
    """`spare` is a newer refresh token from an answer that we refused: it is tried first, the old one after it.
    `refused_at` is when it was first refused in words that may mean anything; `asked` are the scopes that a client
    asked for itself (RFC 6749 section 4.4); `forced` are the moments of the last hour at which a token that seemed to
    live was renewed. `worked`: this grant has been refreshed before, so the form of our request is right."""

    intent: Intent | None = None
    spare: Secret | None = None
    ended: Ended = ""
    refused_at: datetime | None = None
    asked: tuple[str, ...] = ()
    forced: tuple[datetime, ...] = ()
    worked: bool = False

    def __repr__(self) -> str:
        return f"Renewal({self.ended or ('under way' if self.intent else 'idle')})"

    def begun(self, attempt: str, at: datetime) -> Renewal:
        """One more attempt; one that is found here has been lost."""
        lost = self.intent.lost + 1 if self.intent is not None else 0
        return replace(self, intent=Intent(attempt, at, lost))

    def lost(self, at: datetime) -> Renewal:
        """The answer did not come: the intent stays, and the pause before the next try counts from now."""
        return self if self.intent is None else replace(self, intent=replace(self.intent, at=at, noticed=True))

    def unsent(self) -> Renewal:
        """The refresh token was not spent by this attempt. What an earlier one lost stays lost."""
        if self.intent is None or self.intent.lost == 0:
            return replace(self, intent=None)
        return replace(self, intent=replace(self.intent, lost=self.intent.lost - 1))

    def after(self, code: Code, *, spent: bool, came: bool, spare: Secret | None, at: datetime) -> Renewal:
        """After an answer with no token that we take.

        `code` and `spent` are those of `RenewalRefused`; tokens `came` with an answer that we refuse, `spare` being
        its refresh token: from then on that one is tried first.
        """
        if code is Code.SUBJECT_MISMATCH:
            return self.over("quarantined")
        if code is Code.EXCHANGE_FAILED:
            since = self.refused_at or at
            if (at - since).total_seconds() < UNCLEAR_SECONDS:
                return replace(self.unsent(), refused_at=since)
        if code in {Code.REAUTH_REQUIRED, Code.EXCHANGE_FAILED}:
            return self.over("uncertain" if self.intent is not None and self.intent.lost else "dead")
        if not spent:
            return self.unsent()
        if came:
            return replace(self, intent=None, spare=spare or self.spare)
        return self.lost(at)

    def over(self, ended: Ended) -> Renewal:
        return Renewal(ended=ended, forced=self.forced)

    def forced_at(self, at: datetime) -> Renewal:
        """Notes a forced renewal; only the last hour is kept."""
        return replace(self, forced=(*self.forced_since(at - timedelta(hours=1)), at))

    def forced_since(self, moment: datetime) -> tuple[datetime, ...]:
        return tuple(at for at in self.forced if at > moment)

    def to_json(self) -> dict[str, Any] | None:
        if self == Renewal():
            return None
        intent = self.intent
        return {
            "intent": _intent(intent) if intent is not None else None,
            "spare": codec.reveal(self.spare),
            "ended": self.ended,
            "refusedAt": codec.iso(self.refused_at),
            "asked": list(self.asked),
            "forced": [to_iso(at) for at in self.forced],
            **({"worked": True} if self.worked else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Renewal:
        if data is None:
            return cls()
        intent = data["intent"]
        return cls(
            intent=Intent(intent["attempt"], from_iso(intent["at"]), intent["lost"], intent["noticed"])
            if intent
            else None,
            spare=codec.conceal(data["spare"]),
            ended=data["ended"],
            refused_at=codec.moment(data["refusedAt"]),
            asked=tuple(data["asked"]),
            forced=tuple(from_iso(at) for at in data["forced"]),
            worked=data.get("worked", False),
        )


def _intent(intent: Intent) -> dict[str, Any]:
    return {"attempt": intent.attempt, "at": to_iso(intent.at), "lost": intent.lost, "noticed": intent.noticed}
