"""Ask the provider for the tokens of a device code (RFC 8628 section 3.4)."""

from __future__ import annotations

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.device_messages import DevicePending, device_token_request, device_token_response
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.records import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTokens:
    """Sends one request for tokens. `device_polling` decides when."""

    asker: ClientRequests
    discovery: Discovery
    clock: Clock

    async def ask(self, app: App, device: Device) -> TokenResponse | DevicePending:
        code = device.code
        if code is None:
            raise BrokerError(Code.STATE_USED)
        endpoints = await self._endpoints(app)
        answer = await self.asker.ask(
            app, lambda known: device_token_request(known, endpoints, code, clock=self.clock), kind="poll"
        )
        return device_token_response(app, answer)

    async def _endpoints(self, app: App) -> Endpoints:
        """Return the app's endpoints. They were found when the code was opened, so missing metadata is a temporary
        failure."""
        try:
            return await self.discovery.endpoints(app)
        except BrokerError as error:
            refused = error.with_traceback(None)
        if refused.code is Code.APP_MISCONFIGURED:
            raise TransportFailed(refused.note, sent=False)
        raise refused
