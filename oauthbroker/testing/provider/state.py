"""What every endpoint of the provider may know."""

from __future__ import annotations

from dataclasses import dataclass, field

from oauthbroker.clock import Clock
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider.keys import SigningKeys
from oauthbroker.testing.provider.ledger import Ledger, RefusedError
from oauthbroker.testing.provider.nouns import Account, Client
from oauthbroker.testing.provider.script import Script


@dataclass(frozen=True, slots=True)
class Pending:
    """An authorization request that a person is deciding about."""

    client: Client
    redirect_uri: str
    state: str
    scopes: tuple[str, ...]
    challenge: str
    nonce: str
    user_token: bool
    login_again: bool


@dataclass(slots=True)
class State:
    """The provider's world. One server loop touches it, so nothing here needs a lock."""

    clock: Clock
    canaries: Canaries
    ledger: Ledger
    base_url: str
    script: Script = field(default_factory=Script)
    keys: SigningKeys = field(default_factory=SigningKeys)
    accounts: dict[str, Account] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    logins: dict[str, str] = field(default_factory=dict)
    assertions_seen: set[str] = field(default_factory=set)
    auto_consent: str | None = None
    resource_scope: str | None = None

    def client(self, client_id: str) -> Client:
        """A registered client. Raises RefusedError."""
        if client_id not in self.clients:
            raise RefusedError("invalid_client", "unknown client", 401)
        return self.clients[client_id]
