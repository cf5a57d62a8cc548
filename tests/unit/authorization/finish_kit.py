"""A finish, and a session, on a store in memory: for the tests of all that ends an authorization."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from oauthbroker.audit.memory import AuditList
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.waiting_sessions import WaitingSessions
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.owner_check import OwnerFacts
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metrics
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.records import AuthSession, Grant
from oauthbroker.refresh.clients import Clients
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.repository.session_limits import OpenSessions
from oauthbroker.revocation.shared_grants import SharedGrants
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW, app_with, session_with

APP = app_with()
SUBJECT = "acme:user:1"
PAIR = APP.name, SUBJECT
ALICE = "https://acme.example/token", SUBJECT


def tokens_with(access: str = "at-new", refresh: str | None = "rt-new", **changes: Any) -> TokenResponse:
    fields: dict[str, Any] = {"token_type": "bearer", "lifetime_seconds": 600, "scopes": None, "id_token": None}
    kept = Secret(refresh) if refresh is not None else None
    return TokenResponse(**{"access_token": Secret(access), "refresh_token": kept, **fields, **changes})


class WatchedRepository(Repository):
    """A repository whose next saves may fail, before or after the record is stored, and that counts its syncs."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.grant_fails, self.is_stored_first = list[BrokerError](), False
        self.sync_fails, self.synced = 0, list[str]()

    async def save_grant(self, grant: Grant, **more: Any) -> Versioned[Grant]:
        if not self.grant_fails:
            return await super().save_grant(grant, **more)
        if self.is_stored_first:
            await super().save_grant(grant, **more)
        raise self.grant_fails.pop()

    async def sync(self, *kinds: str) -> None:
        self.synced += kinds
        if self.sync_fails:
            self.sync_fails -= 1
            raise BrokerError(Code.STORE_UNAVAILABLE)
        await super().sync(*kinds)


class FinishWorld:
    """The parts of a finish. Its owner reader says who consented, and its revocations are noted."""

    def __init__(self, app: App = APP) -> None:
        self.app, self.clock, self.text = app, TestClock(NOW), io.StringIO()
        self.log, self.audit, self.metrics = json_log(self.text, self.clock), AuditList(), Metrics()
        self.store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock)
        self.repository = WatchedRepository(self.store)
        self.open_sessions, self.clients, self.outbox = OpenSessions(Limits()), Clients(), Notifier()
        self.facts: OwnerFacts | Exception = OwnerFacts(user_identity=SUBJECT)
        self.read_with = list[tuple[Any, ...]]()
        self.revoked, self.is_revoked = list[IssuedTokens](), True
        self.shared_grants = SharedGrants(self.repository, self.clock, {app.name: app})
        others: Any = self
        self.finish = Finish(
            repository=self.repository, waiting=WaitingSessions(self.repository, self.clock), owners=others, facts=others, clock=self.clock, audit=self.audit, metrics=self.metrics,
            open_sessions=self.open_sessions, clients=self.clients, revoke=others, outbox=self.outbox, log=self.log,
        )  # fmt: skip

    async def read(self, app: App, tokens: TokenResponse, nonce: Secret | None, sent_at: Any) -> OwnerFacts:
        self.read_with.append((app.name, tokens, nonce, sent_at))
        if isinstance(self.facts, Exception):
            raise self.facts
        return self.facts

    async def tokens(self, app: App, issued: IssuedTokens, gone: Grant | None = None) -> bool:
        if gone is not None and not await self.shared_grants.is_free(app, gone):
            return False
        self.revoked.append(issued)
        return self.is_revoked

    async def put(self, **changes: Any) -> Versioned[AuthSession]:
        """Store an open session, counted and on its pair's waiting list."""
        session = session_with(**{"config_digest": self.app.config_digest, **changes})
        versioned = await self.repository.save_session(session, expect=0)
        listed = await self.repository.waiting_lists.of(session.app, session.subject)
        await self.repository.waiting_lists.save(listed, [*listed.locators, session.locator])
        self.open_sessions.admit(session.locator, session.app, session.expires_at, self.clock.now())
        return versioned

    async def claimed(self, **changes: Any) -> Versioned[AuthSession]:
        claimed = await self.finish.claim(await self.put(**changes), 60)
        assert claimed is not None
        return claimed

    async def put_grant(self, grant: Grant) -> Versioned[Grant]:
        there = await self.repository.grant(GrantKey(*PAIR))
        return await Repository.save_grant(self.repository, grant, expect=there.generation if there else 0)

    async def session(self, locator: str = "L" * 22) -> AuthSession:
        there = await self.repository.session(locator)
        assert there is not None
        return there.record

    async def grant(self) -> Grant | None:
        there = await self.repository.grant(GrantKey(*PAIR))
        return there.record if there is not None else None

    async def waiting(self) -> list[str]:
        return (await self.repository.waiting_lists.of(*PAIR)).locators

    def counted(self) -> int:
        return self.open_sessions.waiting(self.clock.now()).total()

    def entries(self) -> list[str]:
        return [type(entry).__name__ for _, entry in self.audit.lines]

    def revoked_texts(self) -> list[list[str]]:
        return [_texts(issued.secrets) for issued in self.revoked]


def _texts(secrets: Iterable[Secret]) -> list[str]:
    return [each.reveal() for each in secrets]


def moved_on(versioned: Versioned[AuthSession]) -> AuthSession:
    """Return a next version of the session, as another writer saves it."""
    return replace(versioned.record, presses=versioned.record.presses + 1)
