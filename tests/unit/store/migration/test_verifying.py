"""A store is verified: each fault of a record, and what may be left over."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.verifying import Expected, verify
from tests.unit.store.migration.raw_memory import KINDS, RawMemory, name_of, ring_of_new_store, sealed

RING = ring_of_new_store()
PLACE = f"grants/{name_of(1)[:16]}"


def described(ring: Keyring, kind: str, body: bytes) -> Expected | None:
    assert ring is RING
    match body:
        case b"strange":
            return None
        case b"named":
            return Expected(name_of(2))
        case b"tagged":
            return Expected(None, frozenset({("subject", "f" * 32)}))
        case _:
            return Expected(None)


@pytest.fixture
def store() -> RawMemory:
    store = RawMemory("here", RING.document())
    store.fill(RING, "grants", *range(3))
    return store


def test_a_whole_store_has_counts_and_digests_and_no_faults(store: RawMemory) -> None:
    found = verify(store, RING, KINDS, described)
    assert ([("grants", 3), ("sessions", 0), ("due", 0)], [], []) == (
        [(each.kind, each.records) for each in found.kinds], found.faults, found.leftovers,
    )  # fmt: skip
    again = verify(store, RING, KINDS, described)
    assert [each.digest for each in found.kinds] == [each.digest for each in again.kinds]
    store.fill(RING, "grants", 7)
    assert found.kinds[0].digest != verify(store, RING, KINDS, described).kinds[0].digest


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"damaged", "does not open"),
        (b"strange", "is no record of this version"),
        (b"named", "has the name of another record"),
        (b"tagged", "lacks a tag"),
    ],
)
def test_each_fault_of_a_record_is_named(store: RawMemory, body: bytes, fault: str) -> None:
    store.fill(RING, "grants", 1, body=body)
    if body == b"damaged":
        store.damage("grants", 1)
    found = verify(store, RING, KINDS, described)
    assert ([(PLACE, fault)], 3) == (found.faults, found.kinds[0].records)


def test_a_record_has_the_name_and_more_tags_than_expected() -> None:
    store = RawMemory("here", RING.document())
    each = sealed(RING, "grants", 2, b"named")
    store.write("grants", [each._replace(tags=each.tags | {("subject", "f" * 32)})])
    store.write("sessions", [sealed(RING, "sessions", 3, b"tagged")._replace(tags=frozenset({("subject", "f" * 32)}))])
    assert [] == verify(store, RING, KINDS, described).faults


def test_a_fault_that_is_gone_at_a_second_look_was_a_broker_at_work(store: RawMemory) -> None:
    store.damage("grants", 1)
    records, looks = store.records, 0

    def mended(kind: str, after: str = "", **more: Any) -> Any:
        nonlocal looks
        looks += kind == "grants" and not after
        if looks == 2:
            store.fill(RING, "grants", 1)
        return records(kind, after, **more)

    store.records = mended  # type: ignore[method-assign]
    assert [] == verify(store, RING, KINDS, described).faults


def test_a_kind_whose_place_is_lost_is_a_fault(store: RawMemory) -> None:
    store.lost = ["sessions"]
    assert [("sessions", "its folder is missing")] == verify(store, RING, KINDS, described).faults


def test_more_tags_or_markers_than_a_crash_leaves_are_lost_records(store: RawMemory) -> None:
    store.fill(RING, "due", *range(3, 3 + 257))
    store.loose = 257
    found = verify(store, RING, KINDS, described)
    assert [] == found.leftovers
    assert {(kind, "257 tags of records that are gone") for kind in KINDS} < set(found.faults)
    assert ("due", "257 markers of records that are gone") in found.faults


def test_leftovers_are_told_and_are_no_faults(store: RawMemory) -> None:
    store.fill(RING, "due", 1, 5, 6)
    store.fill(RING, "sessions", 5)
    store.loose = 2
    found = verify(store, RING, KINDS, described)
    assert [] == found.faults
    assert [
        *((kind, "2 tags of records that are gone") for kind in KINDS),
        ("due", "1 markers of records that are gone"),
    ] == (found.leftovers)
