"""A scripted OAuth 2.0 / OpenID Connect provider: a real HTTP server that is strict, counts requests, and can
misbehave."""

from __future__ import annotations

from oauthbroker.testing.provider.provider import IdentityProvider
from oauthbroker.testing.provider.script import FOREVER
from oauthbroker.testing.provider.types import Account, Client, SeenRequest

__all__ = ["FOREVER", "Account", "Client", "IdentityProvider", "SeenRequest"]
