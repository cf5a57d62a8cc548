"""An MCP server below a framework's own MCP client: the requests of a turn carry the token of its user."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import httpx2

from oauthbroker import AuthorizationRequired, AuthorizationRequiredError, Broker, BrokerError, Turn
from oauthbroker.integrations.consent import Missing, app_consent, is_resumed
from oauthbroker.mcp import McpTransport
from oauthbroker.plugins import Bounded

MOST_ASKED: Final = 1024
NO_ARGUMENTS: Final[dict[str, Any]] = {"type": "object", "properties": {}}
HttpClients = Callable[..., httpx2.AsyncClient]  # (headers=None, timeout=None, auth=None), as MCP's SDK calls it


class OAuthMcp:
    """One MCP server for all users. `name` is the resource `Tool/<name>`, which declares the server's app. `account` is
    one that turns list for it; without it, theirs alone or by default.

    Its tools take consent as function tools do. While a turn's user has not connected, the server is listed with one
    tool, `<name>_oauthbroker_connect`: a call of it pauses the run, and afterwards the server's own tools are listed.
    """

    def __init__(self, broker: Broker, name: str, *, account: str | None = None, private_links: bool = False) -> None:
        self.account, self.name, self.tool, self.connect = account, name, f"Tool/{name}", f"{name}_oauthbroker_connect"
        self.about = f"Connects the user's account for {name}, whose tools are listed after the user has agreed."
        self.connected = f"{name} is connected. Its tools are listed now."
        self._broker, self._private_links = broker, private_links
        self._asked = Bounded[tuple[str, str], AuthorizationRequired](MOST_ASKED)

    @property
    def app(self) -> str:
        """The app of the server, with the account. Raises ValueError if the configuration declares none, or several."""
        declared = self._broker.bundle.tools.get(self.tool, ())
        if len(declared) != 1:
            raise ValueError(f"{self.tool} declares no app, or several: add the one app of the MCP server")
        return declared[0].app if self.account is None else f"{declared[0].app}@{self.account}"

    async def missing(self, turn: Turn) -> Missing:
        """Return the consent that a call of a turn lacks, a sentence for the model if it cannot run, or None."""
        return await self._consent(turn) or await self._still_asked(turn)

    async def _consent(self, turn: Turn) -> Missing:
        """Return the consent that a session lacks. It begins with the scopes that the server asks for."""
        oauth = self._broker.oauth(turn, self.tool, private_links=self._private_links)
        try:
            oauth.connection(self.app)  # a server's session cannot name another account
            return await app_consent(oauth, self.app, await oauth.first_scopes(self.app))
        except BrokerError as error:
            return str(error)

    async def _still_asked(self, turn: Turn) -> AuthorizationRequired | None:
        """Return what the server has asked for in the middle of a call, such as larger scopes."""
        for key, asked in self._of(turn).items():
            if (await self._broker.wait(asked.auth_session_id, timeout=0)).status == "pending":
                return asked
            self._asked.pop(key)
        return None

    async def listed(self, turn: Turn, tools: Callable[[], Awaitable[Sequence[Any]]], ours: Any) -> list[Any]:
        """Return what `tools` lists. Instead of it, or in a run that has waited for it beside it, our own tool."""
        if await self._consent(turn) is not None:
            return [ours]
        try:
            found = await tools()
        except Exception:
            if await self.missing(turn) is None:
                raise
            return [ours]  # the server has refused the token
        return [*found, ours] if is_resumed(self._broker.oauth(turn).connection(self.app)) else list(found)

    def http_clients(self, turn: Turn) -> HttpClients:
        """Return a factory of HTTP clients for the sessions of one turn with the server."""

        def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:  # noqa: ARG001
            return httpx2.AsyncClient(transport=self.transport(turn), headers=headers, timeout=timeout)

        return client

    def transport(self, turn: Turn) -> McpTransport:
        """Return the transport for one session of a turn. A request that lacks consent fails at once."""

        async def keep(asked: AuthorizationRequired) -> None:
            self._asked.keep((key_of(turn), asked.auth_session_id), asked)

        more: Any = {"private_links": self._private_links, "show": keep, "patience_seconds": 0}
        return McpTransport(self._broker, turn, self.app, tool=self.tool, **more)

    def lacks(self, turn: Turn, text: str) -> AuthorizationRequiredError | None:
        """Return the want of consent with which a call of a turn failed, by the text that the model would get."""
        found = map(AuthorizationRequiredError, self._of(turn).values())
        return next((each for each in found if each.for_model in text), None)

    def _of(self, turn: Turn) -> dict[tuple[str, str], AuthorizationRequired]:
        return {key: asked for key, asked in self._asked.items() if key[0] == key_of(turn)}


def key_of(turn: Turn) -> str:
    """Return a turn as text: its conversation and its user."""
    return json.dumps(turn.resume_target.to_json(), sort_keys=True)
