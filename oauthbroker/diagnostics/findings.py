"""The findings of an operator's diagnostics: severities, sentences, and what to do next. Pure functions of the
records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from oauthbroker.diagnostics.forecast import AppFacts, Forecast
from oauthbroker.events.port import Depth
from oauthbroker.model.settings import Settings
from oauthbroker.records.api_key import ApiKey
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.registered_client import RegisteredClient
from oauthbroker.repository.repository import DEGRADED_SECONDS, FEED_SECONDS, Leases

Severity = Literal["ok", "warning", "failure"]
Check = Literal[
    "configuration", "keys", "permissions", "disk", "locks", "clock", "address", "providers", "audit", "apiKeys",
    "secrets", "age", "database", "forwarders", "work", "grants", "forecast", "plugins",
]  # fmt: skip
SEVERITIES: tuple[Severity, ...] = ("ok", "warning", "failure")
MOST_SKEW_SECONDS = 30
KEY_WARNING = timedelta(days=14)
NEWS = timedelta(days=7)
OLD_EVENT = timedelta(hours=1)
SOON_DAYS = 14
NAMED = 3  # grants that a sentence names; --json and `grants list` have all

_ENDED = {
    "dead": "the provider refuses to refresh",
    "uncertain": "could not be refreshed after an answer was lost",
    "quarantined": "are no longer used, because a refresh returned the token of another account",
}


class SharedFacts(NamedTuple):
    """A store that hosts share: its leases, whether its feed hears a heartbeat, and whether a failover may lose
    changes."""

    leases: Leases
    heard: bool
    loses_on_failover: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `about` an app or a file, if it is about one; `hint` is what to do next, if any."""

    check: Check
    severity: Severity
    text: str
    _: KW_ONLY
    hint: str = ""
    about: str = ""

    def to_json(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("check", "severity", "about", "text", "hint")}


def of_old_seeds(old: int, *, to_reseal: int) -> list[Finding]:
    """Report a rotation of the store's seed that is not over."""
    if to_reseal:
        hint = "A running broker does it; `oauthbroker keys reseal` does it now."
        return [Finding("keys", "ok", "Records are to be sealed anew with the newest seed.", hint=hint)]
    if old:
        hint = "Run `oauthbroker keys retire`."
        return [Finding("keys", "warning", f"{_counted(old, 'old seed')} can be destroyed.", hint=hint)]
    return []


@dataclass(frozen=True, slots=True)
class Sessions:
    """How many authorizations wait for a person, and how many were claimed and left there."""

    waiting: int = 0
    stuck: int = 0


def worst(findings: Iterable[Finding]) -> Severity:
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")


def of_clock(skews: Sequence[float]) -> Finding:
    """`skews`: seconds by which providers' clocks are ahead of ours. The middle one counts: one may be wrong itself."""
    if not skews:
        return Finding("clock", "ok", "Not compared: no provider said what time it is.")
    middle = sorted(skews)[len(skews) // 2]
    if abs(middle) <= MOST_SKEW_SECONDS:
        clocks = "clock" if len(skews) == 1 else "clocks"
        return Finding("clock", "ok", f"Fits the {clocks} of {_counted(len(skews), 'answer')}.")
    late = "behind" if middle > 0 else "ahead"
    text = f"This machine's clock is {abs(round(middle))} s {late}."
    return Finding("clock", "warning", text, hint="Set it by NTP: tokens seem to end at the wrong time.")


def of_api_keys(keys: Iterable[ApiKey], now: datetime) -> list[Finding]:
    keys, found = list(keys), list[Finding]()
    names = {key.name for key in keys}
    for name in sorted(names):
        mine = [key for key in keys if key.name == name]
        found += [_expired(key) for key in mine if not key.alive_at(now)]
        ends = [key.expires_at for key in mine if key.alive_at(now)]
        last = None if None in ends or not ends else max(end for end in ends if end is not None)
        if last is not None and last - now <= KEY_WARNING:
            text = f"The last living key ends on {last:%Y-%m-%d at %H:%M} UTC."
            hint = f"Run `oauthbroker api-keys rotate {name}`."
            found.append(Finding("apiKeys", "warning", text, hint=hint, about=name))
    living = sum(key.alive_at(now) for key in keys)
    return found or [Finding("apiKeys", "ok", f"{living} living, none about to end.")]


def _expired(key: ApiKey) -> Finding:
    hint = f"Run `oauthbroker api-keys remove {key.id}`, or rotate it if it is still in use."
    return Finding("apiKeys", "warning", f"{key.id} has expired.", hint=hint, about=key.name)


def of_database(shared: SharedFacts, settings: Settings) -> list[Finding]:
    """Report the leases, the standby, the feed, and how old an answer may be."""
    leases = shared.leases
    found = [Finding("database", "ok", f"{_counted(leases.held, 'lease')} held, {leases.lapsed} lapsed.")]
    if shared.loses_on_failover:
        text = "The standby is not synchronous: if it takes over, changes that were acknowledged may be lost."
        hint = "Name it in `synchronous_standby_names` of the primary, and leave `synchronous_commit` on."
        found.append(Finding("database", "warning", text, hint=hint))
    if not shared.heard:
        text = "The feed of changes hears nothing: consumers look often, and token calls ask the database."
        hint = "Behind a pooler, name the database itself in `store.directUrl`."
        found.append(Finding("database", "warning", text, hint=hint))
    elif settings.store_consistency != "strict":
        text = f"The feed hears changes: one on another host holds here after {FEED_SECONDS:g} s at most."
        found.append(Finding("database", "ok", text))
    if settings.store_consistency == "available":
        text = f"Without the database, tokens are handed out for {DEGRADED_SECONDS:g} s after a check."
        found.append(Finding("database", "ok", text))
    return found


def of_clients(clients: Iterable[RegisteredClient], now: datetime) -> list[Finding]:
    """Report clients that the authorization servers of MCP servers have forgotten."""
    found = []
    for client in clients:
        if client.refused_at is not None:
            text = f"Its server refuses our client since {client.refused_at:%Y-%m-%d %H:%M} UTC, and a new one, too."
            hint = f"Ask the server's operator. `oauthbroker mcp forget {client.app}` registers another one."
            found.append(Finding("work", "warning", text, hint=hint, about=client.app))
        elif client.replaced_at is not None and now - client.replaced_at <= NEWS:
            text = f"Its server had forgotten our client; a new one since {client.replaced_at:%Y-%m-%d %H:%M} UTC."
            found.append(Finding("work", "ok", f"{text} Users consent anew.", about=client.app))
    return found


def of_work(sessions: Sessions, depth: Depth, now: datetime, due: int) -> list[Finding]:
    """Report authorizations, events, and unfinished work."""
    found = []
    if depth.dead:
        hint = "See why the consumer does not take them: `broker.events.dead(agent)`."
        text = f"{_counted(depth.dead, 'dead letter')}: events that no consumer settled."
        found.append(Finding("work", "warning", text, hint=hint))
    if depth.oldest is not None and now - depth.oldest > OLD_EVENT:
        hours = int((now - depth.oldest).total_seconds() // 3600)
        wait = "waits" if depth.waiting == 1 else "wait"
        text = f"{_counted(depth.waiting, 'event')} {wait}, the oldest for {hours} h."
        found.append(Finding("work", "warning", text, hint="Start the consumer of the agent's events."))
    if sessions.stuck:
        were = "was" if sessions.stuck == 1 else "were"
        text = f"{_counted(sessions.stuck, 'authorization')} {were} begun and not ended."
        found.append(Finding("work", "warning", text, hint="A running broker ends them: start it."))
    waiting, events = _counted(sessions.waiting, "authorization"), _counted(depth.waiting, "event")
    rest = f"{waiting} waiting for a person, {events} for a consumer, {_counted(due, 'record')} with something to do."
    found.append(Finding("work", "ok", rest))
    return found


def of_grants(grants: Sequence[GrantView], apps: Mapping[str, AppFacts]) -> list[Finding]:
    """Report the problems of grants, one finding a kind."""
    found: list[Finding] = []
    living = [grant for grant in grants if not grant.revoked]
    for ended, words in _ENDED.items():
        hint = "The people are asked at the next call." if ended != "quarantined" else "Ask the provider what happened."
        found += _if_any(f"that {words}", [it for it in living if it.ended == ended], hint)
    found += _if_any(
        "that the provider refuses for long, in words of its own",
        [grant for grant in living if grant.given_up],
        "The people are asked at the next call. The refresh token is kept, and tried again once an hour.",
    )
    found += _if_any(
        "whose refreshes fail, and are tried again",
        [grant for grant in living if not (grant.ended or grant.given_up) and (grant.lost or grant.refused_at)],
        "Look for `refreshes` in the broker's log, and at the provider.",
    )
    to_tell = [grant for grant in grants if grant.revocation_pending]
    found += _if_any(
        "with tokens that ended here and whose provider does not know yet",
        [grant for grant in to_tell if any(_may_tell(apps, grant))],
        "A running broker tells it; `oauthbroker grants revoke --all` does so at once.",
    )
    found += _if_any(
        "with tokens that ended here and whose provider this configuration cannot tell",
        [grant for grant in to_tell if not all(_may_tell(apps, grant))],
        "Configure the app again with the client id that they were made with: a week after their end the tokens are "
        "erased untold.",
    )
    found += _if_any(
        "of apps that are not configured",
        [grant for grant in living if grant.app not in apps],
        "Configure them again, or end them with `oauthbroker grants revoke --all --app NAME`.",
    )
    found += _of_unlisted(living)
    found += _of_unusual(living)
    return [*found, Finding("grants", "ok", f"{len(living)} alive, {len(grants) - len(living)} revoked.")]


def _may_tell(apps: Mapping[str, AppFacts], grant: GrantView) -> list[bool]:
    """Return for each client whose tokens are still to be revoked whether the app is configured with it, as far as that
    is at hand."""
    app = apps.get(grant.app)
    clients = grant.clients_to_tell or (grant.registration,)
    return [app is not None and app.registration in {"", client} for client in clients]


def _of_unlisted(living: Sequence[GrantView]) -> list[Finding]:
    """Report scopes that were asked for at several consents in a row and never granted, one finding an app."""
    unlisted: dict[str, Counter[str]] = {}
    for grant in living:
        if grant.unlisted:
            unlisted.setdefault(grant.app, Counter()).update(grant.unlisted)
    hint = (
        "See whether the client may ask for it there. If the provider grants it and does not say so, name it in "
        "`quirks.unlistedScopes`."
    )
    texts = {app: f"The provider does not list {_scopes(it)}, consent after consent." for app, it in unlisted.items()}
    return [Finding("grants", "warning", text, hint=hint, about=app) for app, text in sorted(texts.items())]


def _of_unusual(living: Sequence[GrantView]) -> list[Finding]:
    """Report answers that a stricter client would have refused, one finding an app."""
    unusual: dict[str, set[str]] = {}
    for grant in living:
        if grant.unusual:
            unusual.setdefault(grant.app, set()).update(grant.unusual)
    hint = "Tokens are kept. Tell the provider; for `lifetime` see `quirks.lifetimeForm` and `lifetimeField`."
    texts = {app: f"The provider's answers are unusual: {', '.join(sorted(it))}." for app, it in unusual.items()}
    return [Finding("grants", "warning", text, hint=hint, about=app) for app, text in sorted(texts.items())]


def _scopes(scopes: Counter[str]) -> str:
    return ", ".join(f"{scope} ({_counted(count, 'grant')})" for scope, count in sorted(scopes.items())[:NAMED])


def _if_any(which: str, grants: Collection[GrantView], hint: str) -> list[Finding]:
    if not grants:
        return []
    apps = ", ".join(f"{count} of {app}" for app, count in sorted(Counter(it.app for it in grants).items()))
    first = ", ".join(f"{it.id.removeprefix('sha256:')[:12]}" for it in sorted(grants, key=_by_age)[:NAMED])
    more = f" and {len(grants) - NAMED} more" if len(grants) > NAMED else ""
    text = f"{_counted(len(grants), 'grant')} {which} ({apps}): {first}{more}."
    return [Finding("grants", "warning", text, hint=hint)]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _by_age(grant: GrantView) -> tuple[datetime, str]:
    return grant.updated_at, grant.id


def of_forecast(forecast: Forecast, now: datetime) -> list[Finding]:
    soon = forecast.within(now, SOON_DAYS)
    hint = "`oauthbroker doctor --forecast` says who, when and why."
    if soon:
        people = len({it.subject for it in soon})
        who = _counted(people, "subject") + (" has" if people == 1 else " have")
        text = f"{who} to agree again within {SOON_DAYS} days, for {_counted(len(soon), 'grant')}."
        found = [Finding("forecast", "warning", text, hint=hint)]
    else:
        text = f"No user has to consent again for certain within {SOON_DAYS} days."
        found = [Finding("forecast", "ok", text, hint=hint if forecast.outlooks else "")]
    if forecast.unknown:
        apps = ", ".join(f"{count} of {app}" for app, count in forecast.unknown.items())
        text = f"Unknown refresh token lifetime: {_counted(sum(forecast.unknown.values()), 'grant')} ({apps})."
        found.append(Finding("forecast", "ok", text))
    return found
