"""Records that cannot be read any more: each costs its own content, and blocks no other record."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.records import AuthSession, codec
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import Process, ask, complete, granted_event_ids, outcome
from tests.kit.running_broker import ALICE, turn, user_app

Store = FileStore | MemoryStore
Spoil = Callable[[Key], Awaitable[Key]]
APPS = ("mail", "files", "notes")
MORE = ("calendar", "chat")


class OldestFirst(MemoryStore):
    """A store in memory that scans in the order of creation."""

    async def scan(self, kind: str, **more: Any) -> AsyncIterator[Entry]:
        there = [entry async for entry in super().scan(kind, **more)]
        order = list(self._entries[kind])
        for entry in sorted(there, key=lambda entry: order.index(entry.key.name)):
            yield entry


async def entries(store: Store, kind: str) -> list[Entry]:
    return [entry async for entry in store.scan(kind)]


async def of_another_version(store: Store, kind: str, number: int = 0) -> Key:
    """The entry as a later version of this program might have written it: sealed well, and not ours to read."""
    return await rewritten(store, (await entries(store, kind))[number])


async def rewritten(store: Store, entry: Entry) -> Key:
    foreign = entry.body.replace(b'"schema":1', b'"schema":2')
    assert foreign != entry.body
    return (await store.put(entry.key, foreign, expect=entry.generation)).key


async def flipped(data: Path, key: Key) -> Key:
    """One bit of the file."""
    await asyncio.sleep(0.03)
    path = data / key.kind / key.name
    body = bytearray(path.read_bytes())
    body[-5] ^= 1
    path.write_bytes(body)
    return key


@pytest.fixture
async def process(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Process]:
    """A broker on files whose relay and sweeper run when the test says so."""
    apps = [user_app(identity_provider, name) for name in (*APPS, *MORE)]
    process = Process.start(tmp_path / "store", open_keyring(tmp_path), apps, identity_provider.clock.now())
    yield process
    await process.die()


@pytest.fixture
async def ordered(identity_provider: IdentityProvider) -> AsyncIterator[Process]:
    """The same in memory. A scan meets the oldest record first."""
    clock = TestClock(identity_provider.clock.now())
    store: Any = OldestFirst(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    process = Process.on(store, [user_app(identity_provider, name) for name in APPS], clock)
    yield process
    await process.die()


@pytest.fixture(params=["flipped", "of another version"])
async def spoil(request: pytest.FixtureRequest, process: Process, tmp_path: Path) -> Spoil:
    """Damages one entry of the process on files."""

    async def one(key: Key) -> Key:
        if request.param == "flipped":
            return await flipped(tmp_path / "store" / "data", key)
        entry = await process.store.get(key)
        assert entry is not None
        return await rewritten(process.store, entry)

    return one


def session_key(process: Process, asked: AuthorizationRequired) -> Key:
    return process.store.key("sessions", asked.auth_session_id.removeprefix("as-"))


async def links(process: Process, instance: str = "thread") -> list[str]:
    block = await process.broker.pending(turn(instance=instance))
    return [] if block is None else [item["authSessionId"] for item in block["items"]]


# sessions and who waits


@pytest.mark.case("66")
async def test_a_damaged_session_lets_no_user_in_and_asking_again_gives_another_link(process, identity_provider, spoil):
    lost = await ask(process)
    await spoil(session_key(process, lost))
    assert [] == await links(process)
    again = await ask(process)
    assert isinstance(again, AuthorizationRequired)
    assert again.auth_session_id != lost.auth_session_id
    assert [again.auth_session_id] == await links(process)
    assert 200 == await complete(process, identity_provider, again)
    assert isinstance(await ask(process), Ready)


@pytest.mark.case("66")
async def test_a_damaged_waiting_list_starts_anew_and_the_links_on_it_still_lead_in(process, identity_provider, spoil):
    first = await ask(process)
    await spoil(process.store.key("waiting", "mail", ALICE))
    assert [] == await links(process)
    second = await ask(process)
    assert isinstance(second, AuthorizationRequired)
    assert [second.auth_session_id] == await links(process)
    assert second.auth_session_id == (await ask(process)).auth_session_id, "the new list is kept"
    assert 200 == await complete(process, identity_provider, first)
    assert isinstance(await ask(process), Ready)
    assert ("completed", None) == await outcome(process, first) == await outcome(process, second)


@pytest.mark.parametrize("body", [b"", b"null", codec.encode("WaitingList", {"spec": {"app": "mail"}})], ids=repr)
async def test_a_waiting_list_that_says_nothing_useful_is_an_empty_one(ordered, body):
    await ask(ordered)
    (entry,) = await entries(ordered.store, "waiting")
    await ordered.store.put(entry.key, body, expect=entry.generation)
    asked = await ask(ordered)
    assert isinstance(asked, AuthorizationRequired)
    assert [asked.auth_session_id] == await links(ordered)


async def completes(process: Process, idp: IdentityProvider, asked: AuthorizationRequired) -> None:
    assert 200 == await complete(process, idp, asked)
    assert isinstance(await ask(process, instance="healthy"), Ready)


async def denies(process: Process, idp: IdentityProvider, asked: AuthorizationRequired) -> None:
    assert 400 <= await complete(process, idp, asked, deny=True)


async def cancels(process: Process, idp: IdentityProvider, asked: AuthorizationRequired) -> None:
    assert await process.broker.cancel(asked.auth_session_id)


async def expires(process: Process, idp: IdentityProvider, asked: AuthorizationRequired) -> None:
    process.clock.advance(601)
    await process.parts.sweep.once()


ENDS = [
    (completes, ("completed", None), ["auth.granted"]),
    (denies, ("failed", Code.PROVIDER_DENIED), ["auth.denied"]),
    (cancels, ("expired", None), []),
    (expires, ("expired", None), []),
]


@pytest.mark.case("66")
@pytest.mark.parametrize("what", ["session", "list"])
@pytest.mark.parametrize("end, status, events", ENDS, ids=[row[0].__name__ for row in ENDS])
async def test_a_session_beside_damage_ends_as_any_other(process, identity_provider, spoil, what, end, status, events):
    """Its own record says how it ended, and its event comes, in spite of damage to its neighbour or the list."""
    lost, healthy = await ask(process, instance="lost"), await ask(process, instance="healthy")
    await spoil(session_key(process, lost) if what == "session" else process.store.key("waiting", "mail", ALICE))
    await end(process, identity_provider, healthy)
    versioned = await process.session(healthy.auth_session_id)
    assert versioned is not None
    assert status == (versioned.status, versioned.failure)
    await process.parts.relay.once()
    await process.drain()
    assert [f"evt-{healthy.auth_session_id}-{kind}" for kind in events] == process.heard.received
    assert "healthy" not in [each.record.resume.instance_key for each in await waiting(process)]


async def waiting(process: Process) -> list[Any]:
    return await Repository(process.store).waiting("mail", ALICE)


# grants


@pytest.mark.case("66")
async def test_a_grant_with_a_broken_seal_asks_to_connect_again_and_that_works(process, identity_provider, tmp_path):
    first = await ask(process)
    assert 200 == await complete(process, identity_provider, first)
    lost = await ask(process)
    await flipped(tmp_path / "store" / "data", process.store.key("grants", "mail", ALICE))
    asked = await ask(process)
    assert isinstance(asked, AuthorizationRequired)
    assert "noGrant" == asked.reason
    assert not await process.broker.revoke("mail", subject=ALICE), "nothing of it can be told to the provider"
    assert 200 == await complete(process, identity_provider, asked)
    ready = await ask(process)
    assert isinstance(ready, Ready)
    assert ready.access_token.reveal() != lost.access_token.reveal()
    await process.drain()
    await process.tend()
    await process.drain()
    assert granted_event_ids(asked)[0] in process.heard.received


async def test_a_grant_of_another_version_is_refused_and_not_written_over(process, identity_provider):
    """It may be a good one: a newer program wrote it, and this one is not to lose it."""
    assert 200 == await complete(process, identity_provider, await ask(process))
    key = await of_another_version(process.store, "grants")
    before = await process.store.get(key)
    for more in ({}, {"switch_account": True}):
        answer = await process.broker.oauth(turn(ALICE, instance="thread")).get_access_token("mail", **more)
        assert isinstance(answer, Failed)
        assert Code.RECORD_CORRUPT is answer.code
    after = await process.store.get(key)
    assert before is not None
    assert after is not None
    assert (before.generation, before.body) == (after.generation, after.body)


# scans


async def sessions(repository: Repository) -> list[str]:
    return [versioned.record.app for versioned in [versioned async for versioned in repository.sessions()]]


async def grants(repository: Repository) -> list[str]:
    return [versioned.record.app for versioned in [versioned async for versioned in repository.grants()]]


async def due(repository: Repository) -> list[str]:
    return [each.grant.app for each in await repository.due()]


async def events(repository: Repository) -> list[str]:
    return [event.id async for event in repository.events.all()]


BODIES: dict[str, Callable[[bytes], bytes]] = {
    "another version": lambda body: body.replace(b'"schema":1', b'"schema":2'),
    "another kind": lambda body: codec.encode("Secret", {"spec": {"name": "x", "data": {}}}),
    "no JSON": lambda body: body[:-1],
    "a field short": lambda body: body.replace(b'"spec":', b'"spac":'),
}


@pytest.mark.parametrize("damage", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("scan", [sessions, grants, due, events], ids=lambda scan: scan.__name__)
async def test_a_scan_reports_unreadable_records_and_goes_on(ordered, identity_provider, scan, damage):
    await fill(ordered, identity_provider, scan.__name__)
    reported: list[tuple[str, Code]] = []
    repository = Repository(ordered.store, lambda place, code: reported.append((place, code)))
    before = await scan(repository)
    assert 3 == len(before)
    assert [] == reported
    first = (await entries(ordered.store, scan.__name__))[0]
    await ordered.store.put(first.key, damage(first.body), expect=first.generation)
    assert before[1:] == await scan(repository)
    assert [(f"{scan.__name__}/{first.key.name[:8]}", Code.RECORD_CORRUPT)] == reported
    kept = await ordered.store.get(first.key)
    assert kept is not None
    assert damage(first.body) == kept.body, "a scan leaves it alone"


async def fill(process: Process, idp: IdentityProvider, kind: str) -> None:
    """Three records of a kind."""
    for app in APPS:
        asked = await ask(process, app)
        if kind != "sessions":
            assert 200 == await complete(process, idp, asked)
    if kind == "events":
        await process.parts.relay.once()


@pytest.mark.case("67")
@pytest.mark.parametrize("scan", [sessions, grants], ids=lambda scan: scan.__name__)
async def test_a_record_in_anothers_place_is_passed_over_too(ordered, identity_provider, scan):
    await fill(ordered, identity_provider, scan.__name__)
    reported: list[tuple[str, Code]] = []
    first, other, _ = await entries(ordered.store, scan.__name__)
    await ordered.store.put(first.key, other.body, expect=first.generation)
    assert list(APPS[1:]) == await scan(Repository(ordered.store, lambda place, code: reported.append((place, code))))
    assert [(f"{scan.__name__}/{first.key.name[:8]}", Code.RECORD_MISPLACED)] == reported


async def test_what_a_broker_passes_over_is_in_its_log_without_the_record(harness):
    await harness.connected("mail")
    await harness.connected("files")
    entry = await harness.store.get(harness.store.key("grants", "mail", ALICE))
    assert entry is not None
    key = await rewritten(harness.store, entry)
    assert ["files"] == [summary.app async for summary in harness.broker.grants.list()]
    reported = [line for line in map(json.loads, harness.log.getvalue().splitlines()) if "place" in line]
    assert [(f"grants/{key.name[:8]}", "recordCorrupt")] == [(line["place"], line["code"]) for line in reported]


async def test_without_a_reporter_of_its_own_a_repository_tells_the_logger(caplog):
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    await store.put(store.key("due", "x"), b"{}", expect=0)
    assert [] == await due(Repository(store))
    (record,) = [record for record in caplog.records if record.name == "oauthbroker.store"]
    assert (logging.WARNING, True) == (record.levelno, record.getMessage().endswith(": recordCorrupt"))


async def test_an_unreadable_session_keeps_no_other_from_its_end(ordered):
    others = [await ask(ordered, app) for app in APPS][1:]
    await of_another_version(ordered.store, "sessions")
    ordered.clock.advance(601)
    assert 2 == await ordered.parts.sweep.once()
    assert {("expired", None)} == {await ended(ordered, asked) for asked in others}


async def ended(process: Process, asked: AuthorizationRequired) -> tuple[str, Code | None]:
    session: AuthSession | None = await process.session(asked.auth_session_id)
    assert session is not None
    return session.status, session.failure


@pytest.mark.case("94")
@pytest.mark.parametrize("kind", ["due", "grants", "events"])
async def test_an_unreadable_record_keeps_no_other_event_back(ordered, identity_provider, kind):
    lost, *others = [await ask(ordered, app, instance=app) for app in APPS]
    for asked in (lost, *others):
        assert 200 == await complete(ordered, identity_provider, asked)
    if kind == "events":
        await ordered.parts.relay.once()
    await of_another_version(ordered.store, kind)
    if kind != "grants":  # of a record that it was to read itself, the relay tells at the end
        await ordered.parts.relay.once()
    else:
        with pytest.raises(BrokerError, match="recordCorrupt"):
            await ordered.parts.relay.once()
    await ordered.parts.queues.tidy()
    await ordered.drain()
    assert granted_event_ids(*others) == ordered.heard.received


# revocations


@pytest.mark.parametrize("kind", ["grants", "due"])
async def test_one_unreadable_tombstone_does_not_stop_the_other_revocations(ordered, identity_provider, kind):
    for app in APPS:
        assert 200 == await complete(ordered, identity_provider, await ask(ordered, app))
    identity_provider.script.revoke.answer(503, times=len(APPS))
    for app in APPS:
        assert await ordered.broker.revoke(app, subject=ALICE)
    assert [1, 1, 1] == [identity_provider.living_tokens(f"client-{app}") for app in APPS]
    await of_another_version(ordered.store, kind)
    if kind == "grants":
        with pytest.raises(BrokerError, match="recordCorrupt"):
            await ordered.parts.bulk_revocation.run_pass()
    else:
        await ordered.parts.bulk_revocation.run_pass()
    assert [1, 0, 0] == [identity_provider.living_tokens(f"client-{app}") for app in APPS]


# queues


async def queued(process: Process, idp: IdentityProvider, app: str, agent: str = "planner") -> AuthorizationRequired:
    """An event waits in the agent's queue, in a conversation of its own, a second later than the one before."""
    process.clock.advance(1)
    of = turn(ALICE, agent=agent, instance=app)
    asked = await process.broker.oauth(of).get_access_token(app)
    assert isinstance(asked, AuthorizationRequired)
    assert 200 == await complete(process, idp, asked)
    await process.parts.relay.once()
    return asked


@pytest.mark.case("66")
async def test_a_queue_with_a_broken_seal_is_made_anew_from_the_events_there_are(process, identity_provider, tmp_path):
    done = await queued(process, identity_provider, "mail")
    await process.drain()
    assert granted_event_ids(done) == process.heard.received
    others = await queued(process, identity_provider, "notes", agent="other")
    waiting = [await queued(process, identity_provider, "files"), await queued(process, identity_provider, "calendar")]
    await flipped(tmp_path / "store" / "data", process.store.key("queues", "planner"))
    waiting.append(await queued(process, identity_provider, "chat"))
    assert [] == await process.broker.events.dead("planner")
    await process.drain()
    assert granted_event_ids(done, *waiting) == process.heard.received, (
        "in order, acknowledged ones not again, each once"
    )
    await process.tend()
    await process.drain()
    assert 4 == len(process.heard.received)
    await process.drain("other")
    assert granted_event_ids(others)[0] == process.heard.received[-1]


@pytest.mark.parametrize("part", [0, 1], ids=["head", "segment"])
async def test_a_queue_of_another_version_waits_for_it_and_holds_no_other_queue_up(process, identity_provider, part):
    await queued(process, identity_provider, "mail")
    key = Repository(process.store).queue_parts.key("planner", part)
    (entry,) = [entry for entry in await entries(process.store, "queues") if entry.key == key]
    assert key == await rewritten(process.store, entry)
    before = await process.store.get(key)
    with pytest.raises(BrokerError, match="recordCorrupt"):
        await process.broker.events.lease("planner")
    theirs = await queued(process, identity_provider, "files", agent="other")
    await process.drain("other")
    assert granted_event_ids(theirs) == process.heard.received
    after = await process.store.get(key)
    assert before is not None
    assert after is not None
    assert (before.generation, before.body) == (after.generation, after.body)
