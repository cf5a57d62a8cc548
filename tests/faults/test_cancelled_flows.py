"""A revocation, a withdrawal and a refused login that are cancelled at any await while a relay works: none is stranded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit import ConnectFailed, GrantEnded
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import Code
from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository.repository import Versioned
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import Process, ask, complete
from tests.kit.crashfs import HookedFs
from tests.kit.forms import swept
from tests.kit.running_broker import ALICE, user_app

STEPS = swept(40)


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


async def unmarked(process: Process) -> list[Versioned[Grant] | Versioned[AuthSession]]:
    """Records that have something left to do and no marker."""
    repository, found = process.parts.repository, list[Versioned[Grant] | Versioned[AuthSession]]()
    async for grant in repository.grants():
        if grant.record.unfinished and not await repository.markers.has(grant.entry.key):
            found.append(grant)
    async for session in repository.sessions():
        if session.record.outbox is not None and not await repository.markers.has(session.entry.key):
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
async def test_a_cancelled_revocation_leaves_no_orphaned_record(process, identity_provider, tmp_path):
    for steps in STEPS:
        asked = await ask(process)
        assert 200 == await complete(process, identity_provider, asked)
        await process.tend()
        await process.drain()
        await cancelled(process, process.broker.revoke("mail", subject=ALICE), steps)
        assert [] == await unmarked(process), steps
        assert [] == list((tmp_path / "store").rglob("*.tmp"))
        await process.broker.revoke("mail", subject=ALICE)
        await process.parts.bulk_revocation.run_pass()
        await process.tend()
        await process.drain()
        assert 1 == process.heard.received.count(f"evt-{asked.auth_session_id}-auth.revoked"), steps
        assert 1 == entered(process, GrantEnded), f"cancelled at {steps}"
        assert 0 == identity_provider.living_tokens("client-mail")


@pytest.mark.slow
@pytest.mark.case("63", "93")
async def test_a_cancelled_denial_leaves_no_orphaned_session(process, identity_provider, tmp_path):
    for steps in STEPS:
        asked = await ask(process)
        session = await process.parts.repository.session(asked.auth_session_id[3:])
        finish = process.parts.sweep.finish
        await cancelled(process, finish.lapse(session, event="auth.expired"), steps)
        assert [] == await unmarked(process), steps
        assert [] == list((tmp_path / "store").rglob("*.tmp"))
        await process.broker.cancel(asked.auth_session_id)


@pytest.mark.slow
@pytest.mark.case("63", "93")
async def test_a_cancelled_failure_is_entered_in_the_audit_log_and_told_at_once(process):
    """Its event is not left to the next sweep: half a minute is long for an agent that waits."""
    for steps in STEPS:
        asked = await ask(process)
        session = await process.parts.repository.session(asked.auth_session_id[3:])
        signal = process.parts.outbox.listen()
        fail = process.parts.sweep.finish.fail
        await cancelled(process, fail(session, Code.PROVIDER_DENIED, event="auth.denied"), steps)
        there = await process.session(asked.auth_session_id)
        has_failed = there is not None and there.status == "failed"
        assert has_failed is signal.is_set(), f"cancelled at {steps}"
        assert has_failed == entered(process, ConnectFailed), f"cancelled at {steps}"
        await process.broker.cancel(asked.auth_session_id)


def entered(process: Process, kind: type) -> int:
    """How many entries of that kind were written since this was asked last."""
    audit = process.parts.audit
    assert isinstance(audit, AuditList)
    found = sum(isinstance(entry, kind) for entry in audit.entries)
    audit.lines.clear()
    return found


async def relayed_for_ever(process: Process) -> None:
    while True:
        await process.parts.relay.once()
        await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.case("93", "99")
async def test_a_cancelled_request_for_consent_leaves_no_open_session_that_is_not_listed(process):
    """It would count until it expires, and no later call would find it."""
    repository = process.parts.repository
    for steps in STEPS:
        await cancelled(process, ask(process), steps)
        listed = {versioned.record.locator for versioned in await repository.waiting("mail", ALICE)}
        there = {versioned.record.locator async for versioned in repository.sessions() if versioned.record.open}
        assert there == listed, steps
        assert process.parts.open_sessions.waiting(process.clock.now())["mail"] == len(listed), steps
        for locator in listed:
            await process.broker.cancel(f"as-{locator}")
