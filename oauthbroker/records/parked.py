"""A code that came back and waits, sealed, for a word on whose browser brought it. Nobody has redeemed it yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from oauthbroker.apps import Vouching
from oauthbroker.clock import from_iso, to_iso
from oauthbroker.records import codec
from oauthbroker.secret import Secret

PARKED_SECONDS = 60
MAX_WRONG = 5  # codes that a conversation may get wrong before it is over
_HANDLE_BITS = 256
_CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"  # 32 of them, none that looks or sounds like another


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """What the browser takes to the broker's own login (OpenID Connect Core 1.0 section 3.1.2.1)."""

    verifier: Secret
    challenge: str
    nonce: Secret


@dataclass(frozen=True, slots=True, repr=False)
class Parked:
    """`proof` is what has to come back: the handle, the channel code, or the login's state. `until` is the end of it
    all; `wrong` counts channel codes that were not this one."""

    kind: Vouching
    code: Secret
    proof: Secret
    until: datetime
    wrong: int = 0
    login: Login | None = None

    def __repr__(self) -> str:
        return f"Parked({self.kind})"

    def guessed(self) -> Parked:
        """Somebody said another code."""
        return replace(self, wrong=self.wrong + 1)

    @property
    def worn_out(self) -> bool:
        return self.wrong >= MAX_WRONG

    def to_json(self) -> dict[str, Any]:
        """`status.parked` of the record. It holds secrets in clear: for the seal only."""
        login = self.login
        return {
            "kind": self.kind,
            "code": self.code.reveal(),
            "proof": self.proof.reveal(),
            "until": to_iso(self.until),
            "wrong": self.wrong,
            "login": {
                "codeVerifier": codec.reveal(login.verifier),
                "codeChallenge": login.challenge,
                "nonce": codec.reveal(login.nonce),
            }
            if login is not None
            else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Parked:
        login = data["login"]
        return cls(
            kind=data["kind"],
            code=Secret(data["code"]),
            proof=Secret(data["proof"]),
            until=from_iso(data["until"]),
            wrong=data["wrong"],
            login=Login(Secret(login["codeVerifier"]), login["codeChallenge"], Secret(login["nonce"]))
            if login is not None
            else None,
        )
