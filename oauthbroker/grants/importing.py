"""Grants of another system, taken over as if users had consented here. The provider is asked whose they are, where it
can be; else the author of the file confirms it, and the grant is marked as unverified until an answer says so.

Idempotent by design: a grant remembers the line it came from. So a run that was killed is simply repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

from oauthbroker.access.turns import UnknownApp
from oauthbroker.audit import GrantImported, GrantRevoked
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import LONG_AGO, Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_credentials import is_of_team
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.apps import App
from oauthbroker.model.owner_check import CheckedOwner, check_owner, is_the_account, pin_of
from oauthbroker.model.static_credential import FLOW as STATIC_FLOW
from oauthbroker.model.static_credential import TOKEN_TYPE
from oauthbroker.protocol.credential_check import CredentialChecks
from oauthbroker.protocol.identity import OwnerReader
from oauthbroker.records import Grant, Token
from oauthbroker.records.device_authorization import FLOW as DEVICE_FLOW
from oauthbroker.records.refresh_end import RefreshEnd, StatedEnds, next_end
from oauthbroker.records.unrevoked_tokens import forgotten, passed_on
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.repository.repository import Repository, Versioned

_FLOWS = {"deviceCode": DEVICE_FLOW, "staticCredential": STATIC_FLOW}
ImportOutcome = Literal["imported", "replaced", "there", "kept", "revoked"]
"""What became of a line: written; written over another grant; this very line had been taken before; a living grant was
left alone; one that was revoked here was left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """Writes as a login does: under the pair's lock, the audit entry first."""

    apps: Mapping[str, App]
    repository: Repository
    refresh: RefreshTransaction
    owners: OwnerReader
    checks: CredentialChecks
    clock: Clock
    audit: AuditWriter

    async def import_grant(self, incoming: Incoming, *, replace: bool = False) -> ImportOutcome:
        """Store it, unless there is a grant that should stay. The provider is asked first, and under no lock; a grant
        that is there and unverified is asked for again.

        Raises store codes, `oauthAppNotFound`, and for a line that is refused: `subjectMismatch` and `subjectForbidden`
        for the token of another account, `subjectUnverifiable`, `reauthRequired` for a token that is not accepted;
        `credentialRefused` and `credentialUnchecked` for a static credential.
        """
        app = self._app(incoming)
        try:
            owner = await self._owner_of(app, incoming) if await self._asks(app, incoming, replace=replace) else None
        except BrokerError as error:
            refused = error.with_traceback(None)
        else:
            return await self._written(app, incoming, owner, replace=replace)
        if refused.code is Code.SUBJECT_MISMATCH:
            await self._quarantine(incoming)
        raise refused

    async def is_unverified(self, incoming: Incoming) -> bool:
        """Tell whether the provider has not said yet whose the line's grant is."""
        return not _is_verified(await self.repository.grant(incoming.key))

    async def verify(self, incoming: Incoming) -> Code | None:
        """Refresh it once, now, unless that has happened before: it shows that the token lives and, where the answer
        names an account, that it is the right one. Return None when all is well, else the code: `subjectUnverifiable`
        for an access token alone whose provider has not named its account."""
        app = self._app(incoming)
        versioned = await self.repository.grant(incoming.key)
        grant = versioned.record if versioned is not None else None
        if grant is None or grant.revoked or grant.imported != incoming.mark:
            return None
        if grant.refresh_state.ended:
            return Code.SUBJECT_MISMATCH if grant.refresh_state.ended == "quarantined" else Code.REAUTH_REQUIRED
        token = grant.token
        if token is not None and token.refresh_token is None:
            return Code.SUBJECT_UNVERIFIABLE if grant.unverified else None
        if token is None or token.access_token != (incoming.access_token or Secret("")):
            return None
        early = token.lives(0, self.clock.now())
        job = RefreshJob(app=app, key=incoming.key, seen=versioned, early=early)
        error = (await self.refresh.refresh(job)).error
        return error.code if error is not None else None

    async def _asks(self, app: App, incoming: Incoming, *, replace: bool) -> bool:
        """Tell whether the provider is to be asked: it can be, and the line's grant is not there as verified. The store
        is read only if an answer may come of it."""
        access, ends = incoming.access_token, incoming.expires_at
        is_over = access is None or (ends is not None and ends <= self.clock.now())
        if is_over if app.credential is None else incoming.unverified:
            return False
        versioned = await self.repository.grant(incoming.key)
        left = _left_alone(versioned, incoming, replace=replace)
        return left is None or (left == "there" and not _is_verified(versioned))

    async def _owner_of(self, app: App, incoming: Incoming) -> CheckedOwner | None:
        return await (self._owner if app.credential is None else self._credential_owner)(app, incoming)

    async def _credential_owner(self, app: App, incoming: Incoming) -> CheckedOwner | None:
        """Check the credential, and the next one, as the page does before it stores one. None if the provider was not
        asked: the app has no `verify` request."""
        assert app.credential is not None  # noqa: S101  (the caller has looked)
        owner = None
        for each in (incoming.access_token, incoming.next_credential):
            if each is None or app.credential.verification is None:
                continue
            facts = await self.checks.owner_of(app, each)
            owner = CheckedOwner(None)
            is_user = app.subject_mode == "user" and not is_of_team(app, incoming.subject)
            if is_user or app.owner.global_identity is not None:
                owner = check_owner(app, incoming.subject, facts, confirmed=True, account=incoming.connection)
        return owner

    async def _owner(self, app: App, incoming: Incoming) -> CheckedOwner | None:
        """Ask the provider whose the living access token is. None where it cannot be asked: the app reads its accounts
        from other answers, or the provider is away. A refused token with a refresh token beside it may simply have
        ended."""
        assert incoming.access_token is not None  # noqa: S101  (the caller has looked)
        try:
            facts = await self.owners.ask(app, incoming.access_token)
        except BrokerError as error:
            may_have_ended = error.code is Code.REAUTH_REQUIRED and incoming.refresh_token is not None
            if not (error.retryable or may_have_ended):
                raise
            return None
        return (
            None
            if facts is None
            else check_owner(app, incoming.subject, facts, confirmed=True, account=incoming.connection)
        )

    async def _written(
        self, app: App, incoming: Incoming, owner: CheckedOwner | None, *, replace: bool
    ) -> ImportOutcome:
        async with self.repository.pair(incoming.key):
            versioned = await self.repository.grant(incoming.key)
            left, old = _left_alone(versioned, incoming, replace=replace), versioned.record if versioned else None
            if left is not None and old is not None:
                if left == "there" and old.unverified and owner is not None:
                    await self._save(_verified(old, owner), versioned)
                await self.repository.sync("grants")
                return left
            grant = self._next_in(app, old, incoming, owner) or self._grant(app, incoming, old, owner)
            slots = ("credential", incoming.access_token), ("next", incoming.next_credential)
            given = " ".join(name for name, value in slots if value is not None) if app.credential is not None else ""
            entry = GrantImported(app=app.name, grant=grant.id, replaced=old is not None, slots=given)
            self.audit.write(entry, self.clock.now())  # no entry, no grant
            if forgotten(old, grant, app):
                self.audit.write(GrantRevoked(app=app.name, grant=grant.id, provider="none"), self.clock.now())
            await self._save(grant, versioned)
        return "imported" if old is None else "replaced"

    def _expires_at(self, app: App, incoming: Incoming) -> datetime | None:
        """Return when the line's token ends: as it says, or for a static credential after the app's `life`."""
        days = app.credential.life_days if app.credential is not None else None
        if incoming.expires_at is not None or days is None:
            return incoming.expires_at
        return (incoming.granted_at or self.clock.now()) + timedelta(days=days)

    def _next_in(self, app: App, old: Grant | None, incoming: Incoming, owner: CheckedOwner | None) -> Grant | None:
        """Return the grant that is there with the line's next credential beside its own, until the end of the next one.
        None if the line is another, and for a grant that needs its credential now."""
        if incoming.access_token is not None or incoming.next_credential is None or old is None:
            return None
        if old.revoked or old.rejected or old.token is None or old.registration != app.registration:
            return None
        unsure = old.unverified or owner is None
        grant = replace(old, next_credential=incoming.next_credential, imported=incoming.mark, unverified=unsure)
        now, token = self.clock.now(), replace(old.token, expires_at=self._expires_at(app, incoming))
        return replace(grant, token=token, ends=_ends(app, incoming, token, now), updated_at=max(old.updated_at, now))

    async def _quarantine(self, incoming: Incoming) -> None:
        """End the use of a grant that was written before its provider named another account."""
        async with self.repository.pair(incoming.key):
            versioned = await self.repository.grant(incoming.key)
            if versioned is not None and _left_alone(versioned, incoming, replace=False) == "there":
                state = versioned.record.refresh_state.over("quarantined")
                await self._save(replace(versioned.record, refresh_state=state), versioned)

    async def _save(self, grant: Grant, over: Versioned[Grant] | None) -> None:
        await self.repository.save_grant(grant, expect=over.generation if over is not None else 0)

    def _app(self, incoming: Incoming) -> App:
        app = self.apps.get(incoming.app)
        if app is None:
            raise UnknownApp(incoming.app, self.apps)
        return app.at(incoming.params)

    def _grant(self, app: App, incoming: Incoming, old: Grant | None, owner: CheckedOwner | None) -> Grant:
        """Build the grant of a line. Beside a refresh token, an access token with an unknown end counts as ended: then
        the first use refreshes it."""
        now, refresh, access = self.clock.now(), incoming.refresh_token, incoming.access_token
        following, expires = incoming.next_credential, self._expires_at(app, incoming)
        if access is None and following is not None:
            access, following = following, None
        if refresh is not None and expires is None:
            expires = LONG_AGO
        is_user = app.subject_mode == "user" and not is_of_team(app, incoming.subject)
        is_account = is_user and is_the_account(app, incoming.subject, incoming.connection)
        person = incoming.subject if is_account and not incoming.connection else None
        unpinned = incoming.connection or is_of_team(app, incoming.subject)
        kind = "Bearer" if app.credential is None else TOKEN_TYPE
        token = Token(access_token=access or Secret(""), token_type=kind, refresh_token=refresh, expires_at=expires)
        grant = Grant(
            app=app.name,
            provider=app.provider,
            subject=incoming.subject,
            account=incoming.connection,
            params=app.params,
            flow=_FLOWS.get(app.flow, "authorization_code"),
            scopes=incoming.scopes,
            token=token,
            next_credential=following,
            created_at=incoming.granted_at or now,
            updated_at=now,
            pinned=None if unpinned else pin_of(app, incoming.subject, incoming.account),
            authorized_by=person,
            registration=app.registration,
            outbox=old.outbox if old is not None else (),
            imported=incoming.mark,
            unverified=True,
            ends=_ends(app, incoming, token, now),
        )
        grant = grant if owner is None else _verified(grant, owner)
        return passed_on(old, grant, app, is_apart=False)  # the line may hold a later token of the same consent


def _ends(app: App, incoming: Incoming, token: Token, now: datetime) -> RefreshEnd | None:
    """Return when the grant ends: as the line says, and that many days after the user agreed. An end that has passed
    may be wrong, so it is left to the provider."""
    days, granted = app.habits.refresh_token_days, incoming.granted_at
    consent = granted + timedelta(days=days) if days is not None and granted is not None else None
    stated = StatedEnds(incoming.refresh_expires_at, consent)
    return next_end(None, token, stated, now, days if granted is None else None)


def _left_alone(versioned: Versioned[Grant] | None, incoming: Incoming, *, replace: bool) -> ImportOutcome | None:
    """Return why the grant that is there stays; None if the line is written."""
    old = versioned.record if versioned is not None else None
    if old is not None and not old.revoked and old.imported == incoming.mark:
        return "there"
    is_beside = incoming.access_token is None and incoming.next_credential is not None
    if old is not None and not replace and (old.revoked or not (is_beside or old.rejected)):
        return "revoked" if old.revoked else "kept"
    return None


def _is_verified(versioned: Versioned[Grant] | None) -> bool:
    return versioned is not None and not versioned.record.unverified


def _verified(grant: Grant, owner: CheckedOwner) -> Grant:
    return replace(grant, unverified=False, authorized_by=owner.authorized_by, account_name=owner.name)
