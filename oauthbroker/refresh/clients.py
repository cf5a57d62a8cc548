"""What this process knows of the clients of its apps: when each was last accepted, and for which grant.

A refusal may be about the grant, about our client or about a wall in front of the provider. The success of another
grant of the same client tells.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.records import Grant
from oauthbroker.records.refresh_state import UNCLEAR_SECONDS

Standing = Literal["good", "refused", "unknown"]
"""The evidence on a client since a grant's first refusal: another grant of it has worked; others are refused, too;
neither."""
_MOST = 1_000
_SOON = timedelta(seconds=UNCLEAR_SECONDS)


@dataclass(slots=True)
class _Latest:
    """The last two times at which something happened to two grants, the newest last."""

    times: dict[str, datetime] = field(default_factory=dict)

    def note(self, grant: str, at: datetime) -> None:
        self.times.pop(grant, None)
        self.times[grant] = at
        if len(self.times) > 2:
            del self.times[next(iter(self.times))]

    def of_another(self, grant: str, since: datetime, now: datetime) -> bool:
        """Tell whether it happened to another grant since then. A time after `now` was noted before the clock was set
        back."""
        return any(each != grant and since <= at <= now for each, at in self.times.items())


@dataclass(slots=True, kw_only=True)
class _Client:
    refreshed: _Latest = field(default_factory=_Latest)
    consented: _Latest = field(default_factory=_Latest)
    refused: _Latest = field(default_factory=_Latest)
    is_reported: bool = False


class Clients:
    """The clients of one process: an app with its registration is one."""

    def __init__(self) -> None:
        self._clients = Bounded[tuple[str, str], _Client](_MOST)

    def refreshed(self, grant: Grant, at: datetime) -> None:
        client = self._of(grant)
        client.refreshed.note(grant.id, at)
        client.is_reported = False

    def consented(self, grant: Grant, at: datetime) -> None:
        """Note that a consent ended in this grant: the token endpoint has accepted the client."""
        self._of(grant).consented.note(grant.id, at)

    def refused(self, grant: Grant, at: datetime) -> None:
        """Note an ambiguous refusal of this grant."""
        self._of(grant).refused.note(grant.id, at)

    def standing(self, grant: Grant, since: datetime, now: datetime) -> Standing:
        """Return what other grants prove since then. A consent proves that the client is accepted. That it may refresh
        is proven by a refresh, of this grant before or of another one since."""
        client = self._of(grant)
        if client.refreshed.of_another(grant.id, since, now):
            return "good"
        if grant.refresh_state.worked and client.consented.of_another(grant.id, since, now):
            return "good"
        return "refused" if client.refused.of_another(grant.id, since - _SOON, now) else "unknown"

    def report_once(self, grant: Grant) -> bool:
        """Return whether the operator is yet to be told of this client, since a refresh of it worked last."""
        client = self._of(grant)
        is_first, client.is_reported = not client.is_reported, True
        return is_first

    def _of(self, grant: Grant) -> _Client:
        key = grant.app, grant.registration
        client = self._clients.get(key) or _Client()
        self._clients.keep(key, client)
        return client
