"""Check how an app exchanges access tokens: `quirks.secondExchange` and `quirks.refreshWith`."""

from __future__ import annotations

from oauthbroker.config.checks.endpoints import fetched_problem
from oauthbroker.config.checks.facts import known_origins
from oauthbroker.config.problems import url_checks
from oauthbroker.config.values.preset_merge import Merged
from oauthbroker.model.provider_networks import ProviderNetworks


def check_exchange(app: Merged, reach: ProviderNetworks) -> None:
    """Check both, the app's own and its preset's. The client's secret is sent along, so that the address has to be one
    of the provider's."""
    second, renewal = app.habits.second_exchange, app.habits.refresh_with
    for name, way in (("secondExchange", second), ("refreshWith", renewal)):
        if way is not None and app.spec.flow not in {"authorizationCode", "deviceCode"}:
            what = "an exchange of access tokens in a flow that just asks for the next one"
            app.written.refuse(("quirks", name), what, "remove it, or change the flow", key=True)
    if second is not None and app.auth_method in {"none", "private_key_jwt"}:
        what = "an exchange with a secret that the client lacks"
        app.written.refuse(("quirks", "secondExchange"), what, "write client.authMethod: client_secret_post", key=True)
    if second is not None:
        problem = fetched_problem(second.url, reach, query=False)
        if problem is None and url_checks.origin_of(second.url) not in known_origins(app):
            problem = "a host that is neither an endpoint's nor one of api.hosts", "list it in api.hosts"
        if problem is not None:
            app.written.refuse(("quirks", "secondExchange", "url"), *problem)
    if renewal is not None and not app.endpoints.refresh_url:
        app.written.missing(("endpoints", "refreshUrl"), "write it: quirks.refreshWith sends the access token there")
