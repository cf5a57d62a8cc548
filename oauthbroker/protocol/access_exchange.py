"""Exchange an access token for a later one, where a provider has no refresh tokens (Meta's long-lived tokens).

The client's secret and the token stand in the query of a GET there. The transport alone adds them to the address.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.provider_habits import AccessExchange
from oauthbroker.protocol.messages import ProviderRequest, Value
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.records import Grant


def exchange_of(app: App, grant: Grant) -> AccessExchange | None:
    """Return how the grant's own access token is exchanged next. None where it has a refresh token, or the app no
    longer says how."""
    way = app.habits.second_exchange if grant.exchange_due else app.habits.refresh_with
    return way if way is not None and grant.renews_itself else None


def is_old_enough(way: AccessExchange, grant: Grant, now: datetime) -> bool:
    """Tell whether the provider takes the token yet. One whose issue is not known may be."""
    token = grant.token
    if token is None or token.expires_at is None or token.lifetime_seconds is None:
        return True
    issued = token.expires_at - timedelta(seconds=token.lifetime_seconds)
    return issued + timedelta(seconds=way.min_age_seconds) <= now


def exchange_request(app: App, endpoints: Endpoints, way: AccessExchange, token: Secret) -> ProviderRequest:
    """Build the request. Raises `appMisconfigured`."""
    members: dict[str, Value] = {"grant_type": way.grant_type, way.token_param: token}
    if way.url:
        if not app.client.client_secret:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the client secret is missing")
        members |= {"client_id": app.client.client_id, "client_secret": app.client.client_secret}
    url = way.url or endpoints.refresh_url
    if not url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no such endpoint")
    return ProviderRequest(way.method, url, form=members, encoding="query" if way.method == "GET" else "form")


def next_token_of(app: App, tokens: TokenResponse, *, is_first: bool) -> Secret | None:
    """Return the token to send for the next one: the refresh token of an answer, or its access token where that is
    exchanged itself."""
    habits = app.habits
    by_access = habits.refresh_with is not None or (is_first and habits.second_exchange is not None)
    return tokens.refresh_token or (tokens.access_token if by_access else None)
