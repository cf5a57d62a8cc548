"""What a provider's answer to a refresh means for the next ones: circuits, pauses, and lines in the log."""

from __future__ import annotations

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.logging import Log
from oauthbroker.observability.repeats import Repeats
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import Grant, Token
from oauthbroker.refresh.circuit import COUNTED, Circuits
from oauthbroker.refresh.clients import Clients
from oauthbroker.refresh.refusal_assessment import RefusalAssessment, assess_refusal

_REFUSED_BY_US = frozenset(
    {Code.TOKEN_RESPONSE_INVALID, Code.SCOPE_EXCEEDED, Code.ID_TOKEN_INVALID, Code.TOKEN_UNCHANGED}
)


@dataclass(slots=True, kw_only=True)
class Failures:
    """Counts successes and failures in the `circuits`. `grant` is a grant's id everywhere."""

    circuits: Circuits
    clients: Clients
    clock: Clock
    log: Log
    _repeats: Repeats = field(init=False)
    _causes: dict[str, tuple[Code, str]] = field(default_factory=dict, init=False)  # of apps that do not work

    def __post_init__(self) -> None:
        self._repeats = Repeats(self.clock)

    def check_pause(self, grant: Grant, *, forced: bool) -> None:
        """Raise `providerUnreachable` while a refresh token that may be spent has to rest before the next try, and
        `reauthRequired` while one rests that was given up, unless the refresh is `forced`."""
        intent, now = grant.refresh_state.intent, self.clock.now()
        if intent is not None and intent.pauses(now):
            left = (intent.retry_at - now).total_seconds()
            raise BrokerError(Code.PROVIDER_UNREACHABLE, note="pausing", retry_after_seconds=max(1, round(left)))
        if grant.refresh_state.rests(now) and not forced:
            raise BrokerError(Code.REAUTH_REQUIRED, note="pausing")

    def worked(self, grant: Grant, token: Token | None) -> Code | None:
        """Close the circuits. A token that is already over pauses its grant, or each call would fetch another one: its
        answer was slow, or gave it no time at all. Return the code of that failure, which the log tells once a
        minute."""
        self._causes.pop(grant.app, None)
        self.circuits.worked(grant.app, grant.id)
        self.clients.refreshed(grant, self.clock.now())
        if token is None or token.lives(0, self.clock.now()):
            return None
        over = BrokerError(Code.TOKEN_RESPONSE_INVALID, note="the provider gives new tokens no lifetime")
        if token.lifetime_seconds:
            over = BrokerError(Code.PROVIDER_UNREACHABLE, note="the new token had ended when its answer came")
        self.circuits.pause_one(grant.app, grant.id, over)
        if self._repeats.is_new(grant.app, over.note):
            self._tell_of_one(grant.app, grant.id, over)
        return over.code

    def not_fetched(self, app: str, grant: str, error: BrokerError) -> None:
        """Count a failed client credentials request."""
        self.count(app, error)
        if error.code in _REFUSED_BY_US:
            self.circuits.pause_one(app, grant, error)
        if not error.retryable:
            self._tell_of_request(app, error)

    def refused(self, begun: Grant, refused: RefreshRefused) -> RefusalAssessment:
        """Assess a refused refresh, and count it: for this grant alone, or for all grants of the app where no request
        reached the provider that they share: one with `params` may have a host of its own."""
        now = self.clock.now()
        standing = self.clients.standing(begun, begun.refresh_state.refused_since(now), now)
        assessment = assess_refusal(begun.refresh_state, refused, standing, now)
        if refused.ambiguity:
            self.clients.refused(begun, now)
        if assessment.is_open and self.clients.report_once(begun):
            self._report(begun, assessment.error)
        self._pause(begun, refused, assessment)
        return assessment

    def _pause(self, begun: Grant, refused: RefreshRefused, assessment: RefusalAssessment) -> None:
        is_unclear = assessment.error.code is Code.REFRESH_REFUSED
        if not (is_unclear and refused.code in COUNTED) and not (refused.ambiguity and assessment.state.given_up):
            self.count(begun.app, refused, begun.id, own=refused.reached or bool(begun.params))
        if is_unclear:
            unclear = BrokerError(Code.REFRESH_REFUSED, note=refused.note)
            if self.circuits.pause_one(begun.app, begun.id, unclear):
                self._tell_of_one(begun.app, begun.id, unclear)
        elif refused.code in _REFUSED_BY_US and not assessment.state.given_up:
            self.circuits.pause_one(begun.app, begun.id, refused)  # the write-back logs it

    def count(self, app: str, error: BrokerError, grant: str = "", *, own: bool = False) -> None:
        """Count a failure. Without `grant` it concerns all grants, such as metadata that cannot be read. The log tells
        the first one of each cause, and what pauses."""
        is_first = self._causes.get(app) != (cause := (error.code, error.note))
        self._causes[app] = cause
        match self.circuits.failed(app, error, grant, own=own):
            case "app":
                self.log.warning("refreshes pause", app=app, code=error.code.value, note=error.note)
            case "grant":
                self._tell_of_one(app, grant, error)
            case _ if error.code in COUNTED and is_first and self._repeats.is_new(app, *cause):
                self._tell_of_request(app, error)

    def _tell_of_request(self, app: str, error: BrokerError) -> None:
        self.log.warning("a token could not be fetched", app=app, code=error.code.value, note=error.note)

    def _tell_of_one(self, app: str, grant: str, error: BrokerError) -> None:
        self.log.warning(
            "refreshes of one grant pause", app=app, grant=grant[:15], code=error.code.value, note=error.note
        )

    def _report(self, begun: Grant, error: BrokerError) -> None:
        """Tell the operator, once for each client, that a grant is refused for long and nothing proves whose fault it
        is."""
        self.log.error(
            "refreshes are refused for long, and no other grant of the app shows whether its client works",
            app=begun.app, grant=begun.id[:15], code=error.code.value, note=error.note,
            hint="check the client at the provider; if it is right, let the user connect again",
        )  # fmt: skip
