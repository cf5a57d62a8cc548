"""`broker.serving`: pages and API beside an embedded broker, over real sockets (docs/embedding.md)."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oauthbroker import AuthorizationRequired, Broker, BrokerError, Code, Failed, Ready, Turn, TurnAuth
from oauthbroker.client import OAuth
from oauthbroker.model.settings import ApiSocket, Settings
from oauthbroker.testing import Browser, IdentityProvider, TestClock, connect_through
from tests.kit.cli import free_port
from tests.kit.default_store import default_store
from tests.kit.running_broker import ALICE, Harness, at, public, running, user_app
from tests.story.mcp_kit import served


@asynccontextmanager
async def broker_at(idp: IdentityProvider, clock: TestClock, base: str, **settings: Any) -> AsyncIterator[Harness]:
    """A broker whose pages browsers find at `base`."""
    shown = replace(public(base), listen_port=int(base.rpartition(":")[2]), **settings)
    async with running(idp, [], clock=clock, settings=shown) as harness:
        yield harness


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with broker_at(identity_provider, test_clock, f"http://127.0.0.1:{free_port()}") as harness:
        yield harness


async def get(url: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False) as http:
        return await http.get(url, headers=headers)


def refuses(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) != 0


async def test_pages_and_api_are_served_where_the_configuration_says_until_the_block_ends(harness: Harness) -> None:
    settings = harness.broker.bundle.settings
    async with harness.broker.serving() as address:
        assert settings.public_base_url == address
        assert 200 == (await get(f"{address}/healthz")).status_code
        assert 401 == (await get(f"{address}/v1/grants")).status_code
    assert refuses(settings.listen_port)
    async with harness.broker.serving():
        assert not refuses(settings.listen_port)


async def test_port_0_is_a_free_one_and_its_address_serves_callers_on_this_machine(harness: Harness) -> None:
    async with harness.broker.serving(port=0) as address, harness.broker.serving("127.0.0.1", 0) as other:
        assert address != other
        turn = Turn("planner", "thread", auth=TurnAuth(subjects={"user": ALICE}))
        begun = await harness.broker.turns.begin(turn)
        async with OAuth(address, begun.token) as oauth:
            failed = await oauth.get_access_token("nowhere")
            assert isinstance(failed, Failed)
            assert "oauthAppNotFound" == failed.code
        mine, others = address.partition("//")[2], other.partition("//")[2]
        for host, status in {mine: 401, "evil.example": 421, others: 421}.items():
            assert (host, status) == (host, (await get(f"{address}/v1/grants", Host=host)).status_code)


async def test_localhost_is_served_at_both_addresses_of_this_machine(harness: Harness) -> None:
    async with harness.broker.serving("localhost", 0) as address:
        port = address.rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]", "localhost"):
            assert (host, 401) == (host, (await get(f"http://{host}:{port}/v1/grants")).status_code)


async def test_two_brokers_serve_beside_each_other_in_one_loop(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    bases = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    async with (
        broker_at(identity_provider, test_clock, bases[0]) as one,
        broker_at(identity_provider, test_clock, bases[1]) as two,
        one.broker.serving() as first,
        two.broker.serving() as second,
    ):
        assert bases == [first, second]
        assert [200, 200] == [(await get(f"{each}/readyz")).status_code for each in bases]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "as configured": ({}, "another process listens there. Stop it, or change spec.listen."),
    "as said": ({"port": -1}, "another process listens there. Stop it, or change the host or the port of `serving`."),
    "no port": ({"port": 70_000}, "a whole number from 0 to 65535. Change the host or the port of `serving`."),
    "below 0": ({"port": -2}, "a whole number from 0 to 65535. Change the host or the port of `serving`."),
    "a text": ({"port": "8420"}, "a whole number from 0 to 65535. Change the host or the port of `serving`."),
    "yes or no": ({"port": True}, "a whole number from 0 to 65535. Change the host or the port of `serving`."),
    "no address of this machine": ({"host": "127.0.0.1", "port": 1 << 40}, "Change the host or the port of `serving`."),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_address_that_cannot_be_listened_on_is_two_sentences_and_the_broker_goes_on(
    harness: Harness, case: str
) -> None:
    where, end = REFUSED[case]
    port = harness.broker.bundle.settings.listen_port
    with socket.create_server(("127.0.0.1", port)):
        where = {name: port if value == -1 else value for name, value in where.items()}
        with pytest.raises(BrokerError) as refused:
            async with harness.broker.serving(**where):
                pytest.fail("it serves")
    assert Code.CONFIG_INVALID is refused.value.code
    assert str(refused.value).startswith("configInvalid: Cannot listen on 127.0.0.1"), "no word of `oauthbroker check`"
    assert refused.value.message().endswith(end)
    async with harness.broker.serving() as address:
        assert 200 == (await get(f"{address}/readyz")).status_code


async def test_a_broker_that_is_closed_serves_nothing(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with broker_at(identity_provider, test_clock, f"http://127.0.0.1:{free_port()}") as harness:
        broker = harness.broker
    with pytest.raises(BrokerError, match="Use it within the block of `open_broker`") as refused:
        async with broker.serving(port=0):
            pytest.fail("it serves")
    assert Code.STORE_UNAVAILABLE is refused.value.code


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "broker.example"])
async def test_a_host_away_from_loopback_needs_a_public_address_as_in_serve(harness: Harness, host: str) -> None:
    with pytest.raises(BrokerError, match=r"publicBaseUrl is http://127\.0\.0\.1:\d+, which only browsers on this"):
        async with harness.broker.serving(host, 0):
            pytest.fail("it serves")


async def test_behind_a_proxy_that_ends_tls_the_public_host_is_answered_with_headers_for_https(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    settings = Settings(public_base_url="https://agents.example.com/oauth")
    async with (
        running(identity_provider, [], clock=test_clock, settings=settings) as harness,
        harness.broker.serving("0.0.0.0", 0) as address,
    ):
        assert address.startswith("http://127.0.0.1:")
        answer = await get(f"{address}/connect", Host="agents.example.com")
        assert 200 == answer.status_code
        assert "max-age" in answer.headers["strict-transport-security"]


async def test_an_api_with_a_listener_of_its_own_has_it_here_too(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    base, port, path = f"http://127.0.0.1:{free_port()}", free_port(), tmp_path / "api"
    own = {"api_host": "127.0.0.1", "api_port": port, "api_socket": ApiSocket(str(path), 0o600)}
    async with broker_at(identity_provider, test_clock, base, **own) as harness, harness.broker.serving() as address:
        assert 404 == (await get(f"{address}/v1/grants")).status_code
        assert 401 == (await get(f"http://127.0.0.1:{port}/v1/grants")).status_code
        assert path.is_socket()
    assert not path.exists()


async def test_a_cancelled_block_ends_the_listeners_and_is_cancelled(harness: Harness) -> None:
    began = asyncio.Event()

    async def block() -> None:
        async with harness.broker.serving():
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    assert refuses(harness.broker.bundle.settings.listen_port)


async def test_an_exception_of_the_block_comes_out_as_it_was(harness: Harness) -> None:
    with pytest.raises(LookupError, match="of the block"):
        async with harness.broker.serving():
            raise LookupError("of the block")
    assert refuses(harness.broker.bundle.settings.listen_port)


async def test_the_signal_handlers_and_log_handlers_of_the_host_program_stay(harness: Harness) -> None:
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, heard.set)
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    handlers = logging.getLogger().handlers[:]
    try:
        async with harness.broker.serving(port=0):
            assert before == [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
            assert handlers == logging.getLogger().handlers
            signal.raise_signal(signal.SIGUSR1)
            await asyncio.wait_for(heard.wait(), 10)
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


class SlowBrowser(Browser):
    """A browser that takes its time before it follows a redirect, so that the program is faster."""

    async def follow(self, *where: Any, **more: Any) -> Any:
        await asyncio.sleep(0.3)
        return await super().follow(*where, **more)


async def test_the_page_after_a_consent_is_loaded_before_the_block_ends(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The program goes on at once when the user has agreed; no sleep is needed for the user's browser."""
    base = f"http://127.0.0.1:{free_port()}"
    app = at(identity_provider, base, user_app(identity_provider))
    settings = replace(public(base), listen_port=int(base.rpartition(":")[2]))
    async with running(identity_provider, [app], clock=test_clock, settings=settings) as harness:
        oauth = harness.broker.oauth(Turn("planner", "thread", auth=TurnAuth(subjects={"user": ALICE})))
        async with harness.broker.serving():
            asked = await oauth.get_access_token("mail")
            assert isinstance(asked, AuthorizationRequired)
            agreed = connect_through(SlowBrowser(), identity_provider, asked.authorization_url, "alice")
            browser = asyncio.create_task(agreed)
            assert "completed" == (await harness.broker.wait(asked.auth_session_id, 60)).status
        assert 200 == (await browser).status
        assert isinstance(await oauth.get_access_token("mail"), Ready)


async def test_a_broker_proves_to_others_of_its_store_that_it_listens(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """A program that has none of the store's keys cannot, not even if it passes the question on."""
    store, port = default_store(test_clock), free_port()
    async with (
        running(identity_provider, [], clock=test_clock, store=store) as harness,
        running(identity_provider, [], clock=test_clock, store=store) as other,
        running(identity_provider, [], clock=test_clock) as stranger,
    ):
        assert not await other.broker.serves_at("127.0.0.1", port)
        await prove(harness.broker, other.broker, stranger.broker, port)


async def prove(broker: Broker, other: Broker, stranger: Broker, port: int) -> None:
    async with broker.serving("localhost", port):
        for host in ("127.0.0.1", "::1", "localhost"):
            assert await other.serves_at(host, port)
        assert not await stranger.serves_at("127.0.0.1", port)
        for passed_on, answer in ((True, None), (False, b"[]"), (False, b"[" * 99_999), (False, b"{}")):
            async with program(port if passed_on else 0, answer) as its_port:
                assert not await other.serves_at("127.0.0.1", its_port)


@asynccontextmanager
async def program(port: int, answer: bytes | None) -> AsyncIterator[int]:
    """A foreign program. Without an answer of its own it passes each request on to `port`."""

    async def app(scope: Any, _: Any, send: Any) -> None:
        body = answer
        if body is None:
            found = await get(f"http://127.0.0.1:{port}{scope['path']}?{scope['query_string'].decode()}")
            assert "challenge" in found.json()
            body = found.content
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    async with served(app) as (its_port, _):
        yield its_port
