"""The clock makes a step while a broker holds one of everything: four weeks later it keeps no more than without the step.

Both the store and the memory are counted: every folder, and every collection that a part of the broker holds. A new kind
of record, or a new cache, is counted without being named here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from oauthbroker.repository.repository import KINDS
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.faults.growth_kit import ACTS, Kept, everything, four_weeks, in_memory, on_disk

SIZES = {
    "second": timedelta(seconds=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "year": timedelta(days=365),
}
SHAPES = ("back", "ahead and back", "back and ahead")
STEPS = [(shape, size) for shape in SHAPES for size in SIZES]

STAYS = {("tombstones", "ahead and back"), ("tombstones", "back")}
"""A copy of a record that was made before the clock went back would be valid until the end that was noted then."""

NOT_COUNTED = {"FolderSyncs._last"}
"""One stamp for each folder of tags, 256 at most for a kind and label. The store's random key says which folder a tag is
in, so two tags share a folder in one run and not in the next."""

SEED = 20261122


def steps_of(dice: Random, shape: str, size: timedelta) -> dict[int, timedelta]:
    first, second = sorted(dice.sample(range(len(ACTS) + 1), 2))
    return {
        "back": {second: -size},
        "ahead and back": {first: size, second: -size},
        "back and ahead": {first: -size, second: size},
    }[shape]


Left = tuple[Counter[str], Counter[str]]


async def left_after(folder: Path, canaries: Canaries, steps: Mapping[int, timedelta]) -> Left:
    """What lies on the disk and in memory in the end."""
    clock = TestClock(seed=SEED)
    with IdentityProvider(clock=clock, canaries=canaries) as idp:
        kept = Kept.begin(idp, clock, folder)
        await everything(kept, Random(SEED), steps)
        await four_weeks(kept)
        found = on_disk(kept), in_memory(kept)
        await kept.close()
    return found


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """The rest, where the clock makes no step."""
    with Canaries() as canaries:
        return asyncio.run(left_after(tmp_path_factory.mktemp("usual"), canaries, {}))


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.case("59")
@pytest.mark.parametrize("step", STEPS, ids=" by a ".join)
async def test_nothing_is_kept_longer_because_the_clock_made_a_step(
    tmp_path: Path, canaries: Canaries, usual: Left, step: tuple[str, str]
) -> None:
    shape, size = step[0], SIZES[step[1]]
    steps = steps_of(Random(f"{SEED} {shape} {size}"), shape, size)
    stepped = await left_after(tmp_path, canaries, steps)
    more = {
        name: (there, count)
        for there_in, found in zip(usual, stepped, strict=True)
        for name, count in found.items()
        if count > (there := there_in[name]) and (name, shape) not in STAYS and name not in NOT_COUNTED
    }
    assert {} == more, steps


@pytest.mark.slow
async def test_every_kind_of_record_is_left_behind_by_an_act(tmp_path: Path) -> None:
    """A new kind needs an act, or the law above says nothing of it."""
    clock, seen = TestClock(), Counter[str]()
    with IdentityProvider(clock=clock, canaries=Canaries.active()) as idp:
        kept = Kept.begin(idp, clock, tmp_path)
        for act in ACTS:
            await act(kept)
            await kept.parts.uses.write(everything=True)
            seen |= on_disk(kept)
            await kept.parts.relay.once()
            seen |= on_disk(kept)
        await kept.close()
    assert set() == set(KINDS) - seen.keys()


async def test_a_collection_is_found_wherever_a_part_holds_it(tmp_path: Path) -> None:
    clock = TestClock()
    with IdentityProvider(clock=clock, canaries=Canaries.active()) as idp:
        kept = Kept.begin(idp, clock, tmp_path)
        found = in_memory(kept)
        for place in ("Limiter._buckets", "OpenSessions._open", "RecordStore._cache", "Uses._noted", "Polling._due"):
            assert place in found
        await kept.close()
