"""The model bound to the code: its traces, step by step, in the real transaction, repository and stores."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.kit import forms
from tests.kit.postgres import Server
from tests.model.bounds import SMALL
from tests.model.mutants import MUTANTS, Mutant
from tests.model.replay import Trace
from tests.model.search import Found, follow, search
from tests.model.state import CURRENT, State, first_state
from tests.model.stores import Stores, in_files, in_memory, in_postgres, sampled, shapes

MOST = 400 if forms.is_long() else 20  # traces of each table row
SOME = 60 if forms.is_long() else 6  # of a store that is slower
KEPT = [name for name, bounds in SMALL.items() if not bounds.lost_writes]


@functools.cache
def searched(name: str) -> Found:
    return search(CURRENT, SMALL[name])


async def replayed(stores: Stores, name: str, most: int) -> None:
    for trace in sampled(searched(name), most):
        await stores.replay(trace)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
async def test_the_code_does_what_the_model_does(name: str):
    await replayed(in_memory(), name, MOST)
    for trace in shapes(searched(name)):
        await in_memory().replay(trace)


@pytest.mark.slow
def test_the_ways_that_are_replayed_pass_an_action_of_each_shape():
    found = searched("a frozen host")
    passed = {(before, *step) for way in shapes(found) for before, step in zip(_befores(way), way, strict=True)}
    assert set(found.shapes.values()) <= passed


def _befores(way: Trace) -> list[State]:
    return [first_state(SMALL["a frozen host"]), *(after for _, after in way[:-1])]


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
async def test_so_does_a_store_of_files(tmp_path: Path, name: str):
    async with in_files(tmp_path) as stores:
        await replayed(stores, name, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
async def test_so_does_a_store_in_postgresql(postgres_server: Server, tmp_path: Path, name: str):
    async with in_postgres(postgres_server, tmp_path) as stores:
        await replayed(stores, name, SOME)


ANSWERED = (
    "host A has a caller whose token has ended (1)",
    "host A takes the lease (2)",
    "host A reads again and seals its intent (3, 5)",
    "host A asks whether it still may send: yes (6)",
    "host A sends its refresh token (6)",
    "host A gets the answer (7)",
    "the standby falls behind",
)
LOST = ("the database goes away", "the database is back without its last transactions")


@pytest.mark.parametrize("done", ["revokes the grant for its person", "stores a new consent"])
async def test_what_a_person_did_is_written_back_over_an_answer_that_was_stored_since(done: str):
    """The answer belongs to a request from before, over a record from before."""
    late = (
        "host A stores the refresh token of the answer (8)",
        "host B writes back the record that the database has lost",
    )
    trace = follow(CURRENT, SMALL["lost writes and people"], *ANSWERED, f"host B {done}", *LOST, *late)
    await in_memory().replay(trace)


async def test_the_tokens_of_a_refused_answer_are_revoked_if_the_grant_was_erased_meanwhile():
    refused = "host A gets an answer that it refuses, with a refresh token (7)", "host A erases the grant"
    last = "host A stores the refresh token of the answer that it refused (8)"
    trace = follow(CURRENT, SMALL["people and bad answers"], *ANSWERED[:5], *refused, last)
    await in_memory().replay(trace)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
async def test_the_replay_notices_when(monkeypatch: pytest.MonkeyPatch, name: str):
    mutant: Mutant = MUTANTS[name]
    found = searched(mutant.bounds)
    monkeypatch.setattr(mutant.owner, mutant.name, mutant.change(getattr(mutant.owner, mutant.name)))
    with pytest.raises(AssertionError, match="after "):
        for trace in shapes(found):
            await in_memory().replay(trace)
