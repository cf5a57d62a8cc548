"""An issued access token with the refresh token beside it, and when it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from oauthbroker.core.clock import LONG_AGO, SET_BACK
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.records.codec import APART, OPTIONAL

CLOCK_SLACK_SECONDS = 60
ENDLESS = float("inf")
ALWAYS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An issued access token. `lifetime_seconds` is its lifetime at issue; None means it never expires. `expires_at`
    LONG_AGO means that its end is unknown, so it counts as expired. `end_stated`: the provider itself stated that end;
    otherwise we assumed it, or do not know who said so."""

    access_token: Secret
    token_type: str
    refresh_token: Secret | None = field(default=None, metadata=OPTIONAL)
    expires_at: datetime | None = field(default=None, metadata=OPTIONAL)
    lifetime_seconds: int | None = field(default=None, metadata=APART)
    end_stated: bool = field(default=False, metadata=APART)

    @property
    def end_is_unknown(self) -> bool:
        return self.expires_at == LONG_AGO

    def seconds_left(self, now: datetime) -> float:
        """Return the seconds until it expires; infinity for a token that never does."""
        return ENDLESS if self.expires_at is None else (self.expires_at - now).total_seconds()

    def lives(self, seconds: float, now: datetime) -> bool:
        """Tell whether it lives longer than `seconds` from now."""
        return self.seconds_left(now) > seconds

    def is_from_the_future(self, now: datetime, stored_at: datetime) -> bool:
        """Tell whether the clock was set back since it was stored, so that its end is unknown: it was stored after
        `now`, or would live longer than it was issued for."""
        if self.expires_at is None:
            return False
        longest = ENDLESS if self.lifetime_seconds is None else self.lifetime_seconds + CLOCK_SLACK_SECONDS
        return stored_at > now + SET_BACK or self.seconds_left(now) > longest

    def usable(self, seconds: float, stored_at: datetime) -> tuple[datetime, datetime]:
        """Return the times between which it lives longer than `seconds` and is not from the future; the last one is
        excluded."""
        if self.expires_at is None:
            return ALWAYS
        try:
            since, until = stored_at - SET_BACK, self.expires_at - timedelta(seconds=seconds)
            if self.lifetime_seconds is not None:
                longest = timedelta(seconds=self.lifetime_seconds + CLOCK_SLACK_SECONDS)
                since = max(since, self.expires_at - longest)
        except OverflowError:
            return LONG_AGO, LONG_AGO
        return since, until

    def with_latest_end(self, now: datetime, stored_at: datetime) -> Token:
        """Return it with the latest time at which it can end, after the clock was set back: when it was stored it did
        not live longer than that from then on."""
        if self.expires_at is None or not self.is_from_the_future(now, stored_at):
            return self
        whole = self.expires_at - stored_at
        if self.lifetime_seconds is not None:
            whole = min(whole, timedelta(seconds=self.lifetime_seconds))
        return replace(self, expires_at=min(self.expires_at, now + whole))
