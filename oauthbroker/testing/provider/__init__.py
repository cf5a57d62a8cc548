"""A scripted OAuth 2.0 / OpenID Connect provider: a real HTTP server that is strict, counts, and can misbehave."""

from __future__ import annotations

from oauthbroker.testing.provider.nouns import Account, Client, SeenRequest
from oauthbroker.testing.provider.provider import IdentityProvider

__all__ = ["Account", "Client", "IdentityProvider", "SeenRequest"]
