"""A store is copied and cut over: what each step changes, which place it refuses, and how a broken-off one goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.migration.copying import Migration, RecordDigest, reopen
from oauthbroker.store.migration.raw import PAGE, RawRecord
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW
from tests.unit.store.migration.raw_memory import KINDS, RawMemory, name_of, ring_of_new_store, sealed

RING = ring_of_new_store()
ARRIVING, CLOSING, CLOSED = MigrationState.ARRIVING, MigrationState.CLOSING, MigrationState.CLOSED


class World:
    """A source with a few records, and an empty target."""

    def __init__(self) -> None:
        self.source, self.target = RawMemory("here", RING.document()), RawMemory("there")
        self.source.fill(RING, "grants", *range(5))
        self.source.fill(RING, "sessions", *range(2))
        self.migration = self.between(self.source, self.target)

    def between(self, source: RawMemory, target: RawMemory) -> Migration:
        return Migration(source=source, target=target, ring=RING, kinds=KINDS, clock=TestClock(NOW))

    def states(self) -> tuple[str | None, str | None]:
        marks = self.source.marker, self.target.marker
        return tuple(each.state.value if each is not None else None for each in marks)  # type: ignore[return-value]

    def are_equal(self) -> bool:
        return {kind: it for kind, it in self.source.kept.items() if it} == {
            kind: it for kind, it in self.target.kept.items() if it
        }


@pytest.fixture
def world() -> World:
    return World()


def marked(state: MigrationState, here: str, there: str, move: str = "m") -> MigrationMarker:
    return MigrationMarker(move=move, state=state, here=here, there=there, at="2026")


def code_of(work: Any) -> Code:
    with pytest.raises(BrokerError) as raised:
        work()
    return raised.value.code


# The copy


def test_a_copy_brings_the_keyring_and_every_record_and_leaves_the_source_open(world: World) -> None:
    copied = world.migration.copy()
    assert ([5, 2, 0], False, []) == ([each.records for each in copied.kinds], copied.cut_over, copied.damaged)
    assert ((None, "arriving"), True) == (world.states(), world.are_equal())
    assert world.source.document == world.target.document
    assert [] == world.source.changes
    assert ("mark", "arriving") == world.target.changes[0], "no broker opens it half copied"


def test_a_second_copy_writes_changed_records_and_removes_deleted_ones(world: World) -> None:
    world.migration.copy()
    world.target.changes.clear()
    del world.source.kept["grants"][name_of(1)]
    world.source.kept["grants"][name_of(2)] = sealed(RING, "grants", 2, b'{"new": 1}')
    grants = world.migration.copy().kinds[0]
    assert (4, 1, 1) == (grants.records, grants.written, grants.removed)
    assert ([("write", "grants", 1), ("remove", "grants", 1)], True) == (world.target.changes, world.are_equal())


def test_a_record_whose_tags_have_changed_is_written_again(world: World) -> None:
    world.migration.copy()
    each = world.source.kept["grants"][name_of(1)]
    world.source.kept["grants"][each.name] = each._replace(tags=frozenset())
    assert 1 == world.migration.copy().kinds[0].written
    assert world.are_equal()


@pytest.mark.parametrize("count", [PAGE - 1, PAGE, PAGE + 1])
def test_pages_lose_no_record_and_remove_strangers_behind_the_last_one(world: World, count: int) -> None:
    world.source.kept.clear()
    world.source.fill(RING, "grants", *range(count))
    world.migration.copy()
    world.target.fill(RING, "grants", *range(count, count + 3))
    grants = world.migration.copy().kinds[0]
    assert (count, 0, 3) == (grants.records, grants.written, grants.removed)
    assert world.are_equal()


def test_a_digest_is_the_same_for_equal_records_alone(world: World) -> None:
    first, second = world.migration.copy(), world.migration.copy()
    assert [each.digest for each in first.kinds] == [each.digest for each in second.kinds]
    world.source.fill(RING, "grants", 7)
    assert first.kinds[0].digest != world.migration.copy().kinds[0].digest


def test_a_new_keyring_of_the_source_replaces_the_targets(world: World) -> None:
    world.migration.copy()
    world.source.document = RING.document()
    world.migration.copy()
    assert world.source.document == world.target.document
    changes = len(world.target.changes)
    world.migration.copy()
    assert changes == len(world.target.changes), "an equal one is not written again"


def test_kinds_of_a_newer_version_stop_a_copy(world: World) -> None:
    world.source.fill(RING, "novelties", 1)
    assert Code.KEY_MISMATCH is code_of(world.migration.copy)


# The places


def with_records(store: RawMemory) -> None:
    store.fill(RING, "grants", 1)


def of_another_store(store: RawMemory) -> None:
    store.document = ring_of_new_store().document()


def of_this_store(store: RawMemory) -> None:
    store.document = RING.document()


def arriving_from_elsewhere(store: RawMemory) -> None:
    store.marker = marked(ARRIVING, "there", "elsewhere")


def being_closed(store: RawMemory) -> None:
    store.marker = marked(CLOSING, "there", "elsewhere")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (with_records, Code.KEY_EXISTS),
        (of_another_store, Code.KEY_EXISTS),
        (of_this_store, Code.KEY_EXISTS),
        (arriving_from_elsewhere, Code.STORE_CLOSED),
        (being_closed, Code.STORE_CLOSED),
    ],
)
def test_a_place_that_is_not_empty_and_no_copy_of_this_store_is_refused(world: World, change: Any, code: Code) -> None:
    change(world.target)
    before = dict(world.target.kept)
    assert code is code_of(world.migration.copy)
    assert (before, []) == (world.target.kept, world.target.changes)


@pytest.mark.parametrize("state", [ARRIVING, MigrationState.RESTORED, MigrationState.IMPORTING, CLOSING, CLOSED])
def test_a_source_that_takes_part_in_another_move_is_refused(world: World, state: MigrationState) -> None:
    world.migration.copy()
    world.source.marker = marked(state, "here", "elsewhere", "another move")
    code = Code.STORE_ROLLED_BACK if state is MigrationState.RESTORED else Code.STORE_CLOSED
    assert code is code_of(world.migration.copy)


def test_a_source_that_was_closed_for_a_copy_that_is_gone_is_refused(world: World) -> None:
    world.source.marker = marked(CLOSING, "here", "there")
    assert Code.STORE_CLOSED is code_of(world.migration.copy)
    assert [] == world.target.changes


# The cut-over


def test_a_cut_over_closes_the_source_and_opens_the_target(world: World) -> None:
    copied = world.migration.cut_over()
    assert ([5, 2, 0], True) == ([each.records for each in copied.kinds], copied.cut_over)
    assert (("closed", None), True) == (world.states(), world.are_equal())
    assert [("mark", "closing"), ("mark", "closed")] == world.source.changes
    assert ("mark", None) == world.target.changes[-1]


def test_a_cut_over_that_was_complete_changes_nothing_when_repeated(world: World) -> None:
    world.migration.cut_over()
    changes = len(world.source.changes), len(world.target.changes)
    again = world.migration.cut_over()
    assert ([], True) == (again.kinds, again.cut_over)
    assert changes == (len(world.source.changes), len(world.target.changes))


@pytest.mark.parametrize("changed", ["target of another store", "target without a store", "another target"])
def test_a_cut_over_to_another_place_than_before_is_not_taken_for_complete(world: World, changed: str) -> None:
    world.migration.cut_over()
    if changed == "another target":
        other = world.between(world.source, RawMemory("elsewhere", RING.document()))
        assert code_of(other.cut_over) in {Code.KEY_EXISTS, Code.STORE_CLOSED}
        return
    world.target.document = ring_of_new_store().document() if changed == "target of another store" else None
    world.target.kept.clear()
    assert code_of(world.migration.cut_over) in {Code.KEY_EXISTS, Code.STORE_CLOSED}


@pytest.mark.parametrize("in_use", [[1], [0, 1]], ids=["before", "since"])
def test_brokers_that_use_the_source_stop_a_cut_over_and_it_stays_open(world: World, in_use: list[int]) -> None:
    world.source.in_use = in_use
    assert Code.STORE_LOCKED is code_of(world.migration.cut_over)
    assert (None, "arriving") == world.states()
    world.source.in_use = [0]
    assert world.migration.cut_over().cut_over


def test_the_way_back_is_a_copy_into_the_closed_source(world: World) -> None:
    world.migration.cut_over()
    world.target.fill(RING, "grants", 9)
    back = world.between(world.target, world.source).cut_over()
    assert (6, 1) == (back.kinds[0].records, back.kinds[0].written)
    assert ((None, "closed"), True) == (world.states(), world.are_equal())


@pytest.mark.parametrize("state", [CLOSING, CLOSED])
def test_a_cut_over_that_was_broken_off_goes_on(world: World, state: MigrationState) -> None:
    world.migration.copy()
    assert world.target.marker is not None
    world.source.marker = marked(state, "here", "there", world.target.marker.move)
    world.source.in_use = [3]
    assert world.migration.cut_over().cut_over
    assert ("closed", None) == world.states()


# Damage


def test_records_that_do_not_open_are_left_out_and_named(world: World) -> None:
    world.source.damage("grants", 3)
    copied = world.migration.copy()
    assert ([f"grants/{name_of(3)[:16]}"], 4) == (copied.damaged, copied.kinds[0].records)
    assert name_of(3) not in world.target.kept["grants"]


@pytest.mark.parametrize("skip", [False, True])
def test_a_cut_over_leaves_damaged_records_behind_only_if_that_is_wanted(world: World, skip: bool) -> None:
    world.source.damage("grants", 3)
    if skip:
        done = world.migration.cut_over(skip_damaged=True)
        assert (4, "closed") == (done.kinds[0].records, world.states()[0])
    else:
        assert Code.RECORD_CORRUPT is code_of(world.migration.cut_over)
        assert ("closing", "arriving") == world.states()


def test_a_record_that_is_sealed_for_another_name_does_not_open(world: World) -> None:
    each = world.source.kept["grants"][name_of(1)]
    world.source.kept["grants"][name_of(50)] = each._replace(name=name_of(50))
    assert [f"grants/{name_of(50)[:16]}"] == world.migration.copy().damaged


@pytest.mark.parametrize("fault", ["a record less", "other tags"])
def test_a_copy_that_is_not_equal_is_not_opened(world: World, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = world.target.write

    def forgetful(kind: str, records: Any) -> None:
        write(kind, records[1:] if fault == "a record less" else [replaced(each) for each in records])

    monkeypatch.setattr(world.target, "write", forgetful)
    assert Code.RECORD_CORRUPT is code_of(world.migration.cut_over)
    assert ("closing", "arriving") == world.states()


def replaced(each: Any) -> Any:
    return each._replace(tags=frozenset())


# Reopening


@pytest.mark.parametrize(
    ("state", "abandon", "expected"),
    [
        (None, True, False),
        (CLOSING, False, True),
        (CLOSING, True, True),
        (CLOSED, True, True),
        (CLOSED, False, Code.STORE_CLOSED),
        (ARRIVING, True, Code.STORE_CLOSED),
        (MigrationState.RESTORED, True, Code.STORE_ROLLED_BACK),
    ],
)
def test_a_closed_source_is_opened_again_where_no_other_store_is_in_use(
    world: World, state: MigrationState | None, abandon: bool, expected: bool | Code
) -> None:
    mark = world.source.marker = marked(state, "here", "there") if state is not None else None
    if isinstance(expected, Code):
        assert expected is code_of(lambda: reopen(world.source, abandon=abandon))
        assert mark == world.source.marker
    else:
        assert expected is reopen(world.source, abandon=abandon)
        assert None is world.source.marker


# The marker


def test_a_marker_is_read_as_it_was_written_and_nothing_else_is_one() -> None:
    mark = marked(CLOSING, "here", "there")
    assert mark == MigrationMarker.decoded(mark.encoded())
    for text in (b"", b"[]", mark.encoded().replace(b"oab-move-1", b"oab-move-2"), mark.encoded()[:-3]):
        assert Code.RECORD_CORRUPT is code_of(lambda text=text: MigrationMarker.decoded(text))
    assert mark != replace(mark, at="later")


def test_a_digest_depends_on_each_part_of_a_record() -> None:
    tags = frozenset({("who", "1" * 32)})
    records = [RawRecord("a", b"x", tags), RawRecord("b", b"x", tags), RawRecord("a", b"y", tags)]
    found = set[str]()
    for each in (*records, RawRecord("a", b"x", frozenset())):
        digest = RecordDigest()
        digest.add(each)
        assert 1 == digest.of("grants").records
        found.add(digest.of("grants").digest)
    assert 4 == len(found)
