"""The writable half of an IdentityProvider: accounts, clients, misbehaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from oauthbroker.core.secret import Secret
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider import device
from oauthbroker.testing.provider.keys import SigningKeys
from oauthbroker.testing.provider.known_names import known
from oauthbroker.testing.provider.script import Script
from oauthbroker.testing.provider.state import Par, State
from oauthbroker.testing.provider.types import Account, Client

T = TypeVar("T")


class Member(Generic[T]):
    """A member of the provider's state, under the same name."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, provider: ProviderSetup, _owner: type) -> T:
        return getattr(provider._state, self._name)  # type: ignore[no-any-return]

    def __set__(self, provider: ProviderSetup, value: T) -> None:
        setattr(provider._state, self._name, value)


class ProviderSetup:
    _state: State
    canaries: Canaries

    def add_account(self, account: Account) -> Account:
        """Add or replace an account, identified by `login`."""
        self._state.accounts[account.login] = account
        return account

    def account(self, login: str) -> Account:
        """Return an account. Raises ValueError with the nearest login for an unknown one, as every method here."""
        return known("account", login, self._state.accounts)

    @property
    def logins(self) -> list[str]:
        """Return the logins of all accounts."""
        return list(self._state.accounts)

    def register(self, client: Client) -> Client:
        """Register or replace a client, and return it with its secret. Existing tokens stay."""
        takes_secret = client.auth_method in {"client_secret_basic", "client_secret_post"}
        if takes_secret and client.client_secret is None:
            client = replace(client, client_secret=self.canaries.mint("client secret"))
        for secret in client.secrets:
            self.canaries.add(secret, "client secret")
        self._state.clients[client.client_id] = client
        return client

    def change(self, client_id: str, **changes: Any) -> Client:
        """Replace fields of a registered client: `idp.change("bot", redirect_uris=(...,))`."""
        return self.register(replace(self.client(client_id), **changes))

    def client(self, client_id: str) -> Client:
        """Return a client. Raises ValueError with the nearest id for an unknown one, as every method here."""
        return known("client", client_id, self._state.clients)

    def rotate_secret(self, client_id: str, *, keep: bool = True) -> Secret:
        """Set a new secret for a client and return it; earlier ones stay valid (`keep`), or end."""
        client = self.client(client_id)
        fresh = self.canaries.mint("client secret")
        self.change(client_id, client_secret=fresh, more_secrets=client.secrets if keep else ())
        return fresh

    script = Member[Script]()
    """The script of each endpoint: `idp.script.token.answer(status=500)`."""

    keys = Member[SigningKeys]()
    """Its signing keys: `idp.keys.rotate()`."""

    auto_consent = Member[str | None]()
    """The login of the account that agrees without being asked."""

    resource_scope = Member[str | None]()
    """The scope that `/api/...` requires."""

    par = Member[Par]()
    """Whether authorization requests can be pushed: `off`, `offered`, or `required` (RFC 9126). The metadata document
    has it unless it is `off`."""

    takes_clients = Member[bool]()
    """Whether clients may register themselves (RFC 7591). The metadata document says so."""

    secrets_end = Member[int]()
    """When the secrets of such clients end, in seconds since 1970; 0 for never."""

    def expire(self, client_id: str) -> None:
        """Expire every access token of a client now; refresh tokens stay."""
        self._state.token_table.expire_access(self.client(client_id).client_id)

    def revoke_all(self, client_id: str, login: str | None = None) -> None:
        """Revoke a client's grants (of one user, or of all), as users do in their settings."""
        account = self.account(login) if login else None
        self._state.token_table.revoke_all(self.client(client_id).client_id, account, "person")

    def device_approve(self, user_code: str, login: str = "alice", scopes: Sequence[str] | None = None) -> None:
        """Enter the code as a user and agree (to `scopes`, or to all). Raises KeyError for an unknown code."""
        found = self._state.device(user_code)
        device.decide(found, self.account(login), found.scopes if scopes is None else tuple(scopes))

    def device_deny(self, user_code: str, login: str = "alice") -> None:
        """Enter the code as a user and deny. Raises KeyError for an unknown code."""
        device.decide(self._state.device(user_code), self.account(login), None)
