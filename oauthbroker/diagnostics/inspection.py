"""The store as diagnostics sees it: counts and states, read without a lock while a broker works on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.diagnostics.findings import Sessions, SharedFacts
from oauthbroker.events.backends import queues_of
from oauthbroker.events.port import Depth
from oauthbroker.model.settings import Limits
from oauthbroker.records.api_key import ApiKey
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.registered_client import RegisteredClient
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.store_age import StoreAge
from oauthbroker.repository.versioned import readable


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """`kinds` are those that the store has. `damaged` are the places of
    what could not be read so far. Every method may raise `BrokerError` with a store code."""

    repository: Repository
    age: StoreAge
    keys: ApiKeys
    kinds: Collection[str]
    clock: Clock
    limits: Limits
    damaged: list[str] = field(default_factory=list)

    async def grants(self) -> AsyncIterator[GrantView]:
        """Yield the grants one by one, those that nothing refreshes with their last use as far as it was written."""
        uses, now = self.repository.records("uses", GrantUse.from_plaintext), self.clock.now()
        if "uses" in self.kinds:
            async for _ in uses.all():  # notes the damaged ones
                pass
        async for versioned in self.repository.grants():
            view = GrantView.of(versioned.record, None, now)
            if "uses" in self.kinds and not (view.refreshable or view.revoked):
                use = await readable(uses.get(view.id))
                view = view if use is None else replace(view, used_at=use.at)
            yield view

    async def sessions(self) -> Sessions:
        now, waiting, stuck = self.clock.now(), 0, 0
        async for versioned in self.repository.sessions():
            session = versioned.record
            if session.open:
                waiting += not session.is_past(now)
                stuck += session.claim is not None and not session.claim.holds(now)
        return Sessions(waiting, stuck)

    async def depth(self) -> Depth:
        return Depth.of(await queues_of(self.repository, clock=self.clock, limits=self.limits).depths())

    async def database(self) -> SharedFacts | None:
        """Return the facts of a store that hosts share."""
        shared = self.repository.shared
        if shared is None:
            return None
        leases, heard, loses = await shared.leases(), await shared.feed.heard(), await shared.loses_on_failover()
        return SharedFacts(leases, heard, loses, shared.feed.unreached)

    async def clients(self) -> list[RegisteredClient]:
        return [each async for each in self.repository.clients.all()] if "clients" in self.kinds else []

    async def api_keys(self) -> list[ApiKey]:
        return await self.keys.list() if "apikeys" in self.kinds else []
