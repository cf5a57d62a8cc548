"""Find records that lack their due marker or a tag: it was removed, or restored without its record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository.repository import Repository, Versioned

BATCH = 64  # grants whose tags are looked at together

Repair = Callable[[], Awaitable[int]]


async def repairs(repository: Repository) -> AsyncIterator[Repair]:
    """Yield the repairs that a store may need. Each returns how many records it repaired. Reads every record."""
    batch = list[Versioned[Grant]]()
    async for grant in repository.grants():
        if grant.record.unfinished and not await repository.markers.has(grant.entry.key):
            yield partial(_mark_grant, repository, grant)
        batch.append(grant)
        if len(batch) == BATCH:
            yield partial(repository.retag, tuple(batch))
            batch.clear()
    yield partial(repository.retag, tuple(batch))
    async for session in repository.sessions():
        if session.record.outbox is not None and not await repository.markers.has(session.entry.key):
            yield partial(_mark_session, repository, session)


async def _mark_grant(repository: Repository, seen: Versioned[Grant]) -> bool:
    """Mark a grant. False if it is marked, or has no pending work now."""
    async with repository.pair(seen.record.key):
        versioned = await repository.grant(seen.record.key)
        left = versioned is not None and versioned.record.unfinished
        return left and await repository.markers.mark(seen.entry.key, seen.record.key)


async def _mark_session(repository: Repository, seen: Versioned[AuthSession]) -> bool:
    """Mark a session. False if it is marked, or has no event now."""
    async with repository.pair(seen.record.key):
        versioned = await repository.session(seen.record.locator)
        left = versioned is not None and versioned.record.outbox is not None
        return left and await repository.markers.mark(seen.entry.key, seen.record.key)
