"""What every backend promises. A backend is supported when this whole class is green for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Pass
from oauthbroker.store.format.port import Conflict, Entry, Key, Store, Tag
from oauthbroker.store.format.seal import MAX_BODY
from oauthbroker.store.memory import MemoryStore

Open = Callable[[], Store]


async def outcome(work: Awaitable[object]) -> str:
    """`won`, or in one word why not."""
    try:
        await work
    except Conflict:
        return "conflict"
    except BrokerError as exc:
        return exc.code.value
    return "won"


async def hold_briefly(store: Store, key: Key) -> None:
    async with store.lease(key, wait=0):
        pass


async def is_newest(store: Store, entry: Entry) -> bool:
    """Ask as the broker does: at once, and where that leaves a doubt, the backend."""
    return store.unchanged(entry) or await store.is_current(entry)


async def bodies(store: Store, kind: str) -> list[bytes]:
    return sorted([entry.body async for entry in store.scan(kind)])


async def found(store: Store, tag: Tag) -> list[bytes]:
    return sorted([entry.body async for entry in store.find(tag)])


class StoreContract:
    """`store` and `other` are two brokers' views of one store; where a backend has one process only, the same view."""

    @pytest.fixture
    async def opened(self):
        """Stores that are closed after the test."""
        opened: list[Store] = []
        yield opened
        for store in opened:
            await store.close()

    @pytest.fixture
    def store(self, opened: list[Store], open_store: Open) -> Store:
        opened.append(open_store())
        return opened[-1]

    @pytest.fixture
    def other(self, store: Store, opened: list[Store], open_store: Open) -> Store:
        opened.append(open_store())
        return opened[-1]

    @pytest.fixture
    def key(self, store: Store) -> Key:
        return store.key("grants", "slack-bot", "slack:team:T111")

    async def test_an_entry_that_was_never_written_is_none(self, store, key):
        assert None is await store.get(key)

    @pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 5, b"\0" * 4096, b"y" * 1_000_000])
    async def test_a_body_is_read_as_it_was_put(self, store, other, key, body):
        written = await store.put(key, body, expect=0)
        read = await other.get(key)
        assert (key, 1, body) == (written.key, written.generation, written.body)
        assert (key, 1, body) == (read.key, read.generation, read.body)

    async def test_each_write_adds_one_to_the_generation(self, store, key):
        for generation in range(4):
            assert generation + 1 == (await store.put(key, b"%d" % generation, expect=generation)).generation
        assert b"3" == (await store.get(key)).body

    @pytest.mark.parametrize("expect", [0, 1, 3, 7])
    async def test_the_second_writer_of_one_generation_gets_conflict_and_changes_nothing(
        self, store, other, key, expect
    ):
        await store.put(key, b"one", expect=0)
        await other.put(key, b"two", expect=1)
        assert "conflict" == await outcome(store.put(key, b"late", expect=expect))
        assert (2, b"two") == ((await store.get(key)).generation, (await store.get(key)).body)

    @pytest.mark.parametrize("size", [0, 10, 5_000, 100_000], ids=["none", "too little", "just so", "plenty"])
    async def test_a_body_put_into_reserved_reservation_is_read_as_it_was(self, store, other, key, size):
        body = b"z" * 5_000
        async with store.reserve(key, size) as reservation:
            written = await store.put(key, body, expect=0, reservation=reservation)
            assert None is reservation.held
        assert (1, body) == (written.generation, (await other.get(key)).body)
        assert 1 == await store.count("grants")

    async def test_unused_reservation_leaves_nothing_behind(self, store, other, key):
        async with store.reserve(key, 5_000):
            assert None is await other.get(key)
        assert (None, 0) == (await store.get(key), await store.count("grants"))

    async def test_reservation_is_used_up_by_a_put_that_lost(self, store, key):
        await store.put(key, b"one", expect=0)
        async with store.reserve(key, 100) as reservation:
            assert "conflict" == await outcome(store.put(key, b"two", expect=0, reservation=reservation))
            assert 2 == (await store.put(key, b"three", expect=1, reservation=reservation)).generation
        assert b"three" == (await store.get(key)).body

    async def test_reserve_for_one_entry_is_no_reserve_for_another(self, store, key):
        other_key = store.key("grants", "another")
        async with store.reserve(key, 100) as reservation:
            await store.put(other_key, b"elsewhere", expect=0, reservation=reservation)
        assert (b"elsewhere", None) == ((await store.get(other_key)).body, await store.get(key))

    async def test_reservation_ahead_is_taken_by_a_put_and_used_by_the_next(self, store, other, key):
        async with store.reserve(key, 5_000, now=False) as reservation:
            assert None is reservation.held
            await store.put(key, b"one", expect=0, ahead=reservation)
            assert None is not reservation.held
            await store.put(key, b"z" * 5_000, expect=1, reservation=reservation)
            assert None is reservation.held
        assert (2, b"z" * 5_000) == ((await other.get(key)).generation, (await other.get(key)).body)

    async def test_reservation_ahead_of_a_put_that_lost_leaves_nothing_behind(self, store, other, key):
        await store.put(key, b"one", expect=0)
        async with store.reserve(key, 5_000, now=False) as reservation:
            assert "conflict" == await outcome(store.put(key, b"two", expect=0, ahead=reservation))
        assert (b"one", 1) == ((await other.get(key)).body, await store.count("grants"))

    async def test_more_reservation_than_a_body_may_have_is_refused(self, store, key):
        with pytest.raises(ValueError, match="at most"):
            async with store.reserve(key, MAX_BODY + 1):
                raise AssertionError

    async def test_a_version_is_current_until_another_one_is_written(self, store, other, key):
        first = await store.put(key, b"one", expect=0)
        seen = await other.get(key)
        assert await store.is_current(first.without_body())
        assert await other.is_current(seen)
        second = await other.put(key, b"two", expect=1)
        assert not await store.is_current(first)
        assert not await other.is_current(seen)
        await store.delete(key, expect=2)
        assert not await other.is_current(second)

    async def test_a_lease_that_is_held_is_not_lost(self, store, other):
        async with store.lease(store.key("pair", "slack-bot", "T111"), wait=1) as held:
            assert "storeLocked" == await outcome(hold_briefly(other, other.key("pair", "slack-bot", "T111")))
            assert (False, True) == (held.lost, await held.holds())

    async def test_the_history_of_a_store_that_has_lost_nothing_goes_on(self, store, other, key):
        first = await store.put(key, b"one", expect=0)
        assert await store.history() == await store.history() == await other.history()
        assert not await other.outlived(first)

    async def test_a_missing_entry_can_only_be_written_as_new(self, store, key):
        assert "conflict" == await outcome(store.put(key, b"x", expect=1))
        assert None is await store.get(key)

    async def test_a_deleted_entry_is_gone_and_may_be_written_anew(self, store, other, key):
        await store.put(key, b"one", expect=0)
        await other.delete(key, expect=1)
        assert None is await store.get(key)
        assert 1 == (await store.put(key, b"again", expect=0)).generation

    @pytest.mark.parametrize("expect", [0, 2])
    async def test_deleting_another_generation_is_a_conflict(self, store, key, expect):
        await store.put(key, b"one", expect=0)
        assert "conflict" == await outcome(store.delete(key, expect=expect))
        assert b"one" == (await store.get(key)).body

    @pytest.mark.parametrize("expect", [0, 1])
    async def test_deleting_a_missing_entry_is_a_conflict(self, store, key, expect):
        assert "conflict" == await outcome(store.delete(key, expect=expect))

    async def test_of_many_writers_of_one_generation_one_wins(self, store, other, key):
        """The generation is checked where it is written, not where it was read."""
        writers = [outcome((store, other)[n % 2].put(key, b"%d" % n, expect=0)) for n in range(24)]
        results = await asyncio.gather(*writers)
        assert ["won"] == [result for result in results if result != "conflict"]
        assert b"%d" % results.index("won") == (await store.get(key)).body

    async def test_a_writer_and_a_deleter_of_one_generation_do_not_both_win(self, store, other, key):
        for _ in range(10):
            await store.put(key, b"one", expect=0)
            results = await asyncio.gather(
                outcome(store.put(key, b"two", expect=1)), outcome(other.delete(key, expect=1))
            )
            assert ["conflict", "won"] == sorted(results)
            entry = await store.get(key)
            assert (entry is None) == (results[1] == "won")
            if entry:
                await store.delete(key, expect=2)

    async def test_writers_of_different_entries_all_win(self, store, other):
        keys = [store.key("sessions", str(n)) for n in range(40)]
        await asyncio.gather(*((store, other)[n % 2].put(key, b"%d" % n, expect=0) for n, key in enumerate(keys)))
        assert [b"%d" % n for n in range(40)] == [(await store.get(key)).body for key in keys]

    async def test_a_put_whose_caller_was_cancelled_is_stored_all_the_same(self, store, opened, open_store, key):
        """Design 7: the caller's cancellation never cancels a write that began."""
        caller = asyncio.create_task(store.put(key, b"paid for", expect=0))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        if not isinstance(store, MemoryStore):
            await store.close()
            opened.append(open_store())
        assert b"paid for" == (await opened[-1].get(key)).body

    async def test_an_entry_just_read_is_unchanged_until_the_next_write(self, store, other, key):
        written = await store.put(key, b"same", expect=0)
        read = await store.get(key)
        assert await is_newest(store, written)
        assert await is_newest(store, read)
        bare = read.without_body()
        assert (b"", True) == (bare.body, await is_newest(store, bare))
        await other.put(key, b"same", expect=1)
        assert not await is_newest(store, written)
        assert not await is_newest(store, read)
        assert not await is_newest(store, bare)

    async def test_a_version_is_not_taken_for_another_of_the_same_size_and_moment(self, store, other, key):
        """Inodes are reused at once and file times move in ticks; neither may make an old version look current."""
        entry = await store.put(key, b"0", expect=0)
        for _ in range(30):
            entry = await store.put(key, b"0", expect=entry.generation)
            assert await is_newest(store, entry)
            middle = await other.put(key, b"0", expect=entry.generation)
            assert not await is_newest(store, entry)
            last = await other.put(key, b"0", expect=middle.generation)
            assert not await is_newest(store, entry)
            assert not await is_newest(store, middle)
            entry = last

    async def test_a_deleted_entry_is_not_unchanged(self, store, other, key):
        entry = await store.put(key, b"x", expect=0)
        await other.delete(key, expect=1)
        assert not await is_newest(store, entry)

    async def test_a_scan_yields_every_entry_of_its_kind_and_no_other(self, store):
        for n in range(70):
            await store.put(store.key("events", str(n)), b"%02d" % n, expect=0)
        await store.put(store.key("grants", "0"), b"another kind", expect=0)
        assert [b"%02d" % n for n in range(70)] == await bodies(store, "events")
        assert [70, 1, 0] == [await store.count(kind) for kind in ("events", "grants", "due")]

    async def test_a_scan_survives_entries_that_come_and_go(self, store, other):
        for n in range(20):
            await store.put(store.key("events", str(n)), b"%02d" % n, expect=0)
        seen = []
        async for entry in store.scan("events"):
            seen.append(entry.body)
            for n in range(0, 20, 2):
                await outcome(other.delete(store.key("events", str(n)), expect=1))
            await outcome(other.put(store.key("events", f"new {len(seen)}"), b"new", expect=0))
        assert {b"%02d" % n for n in range(1, 20, 2)} <= set(seen)

    async def test_a_scan_has_pages_in_one_order_and_misses_no_entry(self, store, other):
        for n in range(23):
            await store.put(store.key("events", str(n)), b"%02d" % n, expect=0)
        whole = [entry.key.name async for entry in store.scan("events")]
        assert sorted(whole) == whole
        pages, after = list[list[str]](), ""
        while not pages or pages[-1]:
            pages.append([entry.key.name async for entry in other.scan("events", after=after, limit=5)])
            after = pages[-1][-1] if pages[-1] else after
        assert [5, 5, 5, 5, 3, 0] == [len(page) for page in pages]
        assert whole == [name for page in pages for name in page]
        assert [] == [entry async for entry in store.scan("events", limit=0)]

    async def test_a_page_goes_on_after_an_entry_that_was_removed(self, store, other):
        for n in range(10):
            await store.put(store.key("events", str(n)), b"%02d" % n, expect=0)
        names = [entry.key.name async for entry in store.scan("events")]
        await other.delete(Key("events", names[3]), expect=1)
        assert names[4:6] == [entry.key.name async for entry in store.scan("events", after=names[3], limit=2)]

    async def test_an_entry_is_found_by_each_of_its_tags_and_by_no_other(self, store, other, key):
        one, two, three = (store.tag("grants", "subject", each) for each in ("one", "two", "three"))
        app = store.tag("grants", "app", "one")
        await store.put(key, b"tagged", expect=0, tags=[one, app])
        await store.put(store.key("grants", "2"), b"too", expect=0, tags=[two, app])
        await store.put(store.key("grants", "3"), b"untagged", expect=0)
        for view in (store, other):
            by_tag = [await found(view, tag) for tag in (one, two, three, app)]
            assert [[b"tagged"], [b"too"], [], [b"tagged", b"too"]] == by_tag

    async def test_an_entry_keeps_its_tags_until_others_are_given(self, store, other, key):
        one, two = (store.tag("grants", "subject", each) for each in ("one", "two"))
        await store.put(key, b"1", expect=0, tags=[one])
        await other.put(key, b"2", expect=1)
        assert [b"2"] == await found(store, one)
        moved = await store.put(key, b"3", expect=2, tags=[two])
        assert [b"3"] == await found(other, two)
        await store.untag(moved, [one])
        assert ([], [b"3"]) == (await found(other, one), await found(other, two))

    async def test_a_tag_is_not_taken_from_a_newer_version(self, store, other, key):
        """Between the look and the removal another broker may have written the version that has the tag."""
        one = store.tag("grants", "subject", "one")
        old = await store.put(key, b"without", expect=0)
        await other.put(key, b"with", expect=1, tags=[one])
        await store.untag(old, [one])
        assert [b"with"] == await found(store, one)

    async def test_a_removed_entry_is_found_by_no_tag_and_may_come_back(self, store, other, key):
        one, two = (store.tag("grants", "subject", each) for each in ("one", "two"))
        gone = await store.put(key, b"1", expect=0, tags=[one])
        await other.delete(key, expect=1)
        assert [] == await found(store, one)
        await store.untag(gone, [one])
        await other.put(key, b"again", expect=0, tags=[two])
        assert ([], [b"again"]) == (await found(store, one), await found(store, two))

    async def test_a_put_that_lost_changes_no_entry_that_is_found(self, store, other, key):
        one, two = (store.tag("grants", "subject", each) for each in ("one", "two"))
        await store.put(key, b"1", expect=0, tags=[one])
        assert "conflict" == await outcome(other.put(key, b"2", expect=0, tags=[two]))
        assert ([b"1"], 1) == (await found(store, one), (await store.get(key)).generation)

    async def test_an_entry_without_its_tags_is_given_them(self, store, other, key):
        one, two = (store.tag("grants", "subject", each) for each in ("one", "two"))
        entry = await store.put(key, b"1", expect=0, tags=[one])
        assert await other.retag([(entry, [one, two])])
        assert not await store.retag([(entry, [one, two])])
        assert [b"1"] == await found(store, one) == await found(other, two)

    async def test_found_entries_have_pages_too(self, store, other):
        tag = store.tag("events", "agent", "a")
        for n in range(7):
            await store.put(store.key("events", str(n)), b"%d" % n, expect=0, tags=[tag])
        whole = [entry.key.name async for entry in store.find(tag)]
        assert sorted(whole) == whole
        assert whole[:3] == [entry.key.name async for entry in other.find(tag, limit=3)]
        assert whole[3:] == [entry.key.name async for entry in other.find(tag, after=whole[2])]

    async def test_the_entries_of_a_label_have_pages_in_the_order_of_their_tags(self, store, other):
        for n in range(9):
            who = [store.tag("grants", "who", str(each)) for each in (n, n // 2 + 100)]
            await store.put(
                store.key("grants", str(n)), b"%d" % n, expect=0, tags=[*who, store.tag("grants", "app", "a")]
            )
        whole = [(place, entry.body) async for place, entry in store.labelled("grants", "who")]
        places = [place for place, _ in whole]
        assert sorted(places) == places
        assert sorted([b"%d" % n for n in range(9)] * 2) == sorted(body for _, body in whole)
        one = store.tag("grants", "who", "1").value
        assert f"{one}.{store.key('grants', '1').name}" in places
        pages, after = [], ""
        for _ in range(5):
            pages.append([place async for place, _ in other.labelled("grants", "who", after=after, limit=4)])
            after = pages[-1][-1] if pages[-1] else after
        assert [4, 4, 4, 4, 2] == list(map(len, pages))
        assert places == [place for page in pages for place in page]
        of_one = [place async for place, _ in other.labelled("grants", "who", after=f"{one}.", limit=1)]
        assert [place for place in places if place.startswith(one)] == of_one
        assert [] == [place async for place, _ in store.labelled("grants", "nothing")]
        assert [] == [place async for place, _ in store.labelled("grants", "who", limit=0)]

    async def test_a_removed_entry_has_no_place_and_hides_none(self, store, other):
        for n in range(3):
            await store.put(store.key("grants", str(n)), b"%d" % n, expect=0, tags=[store.tag("grants", "who", str(n))])
        places = [place async for place, _ in store.labelled("grants", "who")]
        await other.delete(Key("grants", places[1].partition(".")[2]), expect=1)
        assert [places[0], places[2]] == [place async for place, _ in store.labelled("grants", "who", limit=2)]
        assert [places[2]] == [place async for place, _ in store.labelled("grants", "who", after=places[1])]

    async def test_a_version_that_can_be_read_is_found_by_its_tags(self, store, other):
        """A reader never sees a record that its tags do not lead to."""
        missed, over = list[str](), asyncio.Event()

        async def write() -> None:
            for n in range(30):
                one = store.tag("grants", "subject", str(n))
                await store.put(store.key("grants", str(n)), b"%d" % n, expect=0, tags=[one])
            over.set()

        async def read() -> None:
            while not over.is_set():
                for n in range(30):
                    body = b"%d" % n
                    entry = await other.get(other.key("grants", str(n)))
                    if entry is not None and body not in await found(other, other.tag("grants", "subject", str(n))):
                        missed.append(str(n))
                await asyncio.sleep(0)

        await asyncio.gather(write(), read())
        assert [] == missed

    async def test_tags_are_the_same_for_every_broker_and_differ_by_kind_label_and_parts(self, store, other):
        assert store.tag("grants", "app", "a", "b") == other.tag("grants", "app", "a", "b")
        values = [
            ("grants", "app", "a", "b"),
            ("grants", "app", "ab"),
            ("grants", "who", "a", "b"),
            ("due", "app", "ab"),
        ]
        assert 4 == len({store.tag(*each).value for each in values})

    async def test_a_tag_that_no_store_made_is_refused(self, store, key):
        with pytest.raises(ValueError):
            store.tag("tokens", "app", "a")
        with pytest.raises(ValueError):
            store.tag("grants", "../app", "a")
        good = store.tag("grants", "app", "a")
        for bad in (Tag("grants", "app", "../../x"), Tag("grants", "../x", good.value), Tag("due", "app", good.value)):
            with pytest.raises(ValueError):
                await store.put(key, b"", expect=0, tags=[bad])
        assert None is await store.get(key)

    async def test_keys_are_the_same_for_every_broker_of_one_store(self, store, other):
        assert store.key("grants", "a", "b") == other.key("grants", "a", "b")
        assert 64 == len(store.key("grants", "a", "b").name)

    async def test_lists_of_parts_that_read_alike_have_different_keys(self, store):
        """Case 45: `a:b` + `c` is not `a` + `b:c`."""
        lists = [("a:b", "c"), ("a", "b:c"), ("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), (), ("",)]
        assert len(lists) == len({store.key("grants", *parts).name for parts in lists})
        assert store.key("grants", "a").name != store.key("events", "a").name

    async def test_a_mac_is_one_per_label_and_list(self, store, other):
        assert store.mac("csrf", "a", "b") == other.mac("csrf", "a", "b")
        macs = [store.mac("csrf", "a", "b"), store.mac("csrf", "ab"), store.mac("other", "a", "b")]
        assert (3, {32}) == (len(set(macs)), {len(mac) for mac in macs})

    @pytest.mark.parametrize("name", ["", "../" * 21 + "x", "A" * 64, "a" * 63, "a" * 65, "a" * 63 + "\n", ".keyring"])
    async def test_a_key_that_no_store_made_is_refused(self, store, name):
        for call in (store.get(Key("grants", name)), store.put(Key("grants", name), b"", expect=0)):
            with pytest.raises(ValueError):
                await call

    async def test_an_unknown_kind_is_refused_everywhere(self, store, key):
        strange = Key("tokens", key.name)
        with pytest.raises(ValueError):
            store.key("tokens", "a")
        for call in (store.get(strange), store.put(strange, b"", expect=0), store.delete(strange, expect=1)):
            with pytest.raises(ValueError):
                await call
        with pytest.raises(ValueError):
            await store.count("tokens")
        with pytest.raises(ValueError):
            await bodies(store, "tokens")

    async def test_a_lease_is_for_lease_kinds_and_entries_are_not(self, store, key):
        with pytest.raises(ValueError):
            async with store.lease(key, wait=0):
                raise AssertionError
        with pytest.raises(ValueError):
            await store.get(store.key("provider", "a"))

    async def test_a_body_beyond_the_limit_is_refused_and_changes_nothing(self, store, key):
        await store.put(key, b"small", expect=0)
        with pytest.raises(ValueError):
            await store.put(key, bytes(MAX_BODY + 1), expect=1)
        assert (1, b"small") == ((await store.get(key)).generation, (await store.get(key)).body)

    async def test_one_holder_at_a_time(self, store, other):
        inside, most = 0, 0

        async def once(broker: Store) -> None:
            nonlocal inside, most
            async with broker.lease(store.key("provider", "a"), wait=20):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.001)
                inside -= 1

        await asyncio.gather(*(once((store, other)[n % 2]) for n in range(20)))
        assert (1, 0) == (most, inside)

    async def test_a_waiter_is_told_after_its_time(self, store, other):
        key = store.key("provider", "a")
        async with store.lease(key, wait=0):
            for broker in (store, other):
                assert "storeLocked" == await outcome(self.take(broker, key, 0.03))
                assert "storeLocked" == await outcome(self.take(broker, key, 0))
        assert "won" == await outcome(self.take(other, key, 0))

    async def test_a_round_waits_once_for_a_lease_that_stays_held(self, store, other):
        key, this_pass = store.key("provider", "a"), Pass()
        async with store.lease(key, wait=0):
            with this_pass.lock_budget():
                assert "storeLocked" == await outcome(self.take(other, key, 3600))
        with this_pass.lock_budget():
            assert "storeLocked" == await outcome(self.take(other, key, 3600))
            assert "won" == await outcome(self.take(other, store.key("provider", "b"), 3600))
        with Pass().lock_budget():
            assert "won" == await outcome(self.take(other, key, 3600))

    async def test_leases_of_different_names_do_not_meet(self, store, other):
        async with store.lease(store.key("provider", "a"), wait=0):
            assert "won" == await outcome(self.take(other, store.key("provider", "b"), 0))
            assert "won" == await outcome(self.take(store, store.key("pair", "a"), 0))

    async def test_a_lease_ends_with_the_exception_that_left_it(self, store, other):
        key = store.key("provider", "a")
        with pytest.raises(ZeroDivisionError):
            async with store.lease(key, wait=0):
                raise ZeroDivisionError
        assert "won" == await outcome(self.take(other, key, 0))

    async def test_a_cancelled_waiter_keeps_nothing(self, store, other):
        """Cancelled at any moment of its wait: the lease is free once its holder has left."""
        key = store.key("provider", "a")
        for delay in (0, 0.001, 0.003, 0.006):
            async with store.lease(key, wait=0):
                waiters = [asyncio.create_task(self.take(broker, key, 5)) for broker in (store, other, store)]
                await asyncio.sleep(delay)
                for waiter in waiters:
                    waiter.cancel()
                await asyncio.gather(*waiters, return_exceptions=True)
            assert "won" == await outcome(self.take(other, key, 0.1))

    async def test_a_waiter_cancelled_as_its_turn_comes_keeps_nothing(self, store, other):
        key = store.key("provider", "a")
        for _ in range(20):
            async with store.lease(key, wait=0):
                waiter = asyncio.create_task(self.take(store, key, 5))
                await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
            assert "won" == await outcome(self.take(other, key, 0.1))

    async def test_a_held_lease_does_not_block_writing(self, store, other, key):
        async with store.lease(store.key("provider", "slack-bot"), wait=0):
            await asyncio.wait_for(other.put(key, b"x", expect=0), 60)

    async def test_a_closed_store_says_so_and_may_be_closed_again(self, store, key):
        entry = await store.put(key, b"x", expect=0)
        await store.close()
        await store.close()
        for call in (store.get(key), store.put(key, b"", expect=1), store.delete(key, expect=1), store.count("grants")):
            assert Code.STORE_UNAVAILABLE.value == await outcome(call)
        assert Code.STORE_UNAVAILABLE.value == await outcome(self.take(store, store.key("provider", "a"), 0))
        assert not store.unchanged(entry)

    async def test_no_repr_shows_a_body(self, store, key):
        entry = await store.put(key, b"CANARY", expect=0)
        assert "CANARY" not in f"{entry!r}{store!r}"

    @staticmethod
    async def take(store: Store, key: Key, wait: float) -> None:
        async with store.lease(key, wait=wait):
            pass
