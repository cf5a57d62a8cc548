"""Read what an issuer publishes, for an operator who writes an app for it: `oauthbroker providers new`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from oauthbroker.core.clock import SystemClock
from oauthbroker.model.apps import Endpoints
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.metadata import ProviderMetadata
from oauthbroker.wiring.outside_transport import asking_app, transport_to


async def metadata_of(issuer: str, networks: Collection[str] = (), bundle: Path | None = None) -> ProviderMetadata:
    """Ask an issuer as the broker does. `networks` and `bundle` are as in `transport_to`.

    Raises `requestInvalid` for a text that is no network, and the errors of an issuer that the broker cannot use.
    """
    app = asking_app("oidc", Endpoints(issuer=issuer))
    async with transport_to(issuer, networks, bundle) as transport:
        return await Discovery(transport, SystemClock(), Limits()).metadata(app)
