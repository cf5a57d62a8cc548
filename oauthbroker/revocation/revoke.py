"""Revoke grants: write the tombstone, tell the provider, then erase the tokens. Also revokes dropped tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from oauthbroker.audit import GrantEnded, GrantRevoked
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import SET_BACK, CertainTime, Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier, to_its_end
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey, grant_id
from oauthbroker.model.located_app import located
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import Log
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import Grant, RefreshState
from oauthbroker.records.connection_event import grant_event
from oauthbroker.records.unrevoked_tokens import dated_back, parts_of
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.repository.repository import Conflict, Repository, Versioned
from oauthbroker.revocation.pending_revocations import (
    FURTHEST,
    KEPT,
    RevocationOutcome,
    can_tell,
    in_order,
    outcome_by_others,
    with_newer,
)
from oauthbroker.revocation.provider_requests import RevocationRequests
from oauthbroker.revocation.shared_grants import SharedGrants

KEEP_TELLING = timedelta(days=7)  # a refusal is mostly our fault (a wrong secret, a moved endpoint) and gets repaired
ASK_AGAIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke:
    """Revokes grants here and at the provider (RFC 7009). `circuits` count failures of revocations only: a busy
    revocation endpoint does not block token calls."""

    repository: Repository
    provider: RevocationRequests
    clock: Clock
    certain: CertainTime
    audit: AuditWriter
    limits: Limits
    shared_grants: SharedGrants
    circuits: Circuits
    outbox: Notifier
    log: Log

    async def tokens(self, app: App, issued: IssuedTokens, gone: Grant | None = None) -> bool:
        """Revoke each token at the provider, refresh tokens first. Return whether the provider revoked the
        longest-lived one. A failure returns False and raises nothing. With `gone`, the grant that they would have been,
        only while no other one would end with it."""
        may_send = partial(self.shared_grants.is_free, app, gone) if gone is not None else None
        try:
            return await self.provider.tell(app, in_order(issued), may_send) == "done"
        except BrokerError:
            return False

    async def write_tombstone(self, key: GrantKey) -> Versioned[Grant] | None:
        """Write the tombstone of a grant and return it: no process issues its token from then on. None without
        an active grant. `resume` tells the provider."""
        try:
            return await self._write_tombstone(key)
        except Conflict:  # the generation read was outdated
            pass
        return await self._write_tombstone(key)

    async def _write_tombstone(self, key: GrantKey) -> Versioned[Grant] | None:
        async with self.repository.pair(key):
            versioned = await self.repository.grant(key)
            if versioned is None or versioned.record.revoked:
                await self.repository.sync("grants")
                return None
            now = self.clock.now()
            tombstone = versioned.record.tombstoned(now)
            if event := grant_event(tombstone, "auth.revoked", now):
                tombstone = replace(tombstone, outbox=(*tombstone.outbox, event))
            return await to_its_end(asyncio.ensure_future(self._ended(tombstone, versioned.generation)))

    async def _ended(self, tombstone: Grant, generation: int) -> Versioned[Grant]:
        """Store the tombstone and its audit entry. A caller that is cancelled between the two waits for both."""
        versioned = await self.repository.save_grant(tombstone, expect=generation)
        await self.note(GrantEnded(app=tombstone.app, grant=tombstone.id))
        if not tombstone.revocation_pending:
            await self.note(GrantRevoked(app=tombstone.app, grant=tombstone.id, provider="none"))
        return versioned

    async def grant(self, app: App | None, key: GrantKey) -> RevocationOutcome | None:
        """End the grant of a key and return its state at the provider. None without an active grant.

        `app` is None if it is not configured: then the provider hears of it when the app is configured again. The grant
        is unusable as soon as the tombstone is written. A provider that does not answer is told later (`resume`).
        """
        versioned = await self.write_tombstone(key)
        if versioned is None:
            return None
        self.outbox.notify()
        outcome = await self.resume(app, versioned, wait=self.limits.provider_seconds)
        self.outbox.notify()
        return outcome

    async def resume(self, app: App | None, seen: Versioned[Grant], *, wait: float = 0) -> RevocationOutcome:
        """Tell the provider of a tombstone and erase its tokens, or of retired tokens. `later` if this is still
        pending.

        One caller at a time: after waiting `wait` seconds for the provider lease, a caller leaves the work to the one
        that holds it.
        """
        key = seen.record.key
        try:
            async with self.repository.provider_lease(key, wait=wait):
                versioned = await self.repository.grant(key)
                if versioned is not None and versioned.record.revocation_pending:
                    return await self.end_tokens(app, versioned.record)
        except BrokerError as error:
            if error.code is not Code.STORE_LOCKED:
                raise
        return outcome_by_others(await self.repository.grant(key))

    def is_over(self, pending_since: datetime) -> bool:
        """Return whether it is too late to tell a provider that could not be told since then. Goes by certain time: a
        clock that is ahead for a moment erases no token that is still alive at the provider."""
        return self.certain.now() - pending_since >= KEEP_TELLING

    def is_ahead(self, pending_since: datetime) -> bool:
        """Return whether the clock was set back since then: `is_over` would wait until it has caught up."""
        return pending_since > self.clock.now() + SET_BACK

    async def end_tokens(self, app: App | None, grant: Grant) -> RevocationOutcome:
        """End the tokens of each registration. Return the state that is furthest from an end. A part that raises keeps
        no other one."""
        outcome, failed = list[RevocationOutcome](), None
        for part in parts_of(grant):
            try:
                outcome.append(await self._end_part(app, part))
            except BrokerError as error:
                failed = error.with_traceback(None)
        if failed is not None:
            raise failed
        return min(outcome, key=FURTHEST.index, default="done")

    async def _end_part(self, app: App | None, grant: Grant) -> RevocationOutcome:
        """Tell the provider that issued the tokens, even if the app names another one now. A broker without the client
        that they were issued to leaves them to one that has it, until KEEP_TELLING is over."""
        outcome: RevocationOutcome = "none"
        app = None if app is None else app.at(grant.params)
        over = self.is_over(grant.pending_since)
        if self.is_ahead(grant.pending_since):
            now = self.clock.now()
            await self._change(grant, lambda there: dated_back(there, grant.registration, now))
        if app is None or not can_tell(app, grant):
            outcome = "none" if over else "later"
        elif app.revocation.kind != "none":
            outcome, grant = await self._tell_or_leave(app, grant, over=over)
        if outcome == "later":
            return outcome
        if outcome == "refused" and not over:
            return await self._postponed(grant, outcome)
        if await self._change(
            grant, lambda there: there.with_revocation_outcome(grant.ended, self.clock.now(), KEPT[outcome])
        ):
            await self.note(GrantRevoked(app=grant.app, grant=grant.id, provider=outcome))
        return outcome

    async def _postponed(self, grant: Grant, outcome: RevocationOutcome) -> RevocationOutcome:
        again = self.clock.now() + ASK_AGAIN
        await self._change(grant, lambda there: there.with_revocation_retry(again, grant.registration))
        return outcome

    async def _tell_or_leave(self, app: App, grant: Grant, *, over: bool) -> tuple[RevocationOutcome, Grant]:
        """Tell the provider, or leave the tokens to the end of the grant that would end with them. A record that may be
        such a grant and cannot be read is waited for: only an operator can repair it."""
        try:
            sharing = await self._sharing(app, grant)
        except BrokerError as error:
            unread = error.with_traceback(None)
        else:
            if sharing is None:
                return await self._tell_of(app, grant)
            left = await self.shared_grants.leave_to(sharing, grant)
            if left == "full":
                await self.note(GrantRevoked(app=sharing.app, grant=grant_id(*sharing), provider="none"))
            return "later" if left == "ended" else "shared", grant
        if unread.code.retryable:
            raise unread
        await self.note(GrantRevoked(app=grant.app, grant=grant.id, provider="failed"))
        about = {"app": app.name, "grant": grant.id[:15], "code": unread.code.value, "note": unread.note}
        self.log.warning("a revocation waits for a record that cannot be read", **about)
        return "none" if over else await self._postponed(grant, "later"), grant

    async def _sharing(self, app: App, grant: Grant) -> GrantKey | None:
        """Return the key of an active grant that a revocation of these tokens may end, too; None if the provider may be
        told. If a revocation ends everything that the user granted this client, an active grant's retired tokens wait
        for its end, and shared grants for that of the last one."""
        if app.revocation.reach == "token":
            return None
        return await self.shared_grants.living(app, grant) if grant.revoked else grant.key

    async def _may_tell_now(self, app: App, grant: Grant) -> bool:
        """Return whether the provider may be told now. Not while a login is in progress that would share the grant or
        replace it."""
        coming = app.revocation.reach != "token" and await self.shared_grants.is_coming(app, grant)
        return not coming and await self._stands(grant) and await self._sharing(app, grant) is None

    async def _tell_of(self, app: App, grant: Grant) -> tuple[RevocationOutcome, Grant]:
        """Tell the provider of the grant. Return its state there, and the grant with the tokens that were sent. `later`
        also while the circuit is open."""
        own = grant.id if grant.params else ""  # it may have a host of its own, whose trouble is no other grant's
        try:
            self.circuits.check(app.name, own)
        except BrokerError:
            return "later", grant
        app = located(app, grant.provider_data)
        try:
            alive = await self._with_a_living_token(app, grant)
            outcome: RevocationOutcome = "done"
            if alive is not None:
                outcome = await self.provider.tell(app, in_order(alive.ended), lambda: self._may_tell_now(app, alive))
        except BrokerError as error:
            failed = error
        else:
            if outcome == "done":  # else no request was sent
                self.circuits.worked(app.name, own)
            return outcome, alive or grant
        await self.note(GrantRevoked(app=grant.app, grant=grant.id, provider="failed"))
        if failed.code.retryable:
            if self.circuits.failed(app.name, failed, own, own=bool(own)):
                self.log.warning("revocations pause", app=app.name, code=failed.code.value, note=failed.note)
            return "later", grant
        self.circuits.worked(app.name, own)
        code, note = failed.code.value, failed.note
        self.log.warning("a revocation was refused", app=app.name, grant=grant.id[:15], code=code, note=note)
        return "refused", grant

    async def _with_a_living_token(self, app: App, grant: Grant) -> Grant | None:
        """Return the grant with a valid access token, if the provider authenticates revocations by it: an expired one
        is refreshed once more and stored in the tombstone first. None if the refresh token is dead: nothing is left to
        revoke."""
        token, now = grant.token, self.clock.now()
        proves_itself = app.revocation.authenticate == "bearer" and app.revocation.tokens == "access"
        if not proves_itself or grant.revocation != "pending" or token is None:
            return grant
        if token.lives(0, now) and not token.is_from_the_future(now, grant.updated_at):
            return grant
        refresh = grant.refresh_state.spare or token.refresh_token
        if refresh is None:
            return grant
        try:
            fresh = await self.provider.refresh(app, refresh, grant.scopes)
        except RefreshRefused as refused:
            failed = refused
        else:
            newer = fresh.token(now, fresh.refresh_token or refresh)
            refreshed = replace(grant, token=newer, refresh_state=RefreshState())
            await self._change(grant, lambda there: with_newer(there, grant, newer))
            return refreshed
        if failed.code is Code.REAUTH_REQUIRED:
            return None
        raise failed

    async def _stands(self, grant: Grant) -> bool:
        """Return whether the grant is as it was read. A new login may share the grant that these tokens would end."""
        versioned = await self.repository.grant(grant.key)
        found = parts_of(versioned.record) if versioned is not None else ()
        return any((part.registration, part.revoked) == (grant.registration, grant.revoked) for part in found)

    async def _change(self, seen: Grant, change: Callable[[Grant], Grant]) -> bool:
        """Change the record's pending revocations and save it. A new login's own values stay."""
        async with self.repository.pair(seen.key):
            versioned = await self.repository.grant(seen.key)
            if versioned is None or not versioned.record.revocation_pending:
                return False
            try:
                await self.repository.save_grant(change(versioned.record), expect=versioned.generation)
            except Conflict:
                return False
        return True

    async def note(self, entry: GrantEnded | GrantRevoked) -> None:
        """Write the audit entry after the fact: a failing audit log must not keep a grant active."""
        try:
            self.audit.write(entry, self.clock.now())
        except BrokerError as error:
            self.log.warning("the audit log lacks an entry", app=entry.app, code=error.code.value)
