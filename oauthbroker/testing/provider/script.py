"""The script: each endpoint's misbehaviour, once, several times or forever, for all clients or for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.testing.provider.endpoint_script import FOREVER, EndpointScript, Times, Turns
from oauthbroker.testing.provider.faults import Step
from oauthbroker.testing.provider.http import Answer
from oauthbroker.testing.provider.known_names import known

__all__ = ["FOREVER", "AuthorizeScript", "Chain", "EndpointScript", "Script", "Scripts", "TokenScript"]

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_OF_GRANT_TYPE = {"refresh_token": "refresh", DEVICE_GRANT: "poll"}


Claims = dict[str, Any]


@dataclass(frozen=True, slots=True)
class IdTokenChange:
    """The change to the next ID token.

    `header` and `claims` are merged over the honest ones (None removes a member; `claims` may be a function instead).
    `key` is "strange" (an unpublished key), "secret" (the client secret as an HMAC key), "public" (the PEM of the
    public key as an HMAC key), "cut" (no signature), "flipped" (one bit wrong) or "" (the honest key). The algorithm is
    the one in the final header.
    """

    header: Mapping[str, Any]
    claims: Mapping[str, Any] | Callable[[Claims], Claims]
    key: str = ""


class TokenScript(EndpointScript):
    """The token endpoint's script, with its ID tokens."""

    def __init__(self) -> None:
        super().__init__()
        self._id_tokens: Turns[IdTokenChange] = Turns()

    def reset(self) -> None:
        super().reset()
        self._id_tokens.clear()

    def alter_id_token(
        self,
        *,
        header: Mapping[str, Any] | None = None,
        claims: Mapping[str, Any] | Callable[[Claims], Claims] | None = None,
        key: str = "",
        times: Times = 1,
    ) -> None:
        """Forge the next ID token; see `IdTokenChange` for the values."""
        self._id_tokens.add(IdTokenChange(header or {}, {} if claims is None else claims, key), times)

    def next_id_token(self) -> IdTokenChange | None:
        """Return the forgery of the next ID token. Called by the provider."""
        return self._id_tokens.first()


class AuthorizeScript(EndpointScript):
    """The authorization endpoint: `alter` changes the parameters of the redirect back to the client."""

    def error(self, error: str = "access_denied", *, times: Times = 1, **more: str) -> None:
        """Redirect back with an error instead of a code; `more` may hold error_description and the like."""

        def refuse(fields: dict[str, Any]) -> dict[str, Any]:
            return {**{k: v for k, v in fields.items() if k != "code"}, "error": error, **more}

        self.alter(refuse, times=times)


class Scripts:
    """One script for each endpoint, and for the token endpoint's refresh requests and device polls."""

    def __init__(self) -> None:
        self.authorize = AuthorizeScript()
        self.token = TokenScript()
        self.refresh = TokenScript()
        self.poll = TokenScript()
        self.exchange = EndpointScript()
        self.exchange_again = EndpointScript()
        self.device = EndpointScript()
        self.par = EndpointScript()
        self.register = EndpointScript()
        self.userinfo = EndpointScript()
        self.jwks = EndpointScript()
        self.discovery = EndpointScript()
        self.server = EndpointScript()
        self.revoke = EndpointScript()
        self.resource = EndpointScript()

    def reset(self) -> None:
        for script in vars(self).values():
            if isinstance(script, EndpointScript):
                script.reset()

    def of(self, endpoint: str, grant_type: str = "") -> list[EndpointScript]:
        """Return the scripts for a request, the most specific first."""
        narrow = _OF_GRANT_TYPE.get(grant_type, "") if endpoint == "token" else ""
        found = [getattr(self, name) for name in (narrow, endpoint) if name]
        assert all(isinstance(script, EndpointScript) for script in found)
        return found


class Script(Scripts):
    """The scripts for all clients: `idp.script.token.answer(500)`; `idp.script.client("bot").token.hang()` is for one.

    A misbehaviour for one client goes before those for all, one of `refresh` or `poll` before those of `token`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clients: dict[str, Scripts] = {}
        self.clients: Mapping[str, object] = {}

    def client(self, client_id: str) -> Scripts:
        """Return the scripts for one client. Raises ValueError with the nearest id for an unknown one."""
        known("client", client_id, self.clients)
        return self._clients.setdefault(client_id, Scripts())

    def reset(self) -> None:
        super().reset()
        for scripts in self._clients.values():
            scripts.reset()

    def chain(self, endpoint: str, client_id: str, grant_type: str = "") -> Chain:
        """Return the scripts for one request. Called by the provider."""
        own = self._clients[client_id].of(endpoint, grant_type) if client_id in self._clients else []
        return Chain([*own, *self.of(endpoint, grant_type)])


class Chain:
    """Several scripts for one request, the most specific first."""

    def __init__(self, scripts: Sequence[EndpointScript]) -> None:
        self._scripts = scripts

    def next_step(self) -> Step | None:
        """Return the first misbehaviour of the first script that has one."""
        return next((step for script in self._scripts if (step := script.next_step())), None)

    def next_id_token(self) -> IdTokenChange | None:
        tokens = (script for script in self._scripts if isinstance(script, TokenScript))
        return next((change for script in tokens if (change := script.next_id_token())), None)

    def changed(self, answer: Answer) -> Answer:
        """Return an honest answer after all alterations; the most specific comes last."""
        for script in reversed(self._scripts):
            answer = script.changed(answer)
        return answer
