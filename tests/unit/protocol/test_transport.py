from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
import time

import httpx2
import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, Value
from oauthbroker.protocol.network.transport import Transport, TransportFailed, check_url
from tests.unit.protocol.kit import CANARY, RawServer, assert_clean, raw_answer, read_request, says


@pytest.fixture
async def transport():
    transport = Transport(plain_http_loopback=True)
    yield transport
    await transport.close()


async def get(transport: Transport, url: str, *, seconds: float = 5.0, max_bytes: int = 1000) -> ProviderResponse:
    return await transport.send(ProviderRequest("GET", url), seconds=seconds, max_bytes=max_bytes)


async def failure(transport: Transport, url: str, *, seconds: float = 5.0, max_bytes: int = 1000) -> TransportFailed:
    try:
        answer = await get(transport, url, seconds=seconds, max_bytes=max_bytes)
    except TransportFailed as error:
        failed = error
    else:
        raise AssertionError(f"answered: {answer}")
    assert_clean(failed)
    assert (Code.PROVIDER_UNREACHABLE, True) == (failed.code, failed.retryable)
    return failed


# --- what goes out and what comes back


async def test_a_form_goes_out_encoded_with_secrets_revealed_only_on_the_wire(transport):
    async with RawServer(says(200)) as server:
        form: dict[str, Value] = {"a": "1 2", "secret": Secret("s&=ü"), "resource": ("https://a", "https://b")}
        request = ProviderRequest(
            "POST", f"{server.url}/token?x=1", headers={"Authorization": Secret("Basic abc")}, form=form
        )
        await transport.send(request, seconds=5, max_bytes=1000)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert b"a=1+2&secret=s%26%3D%C3%BC&resource=https%3A%2F%2Fa&resource=https%3A%2F%2Fb" == body
    lines = head.lower().split(b"\r\n")
    assert b"post /token?x=1 http/1.1" == lines[0]
    assert {
        b"accept: application/json",
        b"accept-encoding: identity",
        b"authorization: basic abc",
        b"content-type: application/x-www-form-urlencoded",
    } <= set(lines)


async def test_a_body_may_be_json_and_a_method_delete(transport):
    async with RawServer(says(204)) as server:
        form: dict[str, Value] = {"access_token": Secret('t"ü'), "resource": ("https://a", "https://b")}
        request = ProviderRequest("DELETE", f"{server.url}/applications/c/token", form=form, encoding="json")
        await transport.send(request, seconds=5, max_bytes=1000)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert {"access_token": 't"ü', "resource": ["https://a", "https://b"]} == json.loads(body)
    lines = head.lower().split(b"\r\n")
    assert b"delete /applications/c/token http/1.1" == lines[0]
    assert b"content-type: application/json" in lines


async def test_the_answer_is_complete_for_every_status(transport):
    async with RawServer(says(404, b"hello", content_type="text/plain; x=1", retry_after="7")) as server:
        answer = await get(transport, server.url)
    assert ProviderResponse(status=404, content_type="text/plain; x=1", retry_after=7, body=b"hello") == answer
    assert "text/plain" == answer.media_type


@pytest.mark.parametrize(
    "value, date, seconds",
    [
        ("17", "", 17), ("0", "", 1), ("-1", "", 1), ("1000000000", "", 3600), ("soon", "", None), ("", "", None), ("1.5", "", None),
        ("Sat, 21 Nov 2026 10:00:30 GMT", "Sat, 21 Nov 2026 10:00:00 GMT", 30),
        ("Sat, 21 Nov 2026 10:00:30 GMT", "Sat, 21 Nov 2026 11:00:00 GMT", 1),
        ("Sat, 21 Nov 2027 10:00:30 GMT", "Sat, 21 Nov 2026 10:00:00 GMT", 3600),
        ("Sat, 21 Nov 2099 10:00:30 GMT", "", 3600), ("Sat, 21 Nov 2020 10:00:30 GMT", "", 1), ("Sat, 40 Nov 2026 10:00:30 GMT", "", None),
    ],
)  # fmt: skip
async def test_retry_after_is_seconds_between_one_and_an_hour(transport, value, date, seconds):
    async with RawServer(says(429, retry_after=value, **({"date": date} if date else {}))) as server:
        assert seconds == (await get(transport, server.url)).retry_after


async def test_nothing_of_one_request_reaches_the_next(transport):
    async with RawServer(says(200, set_cookie=f"sid={CANARY}; Path=/")) as server:
        await get(transport, server.url)
        await get(transport, server.url)
    assert 2 == server.connections  # a kept one may die under a one-time code
    assert not any(b"cookie" in request.lower() for request in server.requests)


async def test_proxies_and_netrc_of_the_environment_are_not_asked(monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    (tmp_path / ".netrc").chmod(0o600)
    async with RawServer(says(500)) as proxy, RawServer(says(200)) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        transport = Transport(plain_http_loopback=True)
        assert 200 == (await get(transport, server.url)).status
        await transport.close()
    assert 0 == proxy.connections
    assert b"authorization" not in server.requests[0].lower()


async def test_a_closed_transport_sends_nothing(transport):
    async with RawServer(says(200)) as server:
        await get(transport, server.url)
        await transport.close()
        assert not (await failure(transport, server.url)).sent
    assert 1 == server.connections


# --- where to


@pytest.mark.parametrize(
    "url",
    [
        "https://id.example/token", "https://id.example:8443/a?b=c&d=%20", "https://[2001:db8::1]/x", "https://xn--bcher-kva.example/",
        "http://127.0.0.1:5000/token", "http://127.8.9.1/", "http://[::1]:5000/",
    ],
)  # fmt: skip
def test_https_anywhere_and_http_to_a_literal_loopback_address_are_fine(url):
    check_url(url, plain_http_loopback=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example/token", "http://localhost/", "http://127.0.0.1.evil.example/", "http://127.1/", "http://2130706433/",
        "http://0.0.0.0/", "http://169.254.169.254/", "http://[::ffff:169.254.169.254]/", "http://10.0.0.1/",
        "https://user@id.example/", "https://user:pw@id.example/", "https://@id.example/", "https://id.example\\@evil.example/",
        "https://id.example/\r\nX: y", "https://id.example/\x00", "https://id.example/ a", "https://bücher.example/", "https://id.example/#f",
        "https://", "https:///token", "//id.example/", "id.example", "", "https://id.example:99999/", "https://id.example:0/", "https://id.example:x/",
        "file:///etc/passwd", "javascript:alert(1)", "ftp://id.example/", "https://[::1/", "https://id.example/" + "a" * 9000,
    ],
)  # fmt: skip
async def test_any_other_address_is_refused_before_anything_is_sent(url):
    with pytest.raises(BrokerError) as caught:
        check_url(url, plain_http_loopback=True)
    assert Code.APP_MISCONFIGURED == caught.value.code
    with pytest.raises(BrokerError) as caught:
        await get(Transport(plain_http_loopback=True), url)
    assert Code.APP_MISCONFIGURED == caught.value.code
    assert_clean(caught.value)


async def test_plain_http_needs_its_loud_switch():
    async with RawServer(says(200)) as server:
        with pytest.raises(BrokerError) as caught:
            await get(Transport(), server.url)
    assert (Code.APP_MISCONFIGURED, 0) == (caught.value.code, server.connections)


# --- redirects


@pytest.mark.case("22")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_never_followed(transport, status):
    async with RawServer(says(200)) as other:
        for target in (f"{other.url}/steal", f"//127.0.0.1:{other.port}/steal", "http://169.254.169.254/latest/"):
            async with RawServer(says(status, b"", location=target)) as server:
                request = ProviderRequest("POST", server.url, form={"client_secret": Secret(CANARY)})
                answer = await transport.send(request, seconds=5, max_bytes=1000)
            assert (status, 1) == (answer.status, len(server.requests))
    assert 0 == other.connections


# --- time


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def _slow_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in raw_answer(200, b"{}"):
        writer.write(bytes([byte]))
        await asyncio.sleep(0.05)


async def _slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(raw_answer(200, b"", content_length="1000"))
    for _ in range(1000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _endless_interim_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.case("23")
@pytest.mark.parametrize("handler", [_silent, _slow_headers, _slow_body, _endless_interim_answers])
async def test_one_deadline_bounds_the_whole_exchange(transport, handler):
    async with RawServer(handler) as server:
        started = time.monotonic()
        error = await failure(transport, server.url, seconds=0.25)
        assert time.monotonic() - started < 10
    assert error.sent


@pytest.mark.case("23")
async def test_a_slow_provider_does_not_slow_another_one(transport):
    async with RawServer(_silent) as slow, RawServer(says(200)) as quick:
        waiting = [asyncio.create_task(failure(transport, slow.url, seconds=30)) for _ in range(20)]
        async with asyncio.timeout(60):
            while slow.connections < 20:
                await asyncio.sleep(0.01)
        assert 200 == (await get(transport, quick.url)).status
        assert not any(task.done() for task in waiting), "it answered while all of them still waited"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_more_requests_than_a_provider_may_hold_wait_unsent(transport):
    async with RawServer(_silent) as slow:
        holding = [asyncio.create_task(failure(transport, slow.url, seconds=60)) for _ in range(64)]
        while len(slow.requests) < 64:
            await asyncio.sleep(0.01)
        late = await failure(transport, slow.url, seconds=0.1)
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
    assert (64, False) == (slow.connections, late.sent)


async def test_a_caller_who_leaves_is_told_so_and_the_connection_ends(transport):
    ended = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()

    async with RawServer(handler) as server:
        task = asyncio.create_task(get(transport, server.url))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 60)


# --- size


async def _endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(raw_answer(200, b"", content_length="1000000000"))
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def _endless_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n" * 1000)
        await writer.drain()


async def _endless_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 X\r\n")
    while True:
        writer.write(b"X: " + b"x" * 65536 + b"\r\n")
        await writer.drain()


@pytest.mark.case("24")
@pytest.mark.parametrize("handler", [_endless, _endless_chunks, _endless_headers])
async def test_a_body_without_end_is_cut_off(transport, handler):
    async with RawServer(handler) as server:
        assert (await failure(transport, server.url, max_bytes=256 * 1024)).sent


@pytest.mark.case("24")
@pytest.mark.parametrize("size, fits", [(999, True), (1000, True), (1001, False)])
@pytest.mark.parametrize("packed", [False, True])
async def test_the_limit_counts_decoded_bytes(transport, size, fits, packed):
    body = gzip.compress(b"x" * size) if packed else b"x" * size
    async with RawServer(says(200, body, **({"content_encoding": "gzip"} if packed else {}))) as server:
        if fits:
            assert size == len((await get(transport, server.url)).body)
        else:
            assert "the answer is too large" == (await failure(transport, server.url)).note


@pytest.mark.case("24")
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x-odd"])
async def test_an_encoding_that_cannot_be_bounded_is_refused(transport, encoding):
    async with RawServer(says(200, b"{}", content_encoding=encoding)) as server:
        assert (await failure(transport, server.url)).sent


# --- requests


async def _closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(raw_answer(200, b"{", content_length="10"))
    await writer.drain()
    writer.close()


async def _no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"{CANARY}\r\n\r\n".encode())
    await writer.drain()


async def _bad_gzip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(raw_answer(200, b"not gzip", content_encoding="gzip"))
    await writer.drain()


@pytest.mark.parametrize("handler", [_closes, _cut, _no_http, _bad_gzip])
async def test_a_lost_answer_was_sent(transport, handler):
    async with RawServer(handler) as server:
        assert (await failure(transport, server.url)).sent


async def test_a_refused_connection_was_not_sent(transport):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert not (await failure(transport, f"http://127.0.0.1:{port}/")).sent


async def test_an_unknown_host_was_not_sent(transport, monkeypatch):
    def no_such_host(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, CANARY)

    monkeypatch.setattr(socket, "getaddrinfo", no_such_host)
    assert not (await failure(transport, "https://no-such-host.example/")).sent


async def test_a_tls_handshake_that_fails_was_not_sent(transport):
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("a request arrived")

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        assert not (await failure(transport, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")).sent


# --- logs


@pytest.mark.case("89")
async def test_the_http_libraries_log_nothing_of_our_requests_and_everything_of_a_host_programs(transport, caplog):
    caplog.set_level(1)
    for name in ("httpx2", "httpcore2.connection", "httpcore2.http11"):
        caplog.set_level(1, logger=name)
    async with RawServer(says(200, f'"{CANARY}"'.encode(), set_cookie=CANARY)) as server:
        request = ProviderRequest(
            "POST", f"{server.url}/{CANARY}?code={CANARY}", headers={"Authorization": Secret(f"Bearer {CANARY}")}, form={"a": Secret(CANARY)}
        )  # fmt: skip
        await transport.send(request, seconds=5, max_bytes=1000)
        await failure(transport, f"{server.url}/{CANARY}", max_bytes=1)
        assert CANARY not in caplog.text
        assert not [record for record in caplog.records if record.name.startswith("httpx2")]
        async with httpx2.AsyncClient(trust_env=False) as theirs:
            await theirs.get(f"{server.url}/theirs")
    assert "/theirs" in caplog.text
    assert logging.getLogger("httpx2").isEnabledFor(logging.DEBUG)


async def test_read_request_of_the_kit_reads_bodies():
    reader = asyncio.StreamReader()
    reader.feed_data(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
    assert (await read_request(reader)).endswith(b"abc")
