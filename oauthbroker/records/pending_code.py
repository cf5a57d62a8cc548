"""A pending code: it came back and waits, sealed, for the confirmation of the browser that brought it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from oauthbroker.core.clock import has_passed
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import OwnerConfirmation
from oauthbroker.records.codec import OPTIONAL

PENDING_CODE_SECONDS = 60
MAX_TRIES = 5  # channel codes that a conversation may try before the session ends
_CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"  # 32 characters, none easily confused with another
_CODE = re.compile(f"[{_CODE_ALPHABET}]{{8}}")
_BETWEEN = re.compile(r"[\s\u2010-\u2015\u2212_-]+")  # also the dashes that phones insert
_LONGEST_CODE = 64


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class PendingCode:
    """A pending code. `proof` is the handle or the channel code to be returned. `until` is when it expires; `tries`
    counts the channel codes tried. `facts` are those of the callback that brought it."""

    kind: OwnerConfirmation
    code: Secret
    proof: Secret
    until: datetime
    tries: int = 0
    facts: Mapping[str, str] = field(default_factory=dict, metadata=OPTIONAL)

    def __repr__(self) -> str:
        return f"PendingCode({self.kind})"

    def is_past(self, now: datetime) -> bool:
        return has_passed(self.until, self.until - timedelta(seconds=PENDING_CODE_SECONDS), now)

    def tried(self) -> PendingCode:
        """Count one try of a channel code, before it is compared."""
        return replace(self, tries=self.tries + 1)

    @property
    def worn_out(self) -> bool:
        return self.tries >= MAX_TRIES


def code_of(chance: bytes) -> str:
    """Return five random bytes as eight letters and digits to read out."""
    number = int.from_bytes(chance[:5], "big")
    return "".join(_CODE_ALPHABET[number >> shift & 31] for shift in range(35, -5, -5))


def grouped(code: str) -> str:
    """Return the code as shown to the user: `ABCD-EFGH`."""
    return f"{code[:4]}-{code[4:]}"


def as_code(said: str) -> str | None:
    """Normalise a code from the user: upper case, without spaces and dashes. None if it cannot be a code."""
    if not isinstance(said, str) or len(said) > _LONGEST_CODE:
        return None
    text = _BETWEEN.sub("", said).upper()
    return text if _CODE.fullmatch(text) else None
