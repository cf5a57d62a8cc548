"""A browser's attempt: the values it takes to a provider or to the broker's login, and brings back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.records import codec
from oauthbroker.records.codec import APART, named


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The values of one browser's attempt. A later browser's attempt replaces it whole.

    `cookie` is the SHA-256 of the browser's cookie; None until a browser has pressed the button.
    """

    state: Secret
    challenge: str = field(metadata=named("codeChallenge"))
    verifier: Secret | None = field(metadata=named("codeVerifier"))
    nonce: Secret | None
    cookie: str | None = None

    @classmethod
    def none(cls) -> Attempt:
        """Return the attempt of a session without a browser: no state matches it."""
        return cls(state=Secret(""), challenge="", verifier=None, nonce=None)

    def spent(self) -> Attempt:
        """Return the attempt after its end: it recognises a replay and holds no usable secret."""
        return replace(self, verifier=None, nonce=None)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Login:
    """A login at the team's identity provider, before the user goes on to an app's provider (`brokerLogin`).

    `attempt` is one browser's attempt; its verifier and nonce end with its first callback (`used`). `digest` is the
    configuration at that time. `wrong`: another person logged in, now or before. `way_on` is the provider's URL for the
    browser after the right person has logged in, valid until `until`.
    """

    attempt: Attempt = field(metadata=APART)
    digest: str
    used: bool = False
    wrong: bool = False
    until: datetime | None = None
    way_on: Secret | None = None

    def __repr__(self) -> str:
        return f"Login({'passed' if self.until else 'used' if self.used else 'under way'})"

    @property
    def at_it(self) -> bool:
        """Tell whether a browser is at the login and has not come back."""
        return not self.used

    def spent(self) -> Login:
        """Return the login after its callback. The writer of this version redeems the code."""
        return replace(self, attempt=self.attempt.spent(), used=True)

    def missed(self) -> Login:
        """Return the login after another person than the session's subject logged in."""
        return replace(self, wrong=True)

    def passed(self, way_on: Secret, until: datetime) -> Login:
        """Return the login after the session's subject logged in."""
        return replace(self, way_on=way_on, until=until)

    def counts(self, digest: str, now: datetime) -> bool:
        """Tell whether the right person has logged in, under the current configuration and recently enough."""
        return self.until is not None and now < self.until and self.digest == digest

    def to_json(self) -> dict[str, Any]:
        """Return `status.login` of the record. It holds secrets in clear: for the seal only."""
        return codec.members(self.attempt) | codec.members(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Login:
        return codec.made(cls, data, attempt=codec.made(Attempt, data))
