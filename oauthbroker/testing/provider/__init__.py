"""A scripted OAuth 2.0 / OpenID Connect provider: a real HTTP server that is strict, counts requests, and can
misbehave."""

from __future__ import annotations

from oauthbroker.testing.provider.nouns import Account, Client, SeenRequest
from oauthbroker.testing.provider.provider import IdentityProvider
from oauthbroker.testing.provider.script import FOREVER

__all__ = ["FOREVER", "Account", "Client", "IdentityProvider", "SeenRequest"]
