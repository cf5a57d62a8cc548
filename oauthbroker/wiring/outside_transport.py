"""A transport for a command that asks one server, without a broker: `mcp add`, `providers new`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from oauthbroker.config import load_settings
from oauthbroker.config.bundle.server_environment import server_environment
from oauthbroker.config.key_file import with_keys
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Client, Endpoints, Owner, Redirect
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.protocol.network.transport import Transport


@asynccontextmanager
async def transport_to(url: str, networks: Collection[str], bundle: Path | None) -> AsyncIterator[Transport]:
    """Open a transport that asks as the broker does. `networks` are as in the Broker's `providerNetworks`; the way out
    is that of the `bundle`, if there is one. An http address on loopback is for development.

    Raises `requestInvalid` for a text that is no network, and `appMisconfigured` for an address that is refused.
    """
    try:
        reach = ProviderNetworks(tuple(str(ip_network(each)) for each in networks))
    except ValueError:
        raise BrokerError(Code.REQUEST_INVALID, note="not a network") from None
    proxy = _proxy_of(bundle) if bundle is not None else None
    transport = Transport(plain_http_loopback=url.startswith("http://"), reach=reach, proxy=proxy)
    try:
        transport.check_url(url)
        yield transport
    finally:
        await transport.close()


def asking_app(provider: str, endpoints: Endpoints | None = None, **more: Any) -> App:
    """Return an app that asks what a server publishes. It has no client, and authorizes nothing."""
    return App(
        name="asking",
        provider=provider,
        flow="authorizationCode",
        subject_mode="user",
        client=Client("", None, "none"),
        endpoints=endpoints or Endpoints(),
        scopes=(),
        redirect=Redirect("", ""),
        owner=Owner(),
        **more,
    )


def _proxy_of(bundle: Path) -> OutgoingProxy | None:
    if not bundle.exists():
        return None
    env = server_environment(bundle)
    return with_keys(load_settings(bundle, env), env).outgoing_proxy
