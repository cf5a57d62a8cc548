"""A grant's refresh state: the attempt under way, lost answers, and whether refreshing has ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from oauthbroker.core.clock import SET_BACK, has_passed
from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field, replace
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.records import codec
from oauthbroker.records.codec import OPTIONAL

Ended = Literal["", "dead", "uncertain", "quarantined"]
"""Why no refresh is tried any longer: the provider refused it, it refused it after an answer was lost, or it
answered with another user's account. "" while refreshing may go on."""

UNCLEAR_SECONDS = 300  # for so long nothing is concluded from ambiguous refusals
LONGEST_REST = 3600  # between two tries of a refresh token that was given up
_LONGEST_PAUSE = 300
_LONGEST_AFTER_A_CRASH = 8


@dataclass(frozen=True, slots=True)
class Intent:
    """The intent to refresh, written before a refresh token is sent. A process that finds one must assume that the
    token may be spent.

    `attempt` fences: only the attempt that the grant names may commit. `lost` counts the answers lost before this
    attempt; `at` is when it was sent or, once the loss was `noticed`, when that was.
    """

    attempt: str
    at: datetime
    lost: int = 0
    _: KW_ONLY
    noticed: bool = False

    @property
    def retry_at(self) -> datetime:
        """Return when the old token may be tried again.

        The pause is 1 s after the first lost answer, then longer, because many providers accept a token that is used
        twice within seconds. It is at most 5 min after a provider's silence, and 8 s after the death of our process,
        which says nothing about the provider.
        """
        longest = _LONGEST_PAUSE if self.noticed else _LONGEST_AFTER_A_CRASH
        return self.at + timedelta(seconds=min(2 ** min(self.lost, 20), longest))

    def pauses(self, now: datetime) -> bool:
        """Tell whether it is too early to try the old token again.

        A host that died may have had a clock minutes ahead of ours. Its pause is over, because a provider that forgives
        a second use does so for seconds.
        """
        is_ahead = self.at > now + timedelta(seconds=_LONGEST_AFTER_A_CRASH)
        return (self.noticed or not is_ahead) and not has_passed(self.retry_at, self.at, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshState:
    """The refresh state of a grant. `spare` is a newer refresh token from a refused answer: it is tried before the
    old one. `refused_at` is when an ambiguous refusal first came; `asked` are the scopes requested with client
    credentials (RFC 6749 section 4.4); `forced` are the times of the last hour at which a seemingly valid token was
    refreshed. `worked`: this grant has been refreshed before, so the form of our request is right. `rests_until` is set
    once it was concluded from refusals that the refresh token is dead: the user is asked, and it is tried again then.
    """

    intent: Intent | None = None
    spare: Secret | None = None
    ended: Ended = ""
    refused_at: datetime | None = None
    asked: tuple[str, ...] = ()
    forced: tuple[datetime, ...] = ()
    worked: bool = field(default=False, metadata=OPTIONAL)
    rests_until: datetime | None = field(default=None, metadata=OPTIONAL)

    def __repr__(self) -> str:
        return f"RefreshState({self.ended or ('under way' if self.intent else 'idle')})"

    def begun(self, attempt: str, at: datetime) -> RefreshState:
        """Return the state with a new attempt. An attempt already under way counts as lost."""
        lost = self.intent.lost + 1 if self.intent is not None else 0
        return replace(self, intent=Intent(attempt, at, lost))

    def lost(self, at: datetime) -> RefreshState:
        """Return the state after a lost answer: the intent stays, and the pause before the next try starts now."""
        return self if self.intent is None else replace(self, intent=replace(self.intent, at=at, noticed=True))

    def unsent(self) -> RefreshState:
        """Return the state after an attempt that did not spend the refresh token. Losses of earlier attempts stay."""
        if self.intent is None or self.intent.lost == 0:
            return replace(self, intent=None)
        return replace(self, intent=replace(self.intent, lost=self.intent.lost - 1))

    @property
    def given_up(self) -> bool:
        """Tell whether the user is asked although the refresh token is kept."""
        return self.rests_until is not None

    @property
    def is_over(self) -> bool:
        """Tell whether the user is asked: refreshing has ended, or was given up for now."""
        return bool(self.ended) or self.given_up

    @property
    def is_uncertain(self) -> bool:
        """Tell whether the refresh token was refused after an answer was lost."""
        return self.ended == "uncertain" or (self.given_up and self.intent is not None)

    def rests(self, now: datetime) -> bool:
        """Tell whether it is too early to try a refresh token again that was given up. A time that lies too far ahead
        was noted before the clock was set back."""
        until = self.rests_until
        return until is not None and now < until <= now + timedelta(seconds=LONGEST_REST) + SET_BACK

    def refused_since(self, at: datetime) -> datetime:
        """Return since when refusals are ambiguous, the one that came `at` included."""
        since = self.refused_at or at
        return at if since > at + SET_BACK else since  # the clock was set back since

    def after(self, code: Code, *, spent: bool, came: bool, spare: Secret | None, at: datetime) -> RefreshState:
        """Return the state after an answer without an accepted token, as far as that answer alone tells.

        `code` and `spent` are those of `RefreshRefused`. `came`: the refused answer had tokens; `spare` is its refresh
        token, which is tried first from then on.
        """
        if code is Code.SUBJECT_MISMATCH:
            return self.over("quarantined")
        if code is Code.REAUTH_REQUIRED:
            return self.over("uncertain" if self.intent is not None and self.intent.lost else "dead")
        if not spent:
            return self.unsent()
        if came:
            return replace(self, intent=None, spare=spare or self.spare)
        return self.lost(at)

    def marked_ambiguous(self, at: datetime) -> RefreshState:
        """Return the state after an ambiguous refusal, from which nothing can be concluded yet."""
        return replace(self, refused_at=self.refused_since(at))

    def give_up(self, at: datetime, *, spent: bool) -> RefreshState:
        """Return the state after ambiguous refusals that show that the refresh token is dead. It is kept, and tried
        again after as long as it has been refused, at most an hour. `spent`: the last answer might have been a lost
        one; it is taken for a refusal now."""
        since = self.refused_since(at)
        rest = min(max((at - since).total_seconds(), UNCLEAR_SECONDS), LONGEST_REST)
        intent = None if spent else self.intent
        return replace(self, intent=intent, refused_at=since, rests_until=at + timedelta(seconds=rest))

    def over(self, ended: Ended) -> RefreshState:
        return RefreshState(ended=ended, forced=self.forced)

    def forced_at(self, at: datetime) -> RefreshState:
        """Note a forced refresh. Only the last hour is kept."""
        return replace(self, forced=(*self.forced_before(at), at))

    def forced_before(self, now: datetime) -> tuple[datetime, ...]:
        """Return the forced refreshes of the last hour. Future times were noted before the clock was set back."""
        return tuple(at for at in self.forced if now - timedelta(hours=1) < at <= now)

    def to_json(self) -> dict[str, Any] | None:
        return None if self == RefreshState() else codec.members(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> RefreshState:
        return cls() if data is None else codec.made(cls, data)
