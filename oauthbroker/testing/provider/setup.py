"""The writable half of an IdentityProvider: accounts, clients, misbehaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oauthbroker.core.secret import Secret
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider import device
from oauthbroker.testing.provider.keys import SigningKeys
from oauthbroker.testing.provider.script import Script
from oauthbroker.testing.provider.state import Par, State
from oauthbroker.testing.provider.types import Account, Client


class ProviderSetup:
    """The settings of a provider that a test can change."""

    _state: State
    canaries: Canaries

    def add_account(self, account: Account) -> Account:
        """Add or replace an account, identified by `login`."""
        self._state.accounts[account.login] = account
        return account

    def account(self, login: str) -> Account:
        """Raises KeyError."""
        return self._state.accounts[login]

    @property
    def logins(self) -> list[str]:
        """Return the logins of all accounts."""
        return list(self._state.accounts)

    def register(self, client: Client) -> Client:
        """Register or replace a client, and return it with its secret. Existing tokens stay."""
        takes_secret = client.auth_method in {"client_secret_basic", "client_secret_post"}
        if takes_secret and client.client_secret is None:
            client = replace(client, client_secret=self.canaries.mint("client secret"))
        for secret in (client.client_secret, *client.more_secrets):
            if secret is not None:
                self.canaries.add(secret, "client secret")
        self._state.clients[client.client_id] = client
        return client

    def change(self, client_id: str, **changes: Any) -> Client:
        """Replace fields of a registered client: `idp.change("bot", redirect_uris=(...,))`."""
        return self.register(replace(self._state.clients[client_id], **changes))

    def client(self, client_id: str) -> Client:
        """Raises KeyError."""
        return self._state.clients[client_id]

    def rotate_secret(self, client_id: str, *, keep: bool = True) -> Secret:
        """Set a new secret for a client and return it; earlier ones stay valid (`keep`), or end."""
        client = self._state.clients[client_id]
        fresh = self.canaries.mint("client secret")
        old = (client.client_secret,) if client.client_secret else ()
        self.change(client_id, client_secret=fresh, more_secrets=(*old, *client.more_secrets) if keep else ())
        return fresh

    @property
    def script(self) -> Script:
        """Return the script of each endpoint: `idp.script.token.answer(status=500)`."""
        return self._state.script

    @property
    def keys(self) -> SigningKeys:
        """Return its signing keys; `idp.keys.rotate()`."""
        return self._state.keys

    @property
    def auto_consent(self) -> str | None:
        """Return the login of the account that agrees without being asked, or None."""
        return self._state.auto_consent

    @auto_consent.setter
    def auto_consent(self, login: str | None) -> None:
        self._state.auto_consent = login

    @property
    def resource_scope(self) -> str | None:
        """Return the scope that `/api/...` requires, or None."""
        return self._state.resource_scope

    @resource_scope.setter
    def resource_scope(self, scope: str | None) -> None:
        self._state.resource_scope = scope

    @property
    def par(self) -> Par:
        """Tell whether authorization requests can be pushed: `off`, `offered`, or `required` (RFC 9126).

        The metadata document has it unless it is `off`.
        """
        return self._state.par

    @par.setter
    def par(self, word: Par) -> None:
        self._state.par = word

    @property
    def takes_clients(self) -> bool:
        """Tell whether clients may register themselves (RFC 7591). The metadata document says so."""
        return self._state.takes_clients

    @takes_clients.setter
    def takes_clients(self, takes: bool) -> None:
        self._state.takes_clients = takes

    @property
    def secrets_end(self) -> int:
        """Return when the secrets of such clients end, in seconds since 1970; 0 for never."""
        return self._state.secrets_end

    @secrets_end.setter
    def secrets_end(self, seconds: int) -> None:
        self._state.secrets_end = seconds

    def expire(self, client_id: str) -> None:
        """Expire every access token of a client now; refresh tokens stay."""
        self._state.token_table.expire_access(client_id)

    def revoke_all(self, client_id: str, login: str | None = None) -> None:
        """Revoke a client's grants (of one user, or of all), as users do in their settings."""
        self._state.token_table.revoke_all(client_id, self._state.accounts[login] if login else None, "person")

    def device_approve(self, user_code: str, login: str = "alice", scopes: Sequence[str] | None = None) -> None:
        """Enter the code as a user and agree (to `scopes`, or to all). Raises KeyError for an unknown code."""
        found = self._state.device(user_code)
        device.decide(found, self._state.accounts[login], found.scopes if scopes is None else tuple(scopes))

    def device_deny(self, user_code: str, login: str = "alice") -> None:
        """Enter the code as a user and deny. Raises KeyError for an unknown code."""
        device.decide(self._state.device(user_code), self._state.accounts[login], None)
