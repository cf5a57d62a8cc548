"""The read-only half of an IdentityProvider: its requests, its answers, its living tokens."""

from __future__ import annotations

from oauthbroker.core.secret import Secret
from oauthbroker.testing.provider.faults import wait_until
from oauthbroker.testing.provider.history import DeviceStory, Family, Refusal, Revocation, TokenResponse, family_of
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import Token
from oauthbroker.testing.provider.types import SeenRequest


class Observations:
    """Counters and snapshots; reading changes nothing."""

    _state: State

    @property
    def requests(self) -> list[SeenRequest]:
        """Return every request, in order."""
        return self._state.requests

    def count(self, name: str, client_id: str = "") -> int:
        """Count the requests to an endpoint ("authorize", "token", "userinfo", "jwks", "discovery", "revoke", "par",
        "device", "verification", "resource", "login", "consent", "unknown"), or those of a grant type
        ("authorization_code", ...); of one client if given."""
        return len(self.seen(name, client_id))

    def seen(self, name: str, client_id: str = "") -> list[SeenRequest]:
        """Return those requests, in order."""
        wanted = (seen for seen in list(self.requests) if name in {seen.endpoint, seen.grant_type})
        return [seen for seen in wanted if client_id in {"", seen.client_id}]

    async def wait_for(self, name: str, count: int = 1, timeout: float = 5.0) -> None:
        """Return once `count(name)` is reached. Raises TimeoutError after `timeout` real seconds."""
        await wait_until(lambda: self.count(name) >= count, timeout)

    def is_alive(self, access_token: str | Secret) -> bool:
        """Tell whether an access token is usable now."""
        return self._state.token_table.living(_text(access_token)) is not None

    def living_tokens(self, client_id: str, login: str | None = None) -> int:
        """Count a client's usable access tokens (of one user if given)."""
        found = (self._state.token_table.living(text) for text in list(self._state.token_table.tokens))
        alive = [token.agreement for token in found if token is not None]
        return sum(a.client_id == client_id and login in {None, a.account.login} for a in alive)

    def families(self, client_id: str = "", login: str = "") -> list[Family]:
        """Return every consent that got a refresh token (of one client, of one user), the oldest first."""
        found = [family_of(agreement) for agreement in list(self._state.token_table.families)]
        return [one for one in found if client_id in {"", one.client_id} and login in {"", one.login}]

    def refusals(self, grant_type: str = "", client_id: str = "") -> list[Refusal]:
        """Return the honest refusals of the token endpoint (of one grant type, to one client), in order."""
        found = list(self._state.refusals)
        return [one for one in found if grant_type in {"", one.grant_type} and client_id in {"", one.client_id}]

    def token_responses(self, client_id: str = "", login: str = "") -> list[TokenResponse]:
        """Return the honest answers of the token endpoint, in order, to replay one or to send it to another request."""
        found = list(self._state.token_responses)
        return [one for one in found if client_id in {"", one.client_id} and login in {"", one.login}]

    @property
    def revocations(self) -> list[Revocation]:
        """Return every accepted revocation, in order."""
        return list(self._state.revocations)

    def device(self, user_code: str) -> DeviceStory:
        """Return the state of a device's code, and its polls with their times. Raises KeyError for an unknown code."""
        return self._state.device(user_code).story(self._state.clock.now())

    @property
    def user_codes(self) -> list[str]:
        """Return every issued user code, in order."""
        return list(self._state.devices)

    def resources_of(self, access_token: str | Secret) -> tuple[str, ...]:
        """Return the resources of an access token (RFC 8707). Raises KeyError for an unknown token."""
        return self._token(access_token).resources

    def generation_of(self, refresh_token: str | Secret) -> int:
        """Return the generation of a refresh token in its family, from 1. Raises KeyError for an unknown token."""
        return self._token(refresh_token).generation

    def _token(self, token: str | Secret) -> Token:
        found = self._state.token_table.tokens.get(_text(token))
        if found is None:
            raise KeyError("no such token")
        return found


def _text(token: str | Secret) -> str:
    return token.reveal() if isinstance(token, Secret) else token
