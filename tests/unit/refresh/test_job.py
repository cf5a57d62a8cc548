"""When an access token that is exchanged itself is due, and when a refresh may be sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.model.provider_habits import AccessExchange, Habits
from oauthbroker.records import Grant
from oauthbroker.refresh.job import is_due
from tests.kit.samples import NOW, app_with, grant_with, token_with

WAY = AccessExchange(grant_type="exchange", min_age_seconds=60)
APP = app_with(habits=Habits(refresh_with=WAY, second_exchange=WAY))
ITSELF = Secret("an-access-token")


def exchanged(lives: float | None, lifetime: int | None = 3600, *, first: bool = False) -> Grant:
    return grant_with(token=token_with(lives, lifetime, refresh_token=ITSELF), exchange_due=first)


@pytest.mark.parametrize(
    ("grant", "due"),
    [
        (exchanged(1801), False),
        (exchanged(1800), True),
        (exchanged(1), True),
        (exchanged(3500, first=True), True),
        (exchanged(3550, first=True), False),
        (exchanged(1, 50), False),
        (exchanged(0.1, None), False),
        (exchanged(None, None), False),
        (grant_with(token=token_with(1, refresh_token=Secret("a-refresh-token"))), False),
        (grant_with(token=None), False),
    ],
    ids=[
        "not half its life is over", "half its life is over", "it ends", "the first one", "the first one, too young",
        "too young", "an unknown lifetime", "no end", "another token refreshes it", "no token",
    ],
)  # fmt: skip
def test_a_token_is_exchanged_at_half_its_life_and_the_first_one_as_soon_as_it_may(grant: Grant, due: bool) -> None:
    assert due is is_due(APP, grant, NOW)


def test_nothing_is_due_where_the_app_no_longer_says_how() -> None:
    assert not is_due(replace(APP, habits=Habits()), exchanged(1), NOW)
