"""Request device codes (RFC 8628 section 3.1). `device_polling` finds out whether the user has agreed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.observability.logging import Log
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.device_messages import CheckUrl, device_request, device_response
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.records import AuthSession, Device
from oauthbroker.refresh.circuit import Circuits

LONGEST_SECONDS = 1800  # the longest lifetime in seconds that a provider may set; polling stops then


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCodes:
    """Requests device codes. `watch` is called with each session opened with one."""

    asker: ClientRequests
    check_url: CheckUrl
    discovery: Discovery
    circuits: Circuits
    clock: Clock
    log: Log
    watch: Callable[[AuthSession], None]

    async def authorize(self, app: App, scopes: tuple[str, ...]) -> tuple[Device, datetime]:
        """Request a device code. Return it with its expiry: the provider's lifetime, at most half an hour, counted from
        before the request.

        Raises the errors of `device_response`; after failures at once, while the circuit is open. Raises
        `deviceCodeUnsupported` for an app that cannot verify the owner of the tokens, or whose binding needs a browser.
        """
        if app.owner.confirmation is not None or (app.subject_mode == "user" and app.owner.user_identity is None):
            raise BrokerError(Code.DEVICE_CODE_UNSUPPORTED)
        circuit = f"device code {app.name}"
        self.circuits.check(circuit)
        sent_at = self.clock.now()
        try:
            endpoints = await self.discovery.endpoints(app)
            answer = await self.asker.ask(
                app, lambda known: device_request(known, endpoints, scopes, clock=self.clock), kind="device"
            )
            found = device_response(app, answer, self.check_url)
        except BrokerError as error:
            is_junk = error.code is Code.TOKEN_RESPONSE_INVALID  # likely to repeat, and a pause ends by itself
            pause = BrokerError(Code.PROVIDER_UNREACHABLE) if is_junk else error
            if self.circuits.failed(circuit, error) or (is_junk and self.circuits.pause_one(circuit, "", pause)):
                self.log.warning("no device codes for now", app=app.name, code=error.code.value, note=error.note)
            raise
        self.circuits.worked(circuit)
        device = Device(
            code=found.device_code,
            user_code=found.user_code,
            verification_uri=found.verification_uri,
            verification_uri_complete=found.verification_uri_complete,
            interval=found.interval_seconds,
            next_poll_at=self.clock.now() + timedelta(seconds=found.interval_seconds),
        )
        return device, sent_at + timedelta(seconds=min(found.lifetime_seconds, LONGEST_SECONDS))
