"""The provider's history for a test to inspect. It holds no tokens, except in `TokenResponse.document`."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, Literal

from oauthbroker.core.dataclasses import dataclass, field

Ending = Literal["", "reuse", "codeReuse", "revocation", "person"]


@dataclass(slots=True, kw_only=True)
class Family:
    """The tokens of one consent, as they are now.

    Refresh tokens are numbered by generation: 1 came with the code, each rotation adds one. `redeemed` counts how often
    a generation was redeemed, `reused` how often a spent one was tried and refused. `ended_by` is empty while the
    family lives, else `reuse` (of a refresh token), `codeReuse`, `revocation` (by the client) or `person`.
    """

    client_id: str
    login: str
    scopes: tuple[str, ...]
    generation: int = 0
    redeemed: Counter[int] = field(default_factory=Counter)
    reused: int = 0
    ended_by: Ending = ""

    @property
    def is_alive(self) -> bool:
        """Tell whether its refresh token can still be redeemed."""
        return not self.ended_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One honest refusal of the token endpoint: the OAuth error word, in every dialect."""

    client_id: str
    grant_type: str
    error: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenResponse:
    """One honest answer of the token endpoint, before alterations."""

    client_id: str
    login: str
    grant_type: str
    at: datetime
    document: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """One accepted revocation: the kind of token, its owner, and the number of tokens it ended.

    `kind` is empty for an unknown token, and for the revocation of a whole grant.
    """

    client_id: str
    login: str
    kind: str
    ended: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll for a device: its time, and its answer (`granted`, or the error word)."""

    at: datetime
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStory:
    """A device's code as it is now. `status` is `pending`, `approved`, `denied`, `redeemed` or `expired`.

    `interval` is the minimum before the next poll, in seconds; every `slow_down` adds five.
    """

    client_id: str
    user_code: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    status: Literal["pending", "approved", "denied", "redeemed", "expired"]
    interval: int
    polls: tuple[Poll, ...]

    @property
    def slow_downs(self) -> int:
        """Count the polls that were too fast."""
        return sum(poll.answer == "slow_down" for poll in self.polls)
