"""Accept turn tokens of the broker at an MCP server."""

from __future__ import annotations

from typing import Any

from mcp.server.auth.provider import AccessToken
from pydantic import Field

from oauthbroker import Broker, BrokerError, Code


class TurnAccessToken(AccessToken):
    """A verified turn token. `token_holder` is its holder, for `Broker.oauth_for`."""

    token_holder: Any = Field(exclude=True, repr=False)


class TurnTokenVerifier:
    """The `TokenVerifier` of an MCP server whose callers hold turn tokens.

    `audience` is the name under which turns are begun for this server, such as `Connection/calendar`: a token for
    another tool, and a turn's own token, are refused. `resource` is the server's URL, as in its AuthSettings.
    """

    def __init__(self, broker: Broker, audience: str, resource: str) -> None:
        self._broker, self._audience, self._resource = broker, audience, resource

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token's holder. None for all but a living turn's token for this server. Raises a store code, for
        which the host should call again."""
        try:
            token_holder = await self._broker.turns.admit(token)
        except BrokerError as error:
            if error.code in {Code.UNAUTHENTICATED, Code.TURN_ENDED}:
                return None
            raise
        if token_holder.tool != self._audience:
            return None
        return TurnAccessToken(
            token=token,
            client_id=token_holder.turn.agent_name,
            scopes=[],
            resource=self._resource,
            subject=token_holder.turn.auth.subjects.get("user") if token_holder.turn.auth is not None else None,
            claims={"iss": self._broker.bundle.settings.public_base_url},
            token_holder=token_holder,
        )
