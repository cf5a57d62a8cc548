"""A store moves from files to PostgreSQL and back: at every moment one of the two opens at most, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.keys.rotation import LEASE_KIND
from oauthbroker.store.migration.copying import Migration
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.store.postgres.schema import KeyringTable
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit import postgres
from tests.kit.cli import BROKER, Desk
from tests.kit.raw_world import RECORDS, Killed, World
from tests.kit.running_broker import running, turn, user_app

ENV = "BROKER_DATABASE_URL"


@pytest.fixture
def world(postgres_server: postgres.Server, tmp_path: Path) -> Iterator[World]:
    postgres_server.empty_database("migration")
    world = World(tmp_path, postgres_server)
    asyncio.run(world.filled())
    yield world
    postgres_server.run("drop database migration with (force)")


async def test_events_that_wait_in_a_database_are_delivered_in_their_order_after_the_move(
    world: World, identity_provider: IdentityProvider
) -> None:
    world.move("files", "database")
    url, app = world.server.url("migration"), user_app(identity_provider)
    ring = KeyringTable(url, world.kek).load()
    kinds: dict[str, Any] = {"kinds": KINDS, "lease_kinds": (*LEASES, LEASE_KIND)}
    rows = PostgresStore(ConnectionPool(url), ring, **kinds)
    async with running(identity_provider, [app], store=rows) as harness:
        for number in range(5):
            await harness.broker.events.enqueue("planner", "tool.completed", {"number": number}, turn=turn())
            harness.clock.advance(1)
        delivery = await harness.broker.events.lease("planner")
        assert delivery is not None
        assert await delivery.ack()
    await rows.close()
    await asyncio.to_thread(world.move, "database", "others")
    files = FileStore(world.folder / "others", ring, clock=SystemClock(), **kinds)
    async with running(identity_provider, [app], store=files) as harness:
        assert [1, 2, 3, 4] == [event["payload"]["number"] for event in await harness.events(count=4)]
    await files.close()


@pytest.mark.parametrize("target", ["database", "others"])
def test_a_store_and_its_way_back_keep_every_record(world: World, target: str) -> None:
    before = world.all("files")
    moved = world.move("files", target)
    assert ({**RECORDS}, True) == ({each.kind: each.records for each in moved.kinds if each.records}, moved.cut_over)
    assert (False, True) == (asyncio.run(world.opens("files")), asyncio.run(world.opens(target)))
    assert before == world.all(target)
    digests = [each.digest for each in moved.kinds]
    back = world.move(target, "files")
    assert (True, False) == (asyncio.run(world.opens("files")), asyncio.run(world.opens(target)))
    assert (digests, 0) == ([each.digest for each in back.kinds], sum(each.written for each in back.kinds))
    assert before == world.all("files")


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("source", "target"), [("files", "database"), ("database", "files")])
def test_a_move_that_is_killed_at_any_step_goes_on_and_never_leaves_two_living_stores(
    world: World, source: str, target: str, after: bool
) -> None:
    for at in range(100):
        world.begin_anew()
        if source == "database":
            world.move("files", source)
        before = world.all(source)
        try:
            world.move(source, target, at=at, after=after)
            break
        except Killed:
            living = [asyncio.run(world.opens(each)) for each in (source, target)]
            assert living != [True, True], at
            if at % 2:
                world.go_back(source)
        world.move(source, target)
        assert before == world.all(target)
        assert (False, True) == (asyncio.run(world.opens(source)), asyncio.run(world.opens(target)))
    assert at >= 4


def test_a_copy_beside_a_broker_is_repeated_and_writes_the_changes(world: World) -> None:
    async def change() -> None:
        store = world.store()
        entry = await store.get(store.key("grants", "0"))
        assert entry is not None
        await store.put(entry.key, b"newer", expect=entry.generation)
        await store.delete(store.key("events", "0"), expect=1)
        await store.put(store.key("events", "9"), b"new", expect=0)
        await store.close()

    world.move("files", "database", cut_over=False)
    asyncio.run(change())
    again = {each.kind: (each.written, each.removed) for each in world.move("files", "database", cut_over=False).kinds}
    assert ((1, 0), (1, 1), (0, 0)) == (again["grants"], again["events"], again["sessions"])
    assert asyncio.run(world.opens("files"))
    assert not asyncio.run(world.opens("database"))


def test_a_store_in_use_is_not_closed(world: World) -> None:
    async def beside() -> None:
        store = world.store()
        with pytest.raises(BrokerError) as refused:
            world.move("files", "database")
        assert (Code.STORE_LOCKED, True) == (refused.value.code, "stop them first" in str(refused.value))
        await store.put(store.key("events", "8"), b"goes on", expect=0)
        await store.close()

    asyncio.run(beside())
    assert asyncio.run(world.opens("files"))


def test_a_broker_of_a_closed_database_reads_and_writes_nothing_more(world: World) -> None:
    """Also one that was cut off while the database was closed, and that comes back with all keys in its memory."""

    async def beside() -> None:
        url = world.server.url("migration")
        world.move("files", "database")
        store = PostgresStore(ConnectionPool(url), world.ring, kinds=KINDS, lease_kinds=LEASES)
        entry = await store.get(store.key("grants", "0"))
        assert entry is not None
        with closing(world.place("database")) as source:
            mark = MigrationMarker(move="m", state=MigrationState.CLOSING, here=source.word, there="x", at="")
            source.set_mark(mark, expect=None)
        for step in (
            lambda: store.get(entry.key),
            lambda: store.is_current(entry),
            lambda: store.put(entry.key, b"late", expect=entry.generation),
            lambda: lease_of(store),
        ):
            with pytest.raises(BrokerError) as refused:
                await step()
            assert "store migrate" in str(refused.value)
        await store.close()
        with pytest.raises(BrokerError) as refused:
            KeyringTable(url, world.kek).load()
        assert Code.STORE_CLOSED is refused.value.code

    asyncio.run(beside())


async def lease_of(store: Any) -> None:
    async with store.lease(store.key("provider", "mail", "alice"), wait=0):
        pass


def test_a_damaged_record_stops_the_cut_over_or_is_left_behind(world: World) -> None:
    name = world.all("files")["sessions"][0].name
    (world.folder / "files" / "data" / "sessions" / name).write_bytes(b"OAB1 damaged")
    with pytest.raises(BrokerError) as refused:
        world.move("files", "database")
    assert (Code.RECORD_CORRUPT, True) == (refused.value.code, f"sessions/{name[:8]}" in str(refused.value))
    with closing(world.place("files")) as here, closing(world.place("database", make=True)) as there:
        move = Migration(source=here, target=there, ring=world.ring, kinds=KINDS, clock=SystemClock())
        moved = move.cut_over(skip_damaged=True)
    assert [f"sessions/{name[:16]}"] == moved.damaged
    assert 1 == len(world.all("database")["sessions"])


def test_a_place_with_another_living_store_is_no_target(world: World, tmp_path: Path) -> None:
    KeyringFile(tmp_path / "others" / "data" / "keyring", world.kek).create()
    with pytest.raises(BrokerError) as refused:
        world.move("files", "others")
    assert (Code.KEY_EXISTS, True) == (refused.value.code, "another store" in str(refused.value))
    with pytest.raises(BrokerError) as refused:
        world.move("files", "files")
    assert Code.STORE_LOCKED is refused.value.code


def test_a_moved_source_is_copied_nowhere_else(world: World) -> None:
    world.move("files", "database")
    with pytest.raises(BrokerError) as refused:
        world.move("files", "others")
    assert (Code.STORE_CLOSED, True) == (refused.value.code, "env:DATABASE" in str(refused.value))


@pytest.mark.slow
def test_the_commands_move_a_store_whose_tokens_keys_and_links_go_on(
    postgres_server: postgres.Server,
    tmp_path: Path,
    canaries: Canaries,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    identity_provider: IdentityProvider,
) -> None:
    postgres_server.empty_database("house")
    monkeypatch.setenv(ENV, postgres_server.url("house").reveal())
    desk, database = Desk(tmp_path, canaries, monkeypatch, capsys), f"env:{ENV}"
    desk.ready_to_serve(identity_provider)
    desk.connect("alice", identity_provider)
    listed = desk.type("grants", "list", "--json").out
    folder = str(tmp_path / "store")

    assert 0 == desk.type("store", "copy", folder, database).code
    refused = desk.type("store", "migrate")
    assert (2, True) == (refused.code, "only a store in postgresql" in refused.err.lower())
    done = json.loads(desk.type("store", "copy", folder, database, "--cut-over", "--json").out)
    assert done["cutOver"]
    refused = desk.type("grants", "list")
    assert (2, True) == (
        refused.code,
        refused.err.startswith("storeClosed") and f"store reopen {folder}" in refused.err,
    )
    reported = desk.type("store", "reopen")
    assert (2, True) == (reported.code, "storeClosed" in reported.err)

    text = BROKER.format(base=desk.base, port=desk.port)
    desk.write("broker", text.replace("{root: ../store}", f"{{root: ../store, url: {{valueFrom: {{env: {ENV}}}}}}}"))
    assert listed == desk.type("grants", "list", "--json").out
    verified = json.loads(desk.type("store", "verify", "--json").out)
    assert (True, []) == (verified["ok"], verified["leftovers"])
    assert 0 == desk.type("audit", "verify").code
    desk.connect("bob", identity_provider)
    with psycopg.connect(postgres_server.url("house").reveal()) as connection:
        connection.execute("update oauthbroker.entry set name = sha256(name) where kind = 'secrets'")
        connection.execute("delete from oauthbroker.tag where kind = 'grants' and label = 'who'")
        connection.commit()
    spoilt = desk.type("store", "verify")
    assert (1, True, True) == (spoilt.code, "does not open" in spoilt.out, "lacks a tag" in spoilt.out)


def test_a_password_is_no_word_of_a_command(
    tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    for url in ("postgresql://me:hunter2@/x", "postgresql:///x?user=me&password=hunter2"):
        refused = desk.type("store", "verify", url)
        assert (2, True, False) == (refused.code, "env:NAME" in refused.err, "hunter2" in refused.err)
