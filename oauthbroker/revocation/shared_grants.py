"""Find shared grants: grants with an account or subject in common at one client, where revoking a token ends everything
granted to that client.

A revocation must not end a grant that no caller named. Two grants are shared when they have the same registration,
and the same account consented to both or they belong to the same subject. Examples: two OAuthApps with one client, one
global app that one person connected for two teams, one team's app that two people installed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError
from oauthbroker.model.apps import OAuthApp
from oauthbroker.records import Grant
from oauthbroker.repository.repository import Repository

REST = 10  # limits scanning to a tenth of the time, however many grants there are

Tie = tuple[str, str]
Pair = tuple[str, str]


class SharedGrants:
    """Finds active shared grants, by a scan of all grants unless the configuration rules them out.

    A found one is used as long as it is active. The result that there is none is only trusted for a short time after a
    scan: this process's logins are added with `learn`, and the pairs of the same subject are read each time. So a
    shared grant can only be missed if another process has just stored it for another subject, and one account consented
    to both. `apps` are all configured apps; without them no configuration rules a shared grant out.
    """

    def __init__(self, repository: Repository, clock: Clock, apps: Mapping[str, OAuthApp] | None = None) -> None:
        self._repository = repository
        self._clock = clock
        self._apps = apps
        self._known: defaultdict[Tie, set[Pair]] | None = None
        self._young_until = 0.0
        self._one_scan = asyncio.Lock()

    async def living(self, app: OAuthApp, grant: Grant) -> bool:
        """Return whether another grant with the same registration, and an account or subject in common, is active.
        Raises store codes; the code of a record that cannot be read only if no other one is active.

        If the account is unknown, only the subject is compared. Tokens of client credentials are never shared, because
        the next one needs no consent.
        """
        ties = _ties(grant)
        if not ties or self._is_alone(app):
            return False
        near = self._near(app, grant)
        found, unread = await self._find(ties, near)
        if not found and await self._scan():
            found, unread = await self._find(ties, near)
        if not found and unread is not None:
            raise unread
        return found

    async def is_coming(self, app: OAuthApp, grant: Grant) -> bool:
        """Return whether any process is redeeming a login that would share this grant or replace it. Its tokens may be
        issued already, with nothing stored. Call it before `living`, which finds the grants stored meanwhile. Raises
        store codes.

        Logins are found by subject. A login for another subject is shared only by its account, which is unknown until
        its tokens arrive; waiting for every login at a client would delay revocations without end.
        """
        now = self._clock.now()
        for pair in self._near(app, grant) if _ties(grant) else ():
            for held in await self._repository.waiting(*pair):
                claim = held.record.claim
                if claim is not None and claim.holds(now):
                    return True
        return False

    def learn(self, grant: Grant) -> None:
        """Add a grant that this process is about to store."""
        if self._known is not None:
            for tie in _ties(grant):
                self._known[tie].add((grant.app, grant.subject))

    def _is_alone(self, app: OAuthApp) -> bool:
        """Return whether no grant can be shared: the account is the subject, and no other app has this client."""
        own_subject = app.subject_mode == "user" and app.owner.user_identity is not None
        if not own_subject or self._apps is None:
            return False
        return not any(each.registration == app.registration for each in self._apps.values() if each.name != app.name)

    def _near(self, app: OAuthApp, grant: Grant) -> set[Pair]:
        """Return the pairs where a shared grant would be stored, by subject or by the account that consented."""
        apps = (self._apps or {}).values()
        names = {app.name, *(each.name for each in apps if each.registration == grant.registration)}
        return {(name, who) for name in names for who in (grant.subject, grant.authorized_by) if who}

    async def _find(self, ties: Iterable[Tie], near: Iterable[Pair]) -> tuple[bool, BrokerError | None]:
        """Return whether a shared grant is active, and the error of a record that cannot be read."""
        known: Mapping[Tie, set[Pair]] = self._known or {}
        unread: BrokerError | None = None
        for pair in {pair for tie in ties for pair in known.get(tie, ())}.union(near):
            try:
                held = await self._repository.grant(*pair)  # it may have ended since
            except BrokerError as error:
                if error.retryable:
                    raise
                unread = BrokerError(error.code, note=f"grants/{self._repository.grant_key(*pair).name[:8]}")
                continue
            if held is not None and not held.record.revoked and not _ties(held.record).isdisjoint(ties):
                return True, None
        return False, unread

    async def _scan(self) -> bool:
        """Scan all grants, one caller at a time. False if the last scan is recent.

        Grants learned during the scan are added to its result, so a login is found however far the scan has come.
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
