"""Whose grants would die together: those that have somebody in common at one client, where revoking a token ends all
that was given to it.

A revocation must not end a grant that nobody asked to end. Two grants are kin when they were made with the same
registration, and the same person agreed to both or they belong to the same subject: two OAuthApps that share a client,
one global app that somebody connected for two teams, one team's app that two people installed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.records import Grant
from oauthbroker.repository import Repository

REST = 10  # times what a scan took: however many grants there are, a row of revocations scans a tenth of its time

Tie = tuple[str, str]
Pair = tuple[str, str]


class Kin:
    """Finds living kin, by a scan of all grants where the configuration leaves room for some.

    A found one is believed whenever it is still alive. That there is none is believed of a young scan only: the
    broker's own logins are `learn`ed, and where kin would lie by its subject is looked at each time. So nothing may be
    overlooked but another process's login of the last moment for another subject, by a person who agreed to both.
    `apps` are all that are configured; without them there is always room.
    """

    def __init__(self, repository: Repository, clock: Clock, apps: Mapping[str, OAuthApp] | None = None) -> None:
        self._repository = repository
        self._clock = clock
        self._apps = apps
        self._known: defaultdict[Tie, set[Pair]] | None = None
        self._young_until = 0.0
        self._one_scan = asyncio.Lock()

    async def living(self, app: OAuthApp, grant: Grant) -> bool:
        """Whether another grant with the same registration, and with somebody in common, is alive; this one is not.
        Raises store codes.

        Who agreed is not always known: then only the subject is compared. A machine's own tokens have no kin, since
        the next one is fetched without asking anybody.
        """
        ties = _ties(grant)
        if not ties or self._is_alone(app):
            return False
        near = self._near(app, grant)
        if await self._finds(ties, near):
            return True
        return await self._scan() and await self._finds(ties, near)

    async def is_coming(self, app: OAuthApp, grant: Grant) -> bool:
        """Whether a login that would be kin, or take this grant's place, is being redeemed, in whatever process: its
        tokens may be out already, and nothing of them is stored yet. Ask before `living`: what is stored meanwhile is
        found there. Raises store codes.

        Looked for by subject. A login for another subject is kin only by who agrees to it, which nobody knows before
        its tokens have come; to wait for every login at a client would keep revocations back as long as people come.
        """
        now = self._clock.now()
        for pair in self._near(app, grant) if _ties(grant) else ():
            for held in await self._repository.waiting(*pair):
                claim = held.record.claim
                if claim is not None and claim.holds(now):
                    return True
        return False

    def learn(self, grant: Grant) -> None:
        """A login is about to be stored by this process."""
        if self._known is not None:
            for tie in _ties(grant):
                self._known[tie].add((grant.app, grant.subject))

    def _is_alone(self, app: OAuthApp) -> bool:
        """An account that is its own subject has one grant per app, and no other app has this client."""
        own_subject = app.subject_mode == "user" and app.owner.user_identity is not None
        if not own_subject or self._apps is None:
            return False
        return not any(each.registration == app.registration for each in self._apps.values() if each.name != app.name)

    def _near(self, app: OAuthApp, grant: Grant) -> set[Pair]:
        """Where kin lies that belongs to the same subject, or to who agreed."""
        apps = (self._apps or {}).values()
        names = {app.name, *(each.name for each in apps if each.registration == grant.registration)}
        return {(name, who) for name in names for who in (grant.subject, grant.authorized_by) if who}

    async def _finds(self, ties: Iterable[Tie], near: Iterable[Pair]) -> bool:
        known: Mapping[Tie, set[Pair]] = self._known or {}
        for pair in {pair for tie in ties for pair in known.get(tie, ())}.union(near):
            held = await self._repository.grant(*pair)  # it may have been ended since
            if held is not None and not held.record.revoked and not _ties(held.record).isdisjoint(ties):
                return True
        return False

    async def _scan(self) -> bool:
        """Looks at all grants, one caller at a time. False when the last look was a moment ago.

        What is learned meanwhile joins what is being found: a login is in one of them, wherever the scan stands.
        """
        if self._is_young():
            return False
        async with self._one_scan:
            if not self._is_young():
                started, self._known = self._clock.monotonic(), defaultdict(set)
                async for held in self._repository.grants():
                    if not held.record.revoked:
                        self.learn(held.record)
                took = self._clock.monotonic() - started
                self._young_until = started + (REST + 1) * took
        return True

    def _is_young(self) -> bool:
        return self._known is not None and self._clock.monotonic() < self._young_until


def _ties(grant: Grant) -> frozenset[Tie]:
    if not grant.registration or grant.flow == "client_credentials":
        return frozenset()
    return frozenset((grant.registration, who) for who in (grant.subject, grant.authorized_by) if who)
