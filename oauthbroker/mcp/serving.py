"""Run the gateway as a process: for one host over stdio, or over HTTP on this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import partial
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
from oauthbroker.mcp.consent import PENDING
from oauthbroker.mcp.gateway import AGENT, McpGateway
from oauthbroker.mcp.rpc_messages import MOST_VALUES
from oauthbroker.mcp.spec import LOOPBACK
from oauthbroker.mcp.turn_tokens import TurnTokenVerifier
from oauthbroker.plugins import BoundedRequests

AUDIENCE: Final = "Connection/mcp-gateway"  # the tool for which turns are begun whose tokens the gateway accepts
PATH: Final = "/mcp"
ENDS: Final = (signal.SIGINT, signal.SIGTERM)  # by which hosts end a gateway beside them
RETRY_SECONDS: Final = 1.0
TRIES: Final = 3  # to tell a broker that has the address of the pages from a foreign program
NO_BROKER: Final = (
    "Links lead there, but no broker of this store answers. Stop the other program, or change spec.listen and "
    "spec.publicBaseUrl of the Broker"
)
LAST_PAGE_SECONDS: Final = 5.0  # in which the browser fetches the page after the consent
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
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # at once: a read of stdin cannot be interrupted
    async with open_broker(config) as broker:
        if "mcp" not in broker.bundle.plugins:
            note = "the plug-in mcp is not in use. Write `plugins: [mcp]` into the Broker resource"
            raise BrokerError(Code.REQUEST_INVALID, note=note)
        gateway, pages = McpGateway(broker, subject), _server(broker.asgi.pages)
        async with AsyncExitStack() as stack:
            tools = stack.enter_context(_listen_for_tools(broker, *http)) if http else None
            listener = await _first_listener(broker)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(_serve_pages, broker, pages, listener)
            if http is None or tools is None:
                leave = partial(_leave, broker, pages, config)
                for number in ENDS:
                    asyncio.get_running_loop().add_signal_handler(number, tasks.start_soon, leave, number)
                await _with_stdio(gateway)
                await leave()
            else:
                await _with_http(broker, gateway, tools, http[0])
            pages.should_exit = True


async def serve_waiting(config: Path, listener: int) -> None:
    """Serve the pages on a listening socket that a gateway left, until no link of a gateway waits for its user."""
    for number in ENDS:
        signal.signal(number, signal.SIG_DFL)  # which the gateway ignored when it started us
    async with open_broker(config) as broker, anyio.create_task_group() as tasks:
        pages = _server(broker.asgi.pages)
        tasks.start_soon(pages.serve, [socket.socket(fileno=listener)])
        while (first := await _waiting(broker)) is not None:
            await broker.wait(first)
        await anyio.sleep(LAST_PAGE_SECONDS)
        pages.should_exit = True


async def _waiting(broker: Broker) -> str | None:
    """Return an auth session of a gateway that waits for its user."""
    for each in await broker.sessions.list(status=PENDING):
        if each.resume.agent_name == AGENT and (await broker.wait(each.id, 0)).status == PENDING:
            return each.id
    return None


async def _leave(broker: Broker, pages: uvicorn.Server, config: Path, number: int | None = None) -> None:
    """Hand the pages over, then end as the signal says: at once, since a read of stdin cannot be interrupted. The next
    signal waits for that: some hosts send it after a tenth of a second."""
    for each in ENDS:
        asyncio.get_running_loop().remove_signal_handler(each)
        signal.signal(each, signal.SIG_IGN)
    with anyio.move_on_after(GRACE_SECONDS), suppress(BrokerError, OSError):
        await _hand_over(broker, pages, config)
    for each in ENDS:
        signal.signal(each, signal.SIG_DFL)
    if number is not None:
        os.kill(os.getpid(), number)


async def _hand_over(broker: Broker, pages: uvicorn.Server, config: Path) -> None:
    """Leave the pages to a process of their own while a link waits: a host that makes one call and ends, and the
    gateway with it, would take the link along. The host ends our process group, so the other gets a new one."""
    if not pages.started or await _waiting(broker) is None:
        return
    listener = pages.servers[0].sockets[0].fileno()
    words = ["mcp", "pages", "--config", str(config), "--listener", str(listener)]
    await asyncio.create_subprocess_exec(
        sys.executable, "-m", "oauthbroker", *words, pass_fds=[listener], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


async def _first_listener(broker: Broker) -> socket.socket | None:
    """Return the listener of the pages; None while another broker of this store has the address, and where it is not on
    this machine's loopback. Raises `requestInvalid` if another program has it: it would get users' links."""
    host, port = broker.bundle.settings.listen_host, broker.bundle.settings.listen_port
    for _ in range(TRIES):
        if host not in LOOPBACK:
            return None
        with suppress(BrokerError):
            return _listening(host, port)
        if await broker.serves_at(host, port):
            return None
        await anyio.sleep(RETRY_SECONDS)  # perhaps it is a broker that ends
    return _listening(host, port, NO_BROKER)


async def _serve_pages(broker: Broker, pages: uvicorn.Server, listener: socket.socket | None) -> None:
    """Serve the pages if they are on this machine's loopback, as soon as no other process does."""
    settings = broker.bundle.settings
    if listener is None and settings.listen_host in LOOPBACK:
        sys.stderr.write("Another process serves the pages.\n")
    while listener is None and settings.listen_host in LOOPBACK and not pages.should_exit:
        await anyio.sleep(RETRY_SECONDS)
        with suppress(BrokerError):
            listener = _listening(settings.listen_host, settings.listen_port)
    if listener is not None:
        with listener:
            sys.stderr.write(f"The pages are served at {settings.public_base_url}\n")
            await pages.serve([listener])


async def _with_stdio(gateway: McpGateway) -> None:
    changes = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
    options = gateway.server.create_initialization_options(changes)
    try:
        async with stdio_server() as (read, write):
            await gateway.server.run(read, write, options)
    except* BrokenPipeError:
        pass  # the host has ended and reads no answer


async def _with_http(broker: Broker, gateway: McpGateway, listener: socket.socket, host: str) -> None:
    place = f"[{host}]" if ":" in host else host
    url = f"http://{place}:{listener.getsockname()[1]}{PATH}"
    auth = AuthSettings(issuer_url=AnyHttpUrl(broker.bundle.settings.public_base_url), resource_server_url=None)
    app = gateway.server.streamable_http_app(auth=auth, token_verifier=GatewayCallers(broker, url))
    server = _server(BoundedRequests(app, MOST_VALUES))

    def stop() -> None:
        server.should_exit = True
        broker.life.stop()  # calls that wait for a consent end

    for number in ENDS:
        asyncio.get_running_loop().add_signal_handler(number, stop)
    sys.stderr.write(f"The tools are served at {url}\n")
    await server.serve([listener])


def _server(app: Any) -> uvicorn.Server:
    """Return a server that leaves the signals to us. uvicorn's own ends the process before the broker is closed."""
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=GRACE_SECONDS, **quiet))
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
    return server


def _listen_for_tools(broker: Broker, host: str, port: int) -> socket.socket:
    """Return the listening socket of `--http`. Raises `requestInvalid`."""
    settings = broker.bundle.settings
    if port == settings.listen_port and settings.listen_host in LOOPBACK:
        note = f"port {port} is that of spec.listen, where the pages are served. Choose another port with --http"
        raise BrokerError(Code.REQUEST_INVALID, note=note)
    return _listening(host, port, "Choose another port with --http")


def _listening(host: str, port: int, hint: str = "") -> socket.socket:
    """Return a listening socket. Raises `requestInvalid`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "another process listens there" if taken else errno.errorcode.get(error.errno or 0, "")
    raise BrokerError(Code.REQUEST_INVALID, note=f"cannot listen on {host} port {port}: {why}. {hint}")
