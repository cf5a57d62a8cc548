"""Brokers on several hosts share one PostgreSQL database."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oauthbroker import Ready
from oauthbroker.audit import TokenIssued
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.diagnostics.findings import SharedFacts, of_database
from oauthbroker.events.backends import queues_of
from oauthbroker.events.postgres_queues import PostgresQueues
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Gauge, Metrics
from oauthbroker.repository.repository import FEED_SECONDS, Repository
from oauthbroker.store.format.port import Key
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.postgres import rights, schema
from oauthbroker.store.postgres.connection_pool import PATIENCE_SECONDS, ConnectionPool
from oauthbroker.store.postgres.feed import Feed
from oauthbroker.store.postgres.pools import Pools
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.store.postgres.queue_statements import STATEMENTS
from oauthbroker.store.postgres.schema import _migrations
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.web.gate.readiness import FRESH_SECONDS, Readiness
from oauthbroker.wiring import init_store, migrate_store, open_vault
from oauthbroker.wiring.migration import verify_store
from tests.kit import installed, postgres
from tests.kit.cli import BROKER, SECRET, Desk
from tests.kit.running_broker import ALICE, Harness, turn
from tests.kit.waiting import until
from tests.kit.warm_python import WARM
from tests.story.hosts_kit import hosts, postgres_of
from tests.unit.records.kit import event
from tests.unit.web.kit import ask

ENV = "BROKER_DATABASE_URL"
DATABASE = "hosts"


@pytest.fixture(scope="module")
def prepared(postgres_server: postgres.Server) -> postgres.Server:
    postgres_server.new_database(DATABASE)
    return postgres_server


@pytest.fixture
def url(prepared: postgres.Server) -> Secret:
    prepared.empty(DATABASE)
    return prepared.url(DATABASE)


@pytest.fixture
def empty(prepared: postgres.Server) -> Iterator[str]:
    """The name of a database without tables."""
    prepared.empty_database("empty")
    yield "empty"
    prepared.run("drop database empty with (force)")


async def ready(host: Harness) -> Ready:
    result = await host.ask()
    assert isinstance(result, Ready), result
    return result


async def token(host: Harness) -> str:
    return (await ready(host)).access_token.reveal()


async def test_a_grant_of_one_host_is_used_on_the_others(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with hosts(3, url, tmp_path, identity_provider) as brokers:
        first = (await brokers[0].connected()).access_token.reveal()
        assert {first} == {await token(host) for host in brokers}


async def test_many_tasks_on_several_hosts_that_want_one_expired_grant_make_one_refresh(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with hosts(4, url, tmp_path, identity_provider, test_clock) as brokers:
        first = (await brokers[0].connected()).access_token.reveal()
        test_clock.advance(3600)
        tokens = await asyncio.gather(*(token(brokers[number % 4]) for number in range(80)))
        assert 1 == identity_provider.count("refresh_token")
        assert 1 == len(set(tokens))
        assert first not in tokens


async def test_hosts_behind_a_pooler_in_transaction_mode_make_one_refresh_too(
    prepared: postgres.Server, url: Secret, tmp_path: Path, identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Two sessions of the server serve the statements of four hosts by turns."""
    postgres.open_postgres_store(url, tmp_path)
    with postgres.pooler(prepared, DATABASE) as pooled:
        async with hosts(4, pooled, tmp_path, identity_provider, test_clock) as brokers:
            await brokers[0].connected()
            test_clock.advance(3600)
            tokens = await asyncio.gather(*(token(brokers[number % 4]) for number in range(40)))
            assert (1, 1) == (identity_provider.count("refresh_token"), len(set(tokens)))


async def test_a_token_that_one_host_has_revoked_is_handed_out_by_none(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with hosts(2, url, tmp_path, identity_provider) as (one, two):
        await one.connected()
        await token(two)
        assert await one.broker.revoke("mail", subject=ALICE)
        asked = await two.ask()
        assert "authorization_required" == asked.status


async def test_events_of_one_host_reach_a_consumer_on_another_in_their_order(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with hosts(2, url, tmp_path, identity_provider) as (one, two):
        await one.connected()
        assert ["auth.granted"] == [event["type"] for event in await two.events()]


async def test_turns_and_api_keys_hold_on_every_host_until_one_host_ends_them(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with hosts(2, url, tmp_path, identity_provider) as (one, two):
        begun = await one.running.parts.turns.begin(turn())
        key, text = await one.running.parts.api_keys.create("runtime", frozenset({"runtime"}))
        assert begun.turn_id == (await two.running.parts.turns.admit(begun.token.reveal())).turn_id
        assert key.id == (await two.running.parts.api_keys.check(text.reveal())).id
        assert await two.running.parts.turns.end(begun.turn_id)
        assert await two.running.parts.api_keys.remove(key.id)
        for call in (
            one.running.parts.turns.admit(begun.token.reveal()),
            one.running.parts.api_keys.check(text.reveal()),
        ):
            with pytest.raises(BrokerError):
                await call


async def test_a_circuit_that_opens_on_one_host_stops_no_other(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with hosts(2, url, tmp_path, identity_provider) as (one, two):
        refused = BrokerError(Code.PROVIDER_UNREACHABLE)
        for _ in range(20):
            one.running.parts.circuits[0].failed("mail", refused)
        assert (["mail"], []) == tuple(host.running.parts.circuits[0].open_for() for host in (one, two))


async def test_an_event_is_stored_with_its_grant_and_a_host_that_ends_before_it_is_queued_loses_none(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(*_: Any) -> bool:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresQueues, "enqueue", ended)
        async with hosts(1, url, tmp_path, identity_provider) as (host,):
            await host.connected()
            assert await host.event(wait=0) is None
    async with hosts(1, url, tmp_path, identity_provider) as (host,):
        assert ["auth.granted"] == [event["type"] for event in await host.events()]


async def test_an_event_wakes_a_consumer_that_waits_on_another_host(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POLL_SECONDS", "SLOW_POLL_SECONDS"):
        monkeypatch.setattr(f"oauthbroker.events.postgres_queues.{name}", 600.0)
    seldom = Limits(sweep_seconds=3600)
    async with hosts(2, url, tmp_path, identity_provider, SystemClock(), limits=seldom) as (one, two):
        store = postgres_of(two)
        assert await store.feed.heard()
        waiting = asyncio.create_task(two.broker.events.lease("planner", wait=300))
        await asyncio.sleep(0)
        await one.broker.events.enqueue("planner", "tool.completed", {}, turn=turn())
        async with asyncio.timeout(60):
            delivery = await waiting
        assert delivery is not None
        assert await delivery.ack()


async def test_events_that_a_copy_has_brought_are_taken_over_in_their_order_and_with_their_leases(
    url: Secret, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        stores = [postgres.open_postgres_store(url, tmp_path) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        brought, rows = (Repository(store) for store in stores)
        before = StoreQueues(repository=brought, clock=SystemClock(), limits=Limits(), metrics=Metrics())
        queues = queues_of(rows, clock=SystemClock(), limits=Limits())
        for number in range(5):
            await before.enqueue(event(number, "a"))
        first, second = await before.lease("planner"), None
        assert first is not None
        assert await first.ack()
        second = await before.lease("planner")
        assert second is not None
        assert not await queues.enqueue(event(0, "a")), "done before"
        assert await queues.enqueue(event(5, "a"))
        assert await queues.lease("planner") is None, "the head is leased"
        assert await queues.ack("planner", second.id, second.lease)
        found = list[str]()
        while (delivery := await queues.lease("planner")) is not None:
            found.append(delivery.id)
            assert await delivery.ack()
        assert [event(number).id for number in range(2, 6)] == found
        assert [] == [each async for each in brought.events.all()]


async def test_an_empty_queue_is_asked_by_one_statement_once_a_process_has_looked_for_a_copy(
    url: Secret, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        store = postgres.open_postgres_store(url, tmp_path)
        stack.push_async_callback(store.close)
        queues, asked = queues_of(Repository(store), clock=SystemClock(), limits=Limits()), list[str]()

        def noted(statement: str, *more: Any, run: Callable[..., Any] = store.connections.write) -> Any:
            asked.append(statement)
            return run(statement, *more)

        monkeypatch.setattr(store.connections, "write", noted)  # which reads use, too
        assert await queues.lease("planner") is None
        assert [STATEMENTS["entries"], STATEMENTS["lease"]] == asked
        asked.clear()
        assert await queues.lease("planner") is None
        assert [STATEMENTS["lease"]] == asked


async def fed(host: Harness) -> PostgresStore:
    """Wait until the feed of a host is trusted, and its grant is known."""
    store = postgres_of(host)
    assert await store.feed.heard()
    await token(host)
    asked = time.monotonic()

    async def has_heard_all() -> bool:
        return store.feed.heard_at > asked  # a heartbeat comes behind the notifications of all earlier changes

    await until(has_heard_all)
    await token(host)
    return store


async def is_ready(host: Harness) -> bool:
    return bool((await host.ask()).status == "ready")


async def is_refused(host: Harness) -> bool:
    return bool((await host.ask()).status == "authorization_required")


async def test_a_trusted_feed_saves_the_round_trip_and_hears_a_revocation_of_another_host(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = partial(Feed, url, trusted=True, settling=0)
    async with hosts(2, url, tmp_path, identity_provider, feed=feed) as (one, two):
        await one.connected()
        store = await fed(two)
        key = Repository(store).grant_place(GrantKey("mail", ALICE))

        async def needs_no_database() -> bool:
            """The background of the other host may still change the grant when this begins."""
            entry = await store.get(key)
            assert entry is not None
            with monkeypatch.context() as patch:
                patch.setattr(store.connections, "read", away)
                return store.unchanged(entry) and await is_ready(two)

        await until(needs_no_database)
        async with store.lease(store.key("pair", "mail", ALICE), wait=5):
            entry = await store.get(key)
            assert entry is not None
            assert not store.unchanged(entry), "a holder of a lease asks"
        assert await one.broker.revoke("mail", subject=ALICE)
        await until(partial(is_refused, two))


@asynccontextmanager
async def half_open(server: postgres.Server, folder: Path) -> AsyncIterator[tuple[Secret, asyncio.Event]]:
    """A way to the database that keeps its connections open, and passes nothing on while the event is clear."""
    flows, tasks, place = asyncio.Event(), set[asyncio.Task[None]](), folder / "socket"
    writers = list[asyncio.StreamWriter]()
    flows.set()
    place.mkdir()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await flows.wait()
            writer.write(data)
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(str(server.folder / ".s.PGSQL.5432"))
        writers.extend((writer, far_writer))
        for way in (carry(reader, far_writer), carry(far_reader, writer)):
            tasks.add(asyncio.create_task(way))

    async with await asyncio.start_unix_server(connected, str(place / ".s.PGSQL.5432")):
        try:
            yield Secret(f"postgresql://postgres@/{DATABASE}?host={place}"), flows
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in writers:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()


async def test_a_half_open_feed_is_not_trusted_beyond_the_bound_and_is_trusted_again_later(
    postgres_server: postgres.Server, url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with half_open(postgres_server, tmp_path) as (silent, flows):
        feed = partial(Feed, silent, trusted=True, settling=0)
        async with hosts(2, url, tmp_path, identity_provider, feed=feed) as (one, two):
            await one.connected()
            store = await fed(two)
            flows.clear()
            assert await one.broker.revoke("mail", subject=ALICE)
            revoked = time.monotonic()
            asked = time.monotonic()
            while (await two.ask()).status == "ready":  # its feed cannot hear of it
                assert asked - revoked < FEED_SECONDS, "beyond the bound"
                await asyncio.sleep(0.01)
                asked = time.monotonic()
            assert "late" == store.feed.state
            flows.set()
            await until(store.feed.heard)


async def calls_fail(host: Harness, *, pause: float = 0) -> None:
    """See them fail within eight seconds, and from then on at once."""
    for most in (8.0, 0.5, 0.5):
        began = time.monotonic()
        answers = await asyncio.gather(*(host.ask() for _ in range(12)))
        took = time.monotonic() - began
        assert {Code.STORE_UNAVAILABLE} == {each.code for each in answers}
        assert took < most
        await asyncio.sleep(pause)


async def test_calls_of_a_silent_database_fail_with_the_cause_within_eight_seconds_and_then_at_once(
    prepared: postgres.Server, tmp_path: Path, url: Secret, identity_provider: IdentityProvider
) -> None:
    """It accepts connections, or keeps those that there are, and answers nothing."""
    async with half_open(prepared, tmp_path) as (silent, flows), hosts(1, url, tmp_path, identity_provider) as [host]:
        await postgres_of(host).connections._pools.close()
        postgres_of(host).connections._pools = Pools(silent, patience=PATIENCE_SECONDS)
        await host.connected()
        flows.clear()
        await calls_fail(host)
        with pytest.raises(BrokerError, match="does not answer in time") as refused:
            await postgres_of(host).get(Repository(host.store).grant_place(GrantKey("mail", ALICE)))
        assert not refused.value.lasting
        flows.set()
        await until(partial(is_ready, host))


def waiting_for_locks(server: postgres.Server) -> int:
    with psycopg.connect(server.url(DATABASE).reveal()) as connection:
        found = connection.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").fetchone()
    return int(found[0]) if found else 0


async def test_calls_fail_with_the_cause_at_once_while_the_database_answers_no_statement_and_work_soon_afterwards(
    prepared: postgres.Server, tmp_path: Path, url: Secret, identity_provider: IdentityProvider
) -> None:
    """A table is locked: connections are accepted as ever."""
    async with hosts(1, url, tmp_path, identity_provider) as [host]:
        await host.connected()
        with psycopg.connect(url.reveal()) as locked:
            locked.execute("lock table oauthbroker.entry in access exclusive mode")
            await calls_fail(host, pause=1)
            with pytest.raises(BrokerError, match="answers no statement") as refused:
                await postgres_of(host).get(Repository(host.store).grant_place(GrantKey("mail", ALICE)))
            assert not refused.value.lasting
            assert waiting_for_locks(prepared) <= 1, "a probe, and no statement of before"
        freed = time.monotonic()
        await until(partial(is_ready, host))
        assert time.monotonic() - freed < 3


async def test_a_start_meets_a_locked_table_as_a_database_that_is_away(
    prepared: postgres.Server, tmp_path: Path, url: Secret
) -> None:
    postgres.open_postgres_store(url, tmp_path)
    with psycopg.connect(url.reveal()) as locked:
        locked.execute("lock table oauthbroker.entry in access exclusive mode")
        asyncio.get_running_loop().call_later(20, locked.close)
        refused = await refusal(settings(tmp_path), {ENV: url.reveal()})
        assert not locked.closed
    assert (Code.STORE_UNAVAILABLE, True, False) == (
        refused.code,
        "answers no statement" in str(refused),
        refused.lasting,
    )


async def test_a_statement_that_waits_for_a_row_takes_the_database_from_no_other_call(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.store.postgres.connection_pool.PATIENCE_SECONDS", 5.0)
    async with hosts(1, url, tmp_path, identity_provider) as [host]:
        await host.connected()
        store = postgres_of(host)
        entry = await store.put(Key("secrets", "ab" * 32), b"one", expect=0)
        with psycopg.connect(url.reveal()) as locked:
            locked.execute("select from oauthbroker.entry where kind = 'secrets' for update")
            held = asyncio.ensure_future(store.put(entry.key, b"two", expect=entry.generation))
            while not held.done():
                began = time.monotonic()
                assert (await host.ask()).status == "ready"
                assert time.monotonic() - began < 2
                await asyncio.sleep(0.1)
            with pytest.raises(BrokerError, match="does not answer"):
                await held
        assert store.connections._pools._away is None


async def test_a_reload_ends_no_request_of_an_app_that_this_host_does_not_have_yet_and_its_link_says_so(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    """Brokers get a new app one after the other; the second one is reloaded for another cause meanwhile."""
    async with hosts(2, url, tmp_path, identity_provider) as (one, two):
        older = replace(two.broker.bundle, apps={})
        await two.broker.reload(older)
        link = await one.ask_link()
        await two.broker.reload(older)
        refused = await two.browser().open(link.authorization_url)
        assert (400, True) == (refused.status, "does not know its app" in refused.text)
        assert "the app is not configured here" in two.log.getvalue()
        assert "pending" == (await one.broker.wait(link.auth_session_id, timeout=0)).status
        await two.broker.reload(replace(older, apps=one.broker.bundle.apps))
        assert 200 == (await two.browser().open(link.authorization_url)).status
        await two.broker.reload(older)
        assert "expired" == (await one.broker.wait(link.auth_session_id, timeout=0)).status, "it had the app"


CUTS = ("the connection is cut", "the server is restarted")


@pytest.mark.parametrize("how", CUTS)
async def test_a_feed_that_was_cut_forgets_its_versions_and_listens_again(
    prepared: postgres.Server, url: Secret, tmp_path: Path, identity_provider: IdentityProvider, how: str
) -> None:
    feed = partial(Feed, url, trusted=True, settling=0)
    async with hosts(1, url, tmp_path, identity_provider, feed=feed) as (host,):
        await host.connected()
        store = await fed(host)
        entry = await store.get(Repository(store).grant_place(GrantKey("mail", ALICE)))
        assert entry is not None
        if how == CUTS[0]:
            prepared.run(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where pid <> pg_backend_pid() and backend_type = 'client backend'"
            )
        else:
            prepared.stop("immediate")
            prepared.start()

        async def forgot() -> bool:
            return not store.unchanged(entry)

        await until(forgot)
        await until(store.feed.heard)
        await until(partial(is_ready, host))  # idle connections were cut, too


async def test_a_read_waits_for_a_server_that_restarts_although_all_connections_were_cut(
    prepared: postgres.Server, url: Secret
) -> None:
    pool = ConnectionPool(url)
    try:
        await asyncio.gather(*(pool.read("select pg_sleep(0.1)") for _ in range(5)))
        prepared.stop("fast")
        reading = asyncio.create_task(pool.read("select 1"))
        await asyncio.wait([reading], timeout=0.5)
        prepared.start()
        assert [(1,)] == await reading
    finally:
        await pool.close()


class LateFeed(Feed):
    """A feed that connects only while its gate is open."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.gate = asyncio.Event()

    async def _connected(self) -> psycopg.AsyncConnection:
        await self.gate.wait()
        return await super()._connected()


@pytest.mark.parametrize("listened_before", [False, True])
async def test_a_version_that_was_read_before_the_feed_listens_is_not_confirmed(
    prepared: postgres.Server, url: Secret, tmp_path: Path, listened_before: bool
) -> None:
    """A change before the feed listens tells it nothing."""
    feed = LateFeed(url, trusted=True, settling=0)
    one, two = (postgres.open_postgres_store(url, tmp_path, feed=each) for each in (None, feed))
    try:
        if listened_before:
            feed.gate.set()
            assert await feed.heard()
            feed.gate.clear()
            prepared.run("select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_notify%'")
            await until(lambda: not feed.live)
        key = two.key("grants", "mail", ALICE)
        await one.put(key, b"old", expect=0)
        read = await two.get(key)
        assert read is not None
        await one.put(key, b"new", expect=1)
        feed.gate.set()
        await until(feed.heard)
        assert not two.unchanged(read)
    finally:
        await one.close()
        await two.close()


async def test_a_version_that_a_write_from_before_the_first_feed_replaces_is_not_confirmed(
    url: Secret, tmp_path: Path
) -> None:
    """Such a write tells nothing. The feed waits until it is over."""
    feed = Feed(url, trusted=True, settling=2)
    store = postgres.open_postgres_store(url, tmp_path, feed=feed)
    try:
        key = store.key("grants", "mail", ALICE)
        await store.put(key, b"old", expect=0)
        async with await psycopg.AsyncConnection.connect(url.reveal()) as slow:
            await slow.execute("update oauthbroker.entry set version = nextval('oauthbroker.version')")
            assert await feed.heard()
            read = await store.get(key)
        assert read is not None
        await until(lambda: feed.live and time.monotonic() >= feed._settled_at)
        assert not store.unchanged(read)
        newest = await store.get(key)
        assert newest is not None
        assert store.unchanged(newest)
    finally:
        await store.close()


async def test_a_pooler_that_keeps_notifications_back_leaves_the_feed_untrusted(
    prepared: postgres.Server, url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    postgres.open_postgres_store(url, tmp_path)
    with postgres.pooler(prepared, DATABASE) as pooled:
        feed = partial(Feed, pooled, trusted=True, settling=0)
        async with hosts(2, pooled, tmp_path, identity_provider, feed=feed) as (one, two):
            await one.connected()
            await token(two)
            assert not await postgres_of(two).feed.heard()
            assert await one.broker.revoke("mail", subject=ALICE)
            assert await is_refused(two)


async def test_tokens_that_were_checked_within_the_bound_are_handed_out_while_the_database_is_away(
    prepared: postgres.Server, url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with hosts(1, url, tmp_path, identity_provider, degraded_seconds=30.0) as (host,):
        assert postgres_of(host)._history, "a later first look would forget the checked versions"
        first = (await host.connected()).access_token.reveal()
        await host.running.parts.relay.once()  # a write of the grant that meets the outage would make it uncertain
        await token(host)
        store, real = postgres_of(host), time.monotonic
        prepared.stop("immediate")
        try:
            unconfirmed = [await ready(host) for _ in range(2)]
            assert [(first, True)] * 2 == [(each.access_token.reveal(), each.degraded) for each in unconfirmed]
            issued = [entry for entry in host.audit.entries if isinstance(entry, TokenIssued)]
            assert [True, True] == [entry.degraded for entry in issued[-2:]]
            assert store.degraded
            figures = host.running.parts.gauges.of_process()
            assert (1.0, 1.0) == (figures[Gauge.STORE_DEGRADED, ()], figures[Gauge.STORE_FEEDS, ("off",)])
            probed = await ask(host.broker.asgi.app, "/readyz")
            assert (200, {"status": "ready"}) == (probed.status, probed.json), "a load balancer keeps this host"
            store._freshness._monotonic = lambda: real() + 31
            away = await host.ask()
            assert ("error", Code.STORE_UNAVAILABLE, True) == (away.status, away.code, away.retryable)
            assert 503 == (await ask(host.broker.asgi.app, "/readyz")).status
        finally:
            prepared.start()
        await until(partial(is_ready, host))
        assert first == await token(host)


async def away(*_: Any) -> Any:
    raise BrokerError(Code.STORE_UNAVAILABLE)


async def test_the_database_shows_no_secret_and_no_name(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with hosts(1, url, tmp_path, identity_provider) as (host,):
        secret = (await host.connected()).access_token.reveal()
        with psycopg.connect(url.reveal()) as connection:
            found = connection.execute("select tablename from pg_tables where schemaname = 'oauthbroker'")
            tables = [name for (name,) in found.fetchall()]
            seen = "".join(
                repr(connection.execute(f'select * from oauthbroker."{table}"').fetchall())  # noqa: S608
                for table in tables
            )
    assert "entry" in tables
    for word in (secret, "alice", "ALICE", "mail", "planner", "idp:", "chat:"):
        assert word not in seen, word


async def test_a_broker_goes_on_when_its_database_is_back(
    postgres_server: postgres.Server,
    url: Secret,
    tmp_path: Path,
    identity_provider: IdentityProvider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hosts(2, url, tmp_path, identity_provider, limits=Limits(sweep_seconds=2)) as (host, idle):
        first = (await host.connected()).access_token.reveal()
        postgres_server.stop("immediate")
        try:
            red = [("storeUnavailable",)] * 2  # without a token call, and without a token in memory alone
            await until(lambda: red == [each.broker.health().problems for each in (host, idle)])
            away = await host.ask()
            assert ("error", Code.STORE_UNAVAILABLE, True) == (away.status, away.code, away.retryable)
        finally:
            postgres_server.start()
        await until(partial(is_ready, host))
        assert first == await token(host)
        await until(lambda: () == host.broker.health().problems)
    assert [] == [line.getMessage() for line in caplog.records if line.name == "psycopg.pool"], "the broker says it"


async def test_health_is_green_soon_after_the_database_is_back_for_each_pass_that_found_it_away(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    async with hosts(1, url, tmp_path, identity_provider, limits=Limits(sweep_seconds=600)) as (host,):
        outage, clock = host.running.parts.outage, host.running.parts.clock
        outage.failed("a pass of every ten minutes", BrokerError(Code.STORE_UNAVAILABLE), clock.monotonic())
        assert ("storeUnavailable",) == host.broker.health().problems
        await until(lambda: () == host.broker.health().problems)


def test_an_empty_database_is_told_from_a_lost_key(prepared: postgres.Server, empty: str, tmp_path: Path) -> None:
    env = {ENV: prepared.url(empty).reveal()}
    with pytest.raises(
        BrokerError, match="there is no store yet: run `oauthbroker init` or `oauthbroker store import`"
    ):
        verify_store(f"env:{ENV}", settings(tmp_path), env=env, log=json_log(io.StringIO(), TestClock()))


REFUSED = {
    "no URL": ("", "has no URL of a database"),
    "not a URL": ("the database in the cellar", "not a database's URL"),
    "no server": ("postgresql://postgres@/hosts?host=/nowhere", "database:"),
    "no such database": ("nowhere", "database: "),
    "without tables": ("empty", "run `oauthbroker init`"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_database_that_is_no_store_is_refused_with_what_to_do(
    prepared: postgres.Server, empty: str, tmp_path: Path, what: str
) -> None:
    given, note = REFUSED[what]
    env = {ENV: prepared.url(given).reveal() if given in {"nowhere", empty} else given}
    refused = await refusal(settings(tmp_path), env)
    assert (Code.STORE_UNAVAILABLE, True) == (refused.code, note in str(refused)), str(refused)
    assert refused.lasting is (what != "no server"), "a later start may go well"


UNUSABLE = {
    "alter role narrow connection limit 0": ("all its connections are taken", False),
    "alter role narrow nologin": ("this user may not log in", True),
    "alter database shut allow_connections false": ("run alter database NAME allow_connections true", True),
    "drop database shut": ("there is no such database", True),
    "alter role narrow superuser": ("SQL_ASCII: create it with ENCODING 'UTF8'", True),
}


@pytest.mark.parametrize("statement", UNUSABLE)
async def test_a_database_that_lets_no_user_in_or_has_no_encoding_says_so_in_words(
    prepared: postgres.Server, tmp_path: Path, statement: str
) -> None:
    for each in ("drop database if exists shut", "drop role if exists narrow", "create role narrow login"):
        prepared.run(each)
    like_ascii = "encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'"
    prepared.empty_database("shut", f"owner narrow {like_ascii}")
    prepared.run(statement)
    env = {ENV: f"postgresql://narrow@/shut?host={prepared.folder}"}
    says, lasting = UNUSABLE[statement]
    with pytest.raises(BrokerError) as refused:
        init_store(settings(tmp_path), env, SystemClock())
    assert (Code.STORE_UNAVAILABLE, lasting) == (refused.value.code, refused.value.lasting)
    assert says in str(refused.value)


NO_NUMBER = "oauthbroker.schema_version {} and lacks their number 1: {}, or restore that table from a backup"
SPOILT = {
    "update oauthbroker.schema_version set number = 0": NO_NUMBER.format("has 0", "waiting does not help"),
    "update oauthbroker.schema_version set number = 99": NO_NUMBER.format(
        "has 99", "a newer oauthbroker wrote 99, so upgrade"
    ),
    "delete from oauthbroker.schema_version": NO_NUMBER.format("is empty", "waiting does not help"),
    "alter table oauthbroker.schema_version rename to other": NO_NUMBER.format("is missing", "waiting does not help"),
    "alter table oauthbroker.queued rename column attempts to other": "oauthbroker.queued lacks its column attempts",
    "alter table oauthbroker.tag rename to elsewhere": "oauthbroker.tag lacks its column kind, or is missing: restore",
    "alter database hosts set default_transaction_read_only = on": "read-only, perhaps a standby",
    "alter database hosts set synchronous_commit = off": "synchronous_commit is off",
}
MENDED = (
    "alter database hosts reset all",
    "alter table if exists oauthbroker.other rename to schema_version",
    "alter table if exists oauthbroker.elsewhere rename to tag",
    "delete from oauthbroker.schema_version",
    "insert into oauthbroker.schema_version (number) values (1)",
    """do $$ begin alter table oauthbroker.queued rename column other to attempts;
    exception when undefined_column then end $$""",
)


@pytest.mark.parametrize("statement", SPOILT)
async def test_a_store_that_cannot_keep_its_promises_is_refused(
    prepared: postgres.Server, url: Secret, tmp_path: Path, statement: str
) -> None:
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    prepared.run(statement, DATABASE)
    try:
        refused = await refusal(here, env)
        if not statement.startswith("alter database"):
            with pytest.raises(BrokerError) as of_migration:
                migrate_store(url)
            assert SPOILT[statement] in str(of_migration.value), "a migration says what an opening says"
    finally:
        writable = "-c default_transaction_read_only=off"
        with psycopg.connect(url.reveal(), autocommit=True, options=writable) as connection:
            for fixed in MENDED:
                connection.execute(fixed)
    assert (Code.STORE_UNAVAILABLE, True) == (refused.code, SPOILT[statement] in str(refused)), str(refused)


async def test_a_store_that_lacks_the_newest_migration_is_refused_until_it_is_made(
    url: Secret, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    every = _migrations() | {2: "alter table oauthbroker.set_aside add column reason text"}
    monkeypatch.setattr(schema, "_migrations", lambda: every)
    assert "lacks a migration: run `oauthbroker store migrate`" in str(await refusal(here, env))
    assert [2] == migrate_store(url)
    assert set() == await known(here, env)
    with psycopg.connect(url.reveal(), autocommit=True) as connection:
        connection.execute("alter table oauthbroker.set_aside drop column reason")
    assert "oauthbroker.set_aside lacks its column reason" in str(await refusal(here, env))
    with pytest.raises(BrokerError, match=r"oauthbroker\.set_aside lacks its column reason"):
        migrate_store(url)


async def test_a_user_without_rights_is_told_so(prepared: postgres.Server, url: Secret, tmp_path: Path) -> None:
    init_store(settings(tmp_path), {ENV: url.reveal()}, SystemClock())
    prepared.run("create role stranger login", DATABASE)
    stranger = url.reveal().replace("postgres@", "stranger@")
    refused = await refusal(settings(tmp_path), {ENV: stranger})
    assert (Code.STORE_UNAVAILABLE, True, True) == (refused.code, "lacks a right" in str(refused), refused.lasting)


async def test_a_host_without_the_key_file_makes_no_other_one(url: Secret, tmp_path: Path) -> None:
    env = {ENV: url.reveal()}
    init_store(settings(tmp_path / "one"), env, SystemClock())
    with pytest.raises(BrokerError) as refused:
        init_store(settings(tmp_path / "two"), env, SystemClock())
    assert Code.KEY_UNKNOWN is refused.value.code
    with pytest.raises(BrokerError) as refused:
        init_store(settings(tmp_path / "one"), env, SystemClock())
    assert Code.KEY_EXISTS is refused.value.code


async def test_records_without_their_keyring_get_no_new_one(
    prepared: postgres.Server, url: Secret, tmp_path: Path
) -> None:
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    await stored(here, env, "mail")
    prepared.run("delete from oauthbroker.keyring", DATABASE)
    log = json_log(io.StringIO(), TestClock())
    refusals = [await refusal(here, env)]
    for attempt in (
        lambda: init_store(here, env, SystemClock()),
        lambda: verify_store(f"env:{ENV}", here, env=env, log=log),
    ):
        with pytest.raises(BrokerError) as refused:
            attempt()
        refusals.append(refused.value)
    for error in refusals:
        assert (Code.KEY_UNKNOWN, True) == (error.code, "Restore the keyring from a backup" in str(error))
        assert "init`" not in str(error)


async def refusal(here: Settings, env: dict[str, str]) -> BrokerError:
    """Open the store and keep a secret in it, which fails."""
    if not Path(here.key_file).exists():
        Path(here.key_file).parent.mkdir()
        FileKek.create(Path(here.key_file))
    with pytest.raises(BrokerError) as refused:
        async with open_vault(here, env=env) as vault:
            await vault.secrets.put("mail", "client_secret", Secret("s" * 20))
    return refused.value


def settings(folder: Path) -> Settings:
    return Settings(store_root=str(folder / "store"), store_url_env=ENV, key_file=str(folder / "keys" / "kek"))


MIGRATE = """
import sys
from oauthbroker.core.secret import Secret
from oauthbroker.store.postgres.schema import _migrations
from oauthbroker.store.postgres.schema import migrate
print(migrate(Secret(sys.argv[1])))
"""


@pytest.mark.slow
def test_migrations_of_several_callers_are_made_once(prepared: postgres.Server, empty: str) -> None:
    command = [sys.executable, "-c", WARM + MIGRATE, prepared.url(empty).reveal()]
    callers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    every = str(list(_migrations()))
    assert [every, "[]", "[]", "[]"] == sorted(caller.communicate(timeout=60)[0].strip() for caller in callers)


def test_the_commands_and_a_broker_work_on_a_database(
    prepared: postgres.Server,
    empty: str,
    tmp_path: Path,
    canaries: Canaries,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    identity_provider: IdentityProvider,
) -> None:
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    monkeypatch.setenv(ENV, prepared.url(empty).reveal())
    text = BROKER.format(base=desk.base, port=desk.port)
    desk.write("broker", text.replace("{root: ../store}", f"{{root: ../store, url: {{valueFrom: {{env: {ENV}}}}}}}"))
    secret = desk.serve_app_of(identity_provider)
    assert f"Done: the tables are at version {max(_migrations())}." == desk.type("store", "migrate").out.strip()
    assert "table oauthbroker.keyring" in desk.type("init").out
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    assert "Nothing to do." == desk.type("store", "migrate").out.strip()
    assert 0 == desk.type("secrets", "set", *SECRET, stdin=secret).code
    assert 0 == desk.type("check").code
    shutil.rmtree(tmp_path / "store")  # as on the next host, which needs no init
    checks = json.loads(desk.type("doctor", "--offline", "--json").out)["checks"]
    assert [] == [each for each in checks if each["severity"] == "failure"]
    desk.connect("alice", identity_provider)
    listed = json.loads(desk.type("grants", "list", "--json").out)
    assert ["mail"] == [grant["app"] for grant in listed]
    (tmp_path / "store" / "data").chmod(0o755)
    assert ["permissions"] == failures(desk)
    assert "Other users can access the store" in desk.type("secrets", "list").err
    (tmp_path / "store" / "data").chmod(0o700)
    with monkeypatch.context() as without:
        without.setenv(ENV, "postgresql://nobody-here@/x?host=/nowhere")
        assert ["database"] == failures(desk)
        assert "Left out, because the database cannot be asked: keys, age" in desk.type("doctor", "--offline").out
        desk.key_file.rename(tmp_path / "kek")
        assert ["keys", "database"] == failures(desk)
    (tmp_path / "kek").rename(desk.key_file)
    checks = json.loads(desk.type("doctor", "--offline", "--json").out)["checks"]
    assert {"keys", "secrets", "audit", "grants"} <= {each["check"] for each in checks}
    assert [] == [each for each in checks if each["severity"] == "failure"]
    assert not (tmp_path / "store" / "data" / "grants").exists()


def failures(desk: Desk) -> list[str]:
    """The checks of `doctor` that failed."""
    checks = json.loads(desk.type("doctor", "--offline", "--json").out)["checks"]
    return [each["check"] for each in checks if each["severity"] == "failure"]


@pytest.mark.slow
async def test_the_start_and_the_doctor_warn_of_a_standby_that_is_not_synchronous(
    prepared: postgres.Server, url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    said = "the standby is not synchronous"
    async with hosts(1, url, tmp_path, identity_provider) as (host,):
        assert not await postgres_of(host).loses_on_failover()
    with prepared.standby():
        async with hosts(1, url, tmp_path, identity_provider) as (host,):
            store = postgres_of(host)
            await until(store.loses_on_failover)
        async with hosts(1, url, tmp_path, identity_provider) as (host,):
            store = postgres_of(host)
            assert said in host.log.getvalue()
            facts = SharedFacts(await store.leases(), heard=True, loses_on_failover=await store.loses_on_failover())
            found = of_database(facts, Settings())
            assert ["warning"] == [each.severity for each in found if "not synchronous" in each.text]
            prepared.run("alter system set synchronous_standby_names = '*'")
            prepared.run("select pg_reload_conf()")
            try:
                async with asyncio.timeout(60):
                    while await store.loses_on_failover():
                        await asyncio.sleep(0.1)
            finally:
                prepared.run("alter system reset synchronous_standby_names")
                prepared.run("select pg_reload_conf()")


async def stored(here: Settings, env: dict[str, str], name: str) -> None:
    async with open_vault(here, env=env) as vault:
        await vault.secrets.put(name, "client_secret", Secret("s" * 20))


async def migrated(_: Settings, env: dict[str, str]) -> None:
    migrate_store(Secret(env[ENV]))


async def made(here: Settings, env: dict[str, str]) -> None:
    init_store(here, env, SystemClock())


async def test_an_owner_gets_its_lost_rights_back_from_a_migration(
    prepared: postgres.Server, empty: str, tmp_path: Path
) -> None:
    prepared.run("create role owner login", empty)
    prepared.run(f"grant create on database {empty} to owner", empty)
    here, env = settings(tmp_path), {ENV: prepared.url(empty).reveal().replace("postgres@", "owner@")}
    try:
        init_store(here, env, SystemClock())
        for place in ("schema oauthbroker", "oauthbroker.lease", "oauthbroker.keyring"):
            prepared.run(f"revoke all on {place} from owner", empty)
            await refused_for_rights(here, env, "run `grant ")
            assert [] == migrate_store(Secret(env[ENV]))
            assert set() == await known(here, env)
    finally:
        prepared.run("drop owned by owner", empty)
        prepared.run("drop role owner", empty)


async def known(here: Settings, env: dict[str, str]) -> set[str]:
    async with open_vault(here, env=env) as vault:
        return {name for name, _ in await vault.secrets.names()}


async def test_a_server_that_is_too_old_is_refused(
    url: Secret, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    monkeypatch.setattr(schema, "OLDEST_SERVER", 99)
    refused = await refusal(here, env)
    assert (Code.STORE_UNAVAILABLE, True) == (refused.code, "PostgreSQL 99 or newer" in str(refused))


async def test_a_store_of_a_newer_version_is_used_and_not_migrated_back(
    prepared: postgres.Server, url: Secret, tmp_path: Path
) -> None:
    """Migrations only add, so that brokers of two versions work at once."""
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    prepared.run("insert into oauthbroker.schema_version (number) values (9999)", DATABASE)
    try:
        await stored(here, env, "mail")
        assert ({"mail"}, []) == (await known(here, env), migrate_store(url))
    finally:
        prepared.run("delete from oauthbroker.schema_version where number = 9999", DATABASE)


async def test_a_right_that_is_taken_away_is_named_and_nothing_is_lost(
    prepared: postgres.Server, url: Secret, tmp_path: Path
) -> None:
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    await stored(here, env, "before")
    prepared.run("create role reader login", DATABASE)
    prepared.run("grant usage on schema oauthbroker to reader", DATABASE)
    prepared.run("grant select on all tables in schema oauthbroker to reader", DATABASE)
    try:
        reader = {ENV: url.reveal().replace("postgres@", "reader@")}
        await refused_for_rights(here, reader, "grant insert, update, delete on oauthbroker.entry to reader")
        await refused_for_rights(here, reader, "grant usage on sequence oauthbroker.version to reader")
        prepared.run("grant all on all tables in schema oauthbroker to reader", DATABASE)
        prepared.run("grant usage on all sequences in schema oauthbroker to reader", DATABASE)
        assert {"before"} == await known(here, reader)
        prepared.run("revoke update on oauthbroker.queued from reader", DATABASE)
        await refused_for_rights(here, reader, "run `grant update on oauthbroker.queued to reader`")
        assert {"before"} == await known(here, env)
        prepared.run("grant update on oauthbroker.queued to reader", DATABASE)
        assert [] == migrate_store(Secret(reader[ENV])), "nothing to do needs no right of the owner"
        rights_of_all = [*(f"oauthbroker.{table}" for table in rights.TABLES), "schema oauthbroker"]
        for place in [*rights_of_all, *(f"sequence oauthbroker.{each}" for each in rights.SEQUENCES)]:
            prepared.run(f"revoke all on {place} from reader", DATABASE)
            for command in (known, migrated, made):
                given = [
                    right
                    for name, right in zip(rights.NEEDED["tables"], rights.NEEDED["rights"], strict=True)
                    if name == place
                ]
                with pytest.raises(BrokerError) as refused:
                    await command(here, reader)
                said = f"as the owner of the tables, run `grant {', '.join(given or ['usage'])} on {place} to reader`"
                assert said in refused.value.note, (command.__name__, refused.value.note)
            prepared.run(f"grant all on {place} to reader", DATABASE)
    finally:
        prepared.run("drop owned by reader", DATABASE)
        prepared.run("drop role reader", DATABASE)


@pytest.mark.parametrize("degraded_seconds", [0.0, 30.0])
@pytest.mark.parametrize(
    "right",
    [
        "insert on oauthbroker.entry",
        "update on oauthbroker.lease",
        "usage on sequence oauthbroker.version",
        "usage on schema oauthbroker",
        "select on oauthbroker.keyring",
    ],
)
async def test_a_right_that_is_taken_from_a_broker_at_work_is_named_and_it_gets_no_work_until_it_is_back(
    prepared: postgres.Server,
    url: Secret,
    tmp_path: Path,
    identity_provider: IdentityProvider,
    right: str,
    degraded_seconds: float,
) -> None:
    postgres.open_postgres_store(url, tmp_path)
    prepared.run("create role broker login", DATABASE)
    prepared.run("grant usage on schema oauthbroker to broker", DATABASE)
    prepared.run("grant all on all tables in schema oauthbroker to broker", DATABASE)
    prepared.run("grant usage on all sequences in schema oauthbroker to broker", DATABASE)
    lines = io.StringIO()
    try:
        limited = Secret(url.reveal().replace("postgres@", "broker@"))
        async with hosts(1, limited, tmp_path, identity_provider, degraded_seconds=degraded_seconds) as [host]:
            await host.connected()
            clock = TestClock()
            readiness = Readiness(
                host.running.parts.repository.probe, host.running.parts.life, clock,
                may_degrade=host.running.parts.repository.may_degrade, log=json_log(lines, clock),
                outage=host.running.parts.outage,
            )  # fmt: skip
            assert () == await readiness.problems()
            prepared.run(f"revoke {right} from broker", DATABASE)
            clock.advance(FRESH_SECONDS)
            assert ("storeUnavailable",) == await readiness.problems()
            assert f"run `grant {right} to broker`" in json.loads(lines.getvalue())["note"]
            prepared.run(f"grant {right} to broker", DATABASE)
            clock.advance(FRESH_SECONDS)
            assert () == await readiness.problems()
            assert 1 == len(lines.getvalue().splitlines())
    finally:
        prepared.run("drop owned by broker", DATABASE)
        prepared.run("drop role broker", DATABASE)


async def refused_for_rights(here: Settings, env: dict[str, str], command: str) -> None:
    """See a start refused with a command of the owner."""
    with pytest.raises(BrokerError) as refused:
        await known(here, env)
    assert (Code.STORE_UNAVAILABLE, True) == (refused.value.code, command in str(refused.value)), str(refused.value)


async def test_a_broker_works_with_the_rights_that_its_start_asks_for(
    prepared: postgres.Server, url: Secret, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    """No statement of a connection, a refresh or an event needs another one."""
    postgres.open_postgres_store(url, tmp_path)
    prepared.run("create role broker login", DATABASE)
    prepared.run("grant usage on schema oauthbroker to broker", DATABASE)
    for table, needed in rights.TABLES.items():
        prepared.run(f"grant {', '.join(needed)} on oauthbroker.{table} to broker", DATABASE)
    for sequence in rights.SEQUENCES:
        prepared.run(f"grant usage on sequence oauthbroker.{sequence} to broker", DATABASE)
    try:
        limited = Secret(url.reveal().replace("postgres@", "broker@"))
        async with hosts(2, limited, tmp_path, identity_provider) as brokers:
            await brokers[0].connected()
            await ready(brokers[1])
    finally:
        prepared.run("drop owned by broker", DATABASE)
        prepared.run("drop role broker", DATABASE)


async def test_rows_of_a_stranger_hide_no_record_and_are_not_believed(
    prepared: postgres.Server, url: Secret, tmp_path: Path
) -> None:
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    await stored(here, env, "mine")
    strange = "insert into oauthbroker.entry (kind, name, generation, record) values ('secrets', {}, 1, {})"
    prepared.run(strange.format("sha256('a')", "'no record'"), DATABASE)
    copied = "(select record from oauthbroker.entry where kind = 'secrets' limit 1)"
    prepared.run(strange.format("sha256('b')", copied), DATABASE)
    assert {"mine"} == await known(here, env)
    found = verify_store(f"env:{ENV}", here, env=env, log=json_log(io.StringIO(), SystemClock()))
    assert ["does not open"] * 2 == [what for _, what in found.faults]


async def test_a_standby_answers_reads_and_refuses_writes(
    prepared: postgres.Server, url: Secret, tmp_path: Path
) -> None:
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    await stored(here, env, "before")
    with prepared.standby() as standby:
        env = {ENV: standby.url(DATABASE).reveal()}
        assert {"before"} == await known(here, env)
        refused = await refusal(here, env)
    assert (Code.STORE_UNAVAILABLE, True) == (refused.code, "perhaps a standby" in str(refused)), str(refused)


async def test_a_full_disk_is_named_and_nothing_is_lost(prepared: postgres.Server, url: Secret, tmp_path: Path) -> None:
    """The table lies on a small file system of its own."""
    installed.demand([] if os.geteuid() == 0 else ["root, to mount a small file system"])
    env, here = {ENV: url.reveal()}, settings(tmp_path)
    init_store(here, env, SystemClock())
    await stored(here, env, "before")
    with prepared.small_disk() as place:
        prepared.run(f"create tablespace small location '{place}'", DATABASE)
        try:
            prepared.run("alter table oauthbroker.entry set tablespace small", DATABASE)
            with pytest.raises(psycopg.errors.DiskFull):
                prepared.run("create table filler tablespace small as select generate_series(1, 1000000)", DATABASE)
            with pytest.raises(BrokerError) as refused:
                async with open_vault(here, env=env) as vault:
                    for number in range(2_000):
                        await vault.secrets.put(f"n{number}", "client_secret", Secret("s" * 2_000))
            assert (Code.STORE_UNAVAILABLE, True) == (
                refused.value.code,
                "disk of the database is full" in str(refused.value),
            )
            assert "before" in await known(here, env)
        finally:
            prepared.run("alter table oauthbroker.entry set tablespace pg_default", DATABASE)
            prepared.run("drop tablespace small", DATABASE)
