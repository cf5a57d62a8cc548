"""Whose grants would die together: those of one person at one client, where revoking a token ends all that he gave it.

A revocation must not end a grant that nobody asked to end. Two grants are kin when the same person agreed to both with
the same registration: two OAuthApps that share a client, or one global app that he connected for two teams.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.records import Grant
from oauthbroker.repository import Repository

KNOWN_SECONDS = 10.0  # one scan for a whole row of revocations; a login that young may be overlooked

Person = tuple[str, str]


class Kin:
    """Finds living kin, by a scan of all grants where the configuration leaves room for some.

    `apps` are all that are configured; without them there is always room.
    """

    def __init__(self, repository: Repository, clock: Clock, apps: Mapping[str, OAuthApp] | None = None) -> None:
        self._repository = repository
        self._clock = clock
        self._apps = apps
        self._pairs: dict[Person, set[tuple[str, str]]] = {}
        self._scanned_at: float | None = None

    async def living(self, app: OAuthApp, grant: Grant) -> bool:
        """Whether another grant of the same person and registration is alive; this one is not. Raises store codes.

        Who agreed is not always known; then nobody is known to be kin.
        """
        person = _person(grant)
        if person is None or self._is_alone(app):
            return False
        await self._scan()
        for pair in self._pairs.get(person, ()):
            held = await self._repository.grant(*pair)  # it may have been ended since the scan
            if held is not None and not held.record.revoked and _person(held.record) == person:
                return True
        return False

    def _is_alone(self, app: OAuthApp) -> bool:
        """An account that is its own subject has one grant per app, and no other app has this client."""
        own_subject = app.subject_mode == "user" and app.owner.user_identity is not None
        if not own_subject or self._apps is None:
            return False
        return not any(each.registration == app.registration for each in self._apps.values() if each.name != app.name)

    async def _scan(self) -> None:
        now = self._clock.monotonic()
        if self._scanned_at is not None and now - self._scanned_at < KNOWN_SECONDS:
            return
        found: dict[Person, set[tuple[str, str]]] = defaultdict(set)
        async for held in self._repository.grants():
            person = _person(held.record)
            if person is not None and not held.record.revoked:
                found[person].add((held.record.app, held.record.subject))
        self._pairs, self._scanned_at = dict(found), now


def _person(grant: Grant) -> Person | None:
    return (grant.registration, grant.authorized_by) if grant.registration and grant.authorized_by else None
