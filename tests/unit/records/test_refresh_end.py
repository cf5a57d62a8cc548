"""The end of a grant by itself: when the user is told, once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from oauthbroker.records.refresh_end import LONGEST_LEAD, SHORTEST, RefreshEnd
from tests.kit.samples import NOW

DAY = timedelta(days=1)


@pytest.mark.parametrize("step", [timedelta(), -DAY, DAY, -timedelta(days=365), timedelta(days=365)])
def test_a_notice_comes_once_wherever_the_clock_goes(step: timedelta) -> None:
    end = RefreshEnd(since=NOW, token_at=NOW + timedelta(days=90))
    due = end.announce_at
    assert NOW + timedelta(days=90) - LONGEST_LEAD == due
    assert (due <= NOW + step) is end.is_near(NOW + step)
    assert replace(end, notice="told").announce_at is None


def test_the_earlier_end_counts() -> None:
    end = RefreshEnd(since=NOW, token_at=NOW + 30 * DAY, consent_at=NOW + 10 * DAY)
    assert (NOW + 10 * DAY, NOW + 9 * DAY) == (end.at, end.announce_at)


def test_a_short_life_is_not_announced() -> None:
    end = RefreshEnd(since=NOW, token_at=NOW + SHORTEST - timedelta(seconds=1))
    assert (None, False) == (end.announce_at, end.is_near(NOW + SHORTEST))
