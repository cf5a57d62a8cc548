"""A token that a client gets for itself: which grant it replaces, and what becomes of one that came too late."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.records import Grant
from oauthbroker.refresh.client_credentials import ClientCredentials
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW, app_with, grant_with, token_with

APP = app_with(flow="clientCredentials")
KEY = GrantKey("mail", "acme:user:1")
OLD = replace(grant_with(token=token_with(0), registration=APP.registration), flow="client_credentials")


async def _nothing() -> None:
    return None


class World:
    """A store in memory, and a provider that answers with a token once `meanwhile` is over."""

    def __init__(self) -> None:
        self.clock, self.audit = TestClock(NOW, frozen=True), AuditList()
        self.repository = Repository(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock))
        self.answer: dict[str, Any] = {"access_token": "at-2", "token_type": "Bearer", "expires_in": 3600}
        self.meanwhile: Callable[[], Awaitable[object]] = _nothing
        self.late = list[str]()
        provider: Any = self
        self.fetch = ClientCredentials(
            repository=self.repository, asker=provider, discovery=provider, late=self.is_late, clock=self.clock,
            audit=self.audit,
        )  # fmt: skip

    async def endpoints(self, app: App) -> Endpoints:
        return app.endpoints

    async def ask(self, app: App, build: Callable[[App], object], *, kind: str) -> ProviderResponse:
        assert (build(app) is not None, "fetch") == (True, kind)
        await self.meanwhile()
        return ProviderResponse(
            status=200, content_type="application/json", retry_after=None, body=json.dumps(self.answer).encode()
        )

    async def is_late(
        self, app: App, key: GrantKey, *, refresh: Secret | None, access: Secret | None, **_: Any
    ) -> None:
        assert (None, True) == (refresh, access is not None)
        self.late += [access.reveal()] if access is not None else []

    async def put(self, grant: Grant) -> Versioned[Grant]:
        there = await self.repository.grant(KEY)
        return await self.repository.save_grant(grant, expect=there.generation if there is not None else 0)

    async def stored(self) -> Grant:
        there = await self.repository.grant(KEY)
        assert there is not None
        return there.record


def access_of(grant: Grant | None) -> str:
    assert grant is not None
    assert grant.token is not None
    return grant.token.access_token.reveal()


async def test_the_first_token_of_an_app_is_stored_as_its_grant() -> None:
    world = World()
    fetched = await world.fetch(RefreshJob(app=APP, key=KEY, seen=None), None)
    assert ("at-2", NOW) == (access_of(fetched), fetched.created_at if fetched is not None else None)
    assert (fetched, []) == (await world.stored(), world.late)


async def test_the_next_token_replaces_the_one_before_in_the_same_grant() -> None:
    world = World()
    seen = await world.put(OLD)
    fetched = await world.fetch(RefreshJob(app=APP, key=KEY, seen=seen), seen)
    assert ("at-2", OLD.id) == (access_of(fetched), fetched.id if fetched is not None else None)
    assert (fetched, [], []) == (await world.stored(), world.late, world.audit.lines)


@pytest.mark.parametrize("is_first", [True, False])
async def test_the_grant_of_a_writer_that_was_faster_stays_and_is_returned(is_first: bool) -> None:
    world, other = World(), replace(OLD, token=token_with(3600))
    seen = None if is_first else await world.put(OLD)

    async def meanwhile() -> None:
        await world.put(other)

    world.meanwhile = meanwhile
    assert other == await world.fetch(RefreshJob(app=APP, key=KEY, seen=seen), seen)
    assert (other, []) == (await world.stored(), world.late)


@pytest.mark.parametrize("is_erased", [True, False])
async def test_a_token_that_comes_after_the_grants_end_is_revoked(is_erased: bool) -> None:
    world = World()
    seen = await world.put(OLD)

    async def meanwhile() -> None:
        there = await world.put(OLD.tombstoned(NOW))
        if is_erased:
            await world.repository.erase_grant(there)

    world.meanwhile = meanwhile
    fetched = await world.fetch(RefreshJob(app=APP, key=KEY, seen=seen), seen)
    assert (["at-2"], True) == (world.late, fetched is None or fetched.revoked)


async def test_a_forced_refresh_counts_although_the_rejected_token_comes_back() -> None:
    world = World()
    seen = await world.put(OLD)
    with pytest.raises(BrokerError) as refused:
        await world.fetch(RefreshJob(app=APP, key=KEY, seen=seen, rejected=Secret("at-2")), seen)
    assert Code.TOKEN_UNCHANGED is refused.value.code
    assert (NOW,) == (await world.stored()).refresh_state.forced


async def test_a_forced_refresh_that_another_writer_overtakes_asks_for_no_token() -> None:
    world = World()
    seen = await world.put(OLD)
    other = (await world.put(replace(OLD, token=token_with(3600)))).record
    assert other == await world.fetch(RefreshJob(app=APP, key=KEY, seen=seen, early=True), seen)
    assert [] == world.late
