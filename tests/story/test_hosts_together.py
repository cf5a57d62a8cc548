"""What brokers on one database do together, and what each of them does alone: connections, limits, and how often a
consumer looks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Failed, Ready
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.secret import Secret
from oauthbroker.events.backends import queues_of
from oauthbroker.model.settings import Limits
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit import postgres
from tests.kit.running_broker import BOB, Harness, turn
from tests.story.hosts_kit import hosts, postgres_of

DATABASE = "together"
HOUR = 3600


@pytest.fixture(scope="module")
def prepared(postgres_server: postgres.Server) -> postgres.Server:
    postgres_server.new_database(DATABASE)
    return postgres_server


@pytest.fixture
def url(prepared: postgres.Server) -> Secret:
    prepared.empty(DATABASE)
    return prepared.url(DATABASE)


async def test_a_slow_provider_keeps_no_connection_from_another_users_token(
    url: Secret,
    tmp_path: Path,
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oauthbroker.store.postgres.pools.MOST_CONNECTIONS", 1)
    async with hosts(1, url, tmp_path, identity_provider, test_clock) as (host,):
        await host.connected()
        identity_provider.change("client-mail", access_lifetime=2 * HOUR)
        other = await host.connected(account="bob", of=turn(user=BOB))
        host.clock.advance(HOUR)
        hanging = identity_provider.script.refresh.hang()
        waiting = asyncio.create_task(host.ask())
        await hanging.arrived()
        try:
            async with asyncio.timeout(30):
                meanwhile = await host.ask(of=turn(user=BOB))
                await host.broker.events.enqueue("planner", "tool.completed", {}, turn=turn())
            assert other.access_token.reveal() == meanwhile.access_token.reveal()
            assert not waiting.done()
        finally:
            hanging.release()
        assert isinstance(await waiting, Ready)


def words(*names: str) -> list[dict[str, Any]]:
    """Wishes of one user, each in a conversation of its own."""
    return [{"of": turn(instance=name)} for name in names]


OF_ALL_HOSTS = {
    "sessionsPerSubject": (Limits(sessions_per_subject=3), words("a", "b", "c", "d")),
    "sessionsPerConversation": (
        Limits(sessions_per_conversation=3),
        [{"scopes": scopes} for scopes in (["read"], ["write"], ["read", "write"], ["admin"])],
    ),
}
OF_EACH_HOST = {
    "sessionsPerApp": Limits(sessions_per_app=3),
    "sessionsTotal": Limits(sessions_total=3),
}


def is_limited(answer: Any) -> bool:
    return isinstance(answer, Failed) and answer.code is Code.RATE_LIMITED


@pytest.mark.parametrize("limit", OF_ALL_HOSTS)
async def test_a_limit_of_a_user_or_a_conversation_holds_for_all_hosts_together(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, limit: str
) -> None:
    limits, wishes = OF_ALL_HOSTS[limit]
    async with hosts(2, url, tmp_path, identity_provider, limits=limits) as (one, two):
        for host, wish in zip((one, two, one), wishes[:3], strict=True):
            await host.ask_link(**wish)
        assert [True, True] == [is_limited(await host.ask(**wishes[3])) for host in (two, one)]


@pytest.mark.parametrize("limit", OF_EACH_HOST)
async def test_a_limit_of_an_app_or_of_all_counts_on_each_host_alone(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, limit: str
) -> None:
    async def links(host: Harness, name: str) -> list[bool]:
        return [is_limited(await host.ask(**wish)) for wish in words(*(f"{name} {number}" for number in range(4)))]

    async with hosts(2, url, tmp_path, identity_provider, limits=OF_EACH_HOST[limit]) as (one, two):
        assert [False, False, False, True] == await links(one, "one")
        assert [False, False, False, True] == await links(two, "two"), "the sessions of the first host do not count"


class Pauses(Notifier):
    """A notifier that never rings, and notes how long a consumer would wait before it looks again."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    async def wait(self, seconds: float, signal: asyncio.Event | None = None) -> None:
        self.seen.append(seconds)


async def test_a_consumer_looks_each_second_while_the_feed_is_live_and_five_times_as_often_while_it_is_late(
    url: Secret, tmp_path: Path
) -> None:
    store = postgres.open_postgres_store(url, tmp_path)
    try:
        notifier = Pauses()
        queues = queues_of(Repository(store), clock=SystemClock(), limits=Limits(), notifier=notifier)
        signal = queues.listen()
        assert await store.feed.heard()
        await queues.wait(signal, 30)
        await queues.wait(signal, 0.5)
        now = store.feed._monotonic
        store.feed._monotonic = lambda: now() + 3
        await queues.wait(signal, 30)
        assert [1.0, 0.5, 0.2] == notifier.seen
    finally:
        await store.close()


async def test_a_consumer_finds_an_event_whose_lease_lapses_while_the_feed_is_live(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that lapses is no change of the database, so that no notification tells it."""
    monkeypatch.setattr("oauthbroker.events.postgres_queues.POLL_SECONDS", 600.0)
    limits = Limits(sweep_seconds=3600, queue_lease_seconds=1)
    async with hosts(2, url, tmp_path, identity_provider, SystemClock(), limits=limits) as (one, two):
        assert await postgres_of(two).feed.heard()
        await one.broker.events.enqueue("planner", "tool.completed", {}, turn=turn())
        assert await one.broker.events.lease("planner", wait=0) is not None
        async with asyncio.timeout(20):
            delivery = await two.broker.events.lease("planner", wait=600)
        assert delivery is not None
        assert 2 == delivery.attempt
        assert await delivery.ack()
