"""Who will have to agree again, when, and why: told ahead from what the grants and the presets say. Pure.

Unknown ends are listed too: most providers do not say how long their refresh tokens live.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from oauthbroker.core.clock import printed
from oauthbroker.model.apps import App
from oauthbroker.records.grant_view import GrantView

if TYPE_CHECKING:
    from oauthbroker.providers import Preset, TokenLimit

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
    """Sorted by when. `unknown` counts, by app, the grants whose refresh tokens live for an unknown time."""

    outlooks: tuple[Outlook, ...]
    unknown: Mapping[str, int]

    def within(self, now: datetime, days: int) -> tuple[Outlook, ...]:
        """Return the ends that are certain in that time."""
        until = now + timedelta(days=days)
        return tuple(it for it in self.outlooks if it.certain and it.when is not None and it.when <= until)


def forecast(grants: Iterable[GrantView], apps: Mapping[str, AppFacts], now: datetime) -> Forecast:
    """Forecast the ends of living grants of configured apps, except those of a client that asks for itself."""
    found: list[Outlook] = []
    unknown: Counter[str] = Counter()
    living = [grant for grant in grants if grant.app in apps and not grant.revoked and not grant.alone]
    crowded = _crowded(living, apps)
    for grant in living:
        app = apps[grant.app]
        outlook = _outlook(grant, app, now, crowded=grant.id in crowded)
        if outlook is not None:
            found.append(outlook)
        if grant.refreshable and (app.unused_days, app.most_days, grant.ends_at) == (None, None, None):
            unknown[grant.app] += 1
    found.sort(key=lambda it: (it.when is None, it.when or now, it.app, it.subject, it.account))
    return Forecast(tuple(found), dict(sorted(unknown.items())))


def _crowded(living: Iterable[GrantView], apps: Mapping[str, AppFacts]) -> set[str]:
    """Return the oldest grants beyond what a provider keeps of one account for one client."""
    together: dict[tuple[int, str, str, frozenset[str]], list[GrantView]] = defaultdict(list)
    for grant in living:
        limit = apps[grant.app].limit
        if limit is not None:
            scopes = frozenset(grant.scopes if limit.per == "clientAndScopes" else ())
            together[limit.count, grant.registration, grant.person, scopes].append(grant)
    newest_first = {
        key: sorted(group, key=lambda it: (it.created_at, it.id), reverse=True) for key, group in together.items()
    }
    return {grant.id for (count, *_), group in newest_first.items() for grant in group[count:]}


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
