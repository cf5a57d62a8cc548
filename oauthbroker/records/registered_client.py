"""RegisteredClient: the broker's client at the authorization server of an app's MCP server."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from oauthbroker.core.clock import has_passed
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, AuthMethod, Client
from oauthbroker.records import codec
from oauthbroker.records.codec import APART, OPTIONAL

SIGNS: AuthMethod = "private_key_jwt"
GOOD: Final = timedelta(days=1)  # that what a server said is taken for true


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredClient:
    """One app's issuer and client. It is of no use for another server, issuer or callback.

    `client_id` is empty for an app that names its own. With `private_key_jwt` the keys are the app's. `ends_at` is the
    end of the secret, `looked_at` when the server was asked for its issuer, `scopes` those that it was registered for.
    `first_scopes` are those that the server asks for first, as far as they are the app's; empty for an unknown wish.
    `replaced_at`: it took the place of one that the server had forgotten. `refused_at`: the server refused it, and a
    new one, too."""

    app: str = field(metadata=APART)
    url: str
    issuer: str
    redirect_uri: str
    looked_at: datetime
    client_id: str = ""
    client_secret: Secret | None = None
    auth_method: AuthMethod = "none"
    ends_at: datetime | None = None
    scopes: tuple[str, ...] | None = None
    first_scopes: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    replaced_at: datetime | None = field(default=None, metadata=OPTIONAL)
    refused_at: datetime | None = field(default=None, metadata=OPTIONAL)

    @property
    def is_registered(self) -> bool:
        """Tell whether we registered the client, so that we may replace it."""
        return self.scopes is not None and bool(self.client_id)

    @property
    def locator(self) -> str:
        return self.app

    def __repr__(self) -> str:
        return f"RegisteredClient({self.app})"

    def fits(self, app: App, now: datetime) -> bool:
        """Tell whether it is for this app as it is configured now, and has not ended."""
        if app.mcp is None or (self.app, self.url, self.redirect_uri) != (app.name, app.mcp.url, app.redirect.uri):
            return False
        if self.scopes is not None and not app.scope_set.issubset(self.scopes):
            return False
        if not app.mcp.has_client and (app.client.auth_method == SIGNS) != (self.auth_method == SIGNS):
            return False
        is_theirs = app.mcp.issuer in {"", self.issuer} and bool(self.client_id) != app.mcp.has_client
        return is_theirs and (self.ends_at is None or not has_passed(self.ends_at, self.looked_at, now))

    def is_to_check(self, now: datetime) -> bool:
        """Tell whether the server is asked before the next link: the last time is a day ago, or a link led nowhere."""
        return not timedelta(0) <= now - self.looked_at < GOOD

    def complete(self, app: App) -> App:
        """Return the app with its issuer, and with the client there."""
        client = Client(self.client_id, self.client_secret, self.auth_method) if self.client_id else app.client
        if self.auth_method == SIGNS:
            client = replace(app.client, client_id=self.client_id)
        return app.learnt(self.issuer, client)

    def to_plaintext(self) -> bytes:
        return codec.encode("RegisteredClient", {"metadata": {"name": self.app}, "spec": codec.members(self)})

    @classmethod
    def from_plaintext(cls, body: bytes) -> RegisteredClient:
        data = codec.decode("RegisteredClient", body)
        return codec.made(cls, data["spec"], app=data["metadata"]["name"])
