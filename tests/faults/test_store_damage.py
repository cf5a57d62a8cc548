"""Damaged and moved records in a real store: only they are affected, their bytes are kept, and life goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Conflict, Key
from oauthbroker.testing.stores import open_file_store


@pytest.fixture
async def store(tmp_path):
    store = open_file_store(tmp_path)
    for name in ("a", "b", "c"):
        await store.put(store.key("grants", name), f"body of {name}".encode(), expect=0)
    yield store
    await store.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "store" / "data"


def path_of(data: Path, key: Key) -> Path:
    return data / key.kind / key.name


async def code_of(store: FileStore, key: Key) -> Code:
    with pytest.raises(BrokerError) as caught:
        await store.get(key)
    assert caught.value.__cause__ is caught.value.__context__ is None
    return caught.value.code


async def bodies(store: FileStore) -> list[bytes]:
    return sorted([entry.body async for entry in store.scan("grants")])


DAMAGE = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[:200],
    "cut by a step": lambda whole: whole[:-256],
    "a longer tail": lambda whole: whole + bytes(256),
    "a flipped bit": lambda whole: whole[:150] + bytes([whole[150] ^ 1]) + whole[151:],
    "zeros": lambda whole: bytes(len(whole)),
    "5 MiB": lambda whole: bytes(5 * 1024 * 1024),
}


@pytest.mark.case("65", "66")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_damage_stays_with_its_record_and_its_bytes_are_kept(store, data, damage, caplog):
    key = store.key("grants", "b")
    damaged = damage(path_of(data, key).read_bytes())
    path_of(data, key).write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        assert [b"body of a", b"body of c"] == await bodies(store)
    assert [f"unreadable entry grants/{key.name[:8]}: recordCorrupt"] == [r.getMessage() for r in caplog.records]
    assert Code.RECORD_CORRUPT == await code_of(store, key)
    (aside,) = (data / "corrupt").iterdir()
    assert damaged[: 4 * 1024 * 1024] == aside.read_bytes()[: 4 * 1024 * 1024]
    assert damaged == path_of(data, key).read_bytes()


@pytest.mark.case("65")
async def test_a_damaged_record_may_be_written_anew_by_who_was_told(store, data):
    key = store.key("grants", "b")
    path_of(data, key).write_bytes(b"damaged")
    with pytest.raises(Conflict):
        await store.put(key, b"stale writer", expect=1)
    assert 1 == (await store.put(key, b"again", expect=0)).generation
    assert b"again" == (await store.get(key)).body
    assert [b"damaged"] == [path.read_bytes() for path in (data / "corrupt").iterdir()]


@pytest.mark.case("65")
async def test_a_damaged_record_may_be_removed_by_who_was_told(store, data):
    key = store.key("grants", "b")
    path_of(data, key).write_bytes(b"damaged")
    with pytest.raises(Conflict):
        await store.delete(key, expect=1)
    await store.delete(key, expect=0)
    assert None is await store.get(key)
    assert 1 == len(list((data / "corrupt").iterdir()))


async def test_each_damage_is_kept_once_and_not_without_end(store, data, monkeypatch):
    monkeypatch.setattr("oauthbroker.store.file.versioned_entries._MOST_ASIDE", 5)
    key = store.key("grants", "b")
    for state in range(8):
        path_of(data, key).write_bytes(b"damage %d" % state)
        assert Code.RECORD_CORRUPT == await code_of(store, key)
        assert Code.RECORD_CORRUPT == await code_of(store, key)
    assert 5 == len(list((data / "corrupt").iterdir()))


async def test_damage_that_cannot_be_kept_aside_is_reported_but_not_written_over(store, data):
    """The only copy of a damaged record is not given up for a new one."""
    key = store.key("grants", "b")
    path_of(data, key).write_bytes(b"damaged")
    (data / "corrupt").rmdir()
    assert Code.RECORD_CORRUPT == await code_of(store, key)
    with pytest.raises(BrokerError) as caught:
        await store.put(key, b"again", expect=0)
    assert Code.STORE_UNAVAILABLE == caught.value.code
    assert b"damaged" == path_of(data, key).read_bytes()


@pytest.mark.case("67")
async def test_swapped_records_open_for_neither_subject(store, data):
    one, two = path_of(data, store.key("grants", "a")), path_of(data, store.key("grants", "b"))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    for name in ("a", "b"):
        assert Code.RECORD_MISPLACED == await code_of(store, store.key("grants", name))
    assert [b"body of c"] == await bodies(store)


@pytest.mark.case("67")
async def test_a_record_moved_to_another_kind_does_not_open(store, data):
    grant = store.key("grants", "a")
    session = Key("sessions", grant.name)
    path_of(data, grant).rename(path_of(data, session))
    assert Code.RECORD_MISPLACED == await code_of(store, session)
    assert None is await store.get(grant)


@pytest.mark.case("67")
async def test_a_record_of_another_store_does_not_open(store, data, tmp_path):
    (tmp_path / "second").mkdir()
    other = open_file_store(tmp_path / "second")
    await other.put(other.key("grants", "x"), b"theirs", expect=0)
    await other.close()
    key = store.key("grants", "a")
    theirs = path_of(tmp_path / "second" / "store" / "data", other.key("grants", "x"))
    path_of(data, key).write_bytes(theirs.read_bytes())
    assert Code.KEY_UNKNOWN == await code_of(store, key)


@pytest.mark.case("67", "69")
async def test_a_misplaced_or_foreign_record_is_not_written_over(store, data):
    """It may be the only copy of something: the operator decides."""
    key = store.key("grants", "a")
    path_of(data, store.key("grants", "b")).rename(path_of(data, key))
    before = path_of(data, key).read_bytes()
    for expect in (0, 1):
        with pytest.raises(BrokerError) as caught:
            await store.put(key, b"mine", expect=expect)
        assert Code.RECORD_MISPLACED == caught.value.code
    assert before == path_of(data, key).read_bytes()
    assert [] == list(data.rglob("*.tmp"))


async def test_a_name_that_is_no_entry_is_ignored(store, data):
    (data / "grants" / "README").write_text("planted")
    assert 3 == len(await bodies(store))
    assert 3 == await store.count("grants")


def foreign(store, data, key):
    """Bytes of a key that is not at hand."""
    whole = path_of(data, key).read_bytes()
    path_of(data, key).write_bytes(whole[:5] + bytes(16) + whole[21:])


def misplaced(store, data, key):
    path_of(data, key).write_bytes(path_of(data, store.key("grants", "a")).read_bytes())


def broken(store, data, key):
    path_of(data, key).write_bytes(b"damaged")


UNOPENED = pytest.mark.parametrize("spoil", [foreign, misplaced, broken], ids=lambda spoil: spoil.__name__)


@pytest.mark.case("65", "67", "69")
@UNOPENED
async def test_what_does_not_open_is_set_aside_where_others_make_up_for_it(store, data, spoil):
    key = store.key("grants", "b")
    spoil(store, data, key)
    before = path_of(data, key).read_bytes()
    await store.set_aside(key)
    assert None is await store.get(key)
    assert [before] == [path.read_bytes() for path in (data / "corrupt").iterdir()]
    assert 1 == (await store.put(key, b"anew", expect=0)).generation


@UNOPENED
async def test_nothing_is_set_aside_that_cannot_be_kept(store, data, spoil, monkeypatch):
    monkeypatch.setattr("oauthbroker.store.file.versioned_entries._MOST_ASIDE", 0)
    key = store.key("grants", "b")
    spoil(store, data, key)
    before = path_of(data, key).read_bytes()
    with pytest.raises(BrokerError):
        await store.set_aside(key)
    assert before == path_of(data, key).read_bytes()


async def test_what_opens_is_not_set_aside(store):
    key = store.key("grants", "b")
    await store.set_aside(key)
    assert b"body of b" == (await store.get(key)).body
    await store.set_aside(store.key("grants", "nothing"))
