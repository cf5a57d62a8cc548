"""The state shared by the provider's endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider.history import DeviceStory, Poll, Refusal, Revocation, TokenResponse
from oauthbroker.testing.provider.keys import SigningKeys
from oauthbroker.testing.provider.script import Script
from oauthbroker.testing.provider.token_table import RefusedError, TokenTable
from oauthbroker.testing.provider.types import Account, Client, SeenRequest

Par = Literal["off", "offered", "required"]
"""Whether authorization requests can, or must, be pushed (RFC 9126)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A pending decision of the user: an authorization request, or a device's."""

    client: Client
    scopes: tuple[str, ...]
    login_again: bool
    redirect_uri: str = ""
    state: str = ""
    challenge: str = ""
    nonce: str = ""
    user_token: bool = False
    user_scopes: tuple[str, ...] = ()  # slack: of a user's token beside the bot's
    resources: tuple[str, ...] = ()
    device: Device | None = None


@dataclass(slots=True, kw_only=True)
class Device:
    """A device that waits for a user (RFC 8628). `decision` is the account that agreed, or False for a denial."""

    client: Client
    code: str = field(repr=False)
    user_code: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    until: datetime
    interval: int
    decision: Account | Literal[False] | None = None
    redeemed: bool = False
    polls: list[Poll] = field(default_factory=list)

    def story(self, now: datetime) -> DeviceStory:
        status: Literal["pending", "approved", "denied", "redeemed", "expired"] = "pending"
        if self.redeemed:
            status = "redeemed"
        elif self.until <= now:
            status = "expired"
        elif self.decision is not None:
            status = "approved" if self.decision else "denied"
        return DeviceStory(
            client_id=self.client.client_id,
            user_code=self.user_code,
            scopes=self.scopes,
            resources=self.resources,
            status=status,
            interval=self.interval,
            polls=tuple(self.polls),
        )


@dataclass(frozen=True, slots=True)
class Pushed:
    """Pushed authorization parameters (RFC 9126), valid for one visit."""

    client_id: str
    fields: tuple[tuple[str, str], ...]
    until: datetime


@dataclass(slots=True, kw_only=True)
class State:
    """The provider's state. Only one server loop changes it, so it needs no lock."""

    clock: Clock
    canaries: Canaries
    token_table: TokenTable
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
    par: Par = "off"
    takes_clients: bool = False
    secrets_end: int = 0
    devices: dict[str, Device] = field(default_factory=dict)  # by user code
    pushed: dict[str, Pushed] = field(default_factory=dict)  # by request_uri
    requests: list[SeenRequest] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    token_responses: list[TokenResponse] = field(default_factory=list)
    revocations: list[Revocation] = field(default_factory=list)

    def device(self, typed: str) -> Device:
        """Find the device by its code as typed: in any case, with or without the dash. Raises KeyError."""
        wanted = _letters(typed)
        found = [one for code, one in list(self.devices.items()) if _letters(code) == wanted]
        if not found:
            raise KeyError("no such user code")
        return found[0]

    def client(self, client_id: str) -> Client:
        """Return a registered client. Raises RefusedError."""
        if client_id not in self.clients:
            raise RefusedError("invalid_client", "unknown client", 401)
        return self.clients[client_id]


def _letters(text: str) -> str:
    return "".join(letter for letter in text.upper() if letter.isalnum())
