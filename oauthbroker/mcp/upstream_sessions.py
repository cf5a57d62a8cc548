"""Sessions of the gateway with its servers. Each request of a caller has one of its own, within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from oauthbroker import AuthorizationRequired, AuthorizationRequiredError, Broker
from oauthbroker.mcp.client_transport import McpTransport
from oauthbroker.mcp.consent import STATELESS
from oauthbroker.mcp.server import ToolCaller
from oauthbroker.mcp.spec import McpServerSpec
from oauthbroker.mcp.upstream_answers import checked
from oauthbroker.plugins import Allowance, foreign_text

Work = Callable[[Client], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one session with a server may take in all: time, and bytes and values of answers."""

    seconds: float
    most_bytes: int
    most_values: int


LISTING: Final = Bounds(10, 4 * 1024 * 1024, 40_000)
CALLING: Final = Bounds(300, 16 * 1024 * 1024, 20_000)


class UpstreamSessions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._modes: dict[str, str] = {}  # the revision of a server's protocol

    async def within(self, caller: ToolCaller, server: tuple[str, McpServerSpec], bounds: Bounds, work: Work) -> Any:
        """Do something in a session with a server. Raises AuthorizationRequiredError and UpstreamFailed."""
        name, spec = server
        transport = _Transport(self._broker, caller, spec, bounds=bounds)
        try:
            with anyio.fail_after(bounds.seconds):
                async with httpx2.AsyncClient(transport=transport, trust_env=False) as http:
                    streams = checked(streamable_http_client(self._url_of(spec), http_client=http))
                    async with Client(streams, mode=self._modes.get(name, "auto")) as client:
                        result = await work(client)
                        self._modes[name] = STATELESS if (client.protocol_version or "") >= STATELESS else "legacy"
        except Exception as error:  # noqa: BLE001  (the SDK's groups, of its own errors and those of a server)
            wrong: Exception | None = error
        else:
            wrong = None
        if transport.needed is not None:
            raise AuthorizationRequiredError(transport.needed)
        if wrong is not None:
            self._modes.pop(name, None)
            raise UpstreamFailed(name, wrong, transport.failure)
        return result

    def _url_of(self, spec: McpServerSpec) -> str:
        app = self._broker.bundle.apps[str(spec.oauth_app_ref.name)]
        return spec.url or (app.mcp.url if app.mcp is not None else "")


class UpstreamFailed(Exception):
    """A server that cannot be used. Its text is for the model, `why` for the log. `ours` is the broker's own sentence,
    where the broker failed the request."""

    def __init__(self, name: str, cause: Exception, ours: str = "") -> None:
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        self.why = ours or type(cause).__name__
        said = foreign_text(cause.error.message, "the server's") if isinstance(cause, MCPError) else ""
        super().__init__(f"The MCP server {name} failed: {ours or f'{self.why}. {said}'}".rstrip())


class _Transport(McpTransport):
    """The transport of one request of a caller. `needed` is the consent that the gateway then asks for itself. Its
    answers share one allowance."""

    def __init__(self, broker: Broker, caller: ToolCaller, spec: McpServerSpec, *, bounds: Bounds) -> None:
        super().__init__(broker, caller.turn, spec.app, scopes=spec.scopes)
        self._oauth, self._client = caller.oauth, caller.oauth.client(spec.app, self._scopes)
        self.needed: AuthorizationRequired | None = None
        self._allowed = Allowance(bounds.most_bytes, bounds.most_values)

    async def _answered(self, request: httpx2.Request, call: dict[str, Any]) -> httpx2.Response:
        try:
            return await self._with_scopes(request, call)
        except AuthorizationRequiredError as error:
            self.needed = error.result
            raise
