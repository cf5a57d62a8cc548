"""Find shared grants: grants with an account or subject in common at one client, where revoking a token ends everything
granted to that client.

A revocation must not end a grant that no caller named. Its tokens are left to the shared grant instead, whose end
revokes them: a provider may treat the two as separate after all. Two grants are shared when they have the same
registration, and the same account consented to both or they belong to the same subject. Examples: two OAuthApps with
one client, one global app that one person connected for two teams, one team's app that two people installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant
from oauthbroker.records.unrevoked_tokens import left_to
from oauthbroker.repository.repository import Conflict, Repository
from oauthbroker.repository.versioned import Unread

Tie = tuple[str, str]


class SharedGrants:
    """Finds active shared grants, by the subject and by who consented. `apps` are all configured apps; without them no
    configuration rules a shared grant out."""

    def __init__(self, repository: Repository, clock: Clock, apps: Mapping[str, App] | None = None) -> None:
        self._repository = repository
        self._clock = clock
        self._apps = apps

    async def living(self, app: App, grant: Grant) -> GrantKey | None:
        """Return the key of another active grant with the same registration, and an account or subject in common; None
        if there is none. Raises store codes; the code of a record that cannot be read only if no other one is active.

        If the account is unknown, only the subject is compared. Tokens of client credentials are never shared, because
        the next one needs no consent.
        """
        ties = _ties(grant)
        if not ties or self._is_alone(app):
            return None
        unread: Unread = {}
        for who in sorted({who for _, who in ties}):
            async for versioned in self._repository.grants_with(who, unread):
                if _is_active(versioned.record, ties):
                    return versioned.record.key
        if (near := await self._living_near(app, grant, ties)) is not None:
            return near
        for error in await self._of_this_client(app, grant, unread):
            raise error
        return None

    async def leave_to(self, key: GrantKey, ended: Grant) -> Literal["left", "full", "ended"]:
        """Keep the tokens of an ended grant in the record of an active one, to be revoked when that ends. `full`: an
        older token had no room there; `ended`: it has ended meanwhile, and nothing was kept. Raises store codes."""
        for _ in range(2):  # the generation read may be outdated
            async with self._repository.pair(key):
                versioned = await self._repository.grant(key)
                if versioned is None or versioned.record.revoked:
                    break
                kept, is_full = left_to(versioned.record, ended)
                with suppress(Conflict):
                    if kept != versioned.record:
                        await self._repository.save_grant(kept, expect=versioned.generation)
                    else:
                        await self._repository.sync("grants")
                    return "full" if is_full else "left"
        return "ended"

    async def is_free(self, app: App, gone: Grant) -> bool:
        """Return whether no grant is active, or being made, that would end with the tokens of one that is not stored.
        Raises store codes."""
        if await self.is_coming(app, gone):
            return False
        own = await self._repository.grant(gone.key)
        return (own is None or own.record.revoked) and await self.living(app, gone) is None

    async def is_coming(self, app: App, grant: Grant) -> bool:
        """Return whether any process is redeeming a login that would share this grant or replace it. Its tokens may be
        issued already, with nothing stored. Call it before `living`, which finds the grants stored meanwhile. Raises
        store codes.

        Logins are found by subject. A login for another subject is shared only by its account, which is unknown until
        its tokens arrive; waiting for every login at a client would delay revocations without end.
        """
        now = self._clock.now()
        for pair in self._near(app, grant) if _ties(grant) else ():
            for versioned in await self._repository.waiting(pair.app, pair.subject):
                claim = versioned.record.claim
                if claim is not None and claim.holds(now):
                    return True
        return False

    def _is_alone(self, app: App) -> bool:
        """Return whether no grant can be shared: the account is the subject, and no other app has this client."""
        own_subject = app.subject_mode == "user" and app.owner.user_identity is not None and not app.has_accounts
        if not own_subject or self._apps is None:
            return False
        return not any(
            each.at(app.params).registration == app.registration
            for each in self._apps.values()
            if each.name != app.name
        )

    def _near(self, app: App, grant: Grant) -> set[GrantKey]:
        """Return the pairs where a shared grant would be stored, by subject or by the account that consented."""
        apps = (self._apps or {}).values()
        names = {app.name, *(each.name for each in apps if each.at(grant.params).registration == grant.registration)}
        people = (grant.subject, grant.authorized_by)
        near = {GrantKey(name, who) for name in names for who in people if who}
        return near | {GrantKey(name, grant.subject, grant.account) for name in names}

    async def _of_this_client(self, app: App, grant: Grant, unread: Unread) -> list[BrokerError]:
        """Return the errors of those unread grants that an app with this client has: they may be shared."""
        theirs: Unread = {}
        for name in sorted({name for name, *_ in self._near(app, grant)} if unread else ()):
            async for _ in self._repository.grants_of_app(name, theirs):
                pass
        return [error for key, error in theirs.items() if key in unread]

    async def _living_near(self, app: App, grant: Grant, ties: frozenset[Tie]) -> GrantKey | None:
        """Return the key of an active shared grant of a pair nearby. Raises the code of a record that cannot be read,
        unless another one is shared: it may be one, too."""
        unread: BrokerError | None = None
        for pair in self._near(app, grant):
            try:
                versioned = await self._repository.grant(pair)
            except BrokerError as error:
                if error.code.retryable:
                    raise
                unread = BrokerError(error.code, note=f"grants/{self._repository.grant_place(pair).name[:8]}")
                continue
            if versioned is not None and _is_active(versioned.record, ties):
                return pair
        if unread is not None:
            raise unread
        return None


def _is_active(grant: Grant, ties: frozenset[Tie]) -> bool:
    return not grant.revoked and not _ties(grant).isdisjoint(ties)


def _ties(grant: Grant) -> frozenset[Tie]:
    if not grant.registration or grant.flow == "client_credentials":
        return frozenset()
    named = grant.account and grant.authorized_by  # one of several accounts: the identity alone tells it apart
    people = (grant.authorized_by,) if named else (grant.subject, grant.authorized_by)
    return frozenset((grant.registration, who) for who in people if who)
