"""The relay is late: events lie in several records, and leave in the order in which they happened."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Item, Segment
from oauthbroker.repository.queue_parts import QueueParts
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from tests.kit.broker_process import Process, complete, connected
from tests.kit.queues import put_items
from tests.kit.running_broker import ALICE, BOB, turn, user_app
from tests.story.revocation_kit import Start

APPS = ("mail", "files", "calendar", "notes", "tasks", "forms")


@pytest.fixture
async def process(start: Start, identity_provider: IdentityProvider) -> Process:
    return start([user_app(identity_provider, name) for name in APPS])


async def happened(process: Process, provider: IdentityProvider) -> list[tuple[str, str]]:
    """Connected, ended and connected again, in one conversation; nothing was queued meanwhile."""
    said = []
    for app in APPS:
        process.clock.advance(1)
        await connected(process, provider, app)
        said.append(("auth.granted", app))
    for app in reversed(APPS):
        process.clock.advance(1)
        await process.broker.grants.revoke(app, ALICE)
        said.append(("auth.revoked", app))
    for app in APPS[::2]:
        process.clock.advance(1)
        await connected(process, provider, app)
        said.append(("auth.granted", app))
    return said


async def received(process: Process) -> list[tuple[str, str]]:
    said = []
    while (delivery := await process.broker.events.lease("planner")) is not None:
        said.append((delivery.type, delivery.to_json()["payload"]["oauthAppRef"]["name"]))
        assert await delivery.ack()
    return said


@pytest.mark.case("94")
async def test_a_conversations_events_leave_in_the_order_in_which_they_happened(
    process: Process, identity_provider: IdentityProvider
) -> None:
    said = await happened(process, identity_provider)
    await process.parts.relay.once()
    assert said == await received(process)
    await process.parts.relay.once()
    assert 0 == await process.store.count("due")


@pytest.mark.case("94")
async def test_an_event_that_cannot_be_queued_holds_up_what_follows_it_and_no_other_conversation(
    process: Process, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = await happened(process, identity_provider)
    asked = await process.broker.oauth(turn(BOB, instance="elsewhere")).get_access_token("mail")
    assert isinstance(asked, AuthorizationRequired)
    assert 200 == await complete(process, identity_provider, asked, "bob")
    queues: Any = process.parts.relay._queues
    enqueue, number = queues.enqueue, 0

    async def fails_once(event: AgentEvent, **how: Any) -> bool:
        nonlocal number
        number += 1
        if number == 4:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return bool(await enqueue(event, **how))

    monkeypatch.setattr(queues, "enqueue", fails_once)
    with pytest.raises(BrokerError):
        await process.parts.relay.once()
    first = await received(process)
    assert [*said[:3], ("auth.granted", "mail")] == first
    await process.parts.relay.once()
    assert said == first[:3] + await received(process)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of events of every segment of a queue that was parsed."""
    counts, parse = list[int](), Segment.from_plaintext

    def counted(body: bytes) -> Segment:
        segment = parse(body)
        counts.append(len(segment.items))
        return segment

    monkeypatch.setattr(Segment, "from_plaintext", counted)
    return counts


@pytest.mark.case("94")
async def test_a_full_queue_is_parsed_once_however_many_conversations_wait_for_it(
    process: Process, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, parsed: list[int]
) -> None:
    many = 50
    items = [Item(id=f"evt-as-{number}-auth.granted", address="elsewhere") for number in range(many)]
    await put_items(Repository(process.store), "planner", items)
    monkeypatch.setattr("oauthbroker.events.queue_index.MOST_BYTES", sum(item.weight for item in items) + 20)
    for app in APPS:
        process.clock.advance(1)
        asked = await process.broker.oauth(turn(ALICE, instance=app)).get_access_token(app)
        assert isinstance(asked, AuthorizationRequired)
        assert 200 == await complete(process, identity_provider, asked)
    asked = await process.broker.oauth(turn(BOB, agent="writer")).get_access_token("mail")
    assert isinstance(asked, AuthorizationRequired)
    assert 200 == await complete(process, identity_provider, asked, "bob")
    locked, lock = list[str](), QueueParts.lock

    def counted(self: QueueParts, agent: str, **how: Any) -> Any:
        locked.append(agent)
        return lock(self, agent, **how)

    monkeypatch.setattr(QueueParts, "lock", counted)
    parsed.clear()
    for _ in range(3):
        with pytest.raises(BrokerError, match="full"):
            await process.parts.relay.once()
    assert 1 == parsed.count(many)
    assert 1 == locked.count("planner")
    assert await process.broker.events.lease("writer") is not None, "another agent's events are not delayed"
    await process.parts.queues.erase("planner", [f"evt-as-{number}-auth.granted" for number in range(many)])
    await process.parts.relay.once()
    assert [("auth.granted", app) for app in APPS] == await received(process)


@pytest.mark.case("56")
async def test_tombstones_that_wait_for_their_provider_are_opened_once_and_not_for_every_event(
    process: Process, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity_provider.script.revoke.answer(503, times=FOREVER)
    for app in APPS[1:]:
        await connected(process, identity_provider, app)
        await process.broker.grants.revoke(app, ALICE)
    for _ in range(2):
        await process.parts.relay.once()
    await received(process)
    opened = 0
    get = process.store.get

    async def counted(key: Any) -> Any:
        nonlocal opened
        opened += key.kind == "grants"
        return await get(key)

    await connected(process, identity_provider, "mail")
    monkeypatch.setattr(process.store, "get", counted)
    for _ in range(3):
        await process.parts.relay.once()
    assert [("auth.granted", "mail")] == await received(process)
    assert opened < len(APPS)
    identity_provider.script.revoke.reset()
    process.clock.advance(3600)
    for _ in range(2):
        await process.parts.bulk_revocation.run_pass()
        await process.parts.relay.once()
    assert 0 == await process.store.count("due"), "what changed is looked at again"


@pytest.mark.case("94")
async def test_a_pair_that_a_stopped_process_holds_delays_no_other_event_for_long(
    process: Process, start: Start, identity_provider: IdentityProvider
) -> None:
    said = await happened(process, identity_provider)
    other = start([user_app(identity_provider)])
    began = time.monotonic()
    async with Repository(other.store).pair(GrantKey(APPS[0], ALICE)):
        with pytest.raises(BrokerError):
            await process.parts.relay.once()
        assert time.monotonic() - began < 10
        assert said == await received(process)
    await process.parts.relay.once()
    assert 0 == await process.store.count("due")


@pytest.mark.case("94")
async def test_a_conversations_events_keep_their_order_where_the_clock_is_set_back_in_between(
    process: Process, start: Start, identity_provider: IdentityProvider
) -> None:
    """Connected by one process; ended by another one, whose clock is a day behind."""
    await connected(process, identity_provider, "mail")
    await connected(process, identity_provider, "files")
    other = start([user_app(identity_provider, name) for name in APPS])
    other.clock.set(other.clock.now() - timedelta(days=1))
    await other.broker.grants.revoke("files", ALICE)
    await other.broker.grants.revoke("mail", ALICE)
    await other.parts.relay.once()
    granted = [("auth.granted", "mail"), ("auth.granted", "files")]
    assert [*granted, ("auth.revoked", "files"), ("auth.revoked", "mail")] == await received(process)


@pytest.mark.case("94")
async def test_an_event_that_happens_while_the_relay_reads_overtakes_no_earlier_one(
    process: Process, start: Start, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two grants end in one conversation just before the second record is read. The relay has read the first without
    its event, and finds the event of the second, which happened later."""
    other = start([user_app(identity_provider, name) for name in APPS])
    await connected(process, identity_provider, "mail")
    await connected(process, identity_provider, "files")
    repository: Any = process.parts.relay._repository
    due_grant, seen = repository.due_grant, list[str]()

    async def read(due: Any) -> Any:
        seen.append(due.grant.app)
        if len(seen) == 2:
            for app in seen:
                await other.broker.grants.revoke(app, ALICE)
        return await due_grant(due)

    monkeypatch.setattr(repository, "due_grant", read)
    await process.parts.relay.once()
    monkeypatch.undo()
    await process.parts.relay.once()
    granted = [("auth.granted", "mail"), ("auth.granted", "files")]
    assert [*granted, *(("auth.revoked", app) for app in seen[:2])] == await received(process)
