"""Two of the laws, on states that are made by hand: some are refused, others pass."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import Ready
from oauthbroker.records.refresh_state import RefreshState
from tests.kit.samples import grant_with, token_with
from tests.world.driver import Pool
from tests.world.loop import Process
from tests.world.provider import Answered, Family
from tests.world.world import World, world_of

PAIR, PLACE = ("mail", "P0"), ("grants", b"the grant of P0")
NEWEST = "no older version after a newer one"
GIVEN_UP = "a grant is given up only after a lost answer or the provider's plain word"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_of(0) as world:
        monkeypatch.setattr(world.laws, "opened", lambda place, generation, record: record)
        yield world


def consented(world: World, tokens: int = 1) -> Family:
    """A family whose answers all came through, to three undisturbed processes."""
    family = Family(len(world.provider.families), *PAIR, "a code")
    family.answers = [
        Answered(Process(f"host{number}"), world.loop.time(), number, delivered=True) for number in range(1, tokens + 1)
    ]
    world.provider.families.append(family)
    return family


def store(world: World, family: Family, number: int, ended: Any = "") -> None:
    grant = grant_with(
        app=PAIR[0],
        imported=f"consent {family.number}",
        token=token_with(refresh_token=Secret(family.token("refresh", number))),
        refresh_state=RefreshState(ended=ended),
    )
    tables: Any = world.database.tables
    tables.entry[PLACE] = SimpleNamespace(generation=1, record=grant.to_plaintext())
    world.laws.stored(PLACE)


def hand_out(world: World, process: Process, family: Family, number: int) -> None:
    token = Secret(family.token("access", number))
    ready = Ready(access_token=token, token_type="Bearer", expires_at=None, scopes=())
    world.laws.answered(PAIR, process, world.loop.time(), ready)


def broken(world: World, law: str) -> bool:
    assert law in world.laws.asked
    return any(each.startswith(law) for each in world.laws.broken)


def test_of_two_consents_at_once_the_one_that_was_stored_last_is_the_newer(world: World) -> None:
    first, second, reader = consented(world), consented(world), Process("reader")
    for family in (second, first):
        store(world, family, 1)
        hand_out(world, reader, family, 1)
    assert not broken(world, NEWEST)
    hand_out(world, reader, second, 1)
    assert broken(world, NEWEST)


def test_an_older_token_of_a_consent_after_a_newer_one_breaks_the_law(world: World) -> None:
    family, reader = consented(world, 2), Process("reader")
    store(world, family, 2)
    for number in (2, 1):
        hand_out(world, reader, family, number)
    assert broken(world, NEWEST)


@pytest.mark.parametrize(("lost", "is_right"), [(2, True), (3, False), (None, False)])
def test_a_token_that_came_again_excuses_an_end_only_if_its_own_answer_was_lost(
    world: World, lost: int | None, is_right: bool
) -> None:
    family = consented(world, 3)
    family.alive, family.reused = False, [1]
    for answer in family.answers:
        answer.delivered = answer.number != lost
    store(world, family, 3)
    store(world, family, 3, ended="uncertain")
    assert broken(world, GIVEN_UP) is not is_right


async def test_the_pool_of_a_world_closes_by_the_words_of_the_real_one(world: World) -> None:
    real = AsyncConnectionPool("", open=False)
    played = Pool(world.database, "", max_size=1, timeout=1, reconnect_timeout=1, reconnect_failed=lambda _: None)
    for pool in (real, played):
        await pool.close(timeout=0.1)
        assert pool.closed
