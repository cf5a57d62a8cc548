"""Keys change while several processes have the store open, on files and on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file import sealed_files
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.format.seal import KID
from oauthbroker.store.keys.key_encryption_keys import FileKek, KeyProvider
from oauthbroker.store.keys.keyring import Keyring, SeedState
from oauthbroker.store.keys.keyring_home import KeyringFile, KeyringHome
from oauthbroker.store.keys.rotation import LEASE_KIND, KeyRotation, SealedStore
from oauthbroker.store.postgres import sealed_rows
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.store.postgres.schema import KeyringTable
from tests.kit import postgres
from tests.kit.waiting import until

LEASE_KINDS = (*LEASES, LEASE_KIND)


@dataclass
class Hosts:
    """One store, opened by as many processes as a test wants; they are played in this one."""

    folder: Path
    url: Any = None
    opened: list[SealedStore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kek = FileKek.create(self.folder / "first.kek")
        self.home(self.kek).create()

    def home(self, *keks: KeyProvider) -> KeyringHome:
        if self.url is not None:
            return KeyringTable(self.url, *keks)
        return KeyringFile(self.folder / "store" / "data" / "keyring", *keks)

    def open(self, *keks: KeyProvider) -> KeyRotation:
        home, clock = self.home(*(keks or (self.kek,))), SystemClock()
        store: SealedStore
        if self.url is not None:
            store = PostgresStore(ConnectionPool(self.url), home.load(), kinds=KINDS, lease_kinds=LEASE_KINDS)
        else:
            store = FileStore(self.folder / "store", home.load(), kinds=KINDS, lease_kinds=LEASE_KINDS, clock=clock)
        self.opened.append(store)
        return KeyRotation(store, home, clock)

    async def record(self, key: Key) -> bytes:
        """The sealed bytes of an entry."""
        if self.url is None:
            return (self.folder / "store" / "data" / key.kind / key.name).read_bytes()
        rows = await self.opened[0].connections.read(  # type: ignore[attr-defined]
            "select record from oauthbroker.entry where name = %(name)s", {"name": bytes.fromhex(key.name)}
        )
        return bytes(rows[0][0])

    async def damage(self, key: Key) -> None:
        if self.url is None:
            path = self.folder / "store" / "data" / key.kind / key.name
            path.write_bytes(spoilt(path.read_bytes()))
            return
        statement = "update oauthbroker.entry set record = %(record)s where name = %(name)s"
        values = {"record": spoilt(await self.record(key)), "name": bytes.fromhex(key.name)}
        await self.opened[0].connections.write(statement, values)  # type: ignore[attr-defined]


def spoilt(record: bytes) -> bytes:
    """Change the last byte, which is any of 256."""
    return record[:-1] + bytes([record[-1] ^ 1])


@pytest.fixture(scope="module")
def database(postgres_server: postgres.Server) -> str:
    postgres_server.new_database("rotation")
    return "rotation"


@pytest.fixture(params=["files", "postgres"])
async def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hosts]:
    url = None
    if request.param == "postgres":
        server, name = request.getfixturevalue("postgres_server"), request.getfixturevalue("database")
        server.empty(name)
        server.run("truncate oauthbroker.process", name)
        url = server.url(name)
    hosts = Hosts(tmp_path, url)
    yield hosts
    for store in hosts.opened:
        await store.close()


async def following(work: Coroutine[Any, Any, Any], *others: KeyRotation) -> Any:
    """Do the work while other processes follow the keyring, as brokers do every few seconds."""

    async def follow() -> None:
        while True:
            for each in others:
                with suppress(BrokerError):
                    await each.follow()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(follow())
    try:
        return await work
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def fill(host: KeyRotation, count: int = 5) -> list[Key]:
    keys = [host.store.key("grants", str(number)) for number in range(count)]
    for number, key in enumerate(keys):
        await host.store.put(key, b"%d" % number, expect=0)
    return keys


async def code_of(work: Coroutine[Any, Any, Any]) -> Code | None:
    try:
        await work
    except BrokerError as error:
        return error.code
    return None


async def read(host: KeyRotation, key: Key) -> Entry:
    entry = await host.store.get(key)
    assert entry is not None
    return entry


async def seed_of(hosts: Hosts, key: Key) -> bytes:
    return (await hosts.record(key))[KID]


async def test_after_a_rotation_new_records_have_the_new_seed_and_old_ones_open(hosts: Hosts):
    one, two = hosts.open(), hosts.open()
    keys = await fill(one)
    before = one.ring.active.kid
    assert await following(one.rotate(wait=10), two)
    assert (2, before) == (one.ring.epoch, one.ring.old_seeds[0].kid)
    await one.store.put(keys[0], b"new", expect=1)
    assert (one.ring.active.kid, before) == (await seed_of(hosts, keys[0]), await seed_of(hosts, keys[1]))
    for host in (one, two, hosts.open()):
        assert [b"new", b"1"] == [(await read(host, key)).body for key in keys[:2]]


async def test_a_seed_seals_nothing_while_a_process_cannot_open_it_and_the_next_rotate_goes_on(hosts: Hosts):
    one, asleep = hosts.open(), hosts.open()
    await asleep.follow()
    assert not await one.rotate(wait=0)
    waiting = one.ring.next_seed
    assert waiting is not None
    assert (1, 1) == (one.ring.epoch, await one.behind())
    key = (await fill(one, 1))[0]
    assert waiting.kid != await seed_of(hosts, key)
    assert await following(one.rotate(wait=10), asleep)
    assert (waiting.kid, 2) == (one.ring.active.kid, one.ring.epoch)


async def test_a_process_that_missed_the_rotation_seals_with_the_new_seed_and_reads_it(hosts: Hosts):
    """The fence: it has seen that there is a new seed, and not that the seed is active."""
    one, late = hosts.open(), hosts.open()
    keys = await fill(one, 3)
    await late.follow()
    assert not await one.rotate(wait=0)
    await late.follow()
    assert await one.rotate(wait=10)
    assert (2, 1) == (one.ring.epoch, late.ring.epoch)
    await one.store.put(keys[0], b"by one", expect=1)
    assert b"by one" == (await read(late, keys[0])).body
    await late.store.put(keys[1], b"by late", expect=1)
    new = late.store.key("grants", "new")
    await late.store.put(new, b"new", expect=0)
    assert {one.ring.active.kid} == {await seed_of(hosts, keys[1]), await seed_of(hosts, new)}
    assert b"by late" == (await read(one, keys[1])).body


async def test_a_process_that_never_saw_the_seed_reads_and_seals_with_it(hosts: Hosts):
    one, late = hosts.open(), hosts.open()
    keys = await fill(one, 2)
    home = one.home
    home.change(lambda ring: ring.with_next_seed())
    home.change(Keyring.with_next_active)
    await one.follow()
    await one.store.put(keys[0], b"by one", expect=1)
    assert b"by one" == (await read(late, keys[0])).body
    late = hosts.open()
    home.change(lambda ring: ring.with_next_seed())
    home.change(Keyring.with_next_active)
    await late.store.put(keys[1], b"by late", expect=1)
    await one.follow()
    assert one.ring.active.kid == await seed_of(hosts, keys[1])


async def test_a_process_that_never_saw_the_seed_finds_every_record(hosts: Hosts):
    one, late = hosts.open(), hosts.open()
    keys = await fill(one, 2)
    tag = one.store.tag("grants", "app", "slack")
    one.home.change(lambda ring: ring.with_next_seed())
    one.home.change(Keyring.with_next_active)
    await one.follow()
    await one.store.put(keys[0], b"by one", expect=1, tags=[tag])
    assert {b"by one", b"1"} == {entry.body async for entry in late.store.scan("grants")}
    assert [b"by one"] == [entry.body async for entry in hosts.open().store.find(tag)]


async def test_resealing_keeps_every_body_generation_and_tag_and_disturbs_no_writer(hosts: Hosts):
    one, two = hosts.open(), hosts.open()
    keys = await fill(one)
    tag = one.store.tag("grants", "app", "slack")
    await one.store.put(keys[0], b"tagged", expect=1, tags=[tag])
    seen = [await read(two, key) for key in keys]
    assert await following(one.rotate(wait=10), two)
    done = await one.reseal()
    assert (5, 5, 0, True) == tuple(done)
    assert {one.ring.active.kid} == {await seed_of(hosts, key) for key in keys}
    assert [(it.generation, it.body) for it in seen] == [
        (it.generation, it.body) for it in [await read(two, key) for key in keys]
    ]
    assert [b"tagged"] == [entry.body async for entry in two.store.find(tag)]
    assert 2 == (await two.store.put(keys[1], b"next", expect=1)).generation
    assert (0, 0, 0, True) == tuple(await two.reseal())


@pytest.mark.case("70")
async def test_an_old_seed_is_retired_only_when_no_record_needs_it(hosts: Hosts):
    one, two = hosts.open(), hosts.open()
    keys = await fill(one)
    assert await following(one.rotate(wait=10), two)
    assert 5 == await two.retire()
    assert SeedState.DECRYPT_ONLY is two.ring.seeds[0].state
    await two.reseal()
    assert 0 == await one.retire()
    destroyed = hosts.open().ring.seeds[0]
    assert (SeedState.DESTROYED, b"") == (destroyed.state, destroyed.key)
    for host in (one, two, hosts.open()):
        assert [b"0", b"1", b"2", b"3", b"4"] == [(await read(host, key)).body for key in keys]
    assert 0 == await one.retire()


async def test_seeds_are_counted_and_replaced_some_records_at_a_time(hosts: Hosts, monkeypatch: pytest.MonkeyPatch):
    """A statement over a whole table of a million records takes longer than a statement may take."""
    for module, bound in ((sealed_rows, "_PAGE"), (sealed_rows, "_COUNTED"), (sealed_files, "_COUNTED")):
        monkeypatch.setattr(module, bound, 2)
    one, seen = hosts.open(), list[tuple[str, int, int | None]]()
    keys = await fill(one)
    before = one.ring.active.kid
    assert await one.rotate(wait=10)
    await one.store.put(keys[2], b"next", expect=1)
    sizes = [page.total() async for page in one.store.sealed.seals(keys[0].kind)]
    assert (5, 2) == (sum(sizes), max(sizes))
    assert (4, 1) == ((await one.seals())[before], (await one.seals())[one.ring.active.kid])
    done = await one.reseal(progress=lambda *count: seen.append(count))
    assert (4, 0, True) == (done.resealed, done.unreadable, done.done)
    assert {one.ring.active.kid} == {await seed_of(hosts, key) for key in keys}
    assert 0 == await one.retire(progress=lambda *count: seen.append(count))
    assert {"records sealed anew", "records counted"} == {what for what, *_ in seen}


async def test_a_record_that_cannot_be_opened_keeps_its_seed(hosts: Hosts):
    one = hosts.open()
    keys = await fill(one)
    await hosts.damage(keys[2])
    assert await one.rotate(wait=10)
    done = await one.reseal()
    assert (4, 1, False) == (done.resealed, done.unreadable, done.done)
    assert 1 == await one.retire()
    with pytest.raises(BrokerError):
        await one.store.get(keys[2])
    await one.store.put(keys[2], b"connected again", expect=0)
    assert (await one.reseal()).done
    assert 0 == await one.retire()


@pytest.mark.parametrize("hosts", ["postgres"], indirect=True)
async def test_records_are_sealed_anew_in_one_statement_that_leaves_alone_those_written_meanwhile(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = hosts.open(), hosts.open()
    keys = await fill(one)
    assert await following(one.rotate(wait=10), two)
    write, sent = ConnectionPool.write, list[Any]()

    async def beside_a_writer(pool: ConnectionPool, statement: str, values: Any = None) -> Any:
        if isinstance(values, dict) and "headers" in values:
            sent.append(values)
            await two.store.put(keys[2], b"next", expect=1)
            await two.store.delete(keys[3], expect=1)
        return await write(pool, statement, values)

    monkeypatch.setattr(ConnectionPool, "write", beside_a_writer)
    assert (5, 3, 0, True) == tuple(await one.reseal())
    assert [5] == [len(values["records"]) for values in sent]
    left = [keys[0], keys[1], keys[2], keys[4]]
    assert [b"0", b"1", b"next", b"4"] == [(await read(one, key)).body for key in left]
    assert {one.ring.active.kid} == {await seed_of(hosts, key) for key in left}


async def test_resealing_is_done_by_one_process_at_a_time_and_goes_on_after_an_interruption(hosts: Hosts):
    one, two = hosts.open(), hosts.open()
    keys = await fill(one, 8)
    assert await following(one.rotate(wait=10), two)
    task = asyncio.create_task(one.reseal(rest=30))

    async def begun() -> bool:
        return one.ring.active.kid in {await seed_of(hosts, key) for key in keys}

    await until(begun)
    assert Code.STORE_LOCKED is await code_of(two.reseal(wait=0))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    done = await two.reseal(wait=30)
    assert (True, True) == (done.done, 0 < done.resealed < 8)


async def test_several_rotations_in_a_row_leave_one_seed(hosts: Hosts):
    one = hosts.open()
    keys = await fill(one)
    for _ in range(3):
        assert await one.rotate(wait=10)
        await one.store.put(one.store.key("grants", f"of {one.ring.epoch}"), b"x", expect=0)
    assert (4, 3) == (one.ring.epoch, len(one.ring.old_seeds))
    assert (await one.reseal()).done
    assert 0 == await one.retire()
    assert [SeedState.DESTROYED] * 3 + [SeedState.ACTIVE] == [seed.state for seed in one.ring.seeds]
    assert b"0" == (await read(hosts.open(), keys[0])).body


async def test_a_new_key_takes_the_place_of_the_old_one(hosts: Hosts):
    """Both open first, then only the new one; a broker that runs follows."""
    new = FileKek.create(hosts.folder / "new.kek")
    one, running = hosts.open(hosts.kek, new), hosts.open(hosts.kek, new)
    key = (await fill(one, 1))[0]
    await one.rewrap()
    assert [hosts.kek.id(), new.id()] == [wrap.kek for wrap in one.ring.wraps]
    for each in (hosts.open(hosts.kek), hosts.open(new)):
        await each.store.close()
    before = one.home.read()
    only = hosts.open(new)
    await only.rewrap()
    assert [new.id()] == [wrap.kek for wrap in only.ring.wraps]
    with pytest.raises(BrokerError) as refused:
        hosts.open(hosts.kek)
    assert Code.KEY_MISMATCH is refused.value.code
    for each in (one, running):
        await each.follow()
    assert 0 == await only.behind()
    assert await following(only.rotate(wait=10), one, running)
    await running.store.put(key, b"still", expect=1)
    assert b"still" == (await read(one, key)).body
    assert before is not None
    assert Keyring.opened(before, hosts.kek).reopened(one.home.read() or b"") is None, "the data key is a new one"


async def test_a_broker_whose_key_no_longer_opens_serves_on_and_keeps_the_next_seed_from_sealing(hosts: Hosts):
    new = FileKek.create(hosts.folder / "new.kek")
    one, lost = hosts.open(hosts.kek, new), hosts.open(hosts.kek)
    key = (await fill(one, 1))[0]
    await lost.follow()
    moved = hosts.open(new, hosts.kek)
    await moved.rewrap()
    only = hosts.open(new)
    await only.rewrap()
    assert Code.STORE_UNAVAILABLE is await code_of(lost.follow())
    await lost.store.put(key, b"kept", expect=1)
    assert b"kept" == (await read(lost, key)).body
    assert not await following(only.rotate(wait=1), one, moved)
    assert 1 <= await only.behind()


async def test_a_key_service_that_is_away_changes_nothing(hosts: Hosts):
    class Away(FileKek):
        def wrap(self, secret: bytes, context: bytes) -> bytes:
            raise BrokerError(Code.KEY_UNKNOWN, note="away")

    away = Away.create(hosts.folder / "away.kek")
    one = hosts.open(hosts.kek, away)
    before = one.home.read()
    assert Code.KEY_UNKNOWN is await code_of(one.rewrap())
    assert before == one.home.read()
    assert await one.rotate(wait=10), "a rotation of the seeds asks no key service"


async def test_of_two_rotations_at_once_each_makes_one_seed(hosts: Hosts):
    one, two = hosts.open(), hosts.open()
    assert [True, True] == list(await following(_both(one.rotate(wait=20), two.rotate(wait=20)), one, two))
    await one.follow()
    assert (3, 3) == (one.ring.epoch, len(one.ring.seeds))


async def _both(*work: Callable[[], Any] | Coroutine[Any, Any, Any]) -> list[Any]:
    return list(await asyncio.gather(*work))  # type: ignore[arg-type]


@pytest.mark.case("70")
async def test_writers_at_full_speed_lose_nothing_through_rotations_and_strand_nothing(hosts: Hosts):
    one, *others = (hosts.open() for _ in range(3))
    key_of = [one.store.key("sessions", str(number)) for number in range(6)]
    stop = asyncio.Event()

    async def write(host: KeyRotation, key: Key) -> int:
        generation = 0
        while not stop.is_set():
            generation = (await host.store.put(key, b"%d" % (generation + 1), expect=generation)).generation
            assert b"%d" % generation == (await read(one, key)).body
            await asyncio.sleep(0)
        return generation

    async def change() -> None:
        for _ in range(2):
            assert await one.rotate(wait=20)
            await one.reseal()
            assert 0 == await one.retire()
        stop.set()

    writers = [asyncio.create_task(write(host, key)) for host, key in zip((one, *others) * 2, key_of, strict=True)]
    try:
        await following(asyncio.wait_for(change(), 120), *others)
    finally:
        stop.set()
        written = await asyncio.gather(*writers)
    fresh = hosts.open()
    assert [b"%d" % generation for generation in written] == [(await read(fresh, key)).body for key in key_of]
    assert 1 == len([seed for seed in fresh.ring.seeds if seed.state is not SeedState.DESTROYED])


async def test_resealing_begins_once_no_writer_uses_an_old_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Hosts(tmp_path).open()
    await one.store.put(one.store.key("grants", "a"), b"x", expect=0)
    assert await one.rotate(wait=10)
    did, sealed = list[str](), one.store.sealed
    settle, reseal = sealed.settle_writers, sealed.reseal

    async def noted_settle() -> None:
        did.append("settle")
        await settle()

    def noted_reseal(*given: Any) -> Any:
        did.append("reseal")
        return reseal(*given)

    monkeypatch.setattr(type(sealed), "settle_writers", lambda _: noted_settle())
    monkeypatch.setattr(type(sealed), "reseal", lambda _, *given: noted_reseal(*given))
    assert 1 == (await one.reseal()).resealed
    assert ["settle", "reseal"] == did[:2]
    await one.store.close()


async def take_over(hosts: Hosts, host: KeyRotation, ring: Keyring, records: dict[Key, bytes]) -> None:
    """Play a standby that takes over without the last changes: it has this keyring, these records and no process."""
    host.home.replace(host.home.read() or b"", ring)
    connections = hosts.opened[0].connections  # type: ignore[attr-defined]
    for key, record in records.items():
        values = {"record": record, "name": bytes.fromhex(key.name)}
        await connections.write("update oauthbroker.entry set record = %(record)s where name = %(name)s", values)
    await connections.write("delete from oauthbroker.process")


@pytest.mark.parametrize("hosts", ["postgres"], indirect=True)
async def test_a_keyring_that_a_takeover_has_lost_is_given_up(hosts: Hosts):
    """The records that the standby has need the seeds that it has, and those of its lost changes are lost, too."""
    host = hosts.open()
    (key,), before = await fill(host, 1), host.home.load()
    records = {key: await hosts.record(key)}
    assert await host.rotate(wait=10)
    await host.reseal()
    assert 0 == await host.retire()
    await take_over(hosts, host, before, records)
    assert b"0" == (await read(host, key)).body
    await host.store.put(key, b"new", expect=1)
    assert (1, b"new") == (host.ring.epoch, (await read(hosts.open(), key)).body)


@pytest.mark.parametrize("hosts", ["postgres"], indirect=True)
async def test_a_seed_that_a_takeover_has_lost_seals_nothing_though_its_epoch_has_come_again(hosts: Hosts):
    host, frozen = hosts.open(), hosts.open()
    (key,), before = await fill(host, 1), host.home.load()
    assert await following(host.rotate(wait=10), frozen)
    await frozen.follow()
    await take_over(hosts, host, before, {})
    assert await host.rotate(wait=10)
    lost = frozen.ring.active.kid
    assert (2, 2, True) == (host.ring.epoch, frozen.ring.epoch, lost != host.ring.active.kid)
    frozen.store.connections.contact.lost()  # type: ignore[attr-defined]  # its server is another one now
    await frozen.store.put(key, b"by frozen", expect=1)
    assert (host.ring.active.kid, b"by frozen") == (await seed_of(hosts, key), (await read(host, key)).body)
