"""A static credential that an API refused: whether it is checked, noted, or left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.static_credential import CredentialField, Placement, StaticCredential, Verification
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.tokens.credential_rejections import CHECKED_SECONDS, CredentialRejections
from tests.kit.samples import NOW, app_with, grant_with, token_with

KEY = GrantKey("mail", "acme:user:1")
TOKEN = token_with(None)
CREDENTIAL = StaticCredential(
    fields=(CredentialField(name="key", title="Key"),),
    placement=Placement(kind="headers", texts={"X-Api-Key": "{key}"}),
    verification=Verification(path="/me"),
)


class World:
    """A grant with a credential, and a provider that finds it good or raises `failure`."""

    def __init__(self, credential: StaticCredential = CREDENTIAL) -> None:
        self.app, self.clock = app_with(credential=credential), TestClock(NOW, frozen=True)
        self.repository = Repository(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock))
        self.failure: Code | None = None
        self.checks = 0
        checks: Any = self
        self.rejections = CredentialRejections(repository=self.repository, checks=checks, clock=self.clock)

    async def owner_of(self, app: App, packed: Secret) -> None:
        assert (self.app, TOKEN.access_token) == (app, packed)
        self.checks += 1
        if self.failure is not None:
            raise BrokerError(self.failure)

    async def connected(self) -> None:
        await self.repository.save_grant(grant_with(token=TOKEN), expect=0)

    async def report(self, credential: Secret = TOKEN.access_token) -> tuple[int, bool]:
        """Report it. Return how often the provider was asked so far, and whether the grant is rejected."""
        await self.rejections.report(self.app, KEY, credential)
        there = await self.repository.grant(KEY)
        return self.checks, there is not None and there.record.rejected


async def test_a_credential_that_its_check_finds_good_is_kept_and_checked_again_after_a_minute() -> None:
    world = World()
    await world.connected()
    for seconds, checks in ((0, 1), (CHECKED_SECONDS - 1, 1), (1, 2), (CHECKED_SECONDS, 3)):
        world.clock.advance(seconds)
        assert (checks, False) == await world.report()


@pytest.mark.parametrize(
    ("failure", "is_rejected"), [(Code.CREDENTIAL_REFUSED, True), (Code.CREDENTIAL_UNCHECKED, False)]
)
async def test_a_credential_is_rejected_if_its_check_refuses_it_for_certain(failure: Code, is_rejected: bool) -> None:
    world = World()
    await world.connected()
    world.failure = failure
    assert (1, is_rejected) == await world.report()
    assert (1 if is_rejected else 2, is_rejected) == await world.report()


async def test_a_credential_without_a_check_is_rejected_at_once() -> None:
    world = World(replace(CREDENTIAL, verification=None))
    await world.connected()
    assert (0, True) == await world.report()


async def test_a_report_of_another_credential_or_without_a_grant_is_left_alone() -> None:
    world = World()
    assert (0, False) == await world.report()
    await world.connected()
    assert (0, False) == await world.report(Secret("another"))
