"""A record that is not due costs a background round one look at its file's times: no read, no lease."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant
from oauthbroker.records.refresh_state import Intent, RefreshState
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import Process
from tests.kit.crashfs import CountingFs
from tests.kit.running_broker import user_app
from tests.unit.records import kit

MANY = 60
OPENING = ("open_file", "read", "create_file", "open_lock", "try_lock", "rename", "link", "unlink", "fsync")
Round = Callable[[Process], Awaitable[Any]]
Make = Callable[[Process, str, datetime], Grant]

ROUNDS: dict[str, Round] = {
    "relay": lambda process: process.parts.relay.once(),
    "revocations": lambda process: process.parts.bulk_revocation.run_pass(),
    "open refreshes": lambda process: process.parts.background_refresh.recover(),
}


@pytest.fixture
async def process(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Process]:
    process = Process.start(
        tmp_path / "store",
        open_keyring(tmp_path),
        [user_app(identity_provider)],
        identity_provider.clock.now(),
        fs=CountingFs(),
    )
    yield process
    await process.die()


def tombstone(process: Process, subject: str, now: datetime) -> Grant:
    app = process.broker.bundle.apps["mail"]
    living = kit.grant(app="mail", subject=subject, registration=app.registration, outbox=(), updated_at=now)
    return living.tombstoned(now)


def refused(process: Process, subject: str, now: datetime) -> Grant:
    return tombstone(process, subject, now).with_revocation_retry(now + timedelta(hours=1))


def of_another_client(process: Process, subject: str, now: datetime) -> Grant:
    return replace(tombstone(process, subject, now), registration="another client")


def of_an_unknown_app(process: Process, subject: str, now: datetime) -> Grant:
    return replace(tombstone(process, subject, now), app="removed")


def of_a_busy_provider(process: Process, subject: str, now: datetime) -> Grant:
    process.parts.revoke.circuits.failed("mail", BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=600))
    return tombstone(process, subject, now)


def with_a_lost_answer(process: Process, subject: str, now: datetime) -> Grant:
    living = replace(tombstone(process, subject, now), revoked=False, revocation="none")
    return replace(living, refresh_state=RefreshState(intent=Intent("lost", now, lost=9, noticed=True)))


async def settled(process: Process, make: Make) -> Repository:
    """The grants are stored, and every round has looked at each of them."""
    repository, now = Repository(process.store), process.clock.now()
    await repository.event_order.next(now)  # there has been an event
    for number in range(MANY):
        await repository.save_grant(make(process, f"slack:user:T1:U{number}", now), expect=0)
    for _ in range(3):
        for once in ROUNDS.values():
            await once(process)
        await asyncio.sleep(0.03)  # file times tell versions apart after a tick
    return repository


async def cost(process: Process, once: Round) -> Counter[str]:
    fs: Any = process.store._fs
    fs.calls.clear()
    await once(process)
    return Counter(fs.calls)


@pytest.mark.case("77")
@pytest.mark.parametrize(
    "make",
    [refused, of_another_client, of_an_unknown_app, of_a_busy_provider, with_a_lost_answer],
    ids=lambda each: each.__name__,
)
async def test_a_pass_opens_nothing_that_is_not_due(process: Process, make: Make) -> None:
    await settled(process, make)
    for name, once in ROUNDS.items():
        calls = await cost(process, once)
        opened = {call: calls[call] for call in OPENING if calls[call]}

        assert {} == opened, name
        assert calls["stat"] <= MANY + 1, name  # and one of the last event's number
        assert calls["listdir"] <= 1, name


@pytest.mark.case("77")
async def test_what_becomes_due_is_opened_in_that_pass(process: Process, identity_provider: IdentityProvider) -> None:
    """The clock moves on, the provider takes note; and nothing is left."""
    await settled(process, refused)
    process.clock.advance(3601)
    await process.parts.bulk_revocation.run_pass()
    assert 2 * MANY == identity_provider.count("revoke")
    await process.parts.relay.once()
    assert 0 == await process.store.count("due")


@pytest.mark.case("77")
async def test_what_another_process_changes_is_opened_again(process: Process, start_other: Process) -> None:
    repository = await settled(process, refused)
    versioned = await Repository(start_other.store).grant(GrantKey("mail", "slack:user:T1:U7"))
    assert versioned is not None
    await Repository(start_other.store).save_grant(
        replace(versioned.record, tell_after=None), expect=versioned.generation
    )
    await process.parts.bulk_revocation.run_pass()
    changed = await repository.grant(GrantKey("mail", "slack:user:T1:U7"))
    assert changed is not None
    assert not changed.record.revocation_pending


@pytest.fixture
async def start_other(process: Process, identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Process]:
    other = Process.start(
        tmp_path / "store", open_keyring(tmp_path), [user_app(identity_provider)], identity_provider.clock.now()
    )
    yield other
    await other.die()
