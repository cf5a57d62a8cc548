"""Asking a provider for a device code (RFC 8628 section 3.1). Whether somebody agrees with it is for `polling`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from oauthbroker.apps import OAuthApp
from oauthbroker.circuit import Circuits
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.device import CheckUrl, device_request, device_response
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.records import AuthSession, Device

LONGEST_SECONDS = 1800  # what a provider may promise; a code is not watched for longer
Tell = Callable[..., None]


@dataclass(frozen=True, slots=True)
class DeviceCodes:
    """Gets codes to show. `tell` writes the log; `watch` hears of every session that was opened with one."""

    asker: Asker
    check_url: CheckUrl
    discovery: Discovery
    circuits: Circuits
    clock: Clock
    tell: Tell
    watch: Callable[[AuthSession], None]

    async def authorize(self, app: OAuthApp, scopes: tuple[str, ...]) -> tuple[Device, datetime]:
        """A new code, and when it expires: the provider's own time, counted from before we asked, at most half an
        hour. Raises what `device_response` raises; after failures at once, for as long as the circuit is open.
        `deviceCodeUnsupported` for an app in which nothing would tell whose account comes back, or whose binding needs
        a browser."""
        if app.owner.vouching is not None or (app.subject_mode == "user" and app.owner.user_identity is None):
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
            if self.circuits.failed(circuit, error) or self._is_junk(circuit, error):
                self.tell("no device codes for now", app=app.name, code=error.code.value, note=error.note)
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

    def _is_junk(self, circuit: str, error: BrokerError) -> bool:
        """An answer that we do not take is likely to come again: not asked for at every call. Whether that is news."""
        return error.code is Code.TOKEN_RESPONSE_INVALID and self.circuits.pause_one(circuit, "", error)
