"""Each part of the contract of stores refuses a store that is wrong on purpose."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from tests.contract import wrong_stores as wrong
from tests.contract.store_contract import StoreContract

PARTS = {name for name in vars(StoreContract) if name.startswith("test_")}
WRONG: dict[type[MemoryStore], list[str]] = {
    wrong.TagAfterRecord: ["test_a_version_that_can_be_read_is_found_by_its_tags"],
    wrong.TagLost: ["test_an_entry_keeps_its_tags_until_others_are_given"],
    wrong.FindMisses: ["test_an_entry_is_found_by_each_of_its_tags_and_by_no_other"],
    wrong.FindsWithoutPages: ["test_found_entries_have_pages_too"],
    wrong.LabelsWithoutOrder: ["test_the_entries_of_a_label_have_pages_in_the_order_of_their_tags"],
    wrong.PlacesRemoved: ["test_a_removed_entry_has_no_place_and_hides_none"],
    wrong.FindsRemoved: ["test_a_removed_entry_is_found_by_no_tag_and_may_come_back"],
    wrong.UntagsNewer: ["test_a_tag_is_not_taken_from_a_newer_version"],
    wrong.NeverRetags: ["test_an_entry_without_its_tags_is_given_them"],
    wrong.TakesAnyTag: ["test_a_tag_that_no_store_made_is_refused"],
    wrong.PagesWithoutOrder: ["test_a_page_goes_on_after_an_entry_that_was_removed"],
    wrong.Invents: ["test_an_entry_that_was_never_written_is_none"],
    wrong.CutsBodies: [
        "test_a_body_is_read_as_it_was_put",
        "test_a_body_put_into_reserved_reservation_is_read_as_it_was",
    ],
    wrong.SkipsGenerations: ["test_each_write_adds_one_to_the_generation"],
    wrong.LastWriterWins: [
        "test_the_second_writer_of_one_generation_gets_conflict_and_changes_nothing",
        "test_reservation_is_used_up_by_a_put_that_lost",
        "test_a_missing_entry_can_only_be_written_as_new",
        "test_a_put_that_lost_changes_no_entry_that_is_found",
    ],
    wrong.ChecksTooEarly: [
        "test_of_many_writers_of_one_generation_one_wins",
        "test_a_writer_and_a_deleter_of_one_generation_do_not_both_win",
    ],
    wrong.Cancels: ["test_a_put_whose_caller_was_cancelled_is_stored_all_the_same"],
    wrong.KeepsTen: [
        "test_writers_of_different_entries_all_win",
        "test_a_scan_yields_every_entry_of_its_kind_and_no_other",
    ],
    wrong.LeavesReservations: ["test_unused_reservation_leaves_nothing_behind"],
    wrong.WritesIntoTheReservation: ["test_reserve_for_one_entry_is_no_reserve_for_another"],
    wrong.TakesNoPluginAhead: ["test_reservation_ahead_is_taken_by_a_put_and_used_by_the_next"],
    wrong.LeavesPluginAhead: ["test_reservation_ahead_of_a_put_that_lost_leaves_nothing_behind"],
    wrong.HasNoLimit: [
        "test_more_reservation_than_a_body_may_have_is_refused",
        "test_a_body_beyond_the_limit_is_refused_and_changes_nothing",
    ],
    wrong.TrustsItsCache: [
        "test_a_version_is_current_until_another_one_is_written",
        "test_an_entry_just_read_is_unchanged_until_the_next_write",
        "test_a_version_is_not_taken_for_another_of_the_same_size_and_moment",
        "test_a_deleted_entry_is_not_unchanged",
    ],
    wrong.KeepsWhatIsDeleted: ["test_a_deleted_entry_is_gone_and_may_be_written_anew"],
    wrong.DeletesAnyVersion: [
        "test_deleting_another_generation_is_a_conflict",
        "test_deleting_a_missing_entry_is_a_conflict",
    ],
    wrong.ScansWhatChanges: [
        "test_a_scan_survives_entries_that_come_and_go",
        "test_a_scan_has_pages_in_one_order_and_misses_no_entry",
    ],
    wrong.JoinsParts: [
        "test_lists_of_parts_that_read_alike_have_different_keys",
        "test_a_mac_is_one_per_label_and_list",
        "test_tags_are_the_same_for_every_broker_and_differ_by_kind_label_and_parts",
    ],
    wrong.NamesAnew: ["test_keys_are_the_same_for_every_broker_of_one_store"],
    wrong.TakesAnyKey: ["test_a_key_that_no_store_made_is_refused", "test_an_unknown_kind_is_refused_everywhere"],
    wrong.LeasesAnything: ["test_a_lease_is_for_lease_kinds_and_entries_are_not"],
    wrong.LeasesToAll: [
        "test_a_lease_that_is_held_is_not_lost",
        "test_one_holder_at_a_time",
        "test_a_waiter_is_told_after_its_time",
        "test_a_round_waits_once_for_a_lease_that_stays_held",
    ],
    wrong.HasOneLease: ["test_leases_of_different_names_do_not_meet"],
    wrong.KeepsLeases: [
        "test_a_lease_ends_with_the_exception_that_left_it",
        "test_a_cancelled_waiter_keeps_nothing",
        "test_a_waiter_cancelled_as_its_turn_comes_keeps_nothing",
    ],
    wrong.BeginsAnew: ["test_the_history_of_a_store_that_has_lost_nothing_goes_on"],
    wrong.LeaseBlocksWriting: ["test_a_held_lease_does_not_block_writing"],
    wrong.NeverCloses: ["test_a_closed_store_says_so_and_may_be_closed_again"],
    wrong.TellsAll: ["test_no_repr_shows_a_body"],
}
EACH = [(store, part) for store, parts in WRONG.items() for part in parts]


def test_each_part_of_the_contract_has_a_store_that_fails_it() -> None:
    assert {part for _, part in EACH} == PARTS


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("store", "part"), EACH, ids=[f"{store.__name__}, {part}" for store, part in EACH])
async def test_a_wrong_store_fails_and_a_right_one_does_not(store: type[MemoryStore], part: str) -> None:
    assert not await fails(MemoryStore, part)
    assert await fails(store, part)


async def fails(kind: type[MemoryStore], part: str) -> bool:
    """Run one part of the contract, with the last of its parameters."""
    store = kind(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())
    test = getattr(StoreContract(), part)
    given: dict[str, Any] = {"store": store, "other": store, "opened": [store], "open_store": lambda: store}
    given["key"] = store.key("grants", "slack-bot", "slack:team:T111")
    given |= {mark.args[0]: mark.args[1][-1] for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"}
    try:
        await test(**{name: given[name] for name in inspect.signature(test).parameters})
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a wrong store may fail in any way
        return True
    finally:
        await store.close()
    return False
