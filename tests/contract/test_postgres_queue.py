"""PostgreSQL keeps the contract of queues."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.events.backends import queues_of
from oauthbroker.events.port import Queues
from oauthbroker.events.postgres_queues import PostgresQueues
from oauthbroker.repository.repository import Repository
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.keys.rotation import KeyRotation
from oauthbroker.store.postgres.queue_statements import STATEMENTS
from oauthbroker.store.postgres.schema import KeyringTable
from oauthbroker.testing import TestClock
from tests.contract.queue_contract import AGENT, LIMITS, QueueContract, Setting
from tests.contract.queue_processes import QueueProcesses
from tests.kit import postgres
from tests.kit.queues import lose_body
from tests.unit.records.kit import event

DATABASE = "queues"
View = Callable[[Clock], Any]


@pytest.fixture(scope="module")
def database(postgres_server: postgres.Server) -> postgres.Server:
    postgres_server.new_database(DATABASE)
    return postgres_server


@pytest.fixture
def url(database: postgres.Server) -> Secret:
    database.empty(DATABASE)
    return database.url(DATABASE)


@pytest.fixture
async def view(url: Secret, tmp_path: Path) -> AsyncIterator[View]:
    """Makes the view of another host."""
    async with AsyncExitStack() as stack:

        def view(clock: Clock) -> Queues:
            store = postgres.open_postgres_store(url, tmp_path)
            stack.push_async_callback(store.close)
            return queues_of(Repository(store), clock=clock, limits=LIMITS)

        yield view


class TestPostgres(QueueProcesses, QueueContract):
    @pytest.fixture
    async def here(self, view: View, database: postgres.Server) -> Setting:
        clock = TestClock()

        async def power_loss() -> list[Queues]:
            database.stop("immediate")
            database.start()
            return [view(clock)]

        return Setting(view(clock), view(clock), clock, power_loss)

    @pytest.fixture
    def place(self, url: Secret, tmp_path: Path) -> list[str]:
        postgres.open_postgres_store(url, tmp_path)  # makes the key, which processes would make by turns
        return [str(tmp_path), url.reveal()]


async def test_an_event_waits_for_an_earlier_one_of_its_address_whose_transaction_is_open(
    url: Secret, view: View
) -> None:
    """Else a consumer had the second event when the first one appears before it."""
    queues = view(SystemClock())
    await queues.enqueue(event(0, "b"))
    values = queues._rows.place(AGENT, event(1).id) | queues._rows.sealed(event(1, "a"))
    async with await psycopg.AsyncConnection.connect(url.reveal()) as slow:
        await slow.execute(STATEMENTS["enqueue"], values)
        second = asyncio.create_task(queues.enqueue(event(2, "a")))
        assert await queues.enqueue(event(3, "b"))  # another address waits for nothing
        assert [event(0).id, event(3).id] == [each async for each in drained(queues)]
        assert not second.done()
        await slow.commit()
    assert await second
    assert [event(1).id, event(2).id] == [each async for each in drained(queues)]


def planted(connection: psycopg.Connection[Any], rows: Iterable[tuple[int, int | None]]) -> None:
    """Plant waiting events of one agent in their order: the number of their conversation, and in how many minutes the
    lease or back-off ends."""
    insert = """
        insert into oauthbroker.queued (agent, id, address, place, due) values (%s, %s, %s, %s, %s * interval '1 minute' + now())"""
    values = [(keyed(0), keyed(-place), keyed(of), place, due) for place, (of, due) in enumerate(rows, 1)]
    with connection.cursor() as cursor:
        cursor.executemany(insert, values)
    connection.execute("analyze oauthbroker.queued")


def keyed(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


LEASE_VALUES = {"agent": keyed(0), "lease": b"lease", "now": None, "seconds": 30}


@pytest.mark.parametrize("others", [3, 300])
def test_a_lease_does_not_walk_the_events_behind_the_leased_one_of_another_conversation(
    url: Secret, others: int
) -> None:
    """Pages are counted, and not seconds. With a walk there were three for each of these events."""
    behind = 3000
    with psycopg.connect(url.reveal()) as connection:
        planted(connection, [(1, 5), *[(1, None)] * behind, *((of, None) for of in range(2, 2 + others))])
        explained = connection.execute(f"explain (analyze, buffers, format json) {STATEMENTS['lease']}", LEASE_VALUES)
        ((plan, *_),) = explained.fetchall()
        assert 1 == plan[0]["Plan"]["Actual Rows"]
        assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 5 * min(
            32 * others, behind
        )


def test_a_lease_finds_the_oldest_free_head_in_any_queue(url: Secret) -> None:
    dice = Random(7)
    with psycopg.connect(url.reveal()) as connection:
        for _ in range(150):
            connection.execute("delete from oauthbroker.queued")
            dues = dice.choice([(None,), (None, 5), (5, 5, 5, None), (-5, 5)])
            rows = [(0, dice.choice((5, None)))] * dice.choice((0, 20, 70))
            rows += [(dice.randrange(dice.choice((4, 30))), dice.choice(dues)) for _ in range(dice.randrange(90))]
            planted(connection, rows)
            heads = {of: (place, due) for place, (of, due) in reversed([*enumerate(rows, 1)])}
            free = [place for place, due in heads.values() if due is None or due < 0]
            found = connection.execute(STATEMENTS["lease"], LEASE_VALUES).fetchall()
            assert [keyed(-place) for place in sorted(free)[:1]] == [bytes(name) for name, *_ in found], rows


@pytest.mark.parametrize("known_by", ["the question", "another event"])
async def test_a_damaged_dead_letter_can_be_dropped_by_what_the_list_says_of_it(
    url: Secret, tmp_path: Path, known_by: str
) -> None:
    store, clock = postgres.open_postgres_store(url, tmp_path), TestClock()
    queues = queues_of(Repository(store), clock=clock, limits=LIMITS)
    await queues.enqueue(event(0, "a"))
    for _ in range(LIMITS.queue_attempts):
        delivery = await queues.lease(AGENT)
        assert delivery is not None
        await delivery.nack()
        clock.advance(3600)
    await lose_body(Repository(store), event(0).id)
    if known_by == "another event":
        await queues.enqueue(event(1, "b"))
    [letter] = await queues.dead(AGENT if known_by == "the question" else None)
    assert (None, ("", AGENT, "")) == (letter.event, letter.address)
    assert await queues.drop(letter.address[1], letter.id)
    assert [] == await queues.dead()
    await store.close()


async def drained(queues: Queues) -> AsyncIterator[str]:
    while (delivery := await queues.lease(AGENT)) is not None:
        yield delivery.id
        assert await delivery.ack()


@dataclass
class TwoHosts:
    """Two hosts on one database. The second one changes the keys."""

    one: PostgresQueues
    rotation: KeyRotation
    rotation_of_one: KeyRotation

    def after(self, patch: pytest.MonkeyPatch, method: str, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        """Let `meanwhile` happen once, after the first host's statement and before it goes on."""
        connections = self.one._rows._store.connections
        original = getattr(connections, method)

        async def run(*words: Any) -> Any:
            rows = await original(*words)
            patch.undo()
            await meanwhile()
            return rows

        patch.setattr(connections, method, run)


@pytest.fixture
async def two_hosts(url: Secret, tmp_path: Path) -> AsyncIterator[TwoHosts]:
    async with AsyncExitStack() as stack:
        stores = [postgres.open_postgres_store(url, tmp_path) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        home = KeyringTable(url, FileKek.open(tmp_path / "test.kek"))
        queues = queues_of(Repository(stores[0]), clock=SystemClock(), limits=LIMITS)
        assert isinstance(queues, PostgresQueues)
        yield TwoHosts(queues, *(KeyRotation(store, home, SystemClock()) for store in reversed(stores)))


async def test_an_enqueue_is_kept_when_the_host_follows_the_keys_between_its_statement_and_the_answer(
    two_hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement added nothing, because the seed was an old one; by then the host has opened the new one."""
    one = two_hosts.one
    await one.enqueue(event(0, "a"))
    assert await two_hosts.rotation.rotate(wait=0)
    two_hosts.after(monkeypatch, "write", two_hosts.rotation_of_one.follow)
    assert await one.enqueue(event(1, "a"))
    assert not await one.enqueue(event(1, "a"))
    assert [event(number).id for number in range(2)] == [each async for each in drained(one)]


async def test_an_event_is_delivered_that_was_sealed_anew_and_whose_seed_was_destroyed_since_it_was_read(
    two_hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, rotation = two_hosts.one, two_hosts.rotation
    await one.enqueue(event(0, "a"))

    async def destroy_its_seed() -> None:
        assert await rotation.rotate(wait=0)
        assert (await rotation.reseal()).done
        assert 0 == await rotation.retire()
        await two_hosts.rotation_of_one.follow()

    two_hosts.after(monkeypatch, "write", destroy_its_seed)
    assert [event(0).id] == [each async for each in drained(one)]


async def test_events_in_rows_outlive_the_seed_that_sealed_them(url: Secret, tmp_path: Path) -> None:
    """Another host seals with a new seed, and destroys the old one when no event needs it."""
    async with AsyncExitStack() as stack:
        stores = [postgres.open_postgres_store(url, tmp_path) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        one, two = (queues_of(Repository(store), clock=SystemClock(), limits=LIMITS) for store in stores)
        await one.enqueue(event(0, "a"))
        home = KeyringTable(url, FileKek.open(tmp_path / "test.kek"))
        rotation = KeyRotation(stores[1], home, SystemClock())
        assert await rotation.rotate(wait=0)
        await two.enqueue(event(1, "a"))
        assert await one.enqueue(event(2, "a")), "a host that has not opened the keyring yet"
        assert 1 == await rotation.retire(), "the first event is sealed with the old seed"
        assert (await rotation.reseal()).done
        assert 0 == await rotation.retire()
        assert [event(number).id for number in range(3)] == [each async for each in drained(one)]
