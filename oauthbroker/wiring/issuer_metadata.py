"""Read what an issuer publishes, for an operator who writes an app for it: `oauthbroker providers new`."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_network

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import Client, Endpoints, OAuthApp, Owner, Redirect
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.metadata import ProviderMetadata
from oauthbroker.protocol.network.transport import Transport


async def metadata_of(issuer: str, networks: Collection[str] = ()) -> ProviderMetadata:
    """Ask an issuer as the broker does. `networks` are as in the Broker's `providerNetworks`. An http address on
    loopback is for development.

    Raises `requestInvalid` for a text that is no network, and the errors of an issuer that the broker cannot use.
    """
    try:
        reach = ProviderNetworks(tuple(str(ip_network(each)) for each in networks))
    except ValueError:
        raise BrokerError(Code.REQUEST_INVALID, note="not a network") from None
    app = OAuthApp(
        name="issuer",
        provider="oidc",
        flow="authorizationCode",
        subject_mode="user",
        client=Client("", None, "none"),
        endpoints=Endpoints(issuer=issuer),
        scopes=(),
        redirect=Redirect("", ""),
        owner=Owner(),
    )
    transport = Transport(plain_http_loopback=issuer.startswith("http://"), reach=reach)
    try:
        transport.check_url(issuer)
        return await Discovery(transport, SystemClock(), Limits()).metadata(app)
    finally:
        await transport.close()
