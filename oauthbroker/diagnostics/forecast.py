"""Who will have to agree again, when, and why: told ahead from what the grants and the presets say. Pure.

Unknown ends are listed too: most providers do not say how long their refresh tokens live.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from oauthbroker.core.clock import printed
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.model.apps import App
from oauthbroker.records.grant_view import GrantView

if TYPE_CHECKING:
    from oauthbroker.providers.preset import Preset, TokenLimit

MOST: Final = 10_000  # ends that a forecast names

Why = Literal[
    "registration", "ended", "noRefreshToken", "life", "rejected", "stated", "age", "disuse", "crowded", "scopes"
]  # fmt: skip
REASONS: dict[Why, str] = {
    "registration": "the app has another client id or token endpoint than the grant was made with",
    "ended": "the provider refuses to refresh it",
    "noRefreshToken": "the token ends and there is no refresh token",
    "life": "the credential ends then, as life says",
    "rejected": "the API refuses the credential, or its app has changed",
    "stated": "it ends then, as refreshTokenDays says, or the provider, which may put its end off at a refresh",
    "age": "the refresh token ends that long after the person agreed, at the earliest",
    "disuse": "the token ends if it is not used until then",
    "crowded": "the provider keeps only so many tokens of one account, and this one is among the oldest",
    "scopes": "the app has scopes that this grant lacks: a call for them asks the user",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts:
    """What a forecast has to know of an app. `registration` is empty where its client id is not at hand; the days are
    those that a refresh token lives unused, and at all, and that an access token without an end lives unused, None
    where that is not known. `limit`: how many tokens of one account the provider keeps.
    `is_static`: it is a CredentialApp."""

    scopes: tuple[str, ...]
    registration: str = ""
    unused_days: int | None = None
    most_days: int | None = None
    access_unused_days: int | None = None
    limit: TokenLimit | None = None
    is_static: bool = False

    @classmethod
    def of(cls, app: App, preset: Preset | None) -> AppFacts:
        known = app.registration if app.client.client_id and not app.connect_params else ""
        days = app.habits.refresh_token_days
        if app.credential is not None:
            return cls(scopes=(), is_static=True)
        if preset is None:
            return cls(scopes=app.scopes, registration=known, most_days=days)
        return cls(
            scopes=app.scopes,
            registration=known,
            unused_days=preset.refresh_token_idle_days,
            most_days=days,
            access_unused_days=preset.access_token_idle_days,
            limit=preset.token_limit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One grant whose user will have to consent again. `when` None: as soon as a call asks for more than it has.
    `certain`: the broker cannot put it off."""

    app: str
    subject: str
    account: str = ""
    grant_id: str
    when: datetime | None
    why: Why
    certain: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "app": self.app,
            "subject": self.subject,
            **({"account": self.account} if self.account else {}),
            "grantId": self.grant_id,
            "when": printed(self.when) if self.when is not None else None,
            "why": self.why,
            "certain": self.certain,
        }


@dataclass(frozen=True, slots=True)
class Forecast:
    """The first `MOST` outlooks of `count`, sorted by when. `unknown` counts, by app, the grants whose refresh tokens
    live for an unknown time."""

    outlooks: tuple[Outlook, ...]
    unknown: Mapping[str, int]
    count: int = 0

    def within(self, now: datetime, days: int) -> tuple[Outlook, ...]:
        """Return the ends that are certain in that time."""
        until = now + timedelta(days=days)
        return tuple(it for it in self.outlooks if it.certain and it.when is not None and it.when <= until)

    def names_all_within(self, now: datetime, days: int) -> bool:
        """Tell whether no end in that time is beyond the first `MOST`."""
        last = self.outlooks[-1].when if self.count > len(self.outlooks) else None
        return last is None or last > now + timedelta(days=days)


class _Together(NamedTuple):
    """One of the grants of an account of which the provider keeps only so many: its end, and that if it is crowded
    out."""

    created_at: datetime
    grant_id: str
    usual: Outlook | None
    crowded: Outlook | None


class Forecaster:
    """Forecasts the ends of living grants of configured apps, except those of a client that asks for itself. Takes
    grants one by one, and keeps the first ends alone; of an app with a token limit, each grant's."""

    def __init__(self, apps: Mapping[str, AppFacts], now: datetime) -> None:
        self._apps, self._now, self._count = apps, now, 0
        self._first, self._unknown = list[Outlook](), Counter[str]()
        self._together = defaultdict[tuple[int, str, str, frozenset[str]], list[_Together]](list)

    def add(self, grant: GrantView) -> None:
        app = self._apps.get(grant.app)
        if app is None or grant.revoked or grant.alone:
            return
        if grant.refreshable and (app.unused_days, app.most_days, grant.ends_at) == (None, None, None):
            self._unknown[grant.app] += 1
        usual = _outlook(grant, app, self._now, crowded=False)
        if app.limit is None:
            self._keep(usual)
            return
        scopes = frozenset(grant.scopes if app.limit.per == "clientAndScopes" else ())
        crowded = _outlook(grant, app, self._now, crowded=True)
        key = app.limit.count, grant.registration, grant.person, scopes
        self._together[key].append(_Together(grant.created_at, grant.id, usual, crowded))

    def result(self) -> Forecast:
        """Return the forecast of all grants; add none afterwards. The oldest grants beyond what a provider keeps are
        crowded out."""
        for (most, *_), group in self._together.items():
            group.sort(key=lambda it: (it.created_at, it.grant_id), reverse=True)
            for number, each in enumerate(group):
                self._keep(each.usual if number < most else each.crowded)
        return Forecast(tuple(self._sorted()), dict(sorted(self._unknown.items())), self._count)

    def _keep(self, outlook: Outlook | None) -> None:
        if outlook is None:
            return
        self._count += 1
        self._first.append(outlook)
        if len(self._first) == 2 * MOST:
            self._first = self._sorted()

    def _sorted(self) -> list[Outlook]:
        def by_when(it: Outlook) -> tuple[bool, datetime, str, str, str]:
            return it.when is None, it.when or self._now, it.app, it.subject, it.account

        return sorted(self._first, key=by_when)[:MOST]


def _outlook(grant: GrantView, app: AppFacts, now: datetime, *, crowded: bool) -> Outlook | None:
    """Return the end of a grant that comes first."""

    def at(when: datetime | None, why: Why, *, certain: bool = True) -> Outlook:
        key = {"app": grant.app, "subject": grant.subject, "account": grant.account}
        return Outlook(**key, grant_id=grant.id, when=when, why=why, certain=certain)

    if app.registration and grant.registration != app.registration:
        return at(now, "registration")
    if grant.ended == "quarantined":
        return at(now, "ended")
    if not grant.refreshable and grant.expires_at is not None:
        return at(max(grant.expires_at, now), "life" if app.is_static else "ended" if grant.ended else "noRefreshToken")
    if app.is_static:
        return at(now, "rejected") if grant.health == "again" else None
    if crowded:
        return at(now, "crowded", certain=False)
    if grant.refreshable and grant.ends_at is not None:
        return at(max(grant.ends_at, now), "stated", certain=grant.health == "ending")
    if not grant.refreshable and app.access_unused_days is not None:
        last = max(grant.updated_at, grant.used_at or grant.updated_at)
        return at(max(last + timedelta(days=app.access_unused_days), now), "disuse", certain=False)
    if grant.refreshable and (first := _end_of_refresh_token(grant, app)):
        when, why = first
        return at(max(when, now), why, certain=False)
    if not set(app.scopes) <= set(grant.scopes):
        return at(None, "scopes", certain=False)
    return None


def _end_of_refresh_token(grant: GrantView, app: AppFacts) -> tuple[datetime, Why] | None:
    ends: list[tuple[datetime, Why]] = []
    if app.unused_days is not None:
        ends.append((grant.updated_at + timedelta(days=app.unused_days), "disuse"))
    if app.most_days is not None:
        ends.append((grant.created_at + timedelta(days=app.most_days), "age"))
    return min(ends, default=None)
