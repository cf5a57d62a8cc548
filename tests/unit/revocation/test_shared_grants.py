"""Looking for kin: one look serves a row of revocations, however many grants there are, and no login is overlooked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.records import Grant
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.revocation.shared_grants import REST, SharedGrants
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, TEAM, global_app
from tests.unit.records import kit

SCAN_SECONDS = 5.0


class Slow(Repository):
    """Each scan takes a while; `gate` holds it up after the first grant, `fails` makes it stop there."""

    def __init__(self, store: MemoryStore, clock: TestClock) -> None:
        super().__init__(store)
        self.clock = clock
        self.scans = 0
        self.gate: asyncio.Event | None = None
        self.half_way = asyncio.Event()
        self.fails = False

    async def grants(self) -> AsyncIterator[Versioned[Grant]]:
        self.scans += 1
        async for held in super().grants():
            yield held
            self.half_way.set()
            if self.fails:
                raise BrokerError(Code.STORE_UNAVAILABLE)
            if self.gate is not None:
                await self.gate.wait()
        self.clock.advance(SCAN_SECONDS)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def repository(clock: TestClock) -> Slow:
    return Slow(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock), clock)


@pytest.fixture
def kin(repository: Slow, clock: TestClock) -> SharedGrants:
    return SharedGrants(repository, clock)


@pytest.fixture
def app(identity_provider: IdentityProvider):
    return global_app(identity_provider)


def of(subject: str, by: str | None = ALICE, app: str = "team") -> Grant:
    return replace(kit.grant(), app=app, subject=subject, authorized_by=by, registration="client")


def ended(grant: Grant) -> Grant:
    return grant.tombstoned(kit.UPDATED)


async def login(kin: SharedGrants, repository: Repository, grant: Grant) -> None:
    """What the end of a flow does."""
    kin.learn(grant)
    await repository.save_grant(grant, expect=0)


@pytest.mark.parametrize(
    "living, are_kin",
    [
        (of("idp:team:T222"), True),
        (of(TEAM, by="idp:user:bob", app="bot"), True),
        (of(TEAM, by=None, app="bot"), True),
        (of("idp:team:T222", by="idp:user:bob"), False),
        (of(ALICE, by=None, app="own"), True),
        (replace(of(TEAM, app="bot"), registration="another client"), False),
        (replace(of(TEAM, app="bot"), flow="client_credentials"), False),
        (ended(of(TEAM, app="bot")), False),
    ],
    ids=[
        "by one person", "of one team", "of one team, by nobody knows whom", "strangers",
        "her own, not read who agreed", "another client", "a machine's", "ended",
    ],
)  # fmt: skip
async def test_kin_have_the_client_and_somebody_in_common(kin, repository, app, living, are_kin):
    await repository.save_grant(living, expect=0)
    assert are_kin == await kin.living(app, ended(of(TEAM)))


async def test_a_row_of_revocations_scans_a_tenth_of_its_time(kin, repository, clock, app):
    began, asked = clock.monotonic(), 0
    while clock.monotonic() - began < 1000:
        assert not await kin.living(app, ended(of(TEAM)))
        asked += 1
        clock.advance(0.5)
    assert asked > 1000
    assert repository.scans <= 1000 / (SCAN_SECONDS * (REST + 1)) + 1


async def test_a_login_of_this_broker_is_known_at_once_without_another_scan(kin, repository, app):
    assert not await kin.living(app, ended(of(TEAM)))
    await login(kin, repository, of("idp:team:T222"))
    assert await kin.living(app, ended(of(TEAM)))
    assert 1 == repository.scans


async def test_a_login_of_another_broker_is_found_by_the_next_scan(kin, repository, clock, app):
    assert not await kin.living(app, ended(of(TEAM)))
    await repository.save_grant(of("idp:team:T222"), expect=0)
    clock.advance(SCAN_SECONDS * REST)
    assert await kin.living(app, ended(of(TEAM)))


async def test_a_login_of_another_broker_for_the_same_subject_is_found_at_once(repository, clock, app):
    kin = SharedGrants(repository, clock, {"team": app, "bot": replace(app, name="bot")})
    one = replace(ended(of(TEAM)), registration=app.registration)
    assert not await kin.living(app, one)
    await repository.save_grant(replace(of(TEAM, by=None, app="bot"), registration=app.registration), expect=0)
    assert await kin.living(app, one)
    assert 1 == repository.scans


async def test_a_login_while_the_scan_is_under_way_is_not_lost(kin, repository, app):
    """The scan has gone past its place."""
    await repository.save_grant(of("idp:team:T333", by="idp:user:bob"), expect=0)
    repository.gate = asyncio.Event()
    looking = asyncio.create_task(kin.living(app, ended(of(TEAM))))
    await repository.half_way.wait()
    await login(kin, repository, of("idp:team:T222"))
    repository.gate.set()
    assert await looking


async def test_a_scan_that_failed_half_way_is_no_answer(kin, repository, app):
    await repository.save_grant(of("idp:team:T333", by="idp:user:bob"), expect=0)
    await repository.save_grant(of("idp:team:T222"), expect=0)
    repository.fails = True
    with pytest.raises(BrokerError) as failed:
        await kin.living(app, ended(of(TEAM)))
    assert Code.STORE_UNAVAILABLE is failed.value.code
    repository.fails = False
    assert await kin.living(app, ended(of(TEAM)))


async def test_many_who_ask_at_once_share_a_scan(kin, repository, app):
    assert [False] * 20 == await asyncio.gather(*(kin.living(app, ended(of(TEAM))) for _ in range(20)))
    assert 1 == repository.scans
