"""An app at a provider like Meta's: its first token is exchanged, and the lasting one refreshes itself."""

from __future__ import annotations

from dataclasses import replace

from oauthbroker.model.apps import App, Client, IdentityRule, Owner
from oauthbroker.model.provider_habits import AccessExchange
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import register, user_app

LASTING_SECONDS = 60 * 86_400


def meta_app(idp: IdentityProvider, *, renews: bool = True) -> App:
    """As Instagram's; without `renews` as Facebook's, whose lasting token has no successor."""
    register(idp, "mail")
    idp.change("client-mail", dialect="meta", auth_method="client_secret_post")
    app = user_app(idp)
    exchange = AccessExchange(
        url=idp.url("/access_token"),
        grant_type="ig_exchange_token" if renews else "fb_exchange_token",
        token_param="access_token" if renews else "fb_exchange_token",
    )
    renewal = AccessExchange(grant_type="ig_refresh_token", min_age_seconds=86_400) if renews else None
    return replace(
        app,
        client=Client(app.client.client_id, app.client.client_secret, "client_secret_post"),
        endpoints=replace(app.endpoints, refresh_url=idp.url("/refresh_access_token")),
        owner=Owner(user_identity=IdentityRule("tokenResponse", "idp:user:{user_id}")),
        habits=replace(app.habits, always_scopes=(), second_exchange=exchange, refresh_with=renewal),
    )
