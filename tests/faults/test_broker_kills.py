"""Brokers killed with SIGKILL at random moments, shortened; `python -m tests.faults.kills` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.testing import Canaries, IdentityProvider
from tests.faults.kills import run

KILLS = 12


@pytest.mark.slow
@pytest.mark.case("63", "93")
async def test_random_kills_lose_no_acknowledged_grant_and_no_event(tmp_path: Path, canaries: Canaries) -> None:
    with IdentityProvider(canaries=canaries) as idp:
        report = await run(tmp_path, idp, KILLS, seed=20261121)
    assert [] == report.problems
    assert KILLS == report.kills
    assert report.acknowledged_grants > KILLS // 4
    assert report.events >= report.grants >= report.acknowledged_grants
