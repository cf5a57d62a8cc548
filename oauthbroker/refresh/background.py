"""What the broker does for grants without being asked: settles renewals that a crash left open, and renews tokens that
are in use before they end, and marks what has lost its marker."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError
from oauthbroker.flows.refresh import Refresh
from oauthbroker.records import Grant
from oauthbroker.repository import Due, Held, Repository

AT_ONCE = 4
BREATH = 64  # records that are opened before others may run
MOST_WATCHED = 10_000
MEND_SECONDS = 600.0
MEND_REST = 50  # times what the last look took: it costs a fiftieth of a core at the most


class Upkeep:
    """One round at a time; reads what is marked due and what this process has handed out, never all grants."""

    def __init__(
        self, repository: Repository, refresh: Refresh, apps: Callable[[str], OAuthApp | None], clock: Clock
    ) -> None:
        self._repository = repository
        self._refresh = refresh
        self._apps = apps
        self._clock = clock
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._watched: OrderedDict[tuple[str, str], tuple[Grant, float]] = OrderedDict()
        self._mend_at = 0.0

    def in_use(self, app: OAuthApp, grant: Grant) -> None:
        """A token of this grant was handed out: it will be renewed ahead of its end, each grant at a moment of its
        own, so that tokens of one hour are not renewed in one second."""
        pair = (grant.app, grant.subject)
        known = self._watched.get(pair)
        if known is not None and known[0].token is grant.token:
            return
        token = grant.token
        if token is None or token.expires_at is None:
            return
        ahead = min(app.refresh_ahead_seconds, (token.lifetime_seconds or app.refresh_ahead_seconds) / 2)
        left = (token.expires_at - self._clock.now()).total_seconds()
        self._watched[pair] = (grant, self._clock.monotonic() + left - self._clock.jitter(ahead / 2, ahead))
        self._watched.move_to_end(pair)
        if len(self._watched) > MOST_WATCHED:
            self._watched.popitem(last=False)

    async def ahead(self) -> int:
        """Renews what comes close to its end; how many. A grant that is not used again is let go."""
        now = self._clock.monotonic()
        near = [pair for pair, (_, at) in self._watched.items() if at <= now]
        watched = [self._watched.pop(pair)[0] for pair in near]
        return sum(await asyncio.gather(*(self._renew_unless_newer(grant) for grant in watched)))

    async def recover(self) -> int:
        """Settles every intent whose attempt is over; how many. Soon after a crash, because a provider may forgive a
        refresh token that comes twice only for seconds. One that is under way elsewhere is waited for, not repeated."""
        left = []
        for number, due in enumerate(await self._repository.due(), start=1):
            if number % BREATH == 0:
                await asyncio.sleep(0)
            if (held := await self._open(due)) is not None:
                left.append(held)
        return sum(await asyncio.gather(*(self._renew(held) for held in left)))

    async def mend(self) -> int:
        """Marks records that have something left to do and lost their marker; how many. Reads every record, so it
        looks once in a while, however often it is called. One that cannot be marked now keeps no other one back; then
        the store code is raised last."""
        began, mended, failed = self._clock.monotonic(), 0, None
        if began < self._mend_at:
            return 0
        self._mend_at = began + MEND_SECONDS
        async for work in self._unmarked():
            try:
                mended += await work
            except BrokerError as error:
                failed = error
        self._mend_at += MEND_REST * (self._clock.monotonic() - began)
        if failed is not None:
            raise failed
        return mended

    async def _unmarked(self) -> AsyncIterator[Awaitable[bool]]:
        repository = self._repository
        async for grant in repository.grants():
            if grant.record.unfinished and not await repository.marked(grant.entry.key):
                yield repository.mend_grant(grant)
        async for session in repository.sessions():
            if session.record.outbox is not None and not await repository.marked(session.entry.key):
                yield repository.mend_session(session)

    async def _open(self, due: Due) -> Held[Grant] | None:
        try:
            held = await self._repository.due_grant(due)
        except BrokerError:  # the relay reports it
            return None
        intent = held.record.renewal.intent if held is not None else None
        return held if intent is not None and intent.retry_at <= self._clock.now() else None

    async def _renew_unless_newer(self, seen: Grant) -> bool:
        held = await self._repository.grant(seen.app, seen.subject)
        if held is None or held.record.token != seen.token:
            return False
        alone = held.record.flow == "client_credentials"
        return (alone or bool(held.record.refresh_tokens)) and await self._renew(held)

    async def _renew(self, held: Held[Grant]) -> bool:
        grant = held.record
        app = self._apps(grant.app)
        if app is None or app.registration != grant.registration:
            return False
        async with self._at_once:
            return (await self._refresh.renew(app, grant.subject, held)).trouble is None
