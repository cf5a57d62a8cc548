"""What there is, read for operators: grants, apps and how they do, who is waited for. Never a token, a link or a
payload."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from oauthbroker.apps import OAuthApp
from oauthbroker.audit.trail import AuditLine, AuditTrail
from oauthbroker.clock import Clock, from_iso
from oauthbroker.desk.troubles import Seen, Troubles
from oauthbroker.desk.uses import Uses
from oauthbroker.errors import BrokerError, Code
from oauthbroker.grant_health import GrantHealth, State, health_of
from oauthbroker.in_use import InUse
from oauthbroker.records import AuthSession, Grant
from oauthbroker.records.use import Use
from oauthbroker.repository import Repository
from oauthbroker.snapshot import Snapshot
from oauthbroker.turn import SubjectMode

__all__ = ["AppState", "Entries", "Found", "Row", "Survey", "Waiting", "Wanted"]

PAGE = 50
BREATH = 64  # records that are opened before others may run
LOOKED_BACK = 1000  # lines of the audit log that the overview looks through for failures
FAILURES = frozenset({"ConnectFailed", "RenewalFailed"})
DECISIONS = frozenset({Code.PROVIDER_DENIED.value})  # a person's own "no" is an answer, not a failure of the app
Light = Literal["good", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Row:
    """One grant in a list, without its tokens."""

    id: str
    app: str
    provider: str
    subject: str
    scopes: tuple[str, ...]
    health: GrantHealth
    since: datetime
    changed: datetime
    agent: str | None
    authorized_by: str | None
    unsent: int
    to_be_told: bool
    unlisted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which grants somebody looks for: `text` is part of a subject, or a grantId; empty words stand for all."""

    app: str = ""
    state: str = ""
    text: str = ""
    page: int = 1

    def fits(self, row: Row) -> bool:
        text = self.text.strip().casefold()
        found = not text or text in row.subject.casefold() or row.id.startswith(text)
        return found and self.app in {"", row.app} and self.state in {"", row.health.state}


@dataclass(frozen=True, slots=True)
class Entries:
    """Which lines of the audit log an operator looks for: `grant` is a grantId or its keyed name; empty words stand
    for all."""

    app: str = ""
    type: str = ""
    grant: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One page of grants, the latest changed first."""

    rows: tuple[Row, ...]
    count: int
    page: int
    pages: int


@dataclass(frozen=True, slots=True)
class AppState:
    """One app at a glance. `app` is None for one that has grants and is not configured any more. `unlisted` are scopes
    that consent after consent left out."""

    name: str
    app: OAuthApp | None
    light: Light
    counts: Mapping[State, int]
    circuits: tuple[Seen, ...]
    failure: tuple[datetime, str] | None
    unlisted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """One authorization that waits for a person; `under_way`: somebody is being asked, or is coming back."""

    id: str
    app: str
    subject_mode: SubjectMode
    subject: str
    agent: str
    since: datetime
    expires_at: datetime
    under_way: bool


@dataclass(slots=True)
class Survey:
    """What it reads of grants is kept for some seconds, because it reads all of them."""

    in_use: InUse
    repository: Repository
    troubles: Troubles
    uses: Uses
    trail: AuditTrail
    clock: Clock
    _rows: Snapshot[list[Row]] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = Snapshot(self._read_rows, self.clock)

    def forget(self) -> None:
        """Something was changed here: the next look reads anew."""
        self._rows.forget()

    @property
    def trouble(self) -> Code | None:
        """Why the newest configuration is not the one in use."""
        return self.in_use.trouble

    @property
    def app_names(self) -> list[str]:
        return sorted(self.in_use.apps)

    async def apps(self) -> list[AppState]:
        """All that are configured, and those that only grants remember."""
        counts: dict[str, Counter[State]] = {}
        unlisted: dict[str, set[str]] = {}
        for row in await self._all_rows():
            counts.setdefault(row.app, Counter())[row.health.state] += 1
            unlisted.setdefault(row.app, set()).update(row.unlisted)
        failures = await self._last_failures()
        circuits = await self.troubles.seen()
        return [
            self._app_state(name, counts.get(name, Counter()), circuits, failures.get(name), unlisted.get(name, set()))
            for name in sorted({*self.in_use.apps, *counts})
        ]

    async def grants(self, wanted: Wanted) -> Found:
        rows = [row for row in await self._all_rows() if wanted.fits(row)]
        pages = max(1, -(-len(rows) // PAGE))
        page = min(max(1, wanted.page), pages)
        return Found(tuple(rows[(page - 1) * PAGE : page * PAGE]), len(rows), page, pages)

    async def grant(self, grant_id: str) -> tuple[Row, Use | None]:
        """As it is now, and its last use. Raises `grantNotFound`."""
        for row in await self._all_rows():
            if row.id == grant_id:
                held = await self.repository.grant(row.app, row.subject)
                return (row if held is None else self._row(held.record)), await self.uses.last(grant_id)
        raise BrokerError(Code.GRANT_NOT_FOUND)

    def audit_name(self, grant_id: str) -> str:
        """What the audit log calls a grant."""
        return self.trail.name("grant", grant_id)

    async def waiting(self) -> list[Waiting]:
        """Whoever is waited for, the first to expire first."""
        now = self.clock.now()
        found = [held.record async for held in self.repository.sessions()]
        open_ones = [_waiting(each) for each in found if each.open and each.expires_at > now]
        return sorted(open_ones, key=lambda each: each.expires_at)

    async def audit(self, count: int, entries: Entries) -> list[AuditLine]:
        """The newest lines, the newest first."""
        grant = entries.grant if entries.grant.startswith("grant-") else self.audit_name(entries.grant)
        found = await self.trail.tail(
            count,
            app=entries.app or None,
            type=entries.type or None,
            grant=grant if entries.grant else None,
            since=entries.since,
            until=entries.until,
        )
        return found[::-1]

    async def named(self, lines: Iterable[AuditLine]) -> dict[str, Row]:
        """The grants that these lines speak of, by what the log calls them, as far as they are still there."""
        wanted, found = {line.grant for line in lines} - {None}, dict[str, Row]()
        for number, row in enumerate(await self._all_rows() if wanted else ()):
            if (name := self.audit_name(row.id)) in wanted:
                found[name] = row
            if number % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            if len(found) == len(wanted):
                break
        return found

    async def _all_rows(self) -> list[Row]:
        """Every grant, the latest changed first, as of a few seconds ago; read once, however many look at once."""
        return await self._rows.recent()

    async def _read_rows(self) -> list[Row]:
        """Token calls go on meanwhile."""
        rows: list[Row] = []
        async for held in self.repository.grants():
            rows.append(self._row(held.record))
            if len(rows) % BREATH == 0:
                await asyncio.sleep(0)
        rows.sort(key=lambda row: (row.changed, row.id), reverse=True)
        return rows

    def _row(self, grant: Grant) -> Row:
        return Row(
            id=grant.id,
            app=grant.app,
            provider=grant.provider,
            subject=grant.subject,
            scopes=grant.scopes,
            health=health_of(grant, self.in_use.apps.get(grant.app), self.clock.now()),
            since=grant.created_at,
            changed=grant.updated_at,
            agent=grant.resume.agent_name if grant.resume is not None else None,
            authorized_by=grant.authorized_by,
            unsent=len(grant.outbox),
            to_be_told=grant.to_be_told,
            unlisted=() if grant.revoked else grant.unlisted,
        )

    async def _last_failures(self) -> dict[str, tuple[datetime, str]]:
        """By app: (when, code) of the last one, as far back as the overview looks."""
        found: dict[str, tuple[datetime, str]] = {}
        for line in await self.trail.tail(LOOKED_BACK):
            if line.type in FAILURES and line.fields.get("code") not in DECISIONS:
                found[str(line.fields.get("app"))] = (from_iso(line.at), str(line.fields.get("code")))
        return found

    def _app_state(
        self,
        name: str,
        counts: Counter[State],
        circuits: Sequence[Seen],
        failure: tuple[datetime, str] | None,
        unlisted: Collection[str],
    ) -> AppState:
        own = tuple(each for each in circuits if each.circuit.app == name)
        common = [each.circuit for each in own if not each.circuit.grant]
        recent = failure is not None and self.clock.now() - failure[0] < timedelta(hours=1)
        light: Light = "good"
        if own or counts["again"] or recent or unlisted or name not in self.in_use.apps:
            light = "warn"
        if any(circuit.code is Code.APP_MISCONFIGURED for circuit in common):
            light = "bad"
        return AppState(name, self.in_use.apps.get(name), light, counts, own, failure, tuple(sorted(unlisted)))


def _waiting(session: AuthSession) -> Waiting:
    return Waiting(
        session.id,
        session.app,
        session.subject_mode,
        session.subject,
        session.resume.agent_name,
        session.created_at,
        session.expires_at,
        session.under_way,
    )
