"""Rights that end in one process and are used in another, shortened; `python -m tests.faults.interleavings` is the long
form and prints its figures."""

from __future__ import annotations

import pytest

from tests.faults.interleaving_kit import DISKS, Answer
from tests.faults.interleavings import interleave

ROUNDS = 30
MOST_ROUNDS = 3_000  # of a process that makes a mistake; it is noticed long before


@pytest.mark.slow
@pytest.mark.case("79")
@pytest.mark.parametrize("disk", DISKS)
async def test_the_next_call_of_another_process_sees_that_a_grant_a_turn_or_a_key_ended(tmp_path, disk):
    report = await interleave(tmp_path, disk, ROUNDS, seed=20261122)
    assert [] == report.problems
    assert ROUNDS < sum(report.figures["changes"].values())
    assert report.figures["answers"]["answers at once"] > 0
    for kind in ("grants", "turns", "keys"):
        assert report.figures["answers"][f"{kind} valid"] > 0
        assert report.figures["answers"][f"{kind} refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "disk"), [("store", "real"), ("times", "forged"), ("admissions", "coarse")])
async def test_a_process_that_trusts_its_cache_is_noticed(tmp_path, mistake, disk):
    report = await interleave(tmp_path, disk, MOST_ROUNDS, seed=1, mistake=mistake)
    assert any(problem.startswith(("grant", "turn", "key")) for problem in report.problems)


@pytest.mark.parametrize(
    ("before", "after", "held", "valid", "fits"),
    [
        (3, 3, 3, 3, True),
        (3, 3, 3, None, False),  # alive all the time
        (3, 4, 3, None, True),  # it was ending
        (3, 4, 3, 3, True),
        (4, 4, 4, None, True),
        (4, 4, 3, 3, False),  # it had ended before the call
        (5, 5, 5, 3, False),  # the token of the grant before
        (5, 5, 3, None, True),  # the key before it was replaced
        (2, 3, 2, 3, True),  # it was beginning
        (2, 3, 2, None, True),
    ],
)
def test_an_answer_fits_when_a_moment_of_the_call_explains_it(before, after, held, valid, fits):
    assert fits is Answer(before, after, held, valid).fits
