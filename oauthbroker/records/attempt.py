"""One browser's authorization attempt: the values it takes to a provider or to the broker's login, and brings back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from oauthbroker.core.secret import Secret
from oauthbroker.records.codec import named


@dataclass(frozen=True, slots=True)
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
        return cls(Secret(""), "", None, None)

    def spent(self) -> Attempt:
        """Return the attempt after its end: it recognises a replay and holds no usable secret."""
        return replace(self, verifier=None, nonce=None)
