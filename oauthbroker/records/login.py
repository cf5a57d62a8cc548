"""A login at the team's identity provider, which comes before a person goes on to an app's provider (`brokerLogin`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from oauthbroker.records import codec
from oauthbroker.records.attempt import Attempt
from oauthbroker.secret import Secret


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """`attempt` is what one browser took to the login; its verifier and nonce end with its first callback (`used`).

    `digest` is the login's configuration of that moment. `wrong`: this one, or one before it, was somebody else.
    `way_on` is where the browser goes once the right person has logged in, the provider's URL, and `until` how long
    that counts.
    """

    attempt: Attempt
    digest: str
    used: bool = False
    wrong: bool = False
    until: datetime | None = None
    way_on: Secret | None = None

    def __repr__(self) -> str:
        return f"Login({'passed' if self.until else 'used' if self.used else 'under way'})"

    @property
    def at_it(self) -> bool:
        """A browser is at the login and has not come back."""
        return not self.used

    def spent(self) -> Login:
        """A browser has come back from it: its code is redeemed by whoever wrote this."""
        return replace(self, attempt=self.attempt.spent(), used=True)

    def missed(self) -> Login:
        """It was another person than the session is for."""
        return replace(self, wrong=True)

    def passed(self, way_on: Secret, until: datetime) -> Login:
        """It was the session's own subject."""
        return replace(self, way_on=way_on, until=until)

    def counts(self, digest: str, now: datetime) -> bool:
        """Whether the right person has logged in, by the login that is configured, and not too long ago."""
        return self.until is not None and now < self.until and self.digest == digest

    def to_json(self) -> dict[str, Any]:
        """`status.login` of the record. It holds secrets in clear: for the seal only."""
        attempt = self.attempt
        return {
            "state": attempt.state.reveal(),
            "codeChallenge": attempt.challenge,
            "codeVerifier": codec.reveal(attempt.verifier),
            "nonce": codec.reveal(attempt.nonce),
            "cookie": attempt.cookie,
            "digest": self.digest,
            "used": self.used,
            "wrong": self.wrong,
            "until": codec.iso(self.until),
            "wayOn": codec.reveal(self.way_on),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Login:
        attempt = Attempt(
            state=Secret(data["state"]),
            challenge=data["codeChallenge"],
            verifier=codec.conceal(data["codeVerifier"]),
            nonce=codec.conceal(data["nonce"]),
            cookie=data["cookie"],
        )
        return cls(
            attempt=attempt,
            digest=data["digest"],
            used=data["used"],
            wrong=data["wrong"],
            until=codec.moment(data["until"]),
            way_on=codec.conceal(data["wayOn"]),
        )
