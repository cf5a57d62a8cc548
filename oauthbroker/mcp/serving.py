"""Run the gateway as a process: for one host over stdio, or over HTTP on this machine."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server
from pydantic import AnyHttpUrl

from oauthbroker import Broker, BrokerError, Code, open_broker
from oauthbroker.mcp.gateway import McpGateway
from oauthbroker.mcp.spec import LOOPBACK
from oauthbroker.mcp.turn_tokens import TurnTokenVerifier

AUDIENCE: Final = "Connection/mcp-gateway"  # the tool for which turns are begun whose tokens the gateway accepts
PATH: Final = "/mcp"
RETRY_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 5  # for streams that a host holds open


class GatewayCallers:
    """Admits turn tokens for the gateway, and API keys of the role `runtime` as the user who started it."""

    def __init__(self, broker: Broker, resource: str) -> None:
        self._broker, self._resource = broker, resource
        self._turns = TurnTokenVerifier(broker, AUDIENCE, resource)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the holder of a token or key; None for all others. Raises a store code."""
        if (found := await self._turns.verify_token(token)) is not None:
            return found
        try:
            key = await self._broker.api_keys.check(token)
        except BrokerError as error:
            if error.code is Code.UNAUTHENTICATED:
                return None
            raise
        if "runtime" not in key.roles:
            return None
        return AccessToken(token=token, client_id=key.id, scopes=[], resource=self._resource)


async def serve(config: Path, subject: str, http: tuple[str, int] | None) -> None:
    """Serve the tools until stdin ends or a signal comes, and the broker's pages beside them."""
    if http is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # at once, as SIGTERM: a read of stdin cannot be interrupted
    async with open_broker(config) as broker:
        if "mcp" not in broker.bundle.rooms:
            raise BrokerError(Code.REQUEST_INVALID, note="write `rooms: [mcp]` into the Broker resource")
        gateway, pages = McpGateway(broker, subject), _server(broker.doors.pages)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_serve_pages, broker, pages)
            await (_with_stdio(gateway) if http is None else _with_http(broker, gateway, http))
            pages.should_exit = True


async def _serve_pages(broker: Broker, pages: uvicorn.Server) -> None:
    """Serve the pages if they are on this machine's loopback, as soon as no other process does."""
    settings, told = broker.bundle.settings, False
    while not pages.should_exit and settings.listen_host in LOOPBACK:
        try:
            door = _listening(settings.listen_host, settings.listen_port)
        except BrokerError:
            if not told:
                sys.stderr.write("Another process serves the pages.\n")
            told = True
            await anyio.sleep(RETRY_SECONDS)
            continue
        with door:
            sys.stderr.write(f"The pages are served at {settings.public_base_url}\n")
            await pages.serve([door])


async def _with_stdio(gateway: McpGateway) -> None:
    changes = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
    options = gateway.server.create_initialization_options(changes)
    async with stdio_server() as (read, write):
        await gateway.server.run(read, write, options)


async def _with_http(broker: Broker, gateway: McpGateway, place: tuple[str, int]) -> None:
    url = f"http://{place[0]}:{place[1]}{PATH}"
    auth = AuthSettings(issuer_url=AnyHttpUrl(broker.bundle.settings.public_base_url), resource_server_url=None)
    server = _server(gateway.server.streamable_http_app(auth=auth, token_verifier=GatewayCallers(broker, url)))

    def stop() -> None:
        server.should_exit = True
        broker.life.stop()  # calls that wait for a consent end

    with _listening(*place) as door:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        sys.stderr.write(f"The tools are served at {url}\n")
        await server.serve([door])


class _Server(uvicorn.Server):
    """A server that leaves the signals to us. uvicorn's own ends the process before the broker is closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: Any) -> _Server:
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    return _Server(uvicorn.Config(app, timeout_graceful_shutdown=GRACE_SECONDS, **quiet))


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `requestInvalid`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = errno.errorcode.get(error.errno or 0, "")
    raise BrokerError(Code.REQUEST_INVALID, note=f"cannot listen on port {port}: {why}")
