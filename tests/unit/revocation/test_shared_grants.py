"""Shared grants: only grants of the people concerned are read, and no login is overlooked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.records import Grant
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.repository.versioned import Unread
from oauthbroker.revocation.shared_grants import SharedGrants
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, TEAM, global_app
from tests.unit.records import kit


class Counting(Repository):
    """Counts the grants that are opened by their tags, and refuses to read all of them."""

    opened = 0

    async def grants(self) -> AsyncIterator[Versioned[Grant]]:
        raise AssertionError
        yield

    async def grants_with(self, who: str, unread: Unread | None = None) -> AsyncIterator[Versioned[Grant]]:
        async for versioned in super().grants_with(who, unread):
            self.opened += 1
            yield versioned


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def repository(clock: TestClock) -> Counting:
    return Counting(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock))


@pytest.fixture
def shared_grants(repository: Counting, clock: TestClock) -> SharedGrants:
    return SharedGrants(repository, clock)


@pytest.fixture
def app(identity_provider: IdentityProvider):
    return global_app(identity_provider)


def of(subject: str, by: str | None = ALICE, app: str = "team") -> Grant:
    return replace(kit.grant(), app=app, subject=subject, authorized_by=by, registration="client")


def ended(grant: Grant) -> Grant:
    return grant.tombstoned(kit.UPDATED)


@pytest.mark.parametrize(
    "living, are_shared",
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
        "by one person", "of one team", "of one team, by an unknown user", "strangers",
        "her own, not read who agreed", "another client", "a machine's", "ended",
    ],
)  # fmt: skip
async def test_shared_grants_have_the_client_and_a_person_in_common(shared_grants, repository, app, living, are_shared):
    await repository.save_grant(living, expect=0)
    assert (living.key if are_shared else None) == await shared_grants.living(app, ended(of(TEAM)))
    assert are_shared is not await shared_grants.is_free(app, of(TEAM)), "tokens that are in no record"


async def test_tokens_in_no_record_are_not_free_while_the_grant_of_their_own_place_lives(
    shared_grants: SharedGrants, repository: Counting, app: App
) -> None:
    own = replace(of(TEAM, by="idp:user:bob"), registration="another client")
    versioned = await repository.save_grant(own, expect=0)
    assert not await shared_grants.is_free(app, of(TEAM))
    await repository.save_grant(ended(own), expect=versioned.generation)
    assert await shared_grants.is_free(app, of(TEAM))


async def test_a_look_opens_only_grants_of_the_people_concerned(shared_grants, repository, app):
    for number in range(200):
        await repository.save_grant(of(f"idp:team:X{number}", by=f"idp:user:{number}"), expect=0)
    assert not await shared_grants.living(app, ended(of(TEAM)))
    assert 0 == repository.opened
    await repository.save_grant(of("idp:team:T222"), expect=0)
    assert await shared_grants.living(app, ended(of(TEAM)))
    assert 1 == repository.opened


async def test_a_login_of_another_broker_is_found_at_once(shared_grants, repository, app):
    assert not await shared_grants.living(app, ended(of(TEAM)))
    await repository.save_grant(of("idp:team:T222"), expect=0)
    assert await shared_grants.living(app, ended(of(TEAM)))


async def test_a_grant_that_another_person_agreed_to_since_is_not_shared(shared_grants, repository, app):
    versioned = await repository.save_grant(of("idp:team:T222"), expect=0)
    assert await shared_grants.living(app, ended(of(TEAM)))
    await repository.save_grant(of("idp:team:T222", by="idp:user:bob"), expect=versioned.generation)
    assert not await shared_grants.living(app, ended(of(TEAM)))
    assert await shared_grants.living(app, ended(of(TEAM, by="idp:user:bob")))


async def test_tokens_that_were_left_before_are_durable_when_they_are_left_again(
    shared_grants, repository, monkeypatch
):
    living, other = of("idp:team:T222"), ended(of(TEAM))
    await repository.save_grant(living, expect=0)
    assert "left" == await shared_grants.leave_to(living.key, other)
    kept = await repository.grant(living.key)

    async def failing(kind: str) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE, note=kind)

    monkeypatch.setattr(repository, "sync", failing)
    with pytest.raises(BrokerError) as refused:
        await shared_grants.leave_to(living.key, other)
    assert "grants" == refused.value.note
    assert kept == await repository.grant(living.key)


async def unreadable(repository: Counting, grant: Grant) -> None:
    """A newer version has written this grant."""
    versioned = await repository.save_grant(grant, expect=0)
    body = versioned.entry.body.replace(b'"schema":1', b'"schema":2')
    await repository._store.put(versioned.entry.key, body, expect=versioned.generation)


@pytest.mark.case("53")
async def test_a_grant_that_is_found_by_the_account_alone_may_be_shared_although_it_cannot_be_read(
    shared_grants, repository, app
):
    await unreadable(repository, of("idp:team:T222"))
    with pytest.raises(BrokerError) as refused:
        await shared_grants.living(app, ended(of(TEAM)))
    assert Code.RECORD_CORRUPT is refused.value.code
    await repository.save_grant(of("idp:team:T333"), expect=0)
    assert await shared_grants.living(app, ended(of(TEAM))), "another one decides"


@pytest.mark.case("53")
async def test_an_unreadable_grant_of_another_client_delays_nothing(shared_grants, repository, app):
    await unreadable(repository, of(ALICE, app="calendar"))
    assert not await shared_grants.living(app, ended(of(TEAM)))
