"""The operations on a store's keys: noted before each change, counted after it, and gentle in the background."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.admin.gauges import KeyFigures
from oauthbroker.audit import KeysChanged
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.progress import Progress, unseen
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.store.keys.rotation import GENTLE_SECONDS, Resealed
from oauthbroker.testing import TestClock
from oauthbroker.wiring.store_keys import StoreKeys
from tests.kit.samples import NOW


class Rotation:
    """A rotation that notes its calls, and what the audit log had by then."""

    def __init__(self, audit: AuditList) -> None:
        self.audit, self.did = audit, list[tuple[Any, ...]]()
        self.old = [True, True, False]  # whether no record needs the seed any more
        self.fails: BrokerError | None = None

    @property
    def ring(self) -> Any:
        return SimpleNamespace(epoch=4, old_seeds=[SimpleNamespace(resealed=each) for each in self.old])

    async def follow(self) -> None:
        self.did.append(("follow", 0))

    def _note(self, *did: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.did.append((*did, len(self.audit.lines)))

    async def rotate(self, *, wait: float) -> bool:
        self._note("rotate", wait)
        return True

    async def rewrap(self) -> None:
        self._note("rewrap")

    async def reseal(self, *, progress: Progress = unseen, **how: float) -> Resealed:
        progress("records sealed anew", 3, 3)
        self._note("reseal", *how.items())
        return Resealed(resealed=3)

    async def retire(self, progress: Progress = unseen) -> int:
        progress("records counted", 3, 3)
        self._note("retire")
        return 2


class World:
    def __init__(self) -> None:
        self.audit, self.metrics, self.figures = AuditList(), Metrics(), KeyFigures()
        self.rotation = Rotation(self.audit)
        rotation: Any = self.rotation
        self.keys = StoreKeys(
            rotation=rotation, audit=self.audit, clock=TestClock(NOW), figures=self.figures, metrics=self.metrics
        )

    def resealed(self) -> int:
        return self.metrics.counts[Metric.RECORDS_RESEALED, ()]


@pytest.fixture
def world() -> World:
    return World()


async def test_each_change_is_in_the_audit_log_before_it_is_made(world: World) -> None:
    assert await world.keys.rotate(wait=10)
    await world.keys.rewrap()
    assert 3 == (await world.keys.reseal()).resealed
    assert 2 == await world.keys.retire()
    assert [("rotate", 10, 1), ("rewrap", 2), ("reseal", 3), ("retire", 4)] == world.rotation.did
    actions = ["rotate", "rewrap", "reseal", "retire"]
    assert [KeysChanged(action=each, epoch=4) for each in actions] == [entry for _, entry in world.audit.lines]
    assert 3 == world.resealed()


async def test_without_an_audit_entry_no_key_changes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    monkeypatch.setattr(world.audit, "write", full)
    for change in (world.keys.rotate(wait=0), world.keys.rewrap(), world.keys.reseal(), world.keys.retire()):
        with pytest.raises(BrokerError):
            await change
    assert [] == world.rotation.did


async def test_the_figures_tell_how_many_seeds_wait_to_be_resealed_and_retired(world: World) -> None:
    await world.keys.follow()
    assert (4, 1, 2) == (world.figures.epoch, world.figures.to_reseal, world.figures.to_retire)


@pytest.mark.parametrize("old", [[False], [True], []])
async def test_the_background_reseals_gently_where_records_wait_and_tells_no_audit_log(
    world: World, old: list[bool]
) -> None:
    world.rotation.old = old
    await world.keys.follow()
    world.rotation.did.clear()
    await world.keys.reseal_gently()
    gently = ("reseal", ("rest", GENTLE_SECONDS), ("wait", 0), 0)
    assert ([gently, ("follow", 0)] if False in old else []) == world.rotation.did
    assert (3 if False in old else 0, []) == (world.resealed(), world.audit.lines)


@pytest.mark.parametrize("code", [Code.STORE_LOCKED, Code.STORE_UNAVAILABLE])
async def test_the_background_leaves_resealing_to_another_process_and_reports_other_faults(
    world: World, code: Code
) -> None:
    await world.keys.follow()
    world.rotation.fails = BrokerError(code)
    if code is Code.STORE_LOCKED:
        await world.keys.reseal_gently()
        assert [("follow", 0), ("follow", 0)] == world.rotation.did
    else:
        with pytest.raises(BrokerError) as raised:
            await world.keys.reseal_gently()
        assert code is raised.value.code
