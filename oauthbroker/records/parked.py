"""A code that came back and waits, sealed, for a word on whose browser brought it. Nobody has redeemed it yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from oauthbroker.apps import Vouching
from oauthbroker.clock import from_iso, to_iso
from oauthbroker.secret import Secret

PARKED_SECONDS = 60
MAX_TRIES = 5  # what a conversation may say before it is over
_CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"  # 32 of them, none that looks or sounds like another
_CODE = re.compile(f"[{_CODE_ALPHABET}]{{8}}")
_BETWEEN = re.compile(r"[\s\u2010-\u2015\u2212_-]+")  # dashes as telephones write them too
_LONGEST_SAID = 64


@dataclass(frozen=True, slots=True, repr=False)
class Parked:
    """`proof` is what has to come back, the handle or the channel code. `until` is the end of it all; `tries` counts
    the channel codes that were said."""

    kind: Vouching
    code: Secret
    proof: Secret
    until: datetime
    tries: int = 0

    def __repr__(self) -> str:
        return f"Parked({self.kind})"

    def tried(self) -> Parked:
        """Somebody says a code; whether it is this one is looked at next."""
        return replace(self, tries=self.tries + 1)

    @property
    def worn_out(self) -> bool:
        return self.tries >= MAX_TRIES

    def to_json(self) -> dict[str, Any]:
        """`status.parked` of the record. It holds secrets in clear: for the seal only."""
        return {
            "kind": self.kind,
            "code": self.code.reveal(),
            "proof": self.proof.reveal(),
            "until": to_iso(self.until),
            "tries": self.tries,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Parked:
        return cls(
            kind=data["kind"],
            code=Secret(data["code"]),
            proof=Secret(data["proof"]),
            until=from_iso(data["until"]),
            tries=data["tries"],
        )


def code_of(chance: bytes) -> str:
    """Five random bytes as eight letters and digits to be read out."""
    number = int.from_bytes(chance[:5], "big")
    return "".join(_CODE_ALPHABET[number >> shift & 31] for shift in range(35, -5, -5))


def grouped(code: str) -> str:
    """As it is shown: `ABCD-EFGH`."""
    return f"{code[:4]}-{code[4:]}"


def as_code(said: str) -> str | None:
    """What somebody said, as it is kept: upper case, without spaces and dashes. None for what cannot be a code."""
    if not isinstance(said, str) or len(said) > _LONGEST_SAID:
        return None
    text = _BETWEEN.sub("", said).upper()
    return text if _CODE.fullmatch(text) else None
