"""What these tests share: an app to change, answers to check, and a raw server that sends exactly the given bytes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints, Owner, Redirect
from oauthbroker.model.provider_habits import Habits
from oauthbroker.protocol.messages import ProviderResponse

CANARY = "canary-4f9d1c"
ISSUER = "https://id.example"
CLIENT_ID = "client-1"

APP = App(
    name="shop",
    provider="example",
    flow="authorizationCode",
    subject_mode="user",
    client=Client(CLIENT_ID, Secret(f"{CANARY}-client-secret")),
    endpoints=Endpoints(
        authorization_url=f"{ISSUER}/authorize",
        token_url=f"{ISSUER}/token",
        revoke_url=f"{ISSUER}/revoke",
        user_info_url=f"{ISSUER}/me",
        issuer=ISSUER,
        jwks_url=f"{ISSUER}/jwks",
    ),
    scopes=("read", "write"),
    redirect=Redirect("/oauth/callback/shop", "https://broker.example/base/"),
    owner=Owner(),
)


def with_habits(**habits: Any) -> App:
    return dataclasses.replace(APP, habits=Habits(**habits))


def with_client(**client: Any) -> App:
    return dataclasses.replace(APP, client=dataclasses.replace(APP.client, **client))


def with_endpoints(**endpoints: str) -> App:
    return dataclasses.replace(APP, endpoints=dataclasses.replace(APP.endpoints, **endpoints))


def answer(
    body: object, status: int = 200, label: str = "application/json", retry_after: int | None = None
) -> ProviderResponse:
    """`body` as it is if it is bytes, else as JSON."""
    return ProviderResponse(
        status=status,
        content_type=label,
        retry_after=retry_after,
        body=body if isinstance(body, bytes) else json.dumps(body).encode(),
    )


def refusal(validate: Callable[[], object]) -> BrokerError:
    """The error that `validate` raises; it must hold no canary and hang on no foreign exception."""
    try:
        result = validate()
    except BrokerError as error:
        assert_clean(error)
        return error
    raise AssertionError(f"accepted: {result!r}")


def code_of(validate: Callable[[], object]) -> Code:
    return refusal(validate).code


def assert_clean(error: BrokerError) -> None:
    assert error.__cause__ is None
    assert error.__context__ is None or isinstance(error.__context__, BrokerError)
    assert CANARY not in f"{error!r} {error} {error.args} {error.note} {error.words} {vars(error)}"


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """A TCP (or TLS) server on 127.0.0.1 whose handler writes raw bytes. Counts connections, keeps requests."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._handler, self._tls = handler, tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            self.requests.append(await read_request(reader))
            await self._handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.partition(b":")[2]))
    return head


def says(status: int, body: bytes = b"{}", **headers: str) -> Handler:
    """A handler that gives one plain answer. Header names are written with underscores."""

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw_answer(status, body, **headers))
        await writer.drain()

    return handle


def raw_answer(status: int, body: bytes, **headers: str) -> bytes:
    named = {"content_type": "application/json", "content_length": str(len(body))} | headers
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in named.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextlib.asynccontextmanager
async def site(pages: dict[str, Any]) -> AsyncIterator[RawServer]:
    """A small provider: path -> JSON value, bytes, or (status, value). Other paths are 404. Change it while it runs."""

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = server.requests[-1].split(b" ")[1].decode().partition("?")[0]
        page = pages.get(path, (404, {"error": "not here"}))
        status, value = page if isinstance(page, tuple) else (200, page)
        writer.write(raw_answer(status, value if isinstance(value, bytes) else json.dumps(value).encode()))
        await writer.drain()

    server = RawServer(handle)
    async with server:
        yield server


def hits(server: RawServer, path: str) -> int:
    return sum(request.split(b" ")[1].decode().partition("?")[0] == path for request in server.requests)
