"""The repository: pending work is marked before it exists, and every record lies where its content says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import AuthSession
from oauthbroker.repository.repository import KINDS, LEASES, Conflict, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store
from tests.kit.crashfs import CountingFs
from tests.unit.records import kit

APP, SUBJECT = "slack-bot", "slack:team:T111"


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    yield store
    await store.close()


@pytest.fixture
def repository(store: MemoryStore) -> Repository:
    return Repository(store)


async def listed(repository: Repository, locators: list[str]) -> None:
    await repository.waiting_lists.save(await repository.waiting_lists.of(APP, SUBJECT), locators)


def numbered(number: int, **changes: object) -> AuthSession:
    return kit.session(locator=f"{number:022d}", **changes)


async def test_a_grant_is_read_as_it_was_saved(repository: Repository) -> None:
    assert await repository.grant(GrantKey(APP, SUBJECT)) is None
    await repository.save_grant(kit.grant(), expect=0)
    versioned = await repository.grant(GrantKey(APP, SUBJECT))
    assert versioned is not None
    assert (kit.grant(), 1) == (versioned.record, versioned.generation)
    assert [kit.grant()] == [each.record async for each in repository.grants()]


async def test_a_grant_written_elsewhere_is_seen_although_one_is_remembered(store: MemoryStore) -> None:
    here, elsewhere = Repository(store), Repository(store)
    saved = await here.save_grant(kit.grant(), expect=0)
    assert here.is_newest(saved.entry)
    assert here.is_newest(saved.entry.without_body())
    await elsewhere.save_grant(kit.grant(revoked=True), expect=1)
    assert not here.is_newest(saved.entry)
    versioned = await here.grant(GrantKey(APP, SUBJECT))
    assert versioned is not None
    assert versioned.record.revoked


async def test_who_wrote_later_wins_and_the_other_one_is_told(repository: Repository) -> None:
    await repository.save_grant(kit.grant(), expect=0)
    with pytest.raises(Conflict):
        await repository.save_grant(kit.grant(revoked=True), expect=0)
    versioned = await repository.grant(GrantKey(APP, SUBJECT))
    assert versioned is not None
    assert not versioned.record.revoked


@pytest.mark.parametrize(
    ("changes", "marked"),
    [
        ({}, False),
        ({"outbox": (kit.event(),)}, True),
        ({"revoked": True, "revocation": "pending"}, True),
        ({"revoked": True, "revocation": "done", "token": None}, False),
    ],
    ids=["nothing left", "an event to queue", "a provider to tell", "told"],
)
async def test_a_grant_is_marked_due_if_something_is_left_to_do(repository: Repository, changes, marked) -> None:
    await repository.save_grant(kit.grant(**changes), expect=0)
    due = await repository.due()
    assert marked is bool(due)
    for each in due:
        assert GrantKey(APP, SUBJECT) == each.grant
        versioned = await repository.due_grant(each)
        assert versioned is not None
        assert kit.grant(**changes) == versioned.record
        assert await repository.due_session(each) is None


async def test_a_session_with_an_event_is_marked_due(repository: Repository) -> None:
    await repository.save_session(numbered(1), expect=0)
    assert [] == await repository.due()
    ended = numbered(1).failed(kit.UPDATED, Code.PROVIDER_DENIED, kit.event())
    await repository.save_session(ended, expect=1)
    (due,) = await repository.due()
    versioned = await repository.due_session(due)
    assert versioned is not None
    assert ended == versioned.record
    assert await repository.due_grant(due) is None


@pytest.mark.case("63")
async def test_the_mark_comes_before_the_record(store: MemoryStore, monkeypatch) -> None:
    """A crash in between leaves a number or a mark without a record, which is harmless; the reverse would lose an event
    or its place."""
    repository, order = Repository(store), []
    put = store.put

    async def noting(key, body, **more):
        order.append(key.kind)
        return await put(key, body, **more)

    monkeypatch.setattr(store, "put", noting)
    await repository.save_grant(kit.grant(outbox=(kit.event(),)), expect=0)
    await repository.save_session(numbered(1, outbox=kit.event()), expect=0)
    assert ["queues", "due", "grants", "queues", "due", "sessions"] == order


async def test_settling_is_done_once_and_twice_is_harmless(repository: Repository) -> None:
    await repository.save_grant(kit.grant(outbox=(kit.event(),)), expect=0)
    (due,) = await repository.due()
    await repository.markers.settle(due)
    await repository.markers.settle(due)
    assert [] == await repository.due()


async def test_only_open_sessions_wait_and_the_oldest_comes_first(repository: Repository) -> None:
    for number in (1, 2, 3):
        await repository.save_session(numbered(number), expect=0)
    await repository.save_session(numbered(2).lapsed(kit.UPDATED), expect=1)
    await listed(repository, [numbered(number).locator for number in (3, 2, 1, 9)])
    assert [numbered(3), numbered(1)] == [versioned.record for versioned in await repository.waiting(APP, SUBJECT)]
    assert [] == await repository.waiting(APP, "slack:team:T222")


async def test_an_unchanged_waiting_list_costs_no_write(
    repository: Repository, store: MemoryStore, monkeypatch
) -> None:
    await listed(repository, ["a"])
    monkeypatch.setattr(store, "put", None)
    await listed(repository, ["a"])


async def test_a_waiting_list_that_was_read_before_another_change_is_not_written(repository: Repository) -> None:
    before = await repository.waiting_lists.of(APP, SUBJECT)
    await listed(repository, ["theirs"])
    with pytest.raises(Conflict):
        await repository.waiting_lists.save(before, ["mine"])
    assert ["theirs"] == (await repository.waiting_lists.of(APP, SUBJECT)).locators


async def test_an_event_kept_twice_is_kept_once_and_dropped_twice_is_gone(repository: Repository) -> None:
    await repository.events.keep(kit.event())
    await repository.events.keep(kit.event())
    assert kit.event() == await repository.events.get(kit.event().id)
    await repository.events.drop(kit.event().id)
    await repository.events.drop(kit.event().id)
    assert await repository.events.get(kit.event().id) is None


@pytest.mark.case("67")
@pytest.mark.parametrize("kind", ["grants", "sessions", "waiting", "secrets"])
async def test_a_record_in_another_records_place_is_misplaced(store: MemoryStore, kind: str) -> None:
    """Sealed by us, but not for this place: the content says whose it is, and that is compared."""
    reported: list[tuple[str, Code]] = []
    repository = Repository(store, lambda place, code: reported.append((place, code)))
    await repository.save_grant(kit.grant(), expect=0)
    await repository.save_session(numbered(1), expect=0)
    await listed(repository, [numbered(1).locator])
    await repository.secrets.change("theirs", lambda _: {"key": "planted"})
    there = {
        "grants": (APP, SUBJECT),
        "sessions": (numbered(1).locator,),
        "waiting": (APP, SUBJECT),
        "secrets": ("theirs",),
    }
    entry = await store.get(store.key(kind, *there[kind]))
    assert entry is not None
    elsewhere = {"grants": (APP, "victim"), "sessions": ("2" * 22,), "waiting": (APP, "victim"), "secrets": ("mine",)}
    key = store.key(kind, *elsewhere[kind])
    await store.put(key, entry.body, expect=0)
    if kind in {"grants", "sessions"}:
        with pytest.raises(BrokerError) as caught:
            await (repository.grant(GrantKey(APP, "victim")) if kind == "grants" else repository.session("2" * 22))
        reported.append((f"{kind}/{key.name[:8]}", caught.value.code))
    else:
        assert await repository.waiting(APP, "victim") == []
        assert ("mine", "key") not in await repository.secrets.all()
    assert reported == [(f"{kind}/{key.name[:8]}", Code.RECORD_MISPLACED)]


@pytest.fixture
async def on_disk(tmp_path: Path) -> AsyncIterator[tuple[FileStore, CountingFs]]:
    fs = CountingFs()
    store = open_file_store(tmp_path, fs=fs)
    yield store, fs
    await store.close()


async def test_no_record_is_readable_on_disk(on_disk, tmp_path: Path) -> None:
    repository = Repository(on_disk[0])
    await repository.save_grant(kit.grant(outbox=(kit.event(),)), expect=0)
    await repository.save_session(numbered(1), expect=0)
    await listed(repository, [numbered(1).locator])
    await repository.events.keep(kit.event())
    await repository.secrets.change("slack-oauth", lambda _: {"client_secret": "planted-secret"})
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file() and "locks" not in path.parts]
    assert len(files) > 6
    words = (b"slack", b"T111", b"printed", b"planted", b"planner", b"chat:write", numbered(1).locator.encode())
    for path in files:
        assert not [word for word in words if word in path.read_bytes() or word in str(path).encode()]


@pytest.mark.case("77")
async def test_a_remembered_grant_costs_one_look_at_the_file(on_disk) -> None:
    store, fs = on_disk
    repository = Repository(store)
    await repository.save_grant(kit.grant(), expect=0)
    await asyncio.sleep(0.03)  # a file that was written just now is not trusted by its times
    await repository.grant(GrantKey(APP, SUBJECT))
    fs.calls.clear()
    for _ in range(100):
        assert await repository.grant(GrantKey(APP, SUBJECT)) is not None
    assert {"stat": 100} == fs.calls


async def test_cached_grants_stay_within_their_bytes(monkeypatch, store: MemoryStore) -> None:
    monkeypatch.setattr("oauthbroker.repository.grant_records.CACHED_BYTES", 20_000)
    repository = Repository(store)

    async def save(number: int, size: int) -> None:
        token = kit.grant().token
        assert token is not None
        grant = replace(kit.grant(), subject=f"s{number}", token=replace(token, access_token=Secret("x" * size)))
        before = await repository.grant(GrantKey(APP, f"s{number}"))
        await repository.save_grant(grant, expect=before.generation if before is not None else 0)

    def remembered(most: int) -> list[int]:
        return [number for number in range(most) if GrantKey(APP, f"s{number}") in repository._cache]

    for number in range(6):
        await save(number, 5_000)  # three of these and their other words fit
    assert [3, 4, 5] == remembered(6)
    for _ in range(10):  # the same one, written again and again, takes its space once
        await save(5, 5_000)
    assert [3, 4, 5] == remembered(6)
    await save(6, 15_000)
    assert [6] == remembered(7)
    await save(7, 30_000)
    assert [6] == remembered(8), "one that has no space evicts no other"
    await save(8, 5_000)
    assert [8] == remembered(9)


async def test_small_grants_are_remembered_in_thousands(repository: Repository) -> None:
    for number in range(2_000):
        await repository.save_grant(replace(kit.grant(), subject=f"s{number}"), expect=0)
    assert all(GrantKey(APP, f"s{number}") in repository._cache for number in range(2_000))


async def test_a_conflict_drops_the_remembered_grant(store: MemoryStore, monkeypatch) -> None:
    """It is not current, though it looked so: the next look reads the store."""
    here, elsewhere = Repository(store), Repository(store)
    await here.save_grant(kit.grant(), expect=0)
    await elsewhere.save_grant(kit.grant(revoked=True), expect=1)
    monkeypatch.setattr(store, "unchanged", lambda entry: True)
    stale = await here.grant(GrantKey(APP, SUBJECT))
    assert stale is not None
    assert not stale.record.revoked
    with pytest.raises(Conflict):
        await here.save_grant(kit.grant(), expect=stale.generation)
    versioned = await here.grant(GrantKey(APP, SUBJECT))
    assert versioned is not None
    assert versioned.record.revoked


async def test_keys_of_one_secret_that_are_set_at_once_by_two_brokers_are_all_there(tmp_path: Path) -> None:
    stores = [open_file_store(tmp_path) for _ in range(2)]
    repositories = [Repository(store) for store in stores]

    def setting(name: str) -> Callable[[dict[str, str]], dict[str, str]]:
        return lambda data: {**data, name: "value"}

    await asyncio.gather(*(repositories[n % 2].secrets.change("crm", setting(f"key{n}")) for n in range(8)))
    assert {("crm", f"key{n}") for n in range(8)} == set(await repositories[0].secrets.all())
    for store in stores:
        await store.close()
