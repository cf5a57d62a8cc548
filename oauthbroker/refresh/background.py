"""Refresh in the background: settle refreshes that a crash left open, refresh tokens in use before they end, and mark
records that lost their marker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Pass
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant
from oauthbroker.records.refresh_state import Intent
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.repository.lost_versions import restore
from oauthbroker.repository.repairing import repairs
from oauthbroker.repository.repository import Repository, Versioned

AT_ONCE = 24  # three quarters of an app's places: the others are for calls
BREATH = 8  # records that are opened before others may run
MOST_WATCHED = 10_000
REPAIR_SECONDS = 600.0
REPAIR_REST = 50  # times what the last look took: it costs a fiftieth of a core at the most


class BackgroundRefresh:
    """Runs one pass at a time. Reads the grants that are marked due and those whose tokens this process has handed
    out; only `repair` reads every record."""

    def __init__(
        self, *, repository: Repository, refresh: RefreshTransaction, apps: Mapping[str, App], clock: Clock
    ) -> None:
        self._repository = repository
        self._transaction = refresh
        self._apps = apps
        self._clock = clock
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._watched = Bounded[GrantKey, tuple[Grant, float]](MOST_WATCHED)
        self._repair_at = 0.0

    def watch(self, app: App, grant: Grant) -> None:
        """Note that a token of this grant was handed out. It will be refreshed ahead of its end, each grant at a random
        moment, so that tokens that end in the same second are not refreshed in one."""
        known, token = self._watched.get(grant.key), grant.token
        if token is None or token.expires_at is None:
            return
        seen = None if known is None else known[0].token
        if seen is not None and seen.access_token is token.access_token and seen.expires_at == token.expires_at:
            return
        ahead = min(app.refresh_ahead_seconds, (token.lifetime_seconds or app.refresh_ahead_seconds) / 2)
        left = (token.expires_at - self._clock.now()).total_seconds()
        self._watched.keep(grant.key, (grant, self._clock.monotonic() + left - self._clock.jitter(ahead / 2, ahead)))

    async def ahead(self) -> int:
        """Refresh the noted grants whose tokens end soon; return how many. A grant not used again is forgotten."""
        now, this_pass = self._clock.monotonic(), Pass()
        near = [grant for _, (grant, at) in self._watched.items() if at <= now]
        for grant in near:
            self._watched.pop(grant.key)
        return sum(await asyncio.gather(*(self._refresh_unless_newer(grant, this_pass) for grant in near)))

    async def recover(self) -> int:
        """Settle every intent whose attempt is over, and exchange first tokens; return how many. Run it soon after a
        crash: many providers accept a spent refresh token again for some seconds only. An attempt that another process
        has under way is left alone until a later pass."""
        left, this_pass = [], Pass()
        dues = await self._repository.due(
            lambda _, pending: not self._may_settle(pending.intent, owes=pending.owes_exchange)
        )
        for number, due in enumerate(dues, start=1):
            if number % BREATH == 0:
                await asyncio.sleep(0)
            with suppress(BrokerError):  # the relay reports it
                versioned = await self._repository.due_grant(due)
                grant = versioned.record if versioned is not None else None
                intent = grant.refresh_state.intent if grant is not None else None
                if versioned is not None and self._may_settle(intent, owes=versioned.record.owes_exchange):
                    left.append(versioned)
        return sum(await asyncio.gather(*(self._refresh(versioned, this_pass) for versioned in left)))

    async def restore(self) -> int:
        """Store again the grants of which the store has lost the newest version; return how many."""
        restored = await restore(self._repository)
        for grant in restored:
            self._transaction.log.warning("a grant that the store had lost is stored again", **_place(grant))
        return len(restored)

    async def repair(self) -> int:
        """Mark records with pending work that lost their marker, and tag grants that lack a tag; return how many. Reads
        every record, so it works at most every ten minutes, however often it is called. A record that cannot be marked
        now delays no other one; then the store code is raised at the end, and the next look comes sooner."""
        began, repaired, this_pass = self._clock.monotonic(), 0, Pass()
        if began < self._repair_at:
            return 0
        self._repair_at = began + REPAIR_SECONDS
        async for repair in repairs(self._repository):
            with this_pass.entry():
                repaired += await repair()
        self._repair_at = began + (REPAIR_REST + 1) * (self._clock.monotonic() - began)
        this_pass.over()
        self._repair_at += REPAIR_SECONDS
        return repaired

    def _may_settle(self, intent: Intent | None, *, owes: bool) -> bool:
        return owes if intent is None else not intent.pauses(self._clock.now())

    async def _refresh_unless_newer(self, seen: Grant, this_pass: Pass) -> bool:
        versioned = await self._repository.grant(seen.key)
        token = None if versioned is None else versioned.record.token
        if versioned is None or token is None or seen.token is None:
            return False
        if replace(token, refresh_token=None) != replace(seen.token, refresh_token=None):
            return False
        alone = versioned.record.flow == "client_credentials"
        return (alone or bool(versioned.record.refresh_tokens)) and await self._refresh(versioned, this_pass)

    async def _refresh(self, versioned: Versioned[Grant], this_pass: Pass) -> bool:
        grant = versioned.record
        app = self._apps.get(grant.app)
        app = None if app is None else app.at(grant.params)
        if app is None or app.registration != grant.registration:
            return False
        async with self._at_once:
            if not await self._is_free(grant, this_pass):
                if grant.key not in self._watched:
                    self._watched.keep(grant.key, (grant, self._clock.monotonic()))
                return False
            job = RefreshJob(app=app, key=grant.key, seen=versioned)
            return (await self._transaction.refresh(job)).error is None

    async def _is_free(self, grant: Grant, this_pass: Pass) -> bool:
        """Return whether no other process refreshes or writes it right now. A stopped one would hold up the whole pass
        for as long as a refresh may last."""
        try:
            with this_pass.lock_budget():
                async with self._repository.provider_lease(grant.key):
                    await self._repository.check_writable(grant.key)
        except BrokerError as error:
            if error.code is not Code.STORE_LOCKED:
                raise
            return False
        return True


def _place(grant: Grant) -> dict[str, str]:
    return {"app": grant.app, "grant": grant.id[:15]}
