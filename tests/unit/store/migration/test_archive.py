"""The archive of a store: its lines, an import of them, and that nothing is used of a damaged one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import Refused
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.archive import DAMAGED, ArchiveReader, Export, Import
from oauthbroker.store.migration.raw import PAGE
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW
from tests.unit.store.migration.raw_memory import KEK, RawMemory, name_of, ring_of_new_store, sealed

RING = ring_of_new_store()
DOCUMENT = RING.document()
KNOWN = ("queues", "grants", "events", "sessions")


def filled(grants: int = 3) -> RawMemory:
    store = RawMemory("here", DOCUMENT)
    store.fill(RING, "grants", *range(grants))
    for kind in ("sessions", "events", "queues"):
        store.fill(RING, kind, 1, 2)
    return store


def export_of(store: RawMemory) -> Export:
    return Export(store=store, document=DOCUMENT, ring=RING, known=KNOWN, clock=TestClock(NOW))


def lines_of(store: RawMemory) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export_of(store).lines()]


def text_of(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


class Place:
    """An empty place, and an import into it."""

    def __init__(self) -> None:
        self.target = RawMemory("there")
        self.opened = list[bytes]()

    def open(self, document: bytes) -> Keyring:
        self.opened.append(document)
        return Keyring.opened(document, KEK)

    def take(self, text: bytes, piece: int = 1000) -> Any:
        def read(reader: ArchiveReader) -> None:
            for at in range(0, len(text), piece):
                reader.write(text[at : at + piece])

        return Import(target=self.target, opened=self.open, known=KNOWN, clock=TestClock(NOW)).run(read)

    def state(self) -> str | None:
        return self.target.marker.state.value if self.target.marker is not None else None


@pytest.fixture
def place() -> Place:
    return Place()


# The export


def test_events_come_after_all_other_kinds_so_that_one_that_moves_comes_twice_rather_than_never() -> None:
    kinds = dict.fromkeys(each["kind"] for each in lines_of(filled()) if "kind" in each)
    assert ["queues", "events"] == list(kinds)[-2:]


def test_an_archive_has_a_head_all_records_and_their_counts() -> None:
    export = export_of(filled())
    head, *records, last = [json.loads(line) for line in export.lines()]
    assert ("oab-archive-1", DOCUMENT.decode(), 32) == (head["format"], head["keyring"], len(head["archive"]))
    assert {"grants": 3, "sessions": 2, "events": 2, "queues": 2} == {kind: it[0] for kind, it in last["kinds"].items()}
    assert (9, []) == (len(records), export.damaged)


def test_a_record_that_does_not_open_is_left_out_and_named() -> None:
    store = filled()
    store.damage("grants", 1)
    export = export_of(store)
    *records, last = [json.loads(line) for line in export.lines()][1:]
    assert [f"grants/{name_of(1)[:16]}"] == export.damaged
    assert (2, 8) == (last["kinds"]["grants"][0], len(records))


def test_keys_that_changed_meanwhile_leave_no_archive() -> None:
    store = filled()
    lines = export_of(store).lines()
    next(lines)
    store.document = ring_of_new_store().document()
    with pytest.raises(BrokerError) as raised:
        list(lines)
    assert Code.STORE_LOCKED is raised.value.code


def test_a_store_that_takes_part_in_a_move_is_not_exported() -> None:
    store = filled()
    store.marker = MigrationMarker(move="m", state=MigrationState.ARRIVING, here="here", there="there", at="2026")
    with pytest.raises(BrokerError) as raised:
        lines_of(store)
    assert Code.STORE_CLOSED is raised.value.code


# The import


@pytest.mark.parametrize("piece", [1, 1000, 10**6])
def test_an_import_makes_a_restored_store_with_every_record_however_the_text_comes(place: Place, piece: int) -> None:
    store = filled()
    kinds = place.take(b"".join(export_of(store).lines()), piece)
    assert ({"grants": 3, "sessions": 2, "events": 2, "queues": 2}, "restored") == (
        {each.kind: each.records for each in kinds}, place.state(),
    )  # fmt: skip
    assert (store.kept, DOCUMENT) == (place.target.kept, place.target.document)
    assert ("mark", "importing") == place.target.changes[0]
    assert ("mark", "restored") == place.target.changes[-1]
    assert [DOCUMENT] == place.opened


@pytest.mark.parametrize("count", [PAGE, PAGE + 1, 2 * PAGE])
def test_an_import_of_many_records_is_whole(place: Place, count: int) -> None:
    store = filled(count)
    place.take(b"".join(export_of(store).lines()))
    assert store.kept == place.target.kept


def test_kinds_without_records_are_compared_too(place: Place) -> None:
    store = RawMemory("here", DOCUMENT)
    kinds = place.take(b"".join(export_of(store).lines()))
    assert ([0] * 4, "restored") == ([each.records for each in kinds], place.state())


def changed(number: int, **members: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(lines: list[dict[str, Any]]) -> None:
        lines[number] |= members

    return change


def without_end(lines: list[dict[str, Any]]) -> None:
    lines.pop()


def without_a_record(lines: list[dict[str, Any]]) -> None:
    lines.pop(1)


def with_a_record_twice(lines: list[dict[str, Any]]) -> None:
    lines.insert(1, lines[1])


def with_another_digest(lines: list[dict[str, Any]]) -> None:
    lines[-1]["kinds"]["grants"][1] = "0" * 64


def with_a_strange_tag(lines: list[dict[str, Any]]) -> None:
    lines[1]["tags"] = [["app", "zz"]]


def with_a_strange_label(lines: list[dict[str, Any]]) -> None:
    lines[1]["tags"] = [["../app", "0" * 32]]


def with_a_damaged_record(lines: list[dict[str, Any]]) -> None:
    lines[1]["record"] = lines[2]["record"]


SPOILED: dict[str, tuple[Callable[[list[dict[str, Any]]], None], bool]] = {
    "of a newer format": (changed(0, format="oab-archive-2"), True),
    "of a newer kind": (changed(1, kind="novelties"), True),
    "without its end": (without_end, False),
    "a record less": (without_a_record, False),
    "a record twice": (with_a_record_twice, False),
    "another digest": (with_another_digest, False),
    "a name that is none": (changed(1, name="../x"), False),
    "a tag that is none": (with_a_strange_tag, False),
    "a label that is none": (with_a_strange_label, False),
    "a record of another name": (with_a_damaged_record, False),
    "no base64": (changed(1, record="%"), False),
    "an id that is no text": (changed(0, archive=7), False),
    "a time that is no text": (changed(0, at=7), False),
    "counts that are none": (changed(-1, kinds={"grants": [1, "x"]}), False),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_damaged_archive_and_one_of_a_newer_version_change_nothing(place: Place, name: str) -> None:
    spoil, is_newer = SPOILED[name]
    lines = lines_of(filled())
    spoil(lines)
    with pytest.raises(Refused) as raised:
        place.take(text_of(lines))
    assert is_newer is ("newer oauthbroker" in str(raised.value))
    assert is_newer or str(raised.value) == DAMAGED
    assert ([], {}) == (place.target.changes, place.target.kept)


@pytest.mark.parametrize("text", [b"", b"\n", b"[]\n", b"{}\n", b"\xff\n", b"{" * 100_000 + b"\n"])
def test_a_text_that_is_no_archive_changes_nothing(place: Place, text: bytes) -> None:
    with pytest.raises(Refused):
        place.take(text)
    assert [] == place.target.changes


def test_a_line_has_a_bound(place: Place) -> None:
    with pytest.raises(Refused):
        place.take(b"x" * (17 * 1024 * 1024), 1024 * 1024)


def with_records(target: RawMemory) -> None:
    target.fill(RING, "grants", 1)


def with_a_keyring(target: RawMemory) -> None:
    target.document = DOCUMENT


def of_another_archive(target: RawMemory) -> None:
    target.marker = MigrationMarker(move="x", state=MigrationState.IMPORTING, here="there", there="2026", at="2026")


@pytest.mark.parametrize(
    ("change", "code"),
    [(with_records, Code.KEY_EXISTS), (with_a_keyring, Code.KEY_EXISTS), (of_another_archive, Code.STORE_CLOSED)],
)
def test_a_place_that_is_not_empty_is_refused(place: Place, change: Any, code: Code) -> None:
    change(place.target)
    with pytest.raises(BrokerError) as raised:
        place.take(b"".join(export_of(filled()).lines()))
    assert (code, []) == (raised.value.code, place.target.changes)


def test_an_import_that_was_broken_off_goes_on_with_the_same_archive(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled()
    text = b"".join(export_of(store).lines())

    def full(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(place.target, "write", full)
        with pytest.raises(BrokerError):
            place.take(text)
    assert "importing" == place.state()
    place.take(text)
    assert (store.kept, "restored") == (place.target.kept, place.state())
    place.target.changes.clear()
    place.take(text)
    assert [] == place.target.changes, "a complete one is only compared"


def test_a_target_that_is_not_equal_is_not_restored(place: Place) -> None:
    text = b"".join(export_of(filled()).lines())
    place.take(text)
    place.target.write("grants", [sealed(RING, "grants", 99)])
    with pytest.raises(BrokerError) as raised:
        place.take(text)
    assert Code.RECORD_CORRUPT is raised.value.code
