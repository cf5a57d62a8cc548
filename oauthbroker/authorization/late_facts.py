"""Ask again for facts that the provider did not tell at the consent: at the next call, and in the background."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.located_app import located
from oauthbroker.protocol.fact_requests import FactReader
from oauthbroker.records import Grant
from oauthbroker.records.open_facts import LONGEST_PAUSE, OpenFacts, pause_after
from oauthbroker.records.provider_data import with_learnt
from oauthbroker.repository.repository import Conflict, Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class LateFacts:
    """Asks with the grant's own token. The pause is written first, so that one process asks at a time."""

    repository: Repository
    reader: FactReader
    apps: Mapping[str, App]
    clock: Clock

    async def learn(self, app: App, key: GrantKey) -> None:
        """Ask for the facts that are missing in a grant, and store them. Raises `factMissing` with the name of one that
        is still missing, and with the rest of the pause."""
        try:
            await self._learn(app, key)
        except Conflict:
            raise BrokerError(Code.STORE_LOCKED) from None

    async def _learn(self, app: App, key: GrantKey) -> None:
        begun = await self._begun(key)
        if begun is None or begun.token is None:
            return
        learnt = await self.reader.learn(located(app, begun.provider_data), begun.token.access_token)
        async with self.repository.pair(key):
            versioned = await self.repository.grant(key)
            if versioned is None or versioned.record.consent != begun.consent or not versioned.record.facts_missing:
                return
            grant = with_learnt(versioned.record, learnt, versioned.record, self.clock.now())
            await self.repository.save_grant(grant, expect=versioned.generation)
        if grant.open_facts is not None and grant.facts_missing:
            raise self._missing(grant.open_facts)

    async def _begun(self, key: GrantKey) -> Grant | None:
        """Return the grant to ask for, after its next pause is stored. None if nothing is missing. Raises
        `factMissing` during a pause."""
        async with self.repository.pair(key):
            versioned = await self.repository.grant(key)
            state = versioned.record.open_facts if versioned is not None else None
            if versioned is None or state is None or not state.missing or versioned.record.revoked:
                return None
            now = self.clock.now()
            if self._rests(state.ask_after, now):
                raise self._missing(state)
            asking = replace(state, ask_after=now + pause_after(state.tries + 1))
            grant = replace(versioned.record, open_facts=asking)
            return (await self.repository.save_grant(grant, expect=versioned.generation)).record

    async def run_pass(self) -> int:
        """Ask for the facts of grants whose pause is over; return how many were asked. A grant whose token has ended
        waits for the next call, which refreshes it."""
        count, now = 0, self.clock.now()
        for due in await self.repository.due(lambda _, pending: self._rests(pending.ask_facts_after, now)):
            with suppress(BrokerError):  # the reader has logged it
                versioned = await self.repository.due_grant(due)
                app = self.apps.get(due.grant.app)
                app = None if app is None or versioned is None else app.at(versioned.record.params)
                if versioned is None or app is None or not self._is_ready(app, versioned.record, now):
                    continue
                count += 1
                await self.learn(app, due.grant)
        return count

    def _is_ready(self, app: App, grant: Grant, now: datetime) -> bool:
        token = grant.token
        if not grant.facts_missing or grant.needs_choice or app.registration != grant.registration:
            return False
        return token is not None and token.lives(0, now)

    def _rests(self, ask_after: datetime | None, now: datetime) -> bool:
        """Return whether nothing is to be asked now."""
        return ask_after is None or now < ask_after <= now + LONGEST_PAUSE

    def _missing(self, state: OpenFacts) -> BrokerError:
        left = int((state.ask_after - self.clock.now()).total_seconds()) + 1 if state.ask_after is not None else 1
        return BrokerError(Code.FACT_MISSING, fact=state.missing[0], retry_after_seconds=max(1, left))
