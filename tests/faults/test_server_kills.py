"""`oauthbroker serve` killed with SIGKILL under load, shortened; `python -m tests.faults.server_kills` is the long form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.testing import Canaries, IdentityProvider
from tests.faults.server_kills import run, wrong_events, wrong_refreshes
from tests.faults.server_load import FORESEEN, Ledger, Unforeseen
from tests.faults.server_world import World
from tests.kit import forms

KILLS = 8 if forms.is_long() else 3


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.case("46", "63", "93")
@pytest.mark.parametrize("workers", [1, 2])
async def test_nothing_that_a_killed_server_has_acknowledged_is_missing(
    tmp_path: Path, idp: IdentityProvider, workers: int
) -> None:
    report = await run(tmp_path / "w", idp, kills=KILLS, workers=workers, seed=20261121)
    assert [] == report.problems, str(report)
    assert KILLS == report.kills
    assert FORESEEN >= set(report.answers), str(report)
    assert report.granted >= KILLS // 2
    assert report.events >= report.granted
    assert report.ended > report.granted
    assert report.tokens > 10 * KILLS
    assert report.lost, "at least one connection was cut off"


GRANTED = ("granted", "as-1", "0")
RECEIVED, ACKED = ("received", "evt-as-1-auth.granted"), ("acked", "evt-as-1-auth.granted")


@pytest.mark.parametrize(
    ("lines", "problems"),
    [
        ([GRANTED, RECEIVED, ACKED], 0),
        ([GRANTED, RECEIVED, RECEIVED, ACKED], 0),
        ([RECEIVED, ACKED, GRANTED], 0),
        ([GRANTED], 1),
        ([GRANTED, ("received", "evt-as-1-auth.failed")], 1),
        ([GRANTED, RECEIVED, ACKED, RECEIVED], 1),
    ],
)
def test_the_check_notices_missing_and_repeated_events(lines: list[tuple[str, ...]], problems: int) -> None:
    assert problems == len(wrong_events(Ledger(lines)))


@pytest.mark.parametrize(("lost", "redeemed", "problems"), [(0, 1, 0), (0, 2, 1), (1, 2, 0), (1, 5, 1)])
def test_the_check_notices_a_refresh_token_that_goes_out_twice(lost: int, redeemed: int, problems: int) -> None:
    families = [SimpleNamespace(login="person0", redeemed={1: redeemed, 2: 1})]
    world: Any = SimpleNamespace(idp=SimpleNamespace(families=lambda _client: families))
    assert problems == len(wrong_refreshes(world, Ledger([("refresh lost", "0")] * lost)))


async def test_an_unexpected_answer_is_reported_with_its_log_lines(tmp_path: Path, idp: IdentityProvider) -> None:
    world = World(tmp_path, idp, workers=1)
    world.log.write_text(
        '{"request_id": "r1", "status": 204}\n{"request_id": "r2", "code": "internal", "note": "why"}\n'
    )
    assert await Unforeseen("POST /v1/turns: 500 {}", "r2").reported(world) == (
        """POST /v1/turns: 500 {}; the log: ['{"request_id": "r2", "code": "internal", "note": "why"}']"""
    )
