"""What a provider's answer to a refresh means for the next ones: circuits, pauses, and lines in the log."""

from __future__ import annotations

from dataclasses import dataclass

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.logging import Log
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import Grant, Token
from oauthbroker.refresh.circuit import Circuits

_REFUSED_BY_US = frozenset(
    {Code.TOKEN_RESPONSE_INVALID, Code.SCOPE_EXCEEDED, Code.ID_TOKEN_INVALID, Code.TOKEN_UNCHANGED}
)


@dataclass(frozen=True, slots=True)
class Failures:
    """Counts successes and failures in the `circuits`. `grant` is a grant's id everywhere."""

    circuits: Circuits
    clock: Clock
    log: Log

    def check_pause(self, grant: Grant) -> None:
        """Raise `providerUnreachable` while a refresh token that may be spent has to rest before the next try."""
        intent, now = grant.refresh_state.intent, self.clock.now()
        if intent is not None and intent.pauses(now):
            left = (intent.retry_at - now).total_seconds()
            raise BrokerError(Code.PROVIDER_UNREACHABLE, note="pausing", retry_after_seconds=max(1, round(left)))

    def worked(self, app: str, grant: str, token: Token | None) -> None:
        """Close the circuits. A token that is already over pauses its grant, or each call would fetch another one."""
        self.circuits.worked(app, grant)
        if token is not None and not token.lives(0, self.clock.now()):
            self.circuits.pause_one(app, grant, BrokerError(Code.TOKEN_RESPONSE_INVALID))

    def not_fetched(self, app: str, grant: str, error: BrokerError) -> None:
        """Count a failed client credentials request."""
        self.count(app, error)
        if error.code in _REFUSED_BY_US:
            self.circuits.pause_one(app, grant, error)
        if not error.retryable:
            self.log.warning("a token could not be fetched", app=app, code=error.code.value, note=error.note)

    def refused(self, begun: Grant, refused: RefreshRefused) -> None:
        """Count a refused refresh: for this grant alone, or for all grants of the app.

        It concerns all when the provider speaks of our client, names a time to wait, or was not reached. Many
        providers limit each account by itself, so 429 concerns all only after several grants have met it.
        """
        own = not (refused.of_client or refused.retry_after_seconds is not None or not refused.spent)
        if refused.code is Code.APP_MISCONFIGURED:
            own = not refused.of_client
        elif refused.code is Code.PROVIDER_RATE_LIMITED:
            own = True
        self.count(begun.app, refused, begun.id, own=own)
        if refused.code in _REFUSED_BY_US:
            self.circuits.pause_one(begun.app, begun.id, refused)  # the write-back logs it
        elif refused.code is Code.EXCHANGE_FAILED:
            unclear = BrokerError(Code.REFRESH_REFUSED, note=refused.note)
            if self.circuits.pause_one(begun.app, begun.id, unclear):
                self._tell_of_one(begun.app, begun.id, unclear)

    def count(self, app: str, error: BrokerError, grant: str = "", *, own: bool = False) -> None:
        """Count a failure. Without `grant` it concerns all grants, such as metadata that cannot be read."""
        match self.circuits.failed(app, error, grant, own=own):
            case "app":
                self.log.warning("refreshes pause", app=app, code=error.code.value, note=error.note)
            case "grant":
                self._tell_of_one(app, grant, error)

    def _tell_of_one(self, app: str, grant: str, error: BrokerError) -> None:
        self.log.warning(
            "refreshes of one grant pause", app=app, grant=grant[:15], code=error.code.value, note=error.note
        )
