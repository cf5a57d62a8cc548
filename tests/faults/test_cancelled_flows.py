"""A revocation, a withdrawal and a refused login that are cancelled at any await while a relay works: none is stranded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository import Held
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.crashfs import HookedFs
from oauthbroker.testing.stores import open_keyring
from tests.faults.broker_kit import Process
from tests.house import ALICE, user_app
from tests.story.test_recovery import ask, comes_back

STEPS = range(0, 40, 2)


class SlowRename(HookedFs):
    """While `slow`, a rename takes so long that everything else may happen before it."""

    slow = False

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if call == "rename" and SlowRename.slow:
            time.sleep(0.03)
        return run()


@pytest.fixture
async def process(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Process]:
    apps = [user_app(identity_provider)]
    ring = open_keyring(tmp_path)
    process = Process.start(tmp_path / "store", ring, apps, identity_provider.clock.now(), SlowRename())
    yield process
    await process.die()


async def unmarked(process: Process) -> list[Held[Grant] | Held[AuthSession]]:
    """Records that have something left to do and no marker."""
    repository, found = process.house.repository, list[Held[Grant] | Held[AuthSession]]()
    async for grant in repository.grants():
        if grant.record.unfinished and not await repository.marked(grant.entry.key):
            found.append(grant)
    async for session in repository.sessions():
        if session.record.outbox is not None and not await repository.marked(session.entry.key):
            found.append(session)
    return found


async def cancelled(process: Process, work: Coroutine[Any, Any, Any], steps: int) -> None:
    """The work, cancelled so many steps later, beside a relay that never rests."""
    SlowRename.slow = True
    relay, task = asyncio.create_task(relayed_for_ever(process)), asyncio.create_task(work)
    await asyncio.sleep(0.003 * steps)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0.06)
    SlowRename.slow = False
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    if not task.cancelled():
        task.result()


@pytest.mark.slow
@pytest.mark.case("63", "93")
async def test_a_cancelled_revocation_leaves_no_record_that_nobody_looks_at(process, identity_provider, tmp_path):
    for steps in STEPS:
        asked = await ask(process)
        assert 200 == await comes_back(process, identity_provider, asked)
        await process.tend()
        await process.drain()
        await cancelled(process, process.broker.revoke("mail", subject=ALICE), steps)
        assert [] == await unmarked(process), steps
        assert [] == list((tmp_path / "store").rglob("*.tmp"))
        await process.broker.revoke("mail", subject=ALICE)
        await process.house.relay.revocations()
        await process.tend()
        await process.drain()
        assert 1 == process.heard.received.count(f"evt-{asked.auth_session_id}-auth.revoked"), steps
        assert 0 == identity_provider.living_tokens("client-mail")


@pytest.mark.slow
@pytest.mark.case("63", "93")
async def test_a_cancelled_denial_leaves_no_session_that_nobody_looks_at(process, identity_provider, tmp_path):
    for steps in STEPS:
        asked = await ask(process)
        session = await process.house.repository.session(asked.auth_session_id[3:])
        finish = process.house.flows.sweep.finish
        await cancelled(process, finish.lapse(session, event="auth.expired"), steps)
        assert [] == await unmarked(process), steps
        assert [] == list((tmp_path / "store").rglob("*.tmp"))
        await process.broker.cancel(asked.auth_session_id)


async def relayed_for_ever(process: Process) -> None:
    while True:
        await process.house.relay.once()
        await asyncio.sleep(0)
