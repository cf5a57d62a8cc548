"""What a browser takes along to a provider, or to the broker's own login, and has to bring back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oauthbroker.secret import Secret


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one browser took to the provider. A later browser replaces it whole: the last one wins.

    `cookie` is the SHA-256 of the browser's cookie; None until a browser has pressed the button.
    """

    state: Secret
    challenge: str
    verifier: Secret | None
    nonce: Secret | None
    cookie: str | None = None

    @classmethod
    def none(cls) -> Attempt:
        """Of a session that no browser takes to the provider: no state ever matches it."""
        return cls(Secret(""), "", None, None)

    def spent(self) -> Attempt:
        """After the end: enough to recognise a replay, nothing to use."""
        return replace(self, verifier=None, nonce=None)
