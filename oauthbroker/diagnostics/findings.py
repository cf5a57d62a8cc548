"""The findings of an operator's diagnostics: severities, sentences, and what to do next. Pure functions of the
records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from oauthbroker.core.dataclasses import KW_ONLY, dataclass
from oauthbroker.diagnostics.forecast import Forecast
from oauthbroker.events.port import Depth
from oauthbroker.model.settings import Settings
from oauthbroker.records.api_key import ApiKey
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


class SharedFacts(NamedTuple):
    """A store that hosts share: its leases, whether its feed hears a heartbeat, whether a failover may lose changes,
    and why the feed reaches no database, if so."""

    leases: Leases
    heard: bool
    loses_on_failover: bool
    unreached: str = ""


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
        return [Finding("keys", "warning", f"{counted(old, 'old seed')} can be destroyed.", hint=hint)]
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
        return Finding("clock", "ok", f"Fits the {clocks} of {counted(len(skews), 'answer')}.")
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
    found = [Finding("database", "ok", f"{counted(leases.held, 'lease')} held, {leases.lapsed} lapsed.")]
    if shared.loses_on_failover:
        text = "The standby is not synchronous: if it takes over, changes that were acknowledged may be lost."
        hint = "Name it in `synchronous_standby_names` of the primary, and leave `synchronous_commit` on."
        found.append(Finding("database", "warning", text, hint=hint))
    if not shared.heard:
        text = "The feed of changes hears nothing: consumers look often, and token calls ask the database."
        hint = "Behind a pooler, name the database itself in `store.directUrl`."
        if settings.store_direct_url_env:
            why = shared.unreached or "it leads to a pooler or a standby"
            text += f" `store.directUrl` cannot be used: {why}."
            hint = "Name the primary itself there, after a failover the new one."
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
        elif client.is_registered and client.is_to_check(now):
            text = "Before the next link its server is asked whether it still knows our client."
            hint = f"If consents fail, `oauthbroker mcp forget {client.app}` registers another one."
            found.append(Finding("work", "ok", text, hint=hint, about=client.app))
    return found


def of_work(sessions: Sessions, depth: Depth, now: datetime, due: int) -> list[Finding]:
    """Report authorizations, events, and unfinished work."""
    found = []
    if depth.dead:
        hint = "`oauthbroker queues dead` lists them. Fix their consumer, then run `queues retry`, or `queues drop`."
        text = f"{counted(depth.dead, 'dead letter')}: events that no consumer settled."
        found.append(Finding("work", "warning", text, hint=hint))
    if depth.oldest is not None and now - depth.oldest > OLD_EVENT:
        hours = int((now - depth.oldest).total_seconds() // 3600)
        wait = "waits" if depth.waiting == 1 else "wait"
        text = f"{counted(depth.waiting, 'event')} {wait}, the oldest for {hours} h."
        found.append(
            Finding("work", "warning", text, hint="Start their consumer: `oauthbroker queues list` names the agents.")
        )
    if sessions.stuck:
        were = "was" if sessions.stuck == 1 else "were"
        text = f"{counted(sessions.stuck, 'authorization')} {were} begun and not ended."
        found.append(Finding("work", "warning", text, hint="A running broker ends them: start it."))
    waiting, events = counted(sessions.waiting, "authorization"), counted(depth.waiting, "event")
    rest = f"{waiting} waiting for a person, {events} for a consumer, {counted(due, 'record')} with something to do."
    found.append(Finding("work", "ok", rest))
    return found


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def of_forecast(forecast: Forecast, now: datetime) -> list[Finding]:
    soon, least = forecast.within(now, SOON_DAYS), "" if forecast.names_all_within(now, SOON_DAYS) else "at least "
    hint = "`oauthbroker doctor --forecast` says who, when and why."
    if soon:
        people = len({it.subject for it in soon})
        who = counted(people, "subject") + (" has" if people == 1 else " have")
        text = f"{who} to agree again within {SOON_DAYS} days, for {least}{counted(len(soon), 'grant')}."
        found = [Finding("forecast", "warning", text, hint=hint)]
    else:
        text = f"No user has to consent again for certain within {SOON_DAYS} days."
        found = [Finding("forecast", "ok", text, hint=hint if forecast.outlooks else "")]
    if forecast.unknown:
        apps = ", ".join(f"{count} of {app}" for app, count in forecast.unknown.items())
        text = f"Unknown refresh token lifetime: {counted(sum(forecast.unknown.values()), 'grant')} ({apps})."
        found.append(Finding("forecast", "ok", text))
    return found
