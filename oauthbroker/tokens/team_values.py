"""The team's credential of an app as the configuration holds it. Values in a service outside are read when they are
needed, kept in memory for a while, and read again after a 401."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.single_flight import SingleFlight
from oauthbroker.model.apps import App
from oauthbroker.model.outside_values import OutsideValue
from oauthbroker.model.static_credential import StaticCredential, packed, unpacked
from oauthbroker.observability.logging import Log

FRESH_SECONDS: Final = 300.0
KEPT_SECONDS: Final = 24 * 3600.0  # since the last read that succeeded
PAUSE_SECONDS: Final = 1.0  # between two reads: a 401 may concern the request alone
RETRY_SECONDS: Final = 30.0  # between two reads of a service that cannot be used

ReadOutside = Callable[[Iterable[OutsideValue]], Mapping[OutsideValue, Secret]]


@dataclass(slots=True, kw_only=True)
class _Known:
    """The packed values that were read for a credential, and why the newest read failed."""

    credential: StaticCredential
    values: Secret | None = None
    read_at: float = 0.0
    tried_at: float = 0.0
    failed: tuple[Code, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamValues:
    """`read` asks the services, and blocks its thread."""

    read: ReadOutside
    clock: Clock
    log: Log
    _known: dict[str, _Known] = field(default_factory=dict)
    _reads: SingleFlight[None] = field(default_factory=SingleFlight)

    async def of(self, app: App, rejected: Secret | None) -> Secret | None:
        """Return the packed credential of the configuration, None if it has none. One that the API has `rejected` is
        read again first, and so is one that is no longer fresh. Raises as `OutsideValues.read`."""
        credential = app.credential
        if credential is None or not credential.outside:
            return credential.values if credential is not None else None
        known = self._known.get(app.name)
        if known is None or known.credential != credential:
            known = self._known[app.name] = _Known(credential=credential, tried_at=-RETRY_SECONDS)
        now = self.clock.monotonic()
        is_due = known.values is None or known.values == rejected or now - known.read_at >= FRESH_SECONDS
        if is_due and now - known.tried_at >= (RETRY_SECONDS if known.failed else PAUSE_SECONDS):
            current = known
            await self._reads.join(app.name, lambda _: self._renew(app.name, current), lambda: None)
        if known.values is not None and self.clock.monotonic() - known.read_at < KEPT_SECONDS:
            return known.values
        code, note = known.failed or (Code.PROVIDER_UNREACHABLE, "its values cannot be read")
        raise BrokerError(code, note=note)

    async def close(self) -> None:
        """Begin no read, and wait for those under way."""
        await self._reads.close()

    async def _renew(self, name: str, known: _Known) -> None:
        known.tried_at = self.clock.monotonic()
        try:
            found = await asyncio.to_thread(self.read, known.credential.outside.values())
            known.values, known.failed = _whole(known.credential, found), None
            known.read_at = self.clock.monotonic()
        except BrokerError as error:
            known.failed = error.code, error.note
            if error.code is Code.APP_MISCONFIGURED:  # it was removed there
                known.values = None
            self.log.warning("a value outside cannot be read", app=name, code=error.code.value, note=error.note)


def _whole(credential: StaticCredential, found: Mapping[OutsideValue, Secret]) -> Secret:
    """Return the values of all fields, packed. Raises `appMisconfigured` for one that is none of its field."""
    values = dict(unpacked(credential.values)) if credential.values is not None else {}
    values |= {name: found[place].reveal().strip() for name, place in credential.outside.items()}
    if problems := credential.problems(values):
        places = ", ".join(str(credential.outside.get(name, name)) for name in problems)
        raise BrokerError(Code.APP_MISCONFIGURED, note=f"{places}: other characters, too long, or another pattern")
    return packed(values)
