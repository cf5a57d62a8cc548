"""Events that are forwarded to NATS JetStream, with a real nats-server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.events.port import Depth
from oauthbroker.model.forwarders import Forwarder, Nats
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import Authority, Canaries, IdentityProvider
from oauthbroker.wiring import opening
from tests.kit import installed
from tests.kit.nats import LACKS, SUBJECT, NatsServer, binary, nats_server
from tests.kit.processes import freeze
from tests.kit.running_broker import BASE, Harness, running, turn, user_app
from tests.kit.waiting import until
from tests.story.forwarding_kit import AGENT, enqueue, first_numbers, in_order


@pytest.fixture(autouse=True)
def demanded() -> None:
    installed.demand([] if binary() else [LACKS])


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    async with nats_server() as server:
        yield server


def to_nats(*servers: str, **more: Any) -> Forwarder:
    to = Nats(
        servers=servers, subject=SUBJECT, **{name: more.pop(name) for name in ("user", "password") if name in more}
    )
    return Forwarder(name="stream", agents=(AGENT,), to=to, **more)


@asynccontextmanager
async def forwarding(idp: IdentityProvider, forwarder: Forwarder, **more: Any) -> AsyncIterator[Harness]:
    async with running(idp, [user_app(idp)], forwarders=(forwarder,), **more) as harness:
        yield harness


def counted(harness: Harness, outcome: str) -> int:
    return harness.broker.metrics.value(Metric.EVENTS_FORWARDED, "stream", outcome)


async def logged(harness: Harness, why: str) -> bool:
    return why in harness.log.getvalue()


async def is_empty(harness: Harness) -> bool:
    return Depth.of(await harness.parts.queues.depths()).waiting == 0


async def test_events_come_once_and_in_the_order_of_their_instance(
    identity_provider: IdentityProvider, server: NatsServer
):
    await server.add_stream()
    async with forwarding(identity_provider, to_nats(server.url)) as harness:
        asked = await harness.ask_link()
        await harness.connect(asked)
        (granted,) = await server.until(1)
        assert f"evt-{asked.auth_session_id}-auth.granted" == granted["eventId"]
        await enqueue(harness.broker, range(20), instances=4)
        events = await server.until(21)
        await until(lambda: is_empty(harness))
    assert in_order(range(20), instances=4) == first_numbers(events[1:])
    assert events == await server.stored()


async def test_an_event_that_was_stored_and_not_marked_is_stored_once(
    identity_provider: IdentityProvider, server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    await server.add_stream()
    async with forwarding(identity_provider, to_nats(server.url), limits=Limits(queue_lease_seconds=1)) as harness:
        queues, lost = harness.parts.queues, list[str]()
        real = queues.ack

        async def ack(agent: str, event_id: str, lease: str) -> bool:
            if event_id not in lost:  # a crash between the stream's ack and the mark
                lost.append(event_id)
                raise BrokerError(Code.STORE_UNAVAILABLE)
            return await real(agent, event_id, lease)

        monkeypatch.setattr(queues, "ack", ack)
        await enqueue(harness.broker, range(6))

        async def moved() -> bool:
            harness.clock.advance(0.1)
            return await is_empty(harness)

        await until(moved)
        assert counted(harness, "taken") >= 12
    stored = await server.stored()
    assert in_order(range(6)) == first_numbers(stored)
    assert 6 == len(stored), "the stream knows the id again"


async def test_a_server_that_is_killed_and_started_again_gets_the_rest(
    identity_provider: IdentityProvider, server: NatsServer
):
    await server.add_stream()
    async with forwarding(identity_provider, to_nats(server.url)) as harness:
        await enqueue(harness.broker, range(6))
        await server.until(6)
        server.stop()
        await enqueue(harness.broker, range(6, 18))
        await until(lambda: logged(harness, "the receiver is away"))
        await server.start()

        async def there() -> bool:
            harness.clock.advance(0.5)
            return len(await server.stored()) == 18

        await until(there)
        assert in_order(range(18)) == first_numbers(await server.stored())


async def test_a_client_that_is_stuck_is_replaced(identity_provider: IdentityProvider, server: NatsServer):
    await server.add_stream()
    limits = Limits(queue_lease_seconds=1, queue_attempts=100)  # the test's clock runs fast, and leases run out
    async with forwarding(identity_provider, to_nats(server.url), limits=limits) as harness:
        await enqueue(harness.broker, [0])
        await server.until(1)
        freeze(server.pid)
        await enqueue(harness.broker, [3, 1])
        await until(lambda: logged(harness, "no answer in time"))
        os.kill(server.pid, signal.SIGCONT)

        async def there() -> bool:
            harness.clock.advance(0.1)
            return len(await server.stored()) == 3

        await until(there)
        assert in_order([0, 3, 1]) == first_numbers(await server.stored())


async def test_events_wait_for_the_stream_and_cost_no_attempt(identity_provider: IdentityProvider, server: NatsServer):
    limits = Limits(queue_attempts=1, queue_lease_seconds=3600)  # no lease runs out while the test's clock runs fast
    async with forwarding(identity_provider, to_nats(server.url), limits=limits) as harness:
        await enqueue(harness.broker, range(3))
        await until(lambda: logged(harness, "no stream takes the subject"))
        await server.add_stream()

        async def there() -> bool:
            harness.clock.advance(0.5)
            return len(await server.stored()) == 3

        await until(there)


async def test_an_event_that_is_too_large_becomes_a_dead_letter_and_the_next_one_passes(
    identity_provider: IdentityProvider,
):
    async with nats_server("max_payload: 2000\n") as server:
        await server.add_stream()
        forwarder = to_nats(server.url)
        async with forwarding(identity_provider, forwarder, limits=Limits(queue_attempts=1)) as harness:
            of = turn(instance="thread 0")
            large = await harness.broker.events.enqueue(AGENT, "tool.completed", {"text": "x" * 3000}, turn=of)
            await enqueue(harness.broker, [0])
            assert [0] == [each["payload"]["n"] for each in await server.until(1)]
            assert [large] == [each.id for each in await harness.parts.dead_letters.dead(AGENT)]


async def test_tls_and_a_password_are_used_and_a_wrong_one_is_told(identity_provider: IdentityProvider, tmp_path: Path):
    authority = Authority(tmp_path)
    authority.issue(host_name="localhost")
    (file,) = tmp_path.glob("server-*.pem")
    right, wrong = (Canaries.active().mint("a password") for _ in range(2))
    config = (
        f'tls {{ cert_file: "{file}", key_file: "{file}" }}\n'
        f'authorization {{ user: broker, password: "{right.reveal()}" }}\n'
    )
    login = {"user": "broker", "password": right.reveal(), "tls": trusting(authority), "tls_hostname": "localhost"}
    async with nats_server(config, **login) as server:
        await server.add_stream()
        url, ca = f"tls://localhost:{server.port}", authority.file.read_text()
        networks = ("127.0.0.0/8", "::1")
        for password, why in ((wrong, "refuses user or password"), (right, "")):
            forwarder = to_nats(url, user="broker", password=password, ca=ca, networks=networks)
            async with forwarding(identity_provider, forwarder) as harness:
                await enqueue(harness.broker, [0])
                await (until(lambda: logged(harness, why)) if why else server.until(1))  # noqa: B023
        distrusting = to_nats(url, user="broker", password=right, networks=networks)
        async with forwarding(identity_provider, distrusting) as harness:
            await enqueue(harness.broker, [1])
            await until(lambda: logged(harness, "the receiver is away"))


def trusting(authority: Authority) -> Any:
    return ssl.create_default_context(cafile=str(authority.file))


async def test_a_server_that_offers_no_tls_gets_neither_password_nor_event(identity_provider: IdentityProvider):
    said = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": "2.9.0", "headers": True, "auth_required": True, "max_payload": 1048576}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        while data := await reader.read(4096):
            said.extend(data)
            writer.write(b"PONG\r\n")
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"tls://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    for login in ({"user": "broker", "password": Secret("hunter2")}, {}):
        forwarder = to_nats(url, networks=("127.0.0.1",), **login)
        async with forwarding(identity_provider, forwarder) as harness:
            await enqueue(harness.broker, [0])
            await until(lambda: logged(harness, "TLS: the server does not offer it"))
    listener.close()
    assert b"hunter2" not in said
    assert b"PUB" not in said


async def test_a_server_inside_the_own_network_is_not_dialed_unless_it_is_listed(identity_provider: IdentityProvider):
    came = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    forwarder = to_nats(f"tls://localhost:{listener.sockets[0].getsockname()[1]}")
    async with forwarding(identity_provider, forwarder, settings=Settings(public_base_url=BASE)) as harness:
        await enqueue(harness.broker, [0])
        await until(lambda: logged(harness, "its address is not public"))
        assert not came.is_set()
        listed = replace(forwarder, networks=("127.0.0.0/8", "::1"))
        await harness.broker.reload(replace(harness.broker.bundle, forwarders=(listed,)))
        await asyncio.wait_for(came.wait(), 60)
    listener.close()


async def test_a_broker_without_the_extra_says_how_to_install_it(
    identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(opening, "find_spec", lambda _: None)
    with pytest.raises(BrokerError, match=r"oauthbroker\[nats\]") as caught:
        async with forwarding(identity_provider, to_nats("tls://nats.example")):
            pass
    assert Code.CONFIG_INVALID is caught.value.code
