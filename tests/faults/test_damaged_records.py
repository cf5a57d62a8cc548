"""Every kind of record, damaged in every way, met by everything a broker does: it blocks itself and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.audit import ApiKeyChanged
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.repository.repository import KINDS, Repository
from oauthbroker.testing import IdentityProvider
from tests.faults.damage_kit import DAMAGE, FILES, PLANTED, World, client_of, damaged, operations, world
from tests.kit.broker_process import complete
from tests.kit.running_broker import ALICE, BOB, turn

CLOSED = {"an ended turn's token"}  # in every store
REFUSED: dict[str, set[str]] = {
    "grants": {"revoked", "relay", "revocations", "relay at the end", "erased"},
    "sessions": {"wait", "cancelled"},
    "waiting": set(),
    "events": set(),
    "queues": set(),
    "secrets": {"secret"},
    "due": set(),
    "turns": {"turn token"},
    "apikeys": {"API key"},
    "browsersessions": {"visit"},
    "uses": set(),
    "plugins": {"plug-in value"},
    "clients": set(),
    "tombstones": set(),
}
"""The calls that may be refused because they need the record. The relay reports it, after all others' events."""
PLANTED_TOO: dict[str, set[str]] = {
    "waiting": {"connect", "sweep", "cancelled", "erased"},
    "events": {"erased"},
    "queues": {"relay", "consumer", "tidying", "relay at the end", "erased"},
    "uses": {"uses", "erased"},
    "clients": {"client at a server"},
    "tombstones": {"turn ended again", "erased"},
}
"""A folder or a link in a record's place was planted, so that nothing is done to it."""
MADE_AGAIN = {"waiting", "queues", "due", "uses", "clients", "tombstones"}
NEWER_IS_KEPT = {"queues": {"relay", "consumer", "tidying", "relay at the end", "erased"}}
CASES = [("grants", "sound"), *((kind, form) for kind in KINDS for form in DAMAGE)]


@pytest.fixture
async def here(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[World]:
    found = await world(tmp_path, identity_provider)
    yield found
    await found.process.die()


async def refused_of(here: World) -> dict[str, Code]:
    """Do everything once. Return the refused operations with their codes; other exceptions are errors."""
    refused = {}
    for name, operation in operations(here).items():
        try:
            await operation()
        except BrokerError as error:
            refused[name] = error.code
    return refused


async def assert_bob_notices_nothing(here: World) -> None:
    """Bob's due work is done, and each of Bob's calls is answered."""
    process, broker = here.process, here.broker
    await process.drain("writer")
    heard = [each.rpartition("-")[2] for each in process.heard.received]
    assert heard.count("auth.granted") >= 2, "Bob's events came"
    assert [await process.store.get(key) for key in here.passed] == [None] * len(here.passed), "ended records are gone"
    session = await process.session(here.left_open.auth_session_id)
    assert session is None or not session.open
    ended = await process.grant("mail", BOB)
    assert ended is not None
    assert ended.revoked
    assert not ended.revocation_pending, "Bob's provider was told"
    assert isinstance(await here.ask(BOB, "files"), Ready), "refreshed by now"
    asked = await here.ask(BOB, "notes")
    assert isinstance(asked, AuthorizationRequired)
    assert await complete(process, here.idp, asked, "bob") == 200
    assert isinstance(await here.ask(BOB, "notes"), Ready)
    begun = await broker.turns.begin(turn(BOB))
    await broker.turns.admit(begun.token.reveal())
    assert await broker.turns.end(begun.turn_id)
    assert await broker.api_keys.check(here.keyed[BOB].reveal())
    assert (BOB, "value") in await broker.secrets.names()
    assert (BOB, [BOB]) in [it async for it in here.notes.all()]
    assert await here.parts.repository.clients.get(BOB) == client_of(BOB)
    assert await broker.revoke("files", subject=BOB)


def test_the_table_has_a_row_for_every_kind() -> None:
    assert REFUSED.keys() == set(KINDS)


async def test_the_store_of_these_tests_has_a_record_of_every_kind_twice(here: World) -> None:
    assert here.keys.keys() == set(KINDS)
    for hers, his in here.keys.values():
        assert hers != his
        for key in (hers, his):
            assert await here.process.store.get(key) is not None, key


@pytest.mark.parametrize("form", ["sound", *FILES])
async def test_an_erasure_that_cannot_read_a_grant_of_its_subject_does_not_say_that_all_is_gone(
    here: World, form: str
) -> None:
    if form != "sound":
        await damaged(here, "grants", form)
    refused, outcomes = None, []
    for _ in range(2):  # the second run finds it, too
        try:
            outcomes.append(await here.broker.erase(ALICE))
        except BrokerError as error:
            refused = error.code
    unreadable = [each.found.unreadable for each in outcomes]
    assert refused or form == "sound" or (unreadable == [1, 1] and not any(each.done for each in outcomes))
    assert form != "sound" or unreadable == [0, 0]
    other = await here.broker.erase(BOB)
    assert not other.found.unreadable


@pytest.mark.sample(10)
@pytest.mark.slow
@pytest.mark.case("65", "66", "67", "94")
@pytest.mark.parametrize(("kind", "form"), CASES, ids=[f"{kind}, {form}" for kind, form in CASES])
async def test_a_damaged_record_blocks_itself_and_nothing_else(here: World, kind: str, form: str) -> None:
    if form != "sound":
        await damaged(here, kind, form)
    may = CLOSED | (REFUSED[kind] if form != "sound" else set())
    may |= PLANTED_TOO.get(kind, set()) if form in PLANTED else set()
    may |= NEWER_IS_KEPT.get(kind, set()) if form == "a newer version" else set()
    refused = await refused_of(here)
    assert refused.keys() <= may, refused
    assert refused["an ended turn's token"] is Code.TURN_ENDED, "with any damage to its tombstone"
    await assert_bob_notices_nothing(here)
    if kind in MADE_AGAIN and form in FILES:
        await here.process.store.get(here.keys[kind][0])  # opens, or is gone


# what each repair is about, by itself

SAMPLES = ["a flipped bit", "a neighbour's bytes", "an unknown key"]
each_sample = pytest.mark.parametrize("form", SAMPLES)


@pytest.mark.sample(3)
@each_sample
@pytest.mark.parametrize("look", ["lease", "dead", "settled"])
async def test_a_damaged_queue_is_fixed_by_the_first_look_and_not_made_anew_by_each(
    here: World, form: str, look: str
) -> None:
    await here.process.drain()  # nothing is left to lease, so that a look alone would change nothing
    await damaged(here, "queues", form)
    looks = {
        "lease": lambda: here.broker.events.lease("planner"),
        "dead": lambda: here.broker.events.dead("planner"),
        "settled": lambda: here.broker.events.settled("planner", ["x"]),
    }
    await looks[look]()
    repaired = await here.process.store.get(here.keys["queues"][0])
    assert repaired is not None
    await looks[look]()
    assert here.process.store.unchanged(repaired), "the next look writes nothing"


@each_sample
async def test_a_damaged_turn_is_ended_for_good_also_when_its_record_is_fixed(here: World, form: str) -> None:
    file, turns, begun = here.file(here.keys["turns"][0]), here.broker.turns, here.turns[ALICE]
    copy = file.read_bytes()
    await damaged(here, "turns", form)
    assert await turns.end(begun.turn_id)
    file.write_bytes(copy)
    file.chmod(0o600)
    with pytest.raises(BrokerError) as refused:
        await turns.admit(begun.token.reveal())
    assert refused.value.code is Code.TURN_ENDED


@pytest.mark.sample(5)
@pytest.mark.parametrize("form", DAMAGE)
async def test_a_damaged_key_is_removed_with_an_entry_written_before(
    here: World, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, keys, text = here.file(here.keys["apikeys"][0]), here.broker.api_keys, here.keyed[ALICE].reveal()
    key_id, audit = f"key-{text.split('.')[1]}", here.parts.audit
    assert isinstance(audit, AuditList)
    copy = file.read_bytes()
    await damaged(here, "apikeys", form)

    def refuse(*_: object) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as failing, pytest.raises(BrokerError):
        failing.setattr(audit, "write", refuse)
        await keys.remove(key_id)
    assert file.exists() or file.is_symlink(), "no entry, no removal"
    assert await keys.remove(key_id)
    removed = [(it.key, it.action) for it in audit.entries if isinstance(it, ApiKeyChanged)]
    assert (key_id, "removed") == removed[-1]
    if form not in PLANTED:
        assert not file.exists()
        assert not await keys.remove(key_id)
        file.write_bytes(copy)
        file.chmod(0o600)
    with pytest.raises(BrokerError) as refused:
        await keys.check(text)
    assert refused.value.code is Code.UNAUTHENTICATED


@each_sample
async def test_connecting_replaces_a_damaged_waiting_list(here: World, form: str) -> None:
    await damaged(here, "waiting", form)
    asked = await here.ask(ALICE, "notes")
    assert isinstance(asked, AuthorizationRequired)
    again = await here.ask(ALICE, "notes")
    assert again.auth_session_id == asked.auth_session_id, "the new list is kept"


@each_sample
async def test_an_event_whose_kept_body_is_damaged_is_kept_anew(here: World, form: str) -> None:
    """A relay that died between the body and the queue: the outbox still has the event."""
    (event,) = [it async for it in Repository(here.process.store).events.all() if it.target.agent_name == "planner"]
    await damaged(here, "events", form)
    await Repository(here.process.store).events.keep(event)
    assert await Repository(here.process.store).events.get(event.id) == event


@each_sample
async def test_an_event_with_a_damaged_body_can_be_acknowledged(here: World, form: str) -> None:
    delivery = await here.broker.events.lease("planner")
    assert delivery is not None
    await damaged(here, "events", form)
    assert await delivery.ack()
    assert await here.process.store.get(here.keys["events"][0]) is None


@each_sample
async def test_the_page_of_connections_shows_the_others(here: World, form: str) -> None:
    arrival = await here.broker.connections.open(here.tickets[ALICE].reveal())
    await damaged(here, "grants", form)
    shown = await here.broker.connections.overview(arrival.browser_session)
    assert {service.app.name for service in shown} == {"mail", "notes"}
    (mail,) = [service.connection.grant.id for service in shown if service.connection is not None]
    assert await here.broker.connections.disconnect(arrival.browser_session, mail) is not None


@each_sample
async def test_an_event_whose_session_is_damaged_leaves_the_outbox(here: World, form: str) -> None:
    granted = await here.process.grant("files", ALICE)
    assert granted is not None
    (event,) = granted.outbox
    session = here.process.store.key("sessions", event.payload["authSessionId"][3:])
    here.keys["sessions"] = (session, here.keys["sessions"][1])
    await damaged(here, "sessions", form)
    await here.parts.relay.once()
    granted = await here.process.grant("files", ALICE)
    assert granted is not None
    assert granted.outbox == ()


async def test_a_secret_whose_seal_is_broken_can_be_set_again(here: World) -> None:
    await damaged(here, "secrets", "a flipped bit")
    assert (ALICE, "value") not in await here.broker.secrets.names()
    await here.broker.secrets.put(ALICE, "value", here.idp.canaries.mint("client secret"))
    assert (ALICE, "value") in await here.broker.secrets.names()


@pytest.mark.parametrize("form", ["a newer version", *PLANTED])
async def test_a_queue_that_must_stay_keeps_no_other_from_being_tidied(here: World, form: str) -> None:
    repository = Repository(here.process.store)
    (event,) = [it async for it in repository.events.all() if it.id == "evt-of-nobody"]
    left = [f"evt-of-nobody-{number}" for number in range(8)]  # a scan has no order: the queue is not met last
    for event_id in left:
        await repository.events.keep(replace(event, id=event_id))
    await damaged(here, "queues", form)
    with pytest.raises(BrokerError):
        await here.parts.queues.tidy()
    assert [await repository.events.get(event_id) for event_id in left] == [None] * len(left)
