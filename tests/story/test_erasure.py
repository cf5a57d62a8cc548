"""Erasing a subject: no record of it is left, nothing of others is touched, and providers are told first."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit import GrantEnded, GrantErased, GrantRevoked
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.events.port import Depth, EventLease
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.records import AgentEvent, EventType, Retired
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.revocation.bulk import BulkRevocation, RevocationFigures
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.stores import open_keyring
from tests.kit import planted_records
from tests.kit.broker_process import Process
from tests.kit.crashfs import CountingFs
from tests.kit.queues import until_relayed
from tests.kit.running_broker import ALICE, BOB, TEAM, Harness, global_app, running, turn, user_app


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock) as harness:
        yield harness


async def bodies(harness: Harness) -> dict[Key, bytes]:
    """Every record in clear."""
    return {entry.key: entry.body for kind in KINDS async for entry in harness.store.scan(kind)}


async def records_that_name(harness: Harness, subject: str) -> list[str]:
    """Return the kinds of the entries that do. A store may keep events otherwise than as entries."""
    found = [key.kind for key, body in (await bodies(harness)).items() if subject.encode() in body]
    events = harness.parts.queues.events()
    queued = ["events" async for event in events if subject.encode() in event.to_plaintext()]
    return sorted([*(kind for kind in found if kind != "events"), *queued])


async def next_event(harness: Harness) -> EventLease:
    delivery = await harness.broker.events.lease("planner", wait=2)
    assert delivery is not None
    return delivery


async def lived(harness: Harness, user: str, account: str) -> None:
    """Grants, one of them revoked; a request that is open, and one that was withdrawn; events, a turn, a visit, uses."""
    of = turn(user=user)
    await harness.connected("mail", account, of, ["read"])
    await harness.connected("files", account, of)
    assert await harness.broker.revoke("files", subject=user)
    await harness.ask_link("mail", ["admin"], of=turn(user=user, instance="another"))
    gone = await harness.ask_link("files", of=turn(user=user, instance="third"))
    assert await harness.broker.cancel(gone.auth_session_id)
    await harness.broker.turns.begin(of)
    await harness.broker.connections.link({"user": user})
    await harness.parts.uses.write(everything=True)
    state = PluginState(harness.repository.plugin_values, "library")
    await state.change(f"loans of {account}", lambda _: {"reader": user}, subjects=lambda loan: [loan["reader"]])


@pytest.fixture
async def full(harness: Harness) -> Harness:
    """Two people have lived here for a while, and a team that one of them asked for."""
    await lived(harness, ALICE, "alice")
    await lived(harness, BOB, "bob")
    await harness.connected("team", "alice", turn(user=BOB))
    await until_relayed(harness.store)
    return harness


async def test_no_record_names_the_person_afterwards_and_no_other_record_has_changed(full: Harness) -> None:
    assert {"events", "grants", "plugins", "sessions", "turns", "browsersessions", "waiting"} <= set(
        await records_that_name(full, BOB)
    )
    before = {key: body for key, body in (await bodies(full)).items() if BOB.encode() not in body}
    of_others = {key: body for key, body in before.items() if key.kind not in {"uses", "queues"}}
    erased = await full.broker.erase(BOB)
    assert erased.done
    said = erased.to_json()
    kinds = ("grants", "turns", "browserSessions", "uses", "pluginValues", "toTell", "connecting")
    assert [2, 1, 1, 2, 1, 0, 0] == [said[kind] for kind in kinds]
    team = await full.grant("team", TEAM)
    assert team is not None
    assert (["grants"], [team.id]) == (await records_that_name(full, BOB), erased.found.named_in)
    left = await bodies(full)
    assert of_others == {key: left.get(key) for key in of_others}
    assert 2 == sum(key.kind == "uses" for key in left), "those of Alice"
    assert isinstance(await full.ask("mail", ["read"]), Ready)
    assert isinstance(await full.ask("mail", ["read"], of=turn(user=BOB)), AuthorizationRequired)


async def test_a_grant_of_others_that_keeps_tokens_of_the_person_to_be_revoked_is_named(full: Harness) -> None:
    team = await full.repository.grant(GrantKey("team", TEAM))
    assert team is not None
    keeps = replace(team.record, authorized_by=ALICE, resume=None)
    old = Retired.of(Secret("a refresh token"), None, full.clock.now())
    keeps = keeps.owing(replace(old, registration="another client", authorized_by=BOB))
    await full.repository.save_grant(keeps, expect=team.generation)
    erased = await full.broker.erase(BOB)
    assert (True, [keeps.id]) == (erased.done, erased.found.named_in)
    assert keeps == await full.grant("team", TEAM), "it stays, and so does the debt"


@pytest.mark.case("68")
async def test_a_copy_of_the_persons_link_or_turn_that_is_put_back_afterwards_is_good_for_nothing(
    full: Harness,
) -> None:
    store, browser_sessions = full.store, full.parts.browser_sessions
    ticket, _ = await browser_sessions.invite({"user": BOB})
    begun = await full.broker.turns.begin(turn(user=BOB))
    copies = [
        entry for kind in ("browsersessions", "turns") async for entry in store.scan(kind) if BOB.encode() in entry.body
    ]
    assert (await full.broker.erase(BOB)).done
    for copy in copies:
        await store.put(copy.key, copy.body, expect=0)
    with pytest.raises(BrokerError) as late:
        await browser_sessions.invited(ticket.reveal())
    assert Code.STATE_UNKNOWN is late.value.code
    with pytest.raises(BrokerError) as ended:
        await full.broker.turns.admit(begun.token.reveal())
    assert Code.TURN_ENDED is ended.value.code


async def test_grants_end_at_their_provider_before_they_go_and_the_audit_log_says_so(full: Harness) -> None:
    before = full.idp.count("revoke")
    await full.broker.erase(BOB)
    assert before + 2 == full.idp.count("revoke"), "the two tokens of the living one"
    kinds = (GrantEnded, GrantRevoked, GrantErased)
    said = [type(entry).__name__ for entry in full.audit.entries if isinstance(entry, kinds)]
    assert ["GrantEnded", "GrantRevoked", "GrantErased", "GrantErased"] == said[-4:]


async def test_a_subjects_events_are_erased_in_any_state_and_other_events_stay(full: Harness) -> None:
    leased = await next_event(full)
    assert ALICE in str(leased.to_json())
    assert (await full.broker.erase(ALICE)).done
    assert not await leased.ack()
    assert not [event async for event in full.repository.events.all() if ALICE in str(event.to_json())]
    found = 0
    while (delivery := await full.broker.events.lease("planner")) is not None:
        assert BOB in str(delivery.to_json())
        found += await delivery.ack()
    assert found >= 4


async def test_a_dead_letter_goes_and_its_conversation_with_it(harness: Harness) -> None:
    await harness.connected()
    for _ in range(harness.broker.bundle.settings.limits.queue_attempts):
        await (await next_event(harness)).nack()
        harness.clock.advance(3600)
    await planted_records.dead_letter(harness)
    queues = harness.parts.queues
    assert 2 == Depth.of(await queues.depths()).dead
    assert (await harness.broker.erase(ALICE)).done
    assert (1, []) == (Depth.of(await queues.depths()).dead, await records_that_name(harness, ALICE))


async def test_an_event_that_was_erased_is_not_queued_by_a_relay_that_had_read_it(harness: Harness) -> None:
    await harness.connected()
    event = (await next_event(harness)).event
    await harness.broker.erase(ALICE)
    assert not await harness.parts.queues.enqueue(event)


async def test_an_event_that_only_a_relay_remembers_after_a_takeover_is_not_queued_again(harness: Harness) -> None:
    """Its place in the queue is lost, and its outbox was settled: no record has it when the person is erased."""
    grant = await planted_records.grant(harness, "mail", ALICE)
    asked = await harness.ask_link("files")
    assert grant.resume is not None
    assert (await harness.broker.erase(ALICE)).done
    about: list[tuple[str | None, EventType]]
    about = [(grant.auth_session_id, "auth.granted"), (asked.auth_session_id, "auth.failed")]
    for of, kind in about:
        payload: dict[str, Any] = {"subject": ALICE, "authSessionId": of}
        lost = AgentEvent.about(str(of), kind, grant.resume, payload, harness.clock.now())
        assert not await harness.parts.queues.enqueue(lost)
    assert "events" not in await records_that_name(harness, ALICE)


@pytest.mark.parametrize("answer", ["busy", "refuses"])
async def test_nothing_is_removed_while_a_provider_has_still_to_be_told(full: Harness, answer: str) -> None:
    if answer == "busy":
        full.idp.script.revoke.answer(503, times=4)
    else:
        full.idp.script.revoke.answer(400, {"error": "invalid_request"})
    before = {
        key for key, body in (await bodies(full)).items() if key.kind in {"grants", "events", "uses", "browsersessions"}
    }
    waits = await full.broker.erase(BOB)
    assert (False, 1) == (waits.done, waits.found.to_tell)
    assert before <= set(await bodies(full))
    full.clock.advance(2 * 3600)
    assert (await full.broker.erase(BOB, patience=60)).done


async def test_a_browser_that_is_connecting_is_waited_for(harness: Harness) -> None:
    asked = await harness.ask_link()
    versioned = await harness.repository.session((await harness.session(asked)).locator)
    assert versioned is not None
    claimed = versioned.record.claimed("another process", harness.clock.now() + timedelta(minutes=5))
    await harness.repository.save_session(claimed, expect=versioned.generation)
    waits = await harness.broker.erase(ALICE)
    assert (False, 1) == (waits.done, waits.found.connecting)
    assert await harness.repository.session(versioned.record.locator) is not None


async def test_it_is_said_twice_and_done_once(full: Harness) -> None:
    assert (await full.broker.erase(BOB)).done
    entries = len(full.audit.entries)
    again = await full.broker.erase(BOB)
    assert (True, True) == (again.done, again.found.empty)
    assert entries == len(full.audit.entries)


class DyingStore(MemoryStore):
    """Takes so many more changes, and none after them; None: every one."""

    left: int | None = None

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        self._spend()
        return await super().put(key, body, **more)

    async def delete(self, key: Key, *, expect: int) -> None:
        self._spend()
        await super().delete(key, expect=expect)

    async def close(self) -> None:
        """A process goes, its store stays."""

    def _spend(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise BrokerError(Code.STORE_UNAVAILABLE)
            self.left -= 1


async def test_a_run_that_died_at_any_change_is_finished_by_the_next(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The next one is another process on the same store."""
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    died = 0
    for changes in itertools.count():
        store = DyingStore(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
        async with running(identity_provider, apps, clock=test_clock, store=store, background=False) as harness:
            await planted(harness)
            store.left = changes
            try:
                done = (await harness.broker.erase(ALICE)).done
            except BrokerError:
                done = False
            store.left = 0
        store.left = None
        if done:
            break
        died += 1
        async with running(identity_provider, apps, clock=test_clock, store=store, background=False) as harness:
            assert (await harness.broker.erase(ALICE)).done, changes
            assert [] == await records_that_name(harness, ALICE), changes
            assert 1 == len(await harness.parts.queues.dead("planner"))
    assert died > 12


async def planted(harness: Harness) -> None:
    resume = turn().resume_target
    grant = await planted_records.grant(harness, "mail", ALICE, resume=resume, auth_session_id=None)
    await planted_records.ended_grant(harness, "files", ALICE)
    await planted_records.grant(harness, "mail", BOB)
    harness.parts.uses.note(grant.id, "planner", None, harness.clock.now())
    await harness.parts.uses.write(everything=True)
    await harness.ask_link("files")
    gone = await harness.ask_link("files", of=turn(instance="another"))
    assert await harness.broker.cancel(gone.auth_session_id)
    await harness.broker.turns.begin(turn())
    await harness.broker.connections.link({"user": ALICE})
    await planted_records.dead_letter(harness)
    event = AgentEvent.about("as-1", "auth.granted", resume, {"subject": ALICE}, harness.clock.now())
    await harness.parts.queues.enqueue(event)


async def test_looking_changes_nothing(full: Harness) -> None:
    before = await bodies(full)
    found = await full.broker.erasure.find_records(BOB)
    assert not found.empty
    assert before == await bodies(full)


async def test_found_records_are_erased_without_reading_the_grants_of_others(
    full: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await full.broker.erasure.find_records(BOB)
    assert found.grants

    def reads(_: Repository) -> AsyncIterator[Any]:
        raise AssertionError("the whole store is read again")

    monkeypatch.setattr(Repository, "grants", reads)
    erased = await full.broker.erasure.erase(BOB, seen=found)
    assert erased.done
    monkeypatch.undo()
    left = await full.broker.erasure.find_records(BOB)
    assert ([], [], []) == (left.grants, left.sessions, left.uses)


@pytest.mark.parametrize("subject", ["", "x" * 1025, "\ud800"])
async def test_a_malformed_subject_is_refused(harness: Harness, subject: str) -> None:
    with pytest.raises(BrokerError) as refused:
        await harness.broker.erase(subject)
    assert Code.REQUEST_INVALID is refused.value.code


async def test_a_busy_record_of_another_subject_keeps_no_subject_from_being_erased(full: Harness) -> None:
    asked = await full.ask_link("files", of=turn(user=ALICE, instance="busy"))
    versioned = await full.repository.session(asked.auth_session_id[3:])
    assert versioned is not None
    claimed = versioned.record.claimed("a" * 22, full.clock.now() + timedelta(seconds=60))
    await full.repository.save_session(claimed, expect=versioned.generation)
    async with full.repository.pair(GrantKey("files", ALICE)):
        assert (await full.broker.erase(BOB)).done
    assert ["grants"] == await records_that_name(full, BOB), "the team's own, that Bob asked for"


async def test_concurrent_erasures_of_one_subject_write_no_record_twice(
    identity_provider: IdentityProvider, tmp_path: Path
) -> None:
    """Side by side they would try each write as often as there are callers, and lose all but one try."""
    fs, written = CountingFs(), list[int]()
    ring, now = open_keyring(tmp_path), identity_provider.clock.now()
    process = Process.start(tmp_path / "store", ring, [user_app(identity_provider)], now, fs)
    for user, callers in ((ALICE, 1), (BOB, 8)):
        for number in range(10):
            await process.broker.turns.begin(turn(user=user, instance=str(number)))
        before = fs.calls["create_file"]
        erased = await asyncio.gather(*(process.broker.erase(user) for _ in range(callers)))
        assert [True] * callers == [each.done for each in erased]
        written.append(fs.calls["create_file"] - before)
    assert written[0] == written[1]
    await process.die()


@pytest.fixture
def during_the_wait(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Awaitable[None]]]:
    """What happens once the providers know of a revocation, while a busy one might still be waited for."""
    steps: list[Callable[[], Awaitable[None]]] = []
    end = BulkRevocation.revoke_grants

    async def slow_end(revocations: BulkRevocation, pairs: Iterable[GrantKey], **more: Any) -> RevocationFigures:
        figures = await end(revocations, pairs, **more)
        for step in steps:
            await step()
        return figures

    monkeypatch.setattr(BulkRevocation, "revoke_grants", slow_end)
    return steps


async def test_the_use_of_a_grant_that_others_make_meanwhile_stays(
    harness: Harness, during_the_wait: list[Callable[[], Awaitable[None]]]
) -> None:
    async def bob_connects() -> None:
        await harness.connected("mail", "bob", turn(user=BOB))
        await harness.parts.uses.write(everything=True)

    await harness.connected()
    during_the_wait.append(bob_connects)
    assert (await harness.broker.erase(ALICE)).done
    kept = await harness.grant("mail", BOB)
    assert kept is not None
    assert [kept.id] == [use.grant async for use in harness.parts.uses.all()]


async def test_turns_and_requests_that_begin_meanwhile_go_too(
    harness: Harness, during_the_wait: list[Callable[[], Awaitable[None]]]
) -> None:
    async def alice_goes_on() -> None:
        await harness.broker.turns.begin(turn(instance="later"))
        await harness.ask_link("files", of=turn(instance="later"))
        gone = await harness.ask_link("files", of=turn(instance="another"))
        assert await harness.broker.cancel(gone.auth_session_id)

    await harness.connected()
    during_the_wait.append(alice_goes_on)
    erased = await harness.broker.erase(ALICE)
    assert (True, 1) == (erased.done, len(erased.found.turns))
    assert [] == await records_that_name(harness, ALICE)


async def test_a_browser_that_begins_to_connect_meanwhile_is_waited_for(
    harness: Harness, during_the_wait: list[Callable[[], Awaitable[None]]]
) -> None:
    async def alice_connects() -> None:
        versioned = await harness.repository.session((await harness.session(await harness.ask_link("files"))).locator)
        assert versioned is not None
        claimed = versioned.record.claimed("another process", harness.clock.now() + timedelta(minutes=5))
        await harness.repository.save_session(claimed, expect=versioned.generation)

    await harness.connected()
    during_the_wait.append(alice_connects)
    waits = await harness.broker.erase(ALICE)
    assert (False, 1) == (waits.done, waits.found.connecting)
    assert "sessions" in await records_that_name(harness, ALICE)


class ReadStore(MemoryStore):
    """Counts how often each kind is scanned, and the entries that are opened."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self.scans, self.opened = Counter[str](), 0

    async def get(self, key: Key) -> Entry | None:
        self.opened += 1
        return await super().get(key)

    async def scan(self, kind: str, **more: Any) -> AsyncIterator[Entry]:
        self.scans[kind] += 1
        async for entry in super().scan(kind, **more):
            self.opened += 1
            yield entry


@pytest.mark.parametrize("others", [10, 1000])
async def test_an_erasure_reads_the_records_of_others_once_and_their_turns_and_sessions_twice(
    identity_provider: IdentityProvider, test_clock: TestClock, others: int
) -> None:
    store = ReadStore(test_clock)
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=store, background=False) as harness:
        await planted(harness)
        for number in range(others):
            await planted_records.grant(harness, "mail", f"idp:user:other{number}")
        store.scans.clear()
        store.opened = 0
        assert (await harness.broker.erase(ALICE)).done
        once = dict.fromkeys(("grants", "events", "browsersessions", "uses", "plugins"), 1)
        assert {**once, "sessions": 2, "turns": 2} == store.scans, "some may begin while providers are waited for"
        assert store.opened <= others + 200
