"""A GET at the token endpoint: its parameters are secrets, and stand in an address that nothing of ours shows."""

from __future__ import annotations

import asyncio
import logging
import traceback
from dataclasses import replace
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.observability.metrics import Metrics
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.instrumentation import Instrumentation
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.protocol.refresh_messages import refresh_request
from oauthbroker.protocol.token_endpoint import code_request, token_response
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, Handler, RawServer, raw_answer, with_habits

SECRETS = {"client_secret": f"{CANARY}+secret/=&", "code": f"{CANARY}-code", "code_verifier": f"{CANARY}-verifier",
           "refresh_token": f"{CANARY}-refresh"}  # fmt: skip


def requests(url: str) -> list[ProviderRequest]:
    """The exchange of a code and a refresh, by a client that shows its secret among the parameters."""
    app = replace(
        with_habits(token_request_format="query"),
        client=replace(APP.client, auth_method="client_secret_post", client_secret=Secret(SECRETS["client_secret"])),
        endpoints=replace(APP.endpoints, token_url=url),
    )
    code, verifier, renewal = (Secret(SECRETS[name]) for name in ("code", "code_verifier", "refresh_token"))
    return [
        code_request(app, app.endpoints, code, verifier, clock=TestClock()),
        refresh_request(app, app.endpoints, renewal, clock=TestClock()),
    ]


def echoing(status: int, *, header: str = "x-echo") -> Handler:
    """Answer with the target of the request in the head and in the body."""

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = SERVERS[-1].requests[-1].split(b" ")[1]
        writer.write(raw_answer(status, b'{"error": "%s"}' % target, **{header: target.decode()}))
        await writer.drain()

    return handle


async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await writer.drain()


async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(SERVERS[-1].requests[-1])
    await writer.drain()


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def too_much(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(raw_answer(200, b"x" * 5000))
    await writer.drain()


SERVERS: list[RawServer] = []
ANSWERS: dict[str, Handler] = {
    "refused": echoing(400), "failed": echoing(500), "sent elsewhere": echoing(302, header="location"), "cut": cut,
    "no HTTP": nonsense, "silent": silent, "too much": too_much, "fine": echoing(200),
}  # fmt: skip


def shown(*things: object) -> str:
    """Everything that a thing says of itself, its causes and the locals of the broker's frames in them included."""
    texts = [f"{thing!r} {thing} {getattr(thing, '__dict__', '')}" for thing in things]
    for error in (thing for thing in things if isinstance(thing, BaseException)):
        caught: BaseException | None = error
        while caught is not None:
            frames = [frame for frame, _ in traceback.walk_tb(caught.__traceback__)]
            texts += [repr(frame.f_locals) for frame in frames if frame.f_globals["__name__"] != __name__]
            texts.append(repr(caught))
            caught = caught.__cause__ or caught.__context__
    return " ".join(texts)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


@pytest.mark.parametrize("answer", ANSWERS)
async def test_no_log_error_or_exception_has_a_parameter_of_the_address(
    answer: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], spans: InMemorySpanExporter
) -> None:
    caplog.set_level(logging.DEBUG)
    transport = Transport(plain_http_loopback=True, watch=Instrumentation(Metrics(), TestClock()))
    async with RawServer(ANSWERS[answer]) as server:
        SERVERS.append(server)
        for request in requests(f"{server.url}/token"):
            before = len(server.requests)
            seen: list[object] = [request]
            try:
                got = await transport.send(request, seconds=0.5 if answer == "silent" else 20, max_bytes=4000)
                seen += [got.redirect, got.challenge]
                token_response(APP, got)
            except BrokerError as error:
                seen += [error, error.note, error.words]
            text = shown(*seen) + caplog.text + "".join(capfd.readouterr())
            text += "".join(each.to_json() for each in spans.get_finished_spans())
            assert '"oauthbroker.provider' in text
            for secret in SECRETS.values():
                assert not {each for each in (secret, quote(secret, safe=""), quote(secret)) if each in text}
            target = server.requests[before].split(b" ")[1].decode()
            sent = dict(parse_qsl(urlsplit(target).query, strict_parsing=True))
            assert server.requests[before].startswith(b"GET /token?")
            assert SECRETS["client_secret"] == sent["client_secret"]
            assert b"content-type" not in server.requests[before].lower()
    await transport.close()


async def test_an_endpoint_keeps_a_query_of_its_own() -> None:
    transport = Transport(plain_http_loopback=True)
    async with RawServer(echoing(200)) as server:
        SERVERS.append(server)
        await transport.send(requests(f"{server.url}/token?p=B2C_1")[1], seconds=20, max_bytes=4000)
        target = urlsplit(server.requests[0].split(b" ")[1].decode())
        assert ("/token", "B2C_1") == (target.path, dict(parse_qsl(target.query, strict_parsing=True))["p"])
    await transport.close()


def test_an_answer_does_not_hold_its_request() -> None:
    assert not {"url", "request"} & {*ProviderResponse.__slots__}
