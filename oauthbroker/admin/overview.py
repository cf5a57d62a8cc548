"""What there is, read for operators: grants, apps and how they do, who is waited for. Never a token, a link or a
payload."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from oauthbroker.admin.open_circuits import Seen, SharedCircuits
from oauthbroker.audit.lines import AuditLine, AuditTrail
from oauthbroker.core.clock import Clock, from_iso
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants.grant_pages import GrantPages
from oauthbroker.model.apps import App
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.grant_key import grant_id
from oauthbroker.records import AuthSession
from oauthbroker.records.grant_view import GrantHealth, GrantView
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.repository import Repository
from oauthbroker.tokens.grant_uses import Uses

LOOKED_BACK = 1000  # lines of the audit log that the overview looks through for failures
FAILURES = frozenset({"ConnectFailed", "RefreshFailed"})
DECISIONS = frozenset({Code.PROVIDER_DENIED.value})  # a person's own "no" is an answer, not a failure of the app
AppHealth = Literal["good", "warn", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntries:
    """Which lines of the audit log an operator looks for: `grant` is a grantId or its keyed name, `subject` a subject
    or what people call its account; empty words stand for all."""

    app: str = ""
    type: str = ""
    grant: str = ""
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """One app at a glance. `app` is None for one that has grants and is not configured any more. `unlisted` are scopes
    that consent after consent left out. `estimated`: the counts are, from a sample of the grants."""

    name: str
    app: App | None
    health: AppHealth
    counts: Mapping[GrantHealth, int]
    circuits: tuple[Seen, ...]
    failure: tuple[datetime, str] | None
    unlisted: tuple[str, ...] = ()
    estimated: bool = False


@dataclass(slots=True, kw_only=True)
class Overview:
    """Reads of grants come from `pages`, which keeps them for some seconds."""

    current: CurrentConfig
    repository: Repository
    pages: GrantPages
    shared_circuits: SharedCircuits
    uses: Uses
    trail: AuditTrail
    clock: Clock

    @property
    def failure(self) -> Code | None:
        """Why the newest configuration is not the one in use."""
        return self.current.failure

    async def app_names(self, asked: str = "") -> list[str]:
        """Return the names to choose from: of the configured apps, of those that only grants name, and the asked one,
        which a large store may hide. The configuration may have none of the last two any more."""
        sample = await self.pages.sample()
        return sorted({*self.current.apps, *(row.app for row in sample.rows), asked} - {""})

    async def apps(self) -> list[AppState]:
        """Return all configured apps, and those that only grants name. The counts of a large store are estimates."""
        counts: dict[str, Counter[GrantHealth]] = {}
        unlisted: dict[str, set[str]] = {}
        sample = await self.pages.sample()
        for row in sample.rows:
            counts.setdefault(row.app, Counter())[row.health] += 1
            unlisted.setdefault(row.app, set()).update(() if row.revoked else row.unlisted)
        failures = await self._last_failures()
        circuits = await self.shared_circuits.seen()
        estimated = {
            app: Counter({health: round(number * sample.times) for health, number in of_app.items()})
            for app, of_app in counts.items()
        }
        states = [
            self._app_state(name, estimated.get(name, Counter()), circuits, failures.get(name), unlisted.get(name, ()))
            for name in sorted({*self.current.apps, *counts})
        ]
        return [replace(state, estimated=sample.times > 1) for state in states]

    async def grant(self, grant_id: str) -> tuple[GrantView, GrantUse | None]:
        """Return a grant as it is now, and its last use. Raises `grantNotFound`."""
        view = await self.pages.find(grant_id)
        if view is None:
            raise BrokerError(Code.GRANT_NOT_FOUND)
        return view, await self.uses.last(grant_id)

    def audit_name(self, grant_id: str) -> str:
        """Return a grant's pseudonym in the audit log."""
        return self.trail.name("grant", grant_id)

    async def waiting(self) -> list[AuthSession]:
        """Return the authorizations that wait for a person, the first to expire first."""
        now = self.clock.now()
        found = [versioned.record async for versioned in self.repository.sessions()]
        return sorted((it for it in found if it.open and it.expires_at > now), key=lambda it: it.expires_at)

    async def audit(self, count: int, entries: AuditEntries) -> list[AuditLine]:
        """Return the newest lines, the newest first."""
        grant = entries.grant if entries.grant.startswith("grant-") else self.audit_name(entries.grant)
        found = await self.trail.tail(
            count,
            app=entries.app or None,
            type=entries.type or None,
            grant=grant if entries.grant else None,
            names=await self._names_of(entries.subject) if entries.subject else None,
            since=entries.since,
            until=entries.until,
        )
        return found[::-1]

    async def _names_of(self, subject: str) -> set[str]:
        """Return the names in the log of a subject, as a person, and of its grants, also of those that are gone. Where
        no grant has the subject, it may be what people call an account: that is looked for in the whole store."""
        ids = await self._ids_of(subject)
        subjects = {subject}
        if not ids:
            called = subject.casefold()
            subjects |= {row.subject async for row in self.pages.everything() if row.account_name.casefold() == called}
        for each in subjects - {subject}:
            ids |= await self._ids_of(each)
        ids |= {grant_id(app, each) for app in await self.app_names() for each in subjects}
        return {self.trail.name("person", each) for each in subjects} | {self.audit_name(each) for each in ids}

    async def _ids_of(self, subject: str) -> set[str]:
        return {it.record.id async for it in self.repository.grants_with(subject) if it.record.subject == subject}

    async def named(self, lines: Iterable[AuditLine], grants: AsyncIterator[GrantView]) -> dict[str, GrantView]:
        """Return those of the grants that these lines name, by their pseudonyms."""
        wanted, found = {line.grant for line in lines} - {None}, dict[str, GrantView]()
        if not wanted:
            return found
        async for row in grants:
            if (name := self.audit_name(row.id)) in wanted:
                found[name] = row
            if len(found) == len(wanted):
                break
        return found

    async def _last_failures(self) -> dict[str, tuple[datetime, str]]:
        """Return by app: (when, code) of the last one, as far back as the overview looks."""
        found: dict[str, tuple[datetime, str]] = {}
        for line in await self.trail.tail(LOOKED_BACK):
            if line.type in FAILURES and line.fields.get("code") not in DECISIONS:
                found[str(line.fields.get("app"))] = (from_iso(line.at), str(line.fields.get("code")))
        return found

    def _app_state(
        self,
        name: str,
        counts: Counter[GrantHealth],
        circuits: Sequence[Seen],
        failure: tuple[datetime, str] | None,
        unlisted: Collection[str],
    ) -> AppState:
        own = tuple(each for each in circuits if each.circuit.app == name)
        common = [each.circuit for each in own if not each.circuit.grant]
        recent = failure is not None and self.clock.now() - failure[0] < timedelta(hours=1)
        health: AppHealth = "good"
        if own or counts["again"] or recent or unlisted or name not in self.current.apps:
            health = "warn"
        if any(circuit.code is Code.APP_MISCONFIGURED for circuit in common):
            health = "bad"
        return AppState(
            name=name,
            app=self.current.apps.get(name),
            health=health,
            counts=counts,
            circuits=own,
            failure=failure,
            unlisted=tuple(sorted(unlisted)),
        )
