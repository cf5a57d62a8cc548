"""The ends that a token answer states: every spelling, every form, and no odd value that matters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.secret import Secret
from oauthbroker.protocol.refresh_token_end import _number, stated_ends
from oauthbroker.records import Token
from oauthbroker.records.refresh_end import LONGEST, LONGEST_LEAD, SHORTEST, SLACK, RefreshEnd, StatedEnds, next_end
from tests.kit.forms import examples
from tests.unit.protocol.kit import with_habits

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TOKEN = Token(access_token=Secret("a"), token_type="bearer", refresh_token=Secret("r"), expires_at=NOW + DAY / 24)
NAMES = (
    "refresh_token_expires_in", "refresh_expires_in", "x_refresh_token_expires_in", "refreshTokenExpiresIn",
    "refresh_token_expires_at", "refreshTokenExpiresAt",
)  # fmt: skip


def end_of(members: dict[str, Any], field: str = "") -> datetime | None:
    stated = stated_ends(with_habits(refresh_token_end_field=field), members)
    found = next_end(None, TOKEN, stated, NOW)
    return None if found is None else found.at


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "value",
    [
        864_000, "864000", 864_000.9, (NOW + 10 * DAY).timestamp(), str(int((NOW + 10 * DAY).timestamp())),
        (NOW + 10 * DAY).timestamp() * 1000, "2026-06-11T00:00:00Z", "2026-06-11T02:00:00+02:00",
    ],
)  # fmt: skip
def test_every_spelling_is_read_in_every_form(name: str, value: Any) -> None:
    assert NOW + 10 * DAY == end_of({name: value})


@pytest.mark.parametrize(
    "value",
    [0, -1, "-1", None, "", True, [], {}, "soon", "2026-06-11T00:00:00", "1e9", 1e300, 10**30, float("nan"),
     float("inf"), "9" * 20, 5_000 * 86_400, "2020-01-01T00:00:00Z", "9999-12-31T00:00:00Z"],
)  # fmt: skip
def test_an_odd_value_states_nothing(value: Any) -> None:
    assert end_of({"refresh_token_expires_in": value}) is None


def test_a_preset_names_another_member_and_then_no_other_one_counts() -> None:
    assert NOW + DAY * 2 == end_of({"rt_end": 172_800, "refresh_token_expires_in": 86_400}, "rt_end")
    assert end_of({"refresh_token_expires_in": 86_400}, "rt_end") is None


def test_the_earlier_of_both_ends_counts() -> None:
    assert NOW + DAY == end_of({"refresh_token_expires_in": 864_000, "authorization_expires_in": 86_400})
    assert NOW + DAY == end_of({"refresh_token_expires_in": 86_400, "authorization_expires_in": 864_000})


@pytest.mark.parametrize(
    "life, lead",
    [(DAY - timedelta(seconds=1), None), (DAY, DAY / 10), (10 * DAY, DAY), (70 * DAY, 7 * DAY), (365 * DAY, 7 * DAY)],
)
def test_the_notice_comes_a_tenth_of_the_life_ahead_and_seven_days_at_most(
    life: timedelta, lead: timedelta | None
) -> None:
    end = RefreshEnd(since=NOW, token_at=NOW + life)
    assert (None if lead is None else NOW + life - lead) == end.announce_at
    assert lead is None or (end.is_near(NOW + life - lead) and not end.is_near(NOW + life - lead - SLACK))
    assert RefreshEnd(since=NOW, token_at=NOW + life, notice="n").announce_at is None


@pytest.mark.parametrize("moved, is_same", [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_an_end_that_hardly_moves_is_the_same(moved: int, is_same: bool) -> None:
    old = RefreshEnd(since=NOW, token_at=NOW + 10 * DAY, notice="n")
    stated = StatedEnds(timedelta(seconds=864_000 - 3600 + moved))
    assert is_same == (next_end(old, TOKEN, stated, NOW + timedelta(hours=1)) is old)


def test_a_lasting_token_that_nothing_refreshes_ends_its_grant() -> None:
    lasting = Token(access_token=Secret("a"), token_type="bearer", expires_at=NOW + 60 * DAY)
    found = next_end(None, lasting, StatedEnds(), NOW)
    assert found is not None
    assert NOW + 60 * DAY == found.at
    short = Token(access_token=Secret("a"), token_type="bearer", expires_at=NOW + DAY / 2)
    endless = Token(access_token=Secret("a"), token_type="bearer")
    assert [None, None] == [next_end(None, each, StatedEnds(), NOW) for each in (short, endless)]


SECONDS = st.integers(min_value=1, max_value=int(LONGEST.total_seconds()))


@settings(max_examples=examples(300), deadline=None)
@given(
    first=SECONDS,
    consent=st.none() | SECONDS,
    answers=st.lists(st.tuples(st.integers(1, 10**7), st.none() | SECONDS), max_size=8),
)
def test_no_refresh_puts_a_consents_end_off_and_every_end_is_ahead(
    first: int, consent: int | None, answers: list[tuple[int, int | None]]
) -> None:
    whole = None if consent is None else timedelta(seconds=consent)
    end = next_end(None, TOKEN, StatedEnds(timedelta(seconds=first), whole), NOW)
    assert end is not None
    now = NOW
    for passed, stated in answers:
        now += timedelta(seconds=passed)
        end = next_end(end, TOKEN, StatedEnds(None if stated is None else timedelta(seconds=stated)), now)
        assert end is not None
        assert whole is None or end.at <= NOW + whole + SLACK
        due = end.announce_at
        assert due is None or (end.at - LONGEST_LEAD <= due <= end.at and end.at - end.since >= SHORTEST)


@pytest.mark.parametrize(
    ("seconds", "is_read"), [(LONGEST.total_seconds(), True), (LONGEST.total_seconds() + 1, False)]
)
def test_the_longest_lifetime_is_still_one(seconds: float, is_read: bool) -> None:
    assert is_read is (_number(seconds) is not None)
