"""What must be true once everything has come to rest: nothing is stranded, held or left over, and the model agrees."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from oauthbroker.audit import Connected, ConnectFailed, GrantEnded, TokensDropped
from oauthbroker.core.errors import Code
from oauthbroker.events.queue import StoreQueues
from oauthbroker.observability.metrics import Metrics
from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository.repository import Repository
from oauthbroker.store.file.file_store import FileStore
from tests.faults.cancel_world import AGENTS, ERASED, LIMITS, Side, World
from tests.kit.broker_process import AFTER_CLAIMS
from tests.kit.queues import all_indexes

PATIENCE = 60.0  # real seconds until connections that were closed are seen to be closed


@dataclass(frozen=True)
class Held:
    """What this process holds of the machine."""

    descriptors: int
    tasks: int
    threads: int

    @classmethod
    def now(cls) -> Held:
        return cls(len(list(Path("/proc/self/fd").iterdir())), len(asyncio.all_tasks()), threading.active_count())


async def to_rest(w: World) -> None:
    """Both brokers finish everything that can be finished, and a consumer takes every event there is."""
    for seconds in (0, AFTER_CLAIMS, LIMITS.session_seconds + 60, 700, 4000):
        w.clock.advance(seconds)
        for side in w.sides:
            await tended(side)
        for side in w.sides:
            await drained(w, side)


async def tended(side: Side) -> None:
    parts = side.running.parts
    parts.background_refresh._repair_at = 0
    await parts.background_refresh.recover()
    await parts.polling.once()
    await parts.sweep.once()
    await parts.bulk_revocation.run_pass()
    await parts.relay.once()


async def drained(w: World, side: Side) -> None:
    for agent in AGENTS:
        while (delivery := await side.broker.events.lease(agent)) is not None:
            w.model.leased(delivery)
            if await delivery.ack():
                w.model.settled(delivery.id, done=True)


async def problems_of(w: World, before: Held) -> list[str]:
    """Both brokers are closed. Looks at the store as the next process would find it."""
    found = await machine_problems(before)
    store = w.store()
    try:
        found += [each async for each in _store_problems(w, store)]
    finally:
        await store.close()
    found += _file_problems(w.folder / "store")
    return found


async def machine_problems(before: Held) -> list[str]:
    """Descriptors, tasks and threads that are held and were not before."""
    async with asyncio.timeout(PATIENCE * 2):
        for _ in range(int(PATIENCE / 0.02)):
            gc.collect()
            now = Held.now()
            if now.descriptors <= before.descriptors and now.tasks <= before.tasks and now.threads <= before.threads:
                return []
            await asyncio.sleep(0.02)
    return [f"{now} where there were {before}"]


def _file_problems(root: Path) -> list[str]:
    found = [f"a temporary file is left: {path.parent.name}" for path in root.rglob(".*") if path.is_file()]
    found += [f"a temporary file is left: {path.name}" for path in root.rglob("*.tmp")]
    for path in (root / "locks").rglob("*"):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(f"a lock is held: {path.name}")
    return found


async def _store_problems(w: World, store: FileStore) -> AsyncIterator[str]:
    repository = Repository(store)
    grants = [versioned.record async for versioned in repository.grants()]
    sessions = [versioned.record async for versioned in repository.sessions()]
    async for versioned in repository.grants():
        if versioned.record.unfinished and not await repository.markers.has(versioned.entry.key):
            yield f"a grant of {versioned.record.app} has something left to do and no marker"
    async for session in repository.sessions():
        if session.record.outbox is not None and not await repository.markers.has(session.entry.key):
            yield f"{session.record.id} has an event and no marker"
    for due in await repository.due():
        yield f"a marker of {due.key.kind} of {due.grant.app} is left"
    for each in [*_session_problems(w, sessions), *_grant_problems(w, grants), *_token_problems(w, grants)]:
        yield each
    async for each in _queue_problems(w, repository):
        yield each


def _session_problems(w: World, sessions: list[AuthSession]) -> list[str]:
    """Every end is told by the one event that it may be told by, and entered in the audit log."""
    found = []
    failed = {entry.session for entry in w.audit.entries if isinstance(entry, ConnectFailed)}
    reported: dict[str, set[str]] = {}
    for event in w.model.about.values():
        if event["type"].startswith("auth."):
            reported.setdefault(event["payload"]["authSessionId"], set()).add(event["type"])
    for session in sessions:
        if session.subject == ERASED or session.resume.is_of(ERASED):
            continue
        if session.open:
            found.append(f"{session.id} is still open")
        may = {"completed": {"auth.granted"}, "expired": set[str]()}.get(session.status)
        if may is None:
            may = {"auth.denied" if session.failure is Code.PROVIDER_DENIED else "auth.failed"}
            if session.id not in failed:
                found.append(f"the failure of {session.id} is not in the audit log")
        said = reported.get(session.id, set()) - {"auth.revoked", "auth.expiring"}
        if said != may and not w.model.dropped & {f"evt-{session.id}-{kind}" for kind in may}:
            found.append(
                f"{session.id} of {session.app} is {session.status} ({session.failure}) and was told by {said}"
            )
    return found


def _grant_problems(w: World, grants: list[Grant]) -> list[str]:
    """A revocation is told by one event, entered in the audit log, and no provider is still to be told."""
    lost = w.model.queued - w.model.reported - w.model.dropped
    found = [f"{event} was queued and never delivered" for event in lost]
    ended = last_entries(w)
    for grant in grants:
        if grant.subject == ERASED or (grant.resume is not None and grant.resume.is_of(ERASED)):
            continue
        event = f"evt-{grant.auth_session_id}-auth.revoked"
        if grant.revoked and grant.resume is not None and event not in w.model.reported | w.model.dropped:
            found.append(f"the end of a grant of {grant.app} was told by no event")
        if not grant.revoked and event in w.model.about:
            found.append(f"a living grant of {grant.app} was told to be revoked")
        if grant.revoked and ended.get(grant.id) is not GrantEnded:
            found.append(f"the end of a grant of {grant.app} is not in the audit log")
        if grant.revocation_pending or grant.outbox or grant.refresh_state.intent is not None:
            found.append(f"a grant of {grant.app} has something left to do")
    return found


def last_entries(w: World) -> dict[str, type]:
    """By grant: whether it was connected or ended last, as the audit log says."""
    return {e.grant: type(e) for e in w.audit.entries if isinstance(e, Connected | GrantEnded)}


def _token_problems(w: World, grants: list[Grant]) -> list[str]:
    """No refresh token lives at the provider that no grant knows. One that a later login replaced is dropped and not
    revoked, as docs/divergences.md says: so are tokens of which the log says that they could not be revoked."""
    ledger = w.idp._state.token_table
    known = {
        id(ledger.tokens[t.reveal()].agreement) for g in grants for t in g.refresh_tokens if t.reveal() in ledger.tokens
    }
    dropped = sum(isinstance(entry, TokensDropped) and not entry.revoked for entry in w.audit.entries)
    replaced = w.replaced()
    alive = {id(token.agreement): token.agreement for token in ledger.tokens.values()
             if token.kind == "refresh" and token.is_alive(w.clock.now())}  # fmt: skip
    stray = [agreement for key, agreement in alive.items() if key not in known]
    if len(stray) <= replaced + dropped:
        return []
    clients = sorted({agreement.client_id for agreement in stray})
    return [f"{len(stray)} families live at the provider that no grant knows, of {clients}; {replaced} were replaced"]


async def _queue_problems(w: World, repository: Repository) -> AsyncIterator[str]:
    queues = StoreQueues(repository=repository, clock=w.clock, limits=LIMITS, metrics=Metrics())
    for index in await all_indexes(repository):
        for item in index.waiting:
            yield f"{item.id} waits, leased: {item.lease is not None}, attempts: {item.attempts}"
        for item in index.dead:
            if w.model.handed[item.id] < LIMITS.queue_attempts:
                yield f"{item.id} is dead and was handed out {w.model.handed[item.id]} times"
    if stray := await queues.tidy():
        yield f"{stray} events lie in the store that no queue names"
