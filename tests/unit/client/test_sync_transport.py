"""The sync client's own network: its connections, and how it ends its calls."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oauthbroker.client import BrokerError, Code, Failed, Options, Ready, SyncOAuth, SyncRuntime, Turn
from oauthbroker.client import sync_transport as network
from oauthbroker.testing import Authority
from tests.unit.client.kit import KEY, READY, TURN_TOKEN, fake_broker, patient, refuses, says

PATIENT = Options(timeout=30)


async def test_calls_of_one_thread_share_a_connection() -> None:
    async with fake_broker(says(200, READY)) as fake:

        def tool() -> list[Any]:
            with SyncOAuth(fake.url, TURN_TOKEN, PATIENT) as oauth:
                return [oauth.get_access_token("mail") for _ in range(3)]

        assert all(isinstance(each, Ready) for each in await asyncio.to_thread(tool))
        assert (3, 1) == (len(fake.asked), len(fake.connections))


async def test_threads_have_connections_of_their_own() -> None:
    """Each call is answered when all of them have arrived."""
    together = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter) -> None:
        if len(fake.asked) == 4:
            together.set()
        async with asyncio.timeout(30):
            await together.wait()
        writer.write(says(200, READY))
        await writer.drain()

    async with fake_broker(answer) as fake:

        def tool() -> list[Any]:
            with SyncOAuth(fake.url, TURN_TOKEN, PATIENT) as oauth, ThreadPoolExecutor(4) as threads:
                return list(threads.map(lambda _: oauth.get_access_token("mail"), range(4)))

        assert all(isinstance(each, Ready) for each in await asyncio.to_thread(tool))
        assert 4 == len(fake.connections)


async def test_a_connection_that_the_broker_closed_or_that_is_old_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A turn is begun once: its call may not meet a closing connection."""
    begun = {"turnId": "t", "turnToken": TURN_TOKEN, "toolTokens": {}, "expiresAt": "2026-02-01T10:00:00Z"}
    async with fake_broker(says(201, begun)) as fake:

        def begin(runtime: SyncRuntime) -> None:
            assert "t" == runtime.begin(Turn("planner", "i")).turn_id

        with SyncRuntime(fake.url, KEY, PATIENT) as runtime:
            await asyncio.to_thread(begin, runtime)
            for connection in fake.connections:
                connection.close()
                await connection.wait_closed()
            await asyncio.to_thread(begin, runtime)
            monkeypatch.setattr(network, "IDLE_SECONDS", -1.0)
            await asyncio.to_thread(begin, runtime)
        assert (3, 3) == (len(fake.asked), len(fake.connections))


async def test_an_answer_that_ends_with_its_connection_is_read_to_the_end() -> None:
    """As a proxy of HTTP/1.0 answers."""

    async def old(writer: asyncio.StreamWriter) -> None:
        head, _, body = says(200, READY).partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"content-length")]
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" + b"\r\n".join([*lines, b"connection: close", b"", body]))
        await writer.drain()

    async with fake_broker(old) as fake:

        def tool() -> Any:
            with SyncOAuth(fake.url, TURN_TOKEN, PATIENT) as oauth:
                return oauth.get_access_token("mail"), oauth.get_access_token("mail")

        assert all(isinstance(each, Ready) for each in await asyncio.to_thread(tool))
        assert 2 == len(fake.connections)


async def test_an_answer_with_a_piece_missing_is_lost() -> None:
    async def cut(writer: asyncio.StreamWriter) -> None:
        writer.write(says(200, READY)[:-5])
        await writer.drain()

    async with fake_broker(cut) as fake:

        def tool() -> Any:
            with SyncOAuth(fake.url, TURN_TOKEN, patient()) as oauth:
                return oauth.get_access_token("mail")

        failed = await asyncio.to_thread(tool)
        assert isinstance(failed, Failed)
        assert Code.BROKER_UNREACHABLE is failed.code


async def test_a_call_that_is_interrupted_leaves_no_half_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the thread waits: the connection, whose answer is still to come, is closed."""
    async with fake_broker(says(200, READY)) as fake:

        def tool() -> Any:
            with SyncOAuth(fake.url, TURN_TOKEN, PATIENT) as oauth:
                with monkeypatch.context() as patched:
                    patched.setattr(network._Connection, "_answer", _interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        oauth.get_access_token("mail")
                return oauth.get_access_token("mail")

        assert isinstance(await asyncio.to_thread(tool), Ready)
        assert 2 == len(fake.connections)


def _interrupted(*_: object) -> Any:
    raise KeyboardInterrupt


async def test_a_sync_client_works_on_the_thread_of_a_running_event_loop(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As in a notebook. It blocks the loop; the broker is elsewhere."""
    listener, path = socket.socket(socket.AF_UNIX), tmp_path_factory.mktemp("s") / "api.sock"
    listener.bind(str(path))
    listener.listen()
    broker = threading.Thread(target=_answer_once, args=(listener,))
    broker.start()
    with SyncOAuth(f"unix:{path}", TURN_TOKEN, PATIENT) as oauth:
        assert isinstance(oauth.get_access_token("mail"), Ready)
    broker.join(60)
    listener.close()


def _answer_once(listener: socket.socket) -> None:
    with listener.accept()[0] as connection:
        connection.settimeout(30)
        received = b""
        while b'"}}' not in received:
            received += connection.recv(65536)
        connection.sendall(says(200, READY))


async def test_a_name_without_an_address_and_a_slow_resolver_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def slow(*_: object, **__: object) -> Any:
        released.wait(30)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    def tool() -> Any:
        with SyncOAuth("https://broker.example", TURN_TOKEN, patient(0.2)) as oauth:
            return oauth.get_access_token("mail")

    failed = await asyncio.to_thread(tool)
    released.set()
    assert isinstance(failed, Failed)
    assert (Code.BROKER_UNREACHABLE, True) == (failed.code, failed.retryable)


@pytest.mark.case("35")
@pytest.mark.parametrize("trusts", [True, False], ids=["trusted", "unknown"])
async def test_https_needs_a_certificate_that_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, trusts: bool
) -> None:
    """Without one, no byte of the request leaves, not even for a call that may be sent once."""
    authority = Authority(tmp_path, "trusted")
    if trusts:
        context = ssl.create_default_context(cadata=authority.file.read_text())
        monkeypatch.setattr(httpx2, "create_ssl_context", lambda **_: context)
    async with fake_broker(refuses(403, "notAllowed"), tls=authority.issue().context) as fake:

        def begin() -> None:
            with SyncRuntime(fake.url.replace("http", "https"), KEY, patient()) as runtime:
                runtime.begin(Turn("planner", "i"))

        with pytest.raises(BrokerError, match="notAllowed" if trusts else "brokerUnreachable"):
            await asyncio.to_thread(begin)
        assert int(trusts) == len(fake.asked)
