"""When a grant ends by itself, without a revocation: the end of its refresh token, or of the consent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.records.codec import OPTIONAL
from oauthbroker.records.token import Token

LONGEST_LEAD = timedelta(days=7)  # a user who is away for a week still finds the notice in time
PART = 10  # or a tenth of the lifetime, so that a token of ten days is not announced on its third
SHORTEST = timedelta(days=1)  # a shorter life is not announced: the next call asks as soon as any notice would
LONGEST = timedelta(days=3650)  # what lasts longer has no end to plan for
SLACK = timedelta(minutes=5)  # a provider that states the rest of a lifetime rounds it, and answers late
LOOK_BACK = LONGEST_LEAD + SHORTEST  # an older notice would come after the end


class StatedEnds(NamedTuple):
    """The ends that one answer states, of the refresh token and of the whole consent: a lifetime that counts from the
    sending of the request, or a time."""

    token: timedelta | datetime | None = None
    consent: timedelta | datetime | None = None


NO_ENDS = StatedEnds()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshEnd:
    """`token_at` is stated with a refresh token, and the next statement replaces it. No refresh puts `consent_at` off.
    `since` is when this end was learned. Once the user was told of it, `notice` is the id
    in the link of that event."""

    since: datetime
    token_at: datetime | None = field(default=None, metadata=OPTIONAL)
    consent_at: datetime | None = field(default=None, metadata=OPTIONAL)
    notice: str = field(default="", metadata=OPTIONAL)

    def __repr__(self) -> str:
        return f"RefreshEnd({self.at.isoformat()})"

    @property
    def at(self) -> datetime:
        return min(each for each in (self.token_at, self.consent_at) if each is not None)

    @property
    def announce_at(self) -> datetime | None:
        """Return when the user is to be told; None for a short life, and after it was done."""
        return None if self.notice else self._notice_at

    def is_near(self, now: datetime) -> bool:
        """Tell whether the time for the notice has come, whether or not it was given."""
        return self._notice_at is not None and self._notice_at <= now

    @property
    def _notice_at(self) -> datetime | None:
        life = self.at - self.since
        return None if life < SHORTEST else self.at - min(LONGEST_LEAD, life / PART)


def next_end(
    old: RefreshEnd | None, token: Token, stated: StatedEnds, sent_at: datetime, days: int | None = None
) -> RefreshEnd | None:
    """Return the end of a grant that has a new token, with the ends that came with it. `old` is that of the same
    consent; a new one lasts for so many `days`. An end that has hardly moved stays as it was learned."""
    is_alone = token.refresh_token is None or token.refresh_token == token.access_token
    own = token.expires_at if is_alone and token.lives(SHORTEST.total_seconds(), sent_at) else None
    token_at = _placed(stated.token, sent_at) or own or (old.token_at if old is not None else None)
    known = old.consent_at if old is not None else None
    consents = (_placed(stated.consent, sent_at), known, None if days is None else sent_at + timedelta(days=days))
    consent_at = min((each for each in consents if each is not None), default=None)
    if token_at is None and consent_at is None:
        return None
    found = RefreshEnd(since=sent_at, token_at=token_at, consent_at=consent_at)
    is_same = old is not None and abs(found.at - old.at) <= SLACK
    return old if is_same else found


def _placed(end: timedelta | datetime | None, sent_at: datetime) -> datetime | None:
    """Return a stated end as a time, None for one that has passed or is out of sight: nothing relies on it."""
    at = sent_at + end if isinstance(end, timedelta) else end
    return at if at is not None and sent_at < at <= sent_at + LONGEST else None
