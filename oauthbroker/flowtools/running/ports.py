"""What external nodes reach: mail, SMS, payments, APIs. An adapter is configured, or the flow is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from oauthbroker import AuthorizationRequired, Turn

AGENT: Final = "flowtools"  # whose queue gets the events of the authorizations that runs wait for
ASK_SECONDS: Final = 60.0  # the longest look for a token


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One call of an external node. `key` is the same each time that this effect is tried; `at` is the time of it.
    `turn` is that of a request: for whom its token is. An email goes to at most `most_recipients` addresses: more are
    refused, because its `to` may be text of a caller."""

    kind: str
    operation: str
    fields: Mapping[str, Any] = field(repr=False)
    key: str
    seconds: float
    at: str
    turn: Turn | None = field(default=None, repr=False)
    most_recipients: int = 1


class NotSent(Exception):
    """The effect did not happen. It can be tried again."""


class EffectRefused(Exception):
    """The other side has answered no. `again` tells whether it asks for another try."""

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class AnswerLost(Exception):
    """The effect may have happened: its answer is missing."""


class ConsentNeeded(Exception):
    """The effect did not happen, because a user has to consent first."""

    def __init__(self, asked: AuthorizationRequired) -> None:
        super().__init__("a user has to consent")
        self.asked = asked


class Adapter(Protocol):
    """The way to one provider. `takes_keys`: it answers a repeated key with its first answer, and does nothing more."""

    @property
    def takes_keys(self) -> bool:
        """Tell whether a repeated key gets its first answer, and nothing is done again."""
        ...

    def send(self, effect: Effect) -> Any:
        """Send an effect and return the answer as JSON. Raises one of the exceptions above."""
        ...


class Requests(Protocol):
    """The way to the APIs of apps. The fields of its effects are `app`, `url`, `query` and `body`."""

    def problem(self, app: str, method: str, url: str) -> str:
        """Return why the app's token cannot be sent there; empty if it can."""
        ...

    def ask(self, effect: Effect) -> None:
        """Look for a token, and send nothing. Raises ConsentNeeded, NotSent and EffectRefused."""
        ...

    def send(self, effect: Effect) -> Any:
        """Send a request and return `{status, body}`. Raises one of the exceptions above."""
        ...


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The configured adapters; payments by provider. `sandbox` allows adapters that only play a provider."""

    email: Adapter | None = None
    sms: Adapter | None = None
    payments: Mapping[str, Adapter] = field(default_factory=dict)
    requests: Requests | None = None
    sandbox: bool = False

    def __post_init__(self) -> None:
        for each in (self.email, self.sms, *self.payments.values()):
            if isinstance(each, SandboxAdapter) and not self.sandbox:
                raise ValueError("a sandbox adapter, and sandbox is not set: nothing is played in production")


class SandboxAdapter:
    """Plays a provider of payments or SMS. It reaches nothing, and answers a key always in one way."""

    takes_keys = True

    def send(self, effect: Effect) -> Any:
        name = f"sandbox-{hashlib.sha256(effect.key.encode()).hexdigest()[:24]}"
        about = {"paymentId": name} if effect.kind == "payment" else {"messageId": name}
        return {**about, "status": "succeeded", "processedAt": effect.at}


class _EveryProvider(dict[str, Adapter]):
    """Payments with the sandbox: each provider that has no adapter is played."""

    def __contains__(self, _provider: object) -> bool:
        return True

    def __missing__(self, _provider: str) -> SandboxAdapter:
        return SandboxAdapter()


def with_sandbox(ports: Ports) -> Ports:
    """Return ports that play the payments and SMS without an adapter."""
    return replace(ports, sms=ports.sms or SandboxAdapter(), payments=_EveryProvider(ports.payments), sandbox=True)
