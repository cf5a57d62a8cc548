"""The upgrade of a store in place: once, in one process, and refused by brokers that do not know it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.keyring import FileKek, Upgrades
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.keys.upgrade import UpgradeStep, is_behind, left_of
from tests.kit.old_store import FROZEN, keyring_file, open_upgraded, ring_of, unpack
from tests.unit.store import second_reader as second


class Steps:
    """Steps that write down when they run. `failing` raises."""

    def __init__(self, *names: str, failing: str = "") -> None:
        self.ran: list[str] = []
        self.failing = failing
        self.all = tuple(self._step(name) for name in names)

    def _step(self, name: str) -> UpgradeStep:
        async def run(store: Store) -> None:
            self.ran.append(name)
            await asyncio.sleep(0)
            if name == self.failing:
                raise BrokerError(Code.STORE_UNAVAILABLE)

        return UpgradeStep(name, run)


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, Path]:
    return unpack(tmp_path / "place"), tmp_path / "place" / "test.kek"


async def run(old: tuple[Path, Path], steps: Steps) -> Upgrades | None:
    """What the keyring says after an opening, also one that failed."""
    try:
        store = await open_upgraded(*old, steps=steps.all)
        await store.close()
    except BrokerError as error:
        assert error.code is Code.STORE_UNAVAILABLE  # noqa: PT017 - or it is open
    return ring_of(*old).upgrades


async def test_an_old_store_is_upgraded_once_and_in_order(old):
    assert None is ring_of(*old).upgrades
    steps = Steps("one", "two")
    assert Upgrades(("one", "two")) == await run(old, steps)
    assert Upgrades(("one", "two")) == await run(old, steps)
    assert ["one", "two"] == steps.ran


async def test_the_keyring_names_a_step_before_the_step_changes_anything(old):
    seen = []

    async def look(store: Store) -> None:
        seen.append(ring_of(*old).upgrades)

    store = await open_upgraded(*old, steps=[UpgradeStep("one", look), UpgradeStep("two", look)])
    await store.close()
    assert [Upgrades((), ("one", "two")), Upgrades(("one",), ("two",))] == seen


async def test_a_step_that_failed_runs_again_and_those_before_it_do_not(old):
    failing = Steps("one", "two", failing="two")
    assert Upgrades(("one",), ("two",)) == await run(old, failing)
    again = Steps("one", "two")
    assert Upgrades(("one", "two")) == await run(old, again)
    assert (["one", "two"], ["two"]) == (failing.ran, again.ran)


async def test_a_later_version_adds_its_step_to_an_upgraded_store(old):
    await run(old, Steps("one"))
    later = Steps("one", "two")
    assert Upgrades(("one", "two")) == await run(old, later)
    assert ["two"] == later.ran


@pytest.mark.parametrize("interrupted", [True, False])
async def test_a_broker_that_does_not_know_a_step_refuses_the_store_and_changes_nothing(old, interrupted):
    await run(old, Steps("one", "two", failing="two" if interrupted else ""))
    before = (old[0] / "data" / "keyring").read_bytes()
    with pytest.raises(BrokerError) as caught:
        await open_upgraded(*old, steps=Steps("one").all)
    assert Code.KEY_MISMATCH == caught.value.code
    assert "newer" in caught.value.note
    assert before == (old[0] / "data" / "keyring").read_bytes()


async def test_an_upgraded_store_opens_for_no_broker_of_format_1(old):
    await run(old, Steps("one", failing="one"))
    kek = old[1].read_text()
    with pytest.raises(second.RefusedError):
        second.open_keyring(kek, (old[0] / "data" / "keyring").read_text(), (1,))
    assert ["one"] == second.open_keyring(kek, (old[0] / "data" / "keyring").read_text())["upgrading"]


async def test_an_upgrade_keeps_every_key_and_every_wrap(old):
    before, path = ring_of(*old), old[0] / "data" / "keyring"
    document = json.loads(path.read_text())
    document["wraps"].append({"kek": "kek-elsewhere", "key": "AAAA"})
    path.write_text(json.dumps(document))
    await run(old, Steps("one"))
    after = ring_of(*old)
    assert (before.store_id, before.epoch, before.seeds) == (after.store_id, after.epoch, after.seeds)
    assert before.name("grants", "a") == after.name("grants", "a")
    assert document["wraps"] == json.loads(path.read_text())["wraps"]
    sealed = before.seal("grants", "0a" * 32, 3, b"body")
    assert (3, b"body") == after.unseal("grants", "0a" * 32, sealed)


async def test_of_two_brokers_that_open_at_once_one_upgrades(old):
    steps = Steps("one", "two")
    stores = await asyncio.gather(*(open_upgraded(*old, steps=steps.all) for _ in range(3)))
    assert ["one", "two"] == steps.ran
    for store in stores:
        await store.close()


async def test_a_broker_that_waits_too_long_for_an_upgrade_may_try_again(old):
    begun, over = asyncio.Event(), asyncio.Event()

    async def slow(store: Store) -> None:
        begun.set()
        await over.wait()

    steps = [UpgradeStep("slow", slow)]
    first = asyncio.create_task(open_upgraded(*old, steps=steps))
    await asyncio.wait_for(begun.wait(), 30)
    with pytest.raises(BrokerError) as caught:
        await open_upgraded(*old, steps=steps, wait=0.01)
    assert (Code.STORE_LOCKED, True) == (caught.value.code, caught.value.retryable)
    over.set()
    await (await first).close()


def test_a_new_store_needs_no_step(tmp_path):
    kek = FileKek.create(tmp_path / "new.kek")
    steps = Steps("one", "two").all
    ring = KeyringFile(tmp_path / "new" / "data" / "keyring", kek).create(upgrades=("one", "two"))
    loaded = KeyringFile(tmp_path / "new" / "data" / "keyring", kek).load()
    assert Upgrades(("one", "two")) == ring.upgrades == loaded.upgrades
    assert ((), False) == (left_of(loaded, steps), is_behind(loaded, steps))


@pytest.mark.parametrize("bad", ['{"format": "oab-keyring-3"}', "{}"])
async def test_a_damaged_keyring_is_not_rewritten(old, bad):
    path = old[0] / "data" / "keyring"
    path.write_text(bad)
    with pytest.raises(BrokerError):
        keyring_file(*old).rewrite(Upgrades())
    assert bad == path.read_text()


def test_the_frozen_store_is_of_format_1():
    """Nothing may make it anew: an upgrade is tested with what an older version wrote."""
    import base64

    assert b'"oab-keyring-1"' in base64.b64decode(FROZEN["files"]["store/data/keyring"])
