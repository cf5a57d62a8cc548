"""Ending a grant: tombstone first, then the provider, then the tokens go. And telling it of tokens that we drop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.audit import AuditWriter, GrantEnded, GrantRevoked
from oauthbroker.circuit import Circuits
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.kin import Kin
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.messages import Answer, Request
from oauthbroker.protocol.refresh import RenewalRefused, refresh_request, refresh_response
from oauthbroker.protocol.revoke import Hint, revoke_request, revoke_response, takes
from oauthbroker.protocol.token import TokenResponse
from oauthbroker.records import AgentEvent, Grant, Renewal, Retired, RevocationState, Token, grant_id
from oauthbroker.repository import Conflict, Held, Repository
from oauthbroker.secret import Secret
from oauthbroker.settings import Limits
from oauthbroker.tracing import Span, span

KEEP_TELLING = timedelta(days=7)  # a refusal is mostly ours (a wrong secret, a moved endpoint) and gets mended
ASK_AGAIN = timedelta(hours=1)
Told = Literal["done", "refused", "none", "shared", "later"]
"""What the provider knows: it took note, it refused to (and is asked again for a week), it has no way to be told, it
was not told because another living grant would have ended too, or it will be told later."""

_KEPT: dict[Told, RevocationState] = {"done": "done", "refused": "refused", "shared": "shared", "none": "untold"}
_READ: dict[RevocationState, Told] = {kept: told for told, kept in _KEPT.items()}


@dataclass(frozen=True, slots=True)
class Revoke:
    """Revocation at the provider and here. `circuits` are those of revocations alone: a revocation endpoint that is
    too busy stops nobody from getting tokens. `tell` writes the log."""

    repository: Repository
    asker: Asker
    discovery: Discovery
    clock: Clock
    audit: AuditWriter
    limits: Limits
    kin: Kin
    circuits: Circuits
    wake: Callable[[], None]
    tell: Callable[..., None]

    async def tokens(self, app: OAuthApp, tokens: tuple[Secret, ...]) -> bool:
        """Tells the provider about each token, the refresh token first. True when it took note of what lives longest;
        a failure is an answer here, not an exception."""
        hints: tuple[Hint, ...] = ("refresh_token", "access_token") if len(tokens) > 1 else ("access_token",)
        try:
            return await self._tell(app, list(zip(hints, tokens, strict=False))) == "done"
        except BrokerError:
            return False

    async def late(self, app: OAuthApp, subject: str, *, refresh: Secret | None, access: Secret | None) -> None:
        """Tokens that came for a grant that was ended meanwhile: they end too. They join its tombstone before the
        provider hears of them, so that neither a crash nor a busy provider loses one.

        The caller holds the grant's flight. Tokens below a new login are left alone: they may share its grant.
        """
        held: Held[Grant] | None = None
        code = Code.RECORD_CORRUPT
        try:
            async with self.repository.pair(app.name, subject):
                held = await self.repository.grant(app.name, subject)
                if held is not None and not held.record.revoked:
                    return
                if held is not None:
                    grant = held.record.retiring(refresh, access, self.clock.now())
                    held = await self.repository.save_grant(grant, expect=held.generation)
        except (BrokerError, Conflict) as error:
            held, code = None, error.code if isinstance(error, BrokerError) else Code.STORE_LOCKED
        if held is None:
            await self._late_and_not_kept(app, subject, Retired.of(refresh, access, self.clock.now()), code)
            return
        with suppress(BrokerError):  # they are in the tombstone: whoever comes next goes on
            await self._end(app, held.record)

    async def _late_and_not_kept(self, app: OAuthApp, subject: str, late: Retired, code: Code) -> None:
        """Without the record nobody knows what else would die with them: a new login, or kin. Then only a revocation
        that reaches no further than its token may be told; elsewhere they end with the tombstone's own."""
        told = False
        if app.revocation.reach == "token":
            with suppress(BrokerError):
                told = await self._tell(app, _in_order(late)) == "done"
        grant = grant_id(app.name, subject)[:15]
        self.tell("tokens that came late are not kept", app=app.name, grant=grant, code=code.value, revoked=told)

    async def bury(self, name: str, subject: str) -> Held[Grant] | None:
        """The tombstone of (name, subject): from here on nobody gets its token, in any process. None when no grant
        was alive. Telling the provider is left to `resume`."""
        try:
            return await self._bury(name, subject)
        except Conflict:  # what was read is older than it seemed
            pass
        return await self._bury(name, subject)

    async def _bury(self, name: str, subject: str) -> Held[Grant] | None:
        async with self.repository.pair(name, subject):
            held = await self.repository.grant(name, subject)
            if held is None or held.record.revoked:
                await self.repository.sync("grants")
                return None
            now = self.clock.now()
            tombstone = held.record.tombstoned(now)
            if event := _revoked_event(tombstone, self.clock):
                tombstone = replace(tombstone, outbox=(*tombstone.outbox, event))
            held = await self.repository.save_grant(tombstone, expect=held.generation)
        self._note(GrantEnded(name, held.record.id))
        return held

    async def grant(self, app: OAuthApp | None, name: str, subject: str) -> Told | None:
        """Ends the grant of (name, subject), and says what became of its provider. None when no grant was alive.

        `app` is None when it is not configured: then the provider is told once it is configured again. The grant is
        unusable as soon as the tombstone is written; a provider that does not answer is told later (`resume`).
        """
        held = await self.bury(name, subject)
        if held is None:
            return None
        self.wake()
        told = await self.resume(app, held, wait=self.limits.provider_seconds)
        self.wake()
        return told

    async def resume(self, app: OAuthApp | None, seen: Held[Grant], *, wait: float = 0) -> Told:
        """Tells the provider of a tombstone and erases its tokens, or of retired tokens; `later` when that is left.

        One caller at a time: whoever finds the flight taken for `wait` seconds leaves the work to the other.
        """
        pair = (seen.record.app, seen.record.subject)
        try:
            async with self.repository.flight(*pair, wait=wait):
                held = await self.repository.grant(*pair)
                if held is not None and held.record.to_be_told:
                    return await self._end(app, held.record)
        except BrokerError as error:
            if error.code is not Code.STORE_LOCKED:
                raise
        return told_by_others(await self.repository.grant(*pair))

    async def _end(self, app: OAuthApp | None, grant: Grant) -> Told:
        """Tokens go to the provider that issued them, and to no other one that the app may name by now. A broker that
        does not have the client they were issued to leaves them to one that does, as long as it would ask again."""
        told: Told = "none"
        over = self.clock.now() - _since(grant) >= KEEP_TELLING
        if app is None or not can_tell(app, grant):
            told = "none" if over else "later"
        elif app.revocation.kind != "none":
            told, grant = await self._tell_of(app, grant) if await self._may_tell(app, grant) else ("shared", grant)
        if told == "later" or (told == "refused" and not over):
            if told == "refused":
                await self._change(grant, lambda there: there.not_told_before(self.clock.now() + ASK_AGAIN))
            return told
        if await self._change(grant, lambda there: there.told(grant.ended, self.clock.now(), _KEPT[told])):
            self._note(GrantRevoked(grant.app, grant.id, told))
        return told

    async def _may_tell(self, app: OAuthApp, grant: Grant) -> bool:
        """A revocation that reaches further than its token ends all that the person gave this client: then nothing is
        told of what lies below a living grant, and of a family of grants the last one tells for all."""
        return app.revocation.reach == "token" or (grant.revoked and not await self.kin.living(app, grant))

    async def _may_tell_now(self, app: OAuthApp, grant: Grant) -> bool:
        """Nor while somebody is about to become kin, or to take the grant's place."""
        coming = app.revocation.reach != "token" and await self.kin.is_coming(app, grant)
        return not coming and await self._stands(grant) and await self._may_tell(app, grant)

    async def _tell_of(self, app: OAuthApp, grant: Grant) -> tuple[Told, Grant]:
        """What it knows, and the grant with the tokens that it was told of. `later` too while it is left in peace."""
        try:
            self.circuits.check(app.name)
        except BrokerError:
            return "later", grant
        try:
            alive = await self._with_a_living_token(app, grant)
            told = await self._tell(app, _in_order(alive.ended), alive) if alive is not None else "done"
        except BrokerError as error:
            failed = error
        else:
            if told == "done":  # else nobody was asked
                self.circuits.worked(app.name)
            return told, alive or grant
        self._note(GrantRevoked(grant.app, grant.id, "failed"))
        if failed.retryable:
            if self.circuits.failed(app.name, failed):
                self.tell("revocations pause", app=app.name, code=failed.code.value, note=failed.note)
            return "later", grant
        self.circuits.worked(app.name)
        code, note = failed.code.value, failed.note
        self.tell("a revocation was refused", app=app.name, grant=grant.id[:15], code=code, note=note)
        return "refused", grant

    async def _tell(self, app: OAuthApp, tokens: list[tuple[Hint, Secret]], grant: Grant | None = None) -> Told:
        """RFC 7009 section 2.1, or the app's own way. `done` when the provider took note of the token that lives
        longest, `none` where it has no way to be told of it, `later` when a new login has taken `grant`'s place, has
        become its kin, or may be about to. Raises what the provider's answer means."""
        with span(Span.REVOKE, app=app.name) as spanned:
            told = await self._tell_each(app, tokens, grant)
            spanned.set(outcome=told)
            return told

    async def _tell_each(self, app: OAuthApp, tokens: list[tuple[Hint, Secret]], grant: Grant | None) -> Told:
        wanted = [(hint, token) for hint, token in tokens if takes(app.revocation, hint)]
        endpoints = await self.discovery.endpoints(app)
        if not wanted or not endpoints.revoke_url:
            return "none"
        took_note = []
        for hint, token in wanted:
            if grant is not None and not await self._may_tell_now(app, grant):
                return "later"
            answer = await self._ask(app, endpoints, token, hint)
            took_note.append(revoke_response(app, answer))
        return "done" if took_note[0] else "none"

    async def _ask(self, app: OAuthApp, endpoints: Endpoints, token: Secret, hint: Hint) -> Answer:
        """A token that is its own proof is not shown again because our client has several secrets."""
        if app.revocation.authenticate == "bearer":
            app = replace(app, client=replace(app.client, later_secrets=()))

        def build(known: OAuthApp) -> Request:
            return revoke_request(known, endpoints, token, hint, clock=self.clock)

        return await self.asker.ask(app, build, kind="revoke")

    async def _with_a_living_token(self, app: OAuthApp, grant: Grant) -> Grant | None:
        """Where a token proves itself, an expired one can end nothing while its refresh token lives on: it is renewed
        once more, kept in the tombstone, and ended. None when the refresh token is dead: nothing is left to end."""
        token, now = grant.token, self.clock.now()
        proves_itself = app.revocation.authenticate == "bearer" and app.revocation.tokens == "access"
        if not proves_itself or grant.revocation != "pending" or token is None or token.lives(0, now):
            return grant
        refresh = grant.renewal.spare or token.refresh_token
        if refresh is None:
            return grant
        try:
            fresh = await self._renewed(app, refresh, grant.scopes)
        except RenewalRefused as refused:
            failed = refused
        else:
            ends = None if fresh.lifetime_seconds is None else now + timedelta(seconds=fresh.lifetime_seconds)
            newer = Token(fresh.access_token, token.token_type, fresh.refresh_token or refresh, ends)
            renewed = replace(grant, token=newer, renewal=Renewal())
            await self._change(
                grant, lambda there: replace(renewed, outbox=there.outbox) if there.token == token else there
            )
            return renewed
        if failed.code is Code.REAUTH_REQUIRED:
            return None
        raise failed

    async def _renewed(self, app: OAuthApp, refresh: Secret, scopes: tuple[str, ...]) -> TokenResponse:
        endpoints = await self.discovery.endpoints(app)

        def build(known: OAuthApp) -> Request:
            return refresh_request(known, endpoints, refresh, clock=self.clock, scopes=scopes)

        return refresh_response(app, await self.asker.ask(app, build, kind="refresh"))

    async def _stands(self, grant: Grant) -> bool:
        """A new login meanwhile may share what would die with these tokens."""
        held = await self.repository.grant(grant.app, grant.subject)
        return held is not None and held.record.revoked == grant.revoked

    async def _change(self, seen: Grant, change: Callable[[Grant], Grant]) -> bool:
        """A new login meanwhile keeps what is its own: only what is still to be told is touched."""
        async with self.repository.pair(seen.app, seen.subject):
            held = await self.repository.grant(seen.app, seen.subject)
            if held is None or not held.record.to_be_told:
                return False
            try:
                await self.repository.save_grant(change(held.record), expect=held.generation)
            except Conflict:
                return False
        return True

    def _note(self, entry: GrantEnded | GrantRevoked) -> None:
        """After the fact: a log that cannot be written must not keep a grant alive."""
        try:
            self.audit.write(entry, self.clock.now())
        except BrokerError as error:
            self.tell("the audit log lacks an entry", app=entry.app, code=error.code.value)


def can_tell(app: OAuthApp | None, grant: Grant) -> bool:
    """Whether `app` is configured with the client that the grant's tokens were issued to. Another worker may have it
    when this one does not: during a reload, or after a client id was mistyped."""
    return app is not None and app.registration == grant.registration


def told_by_others(held: Held[Grant] | None) -> Told:
    """What became of a grant's provider, for who finds that somebody else was quicker. A login that took the grant's
    place has left nothing to be told of."""
    if held is None or not held.record.revoked:
        return "done" if held is None or not held.record.to_be_told else "later"
    return "later" if held.record.to_be_told else _READ.get(held.record.revocation, "done")


def _since(grant: Grant) -> datetime:
    return grant.ended.since if grant.ended is not None else grant.updated_at


def _in_order(ended: Retired | None) -> list[tuple[Hint, Secret]]:
    """Refresh tokens first: they live on."""
    refresh, access = (ended.refresh, ended.access) if ended is not None else ((), ())
    return [*(("refresh_token", token) for token in refresh), *(("access_token", token) for token in access)]


def _revoked_event(grant: Grant, clock: Clock) -> AgentEvent | None:
    """`auth.revoked` goes to whoever last waited for this grant."""
    if grant.resume is None or grant.auth_session_id is None:
        return None
    payload = {
        "oauthAppRef": {"kind": "OAuthApp", "name": grant.app},
        "provider": grant.provider,
        "subject": grant.subject,
        "authSessionId": grant.auth_session_id,
        "grantId": grant.id,
    }
    return AgentEvent.about(grant.auth_session_id, "auth.revoked", grant.resume, payload, clock.now())
