"""The machine stops, or the caller leaves, at any point between a press of the button and the event of its credential.

On every disk that this may leave the credential is there with its event, once, or the person can type it again at the
same link: no key is used up by being typed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.repository.repository import PAIR_WAIT_SECONDS
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.stores import open_keyring
from tests.faults.cancel_drive import Driven, Plan
from tests.faults.crash_kit import CrashAtChange
from tests.faults.key_stories import (
    before_another,
    before_key,
    has_key,
    key_app,
    typed,
    used,
    wants_key,
    with_key,
)
from tests.kit.broker_process import CHANGING, Process
from tests.kit.crashfs import Crash, HookedFs
from tests.kit.forms import swept

MOST_CHANGES, MOST_AWAITS = 150, 200
AFTER_CLAIM = 61 + PAIR_WAIT_SECONDS
PREPARED = {"the first": before_key, "one that replaces a refused one": before_another}


async def looked_at(process: Process, known: Any) -> bool:
    """Whether it had been stored. What the person finds a minute later, when a dead worker's claim has lapsed."""
    stored = await has_key(process, known)
    process.clock.advance(AFTER_CLAIM)
    if not stored:
        await typed(process, known)
        assert await has_key(process, known)
    else:
        with pytest.raises(BrokerError) as caught:
            await typed(process, known)
        assert Code.STATE_UNKNOWN is caught.value.code
    await process.drain()
    granted = [each for each in process.heard.received if "auth.granted" in each]
    assert len(granted) == len(set(granted))
    assert granted
    return stored


@pytest.mark.slow
@pytest.mark.case("63", "93")
@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
async def test_a_crash_at_any_change_keeps_the_key_with_its_event_or_lets_it_be_typed_again(
    identity_provider: IdentityProvider, tmp_path: Path, prepare: Any
) -> None:
    outcomes, changes = set[bool](), 0
    for number in swept(MOST_CHANGES):
        place = tmp_path / str(number)
        place.mkdir()
        ring, apps, root = open_keyring(place), [key_app(identity_provider)], place / "store"
        process = Process.start(root, ring, apps, identity_provider.clock.now())
        known = await prepare(process, identity_provider)
        await process.tend()
        await process.drain()
        at = process.clock.now()
        await process.die()
        fs = CrashAtChange(root)
        process = Process.start(root, ring, apps, at, fs)
        fs.arm(number)
        try:
            await typed(process, known)
        except Crash:
            assert fs.fired
        (clone,) = fs.clones(place / "clones", only=["clone-0-0.0"])
        later = Process.start(clone, ring, apps, at)
        outcomes.add(await looked_at(later, known))
        await later.die()
        fs.restore()
        await process.die()
        shutil.rmtree(place)
        changes = number
        if fs.fired is None:
            break
    assert {True, False} == outcomes
    assert changes > 10


@pytest.mark.slow
@pytest.mark.case("63", "93")
async def test_a_crash_at_any_change_of_a_refusal_is_made_good_by_the_next_request(
    identity_provider: IdentityProvider, tmp_path: Path
) -> None:
    for number in swept(MOST_CHANGES):
        place = tmp_path / str(number)
        place.mkdir()
        ring, apps, root = open_keyring(place), [key_app(identity_provider)], place / "store"
        process = Process.start(root, ring, apps, identity_provider.clock.now())
        known = await with_key(process, identity_provider)
        at = process.clock.now()
        await process.die()
        fs = CrashAtChange(root)
        process = Process.start(root, ring, apps, at, fs)
        fs.arm(number)
        try:
            await used(process, known)
        except Crash:
            assert fs.fired
        (clone,) = fs.clones(place / "clones", only=["clone-0-0.0"])
        later = Process.start(clone, ring, apps, at)
        for _ in range(2):
            assert "keyRejected" == (await used(later, known)).reason
        await later.die()
        fs.restore()
        await process.die()
        shutil.rmtree(place)
        if fs.fired is None:
            break
    assert number > 5


@pytest.mark.slow
@pytest.mark.case("63", "93")
async def test_cancelled_at_any_await_an_entry_is_stored_once_or_can_be_made_again(
    identity_provider: IdentityProvider, tmp_path: Path
) -> None:
    """A browser that goes away while the provider is asked."""
    ring, app, outcomes = open_keyring(tmp_path), key_app(identity_provider), set[bool]()
    for at in range(MOST_AWAITS):
        process = Process.start(tmp_path / str(at), ring, [app], identity_provider.clock.now())
        known = await before_key(process, identity_provider)
        entry, there = process.parts.pages.service.credential_entry, app.at({})
        driven = Driven(entry.store(there, known[0], {"apiKey": known[1]}, "", None), Plan(at + 1, "now"))
        task = asyncio.create_task(alone(driven))
        await asyncio.wait([task], timeout=30)
        assert task.done()
        await entry.exchange.close()  # the entry under way ends
        await process.die()
        process = Process.start(tmp_path / str(at), ring, [app], process.clock.now())
        outcomes.add(await looked_at(process, known))
        assert await wants_key(process) is None
        await process.die()
        if not driven.asked:
            assert task.exception() is None
            break
    assert {True, False} == outcomes
    assert at < MOST_AWAITS - 5


async def alone(driven: Driven) -> Any:
    return await driven


class Refusing(HookedFs):
    """A disk that takes no change while `error` is set."""

    error = 0

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if self.error and call in CHANGING:
            raise OSError(self.error, os.strerror(self.error))
        return run()


@pytest.mark.case("49")
@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC], ids=errno.errorcode.get)
async def test_a_disk_that_takes_nothing_leaves_the_key_to_be_typed_again(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, error: int
) -> None:
    ring, disk = open_keyring(tmp_path), Refusing()
    process = Process.start(tmp_path, ring, [key_app(identity_provider)], test_clock.now(), disk)
    known = await before_key(process, identity_provider)
    disk.error = error
    with pytest.raises(BrokerError) as caught:
        await typed(process, known)
    assert Code.STORE_UNAVAILABLE is caught.value.code
    assert known[1] not in str(caught.value)
    disk.error = 0
    assert isinstance(await wants_key(process), AuthorizationRequired)
    await typed(process, known)
    assert await has_key(process, known)
    disk.error = error
    assert 200 == await used(process, [identity_provider.url("/userinfo")]), "a stored key is used all the same"
    disk.error = 0
    await process.die()
