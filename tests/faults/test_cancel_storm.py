"""The cancel storm, shortened; `make storm` (`--only cancels`) is the long form and prints its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.testing import IdentityProvider, TestClock
from tests.faults.cancel_surface import pages, public
from tests.faults.cancel_table import TABLE
from tests.faults.cancel_world import Quiet, World
from tests.faults.storm_cancels import cancels

CANCELS = 300
SEEDS = (20261122,)


@pytest.mark.slow
@pytest.mark.case("63", "93")
@pytest.mark.parametrize("seed", SEEDS)
async def test_cancelled_at_any_await_no_public_coroutine_strands_or_holds_or_breaks_anything(
    tmp_path: Path, seed: int
) -> None:
    report = await cancels(tmp_path, CANCELS, seed)
    assert [] == report.problems
    assert report.figures["cancels"] >= CANCELS


async def test_every_public_coroutine_operation_and_page_is_stormed(tmp_path: Path) -> None:
    """A new call of the manual, the API or the pages gets an action in the table."""
    covered = {name for each in TABLE.values() for name in each.covers}
    with Quiet() as canaries:
        async with IdentityProvider(clock=TestClock(), canaries=canaries) as idp:
            world = World.of(idp, TestClock(), tmp_path, seed=1)
            await world.open()
            there = public() | pages(world.sides[0].broker)
            await world.close()
    left_out = {each for each in there if not each.startswith("page GET /oauth/callback/")} - covered
    assert set() == left_out
