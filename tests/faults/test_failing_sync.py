"""One sync fails, the caller tries again until it is acknowledged, and then the power goes: it holds on every disk.

The write that failed may lie there, unsynced: who finds it done makes it durable before saying so.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.clock import SystemClock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.repository import KINDS, LEASES
from oauthbroker.results import AuthorizationRequired, Failed, Ready
from oauthbroker.secret import Secret
from oauthbroker.store.file import FileStore
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.crashfs import CrashFs
from oauthbroker.testing.stores import open_keyring
from tests.faults.broker_kit import Process
from tests.house import ALICE, turn, user_app
from tests.story.test_recovery import ask, comes_back

MOST_SYNCS = 60  # far more than an operation makes; the sweeps end by themselves


class FailingSync(CrashFs):
    """The `number`-th sync after `arm_sync` fails and does nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.left: int | None = None
        self.failed = False

    def arm_sync(self, number: int) -> None:
        self.left, self.failed = number, False

    def _step(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if call == "fsync" and self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left, self.failed = None, True
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super()._step(call, args, run)


Prepare = Callable[[Process, IdentityProvider], Awaitable[Any]]
Do = Callable[[Process, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Story:
    """`do` is tried until it raises nothing; `holds` then says whether it did what it says."""

    prepare: Prepare
    do: Do
    holds: Callable[[Process, Any], Awaitable[bool]]


async def connected(process: Process, idp: IdentityProvider) -> Any:
    asked = await ask(process)
    assert 200 == await comes_back(process, idp, asked)
    assert isinstance(await ask(process), Ready)
    return asked


async def is_revoked(process: Process, _: Any) -> bool:
    return isinstance(await ask(process), AuthorizationRequired)


async def begun_turn(process: Process, _: IdentityProvider) -> Any:
    return await process.broker.turns.begin(turn())


async def is_over(process: Process, begun: Any) -> bool:
    try:
        await process.broker.turns.admit(begun.token.reveal())
    except BrokerError as error:
        return error.code is Code.TURN_ENDED
    return False


async def made_key(process: Process, _: IdentityProvider) -> Any:
    return await process.broker.api_keys.create("ci", ["operator"])


async def is_no_key(process: Process, made: Any) -> bool:
    try:
        await process.broker.api_keys.check(made[1].reveal())
    except BrokerError as error:
        return error.code is Code.UNAUTHENTICATED
    return False


async def begun_visit(process: Process, _: IdentityProvider) -> Any:
    return await process.broker.people.visits.enter("ops", "")


async def has_left(process: Process, arrival: Any) -> bool:
    return await process.broker.people.visits.admit(arrival.cookie.reveal(), "admin") is None


async def asked_for(process: Process, _: IdentityProvider) -> Any:
    return await ask(process)


async def is_withdrawn(process: Process, asked: Any) -> bool:
    session = await process.session(asked.auth_session_id)
    return session is not None and not session.open


async def leased(process: Process, idp: IdentityProvider) -> Any:
    await connected(process, idp)
    await process.tend()
    return await process.broker.events.lease("planner")


async def is_acknowledged(process: Process, _: Any) -> bool:
    process.clock.advance(3600)
    await process.tend()
    return await process.broker.events.lease("planner") is None


async def with_event(process: Process, idp: IdentityProvider) -> Any:
    return await connected(process, idp)


async def relayed(process: Process, _: Any) -> None:
    await process.house.relay.once()


async def comes(process: Process, asked: Any) -> bool:
    process.clock.advance(3600)
    await process.tend()
    found = await process.broker.events.lease("planner")
    return found is not None and asked.auth_session_id in found.id


async def renewable(process: Process, idp: IdentityProvider) -> Any:
    await connected(process, idp)
    process.clock.advance(7200)
    clock: Any = idp.clock
    clock.set(process.clock.now())
    return []


async def renewed(process: Process, seen: list[str]) -> None:
    ready = await ask(process)
    if isinstance(ready, Failed):
        raise BrokerError(ready.code)
    assert isinstance(ready, Ready)
    await process.house.flows.refresh.close()
    seen.append(ready.access_token.reveal())


async def has_newest(process: Process, seen: list[str]) -> bool:
    grant = await process.grant("mail", ALICE)
    return grant is not None and grant.token is not None and grant.token.access_token.reveal() == seen[0]


async def with_secret(process: Process, _: IdentityProvider) -> None:
    await process.broker.secrets.put("crm", "token", Secret("x" * 8))


async def without_secret(process: Process, _: Any) -> bool:
    return ("crm", "token") not in await process.house.repository.secrets()


async def erased(process: Process, _: Any) -> None:
    if not (await process.broker.erase(ALICE)).done:
        raise BrokerError(Code.PROVIDER_UNREACHABLE)


async def nothing_left(process: Process, _: Any) -> bool:
    return (await process.broker.erasure.look(ALICE)).empty


STORIES = {
    "an erasure": Story(connected, erased, nothing_left),
    "a revocation": Story(connected, lambda it, _: it.broker.revoke("mail", subject=ALICE), is_revoked),
    "a turn's end": Story(begun_turn, lambda it, begun: it.broker.turns.end(begun.turn_id), is_over),
    "a key's end": Story(made_key, lambda it, made: it.broker.api_keys.remove(made[0].id), is_no_key),
    "a visit's end": Story(begun_visit, lambda it, arrival: it.broker.people.visits.end(arrival.visit), has_left),
    "a withdrawal": Story(asked_for, lambda it, asked: it.broker.cancel(asked.auth_session_id), is_withdrawn),
    "an acknowledgement": Story(leased, lambda it, delivery: it.broker.events.settle(
        "planner", delivery.id, delivery.lease, done=True), is_acknowledged),
    "a relay": Story(with_event, relayed, comes),
    "a renewal": Story(renewable, renewed, has_newest),
    "a secret's end": Story(with_secret, lambda it, _: it.broker.secrets.remove("crm", "token"), without_secret),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.case("63", "71")
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_what_was_acknowledged_after_a_failed_sync_survives_a_loss_of_power(identity_provider, tmp_path, story):
    ring, app = open_keyring(tmp_path), user_app(identity_provider)
    for number in itertools.count():
        live = tmp_path / f"live-{number}"
        shutil.copytree(tmp_path / "store", live)
        process = Process.start(live, ring, [app], identity_provider.clock.now())
        known = await story.prepare(process, identity_provider)
        at = process.clock.now()
        await process.die()
        fs = FailingSync(live)
        process = Process.start(live, ring, [app], at, fs)
        fs.arm_sync(number)
        await until_acknowledged(process, story, known)
        for clone in fs.clones(tmp_path / f"clones-{number}", seeds=1):
            later = Process.start(clone, ring, [app], process.clock.now())
            assert await story.holds(later, known), (number, clone.name)
            await later.die()
        await process.die()
        shutil.rmtree(live)
        shutil.rmtree(tmp_path / f"clones-{number}")
        if not fs.failed:
            break
        assert number < MOST_SYNCS
    assert number > 0


async def until_acknowledged(process: Process, story: Story, known: Any) -> None:
    for _ in range(4):
        try:
            await story.do(process, known)
        except BrokerError as error:
            assert error.retryable  # noqa: PT017 - or it was acknowledged
            process.clock.advance(61)  # after a pause that a lost answer may ask for
        else:
            return
    raise AssertionError("one failed sync, and it never works again")


async def test_a_sync_of_a_kind_syncs_its_folder_and_tells_of_a_failure(tmp_path):
    ring = open_keyring(tmp_path)
    fs = FailingSync(tmp_path / "store")
    store = FileStore.open(tmp_path / "store", ring, kinds=KINDS, lease_kinds=LEASES, clock=SystemClock(), fs=fs)
    fs.arm_sync(0)
    with pytest.raises(BrokerError) as caught:
        await store.sync("grants")
    assert Code.STORE_UNAVAILABLE is caught.value.code
    await store.sync("grants")
    with pytest.raises(ValueError, match="keeps no"):
        await store.sync("pair")
    await store.close()
