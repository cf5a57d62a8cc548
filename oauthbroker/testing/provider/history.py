"""What the provider remembers of what happened, as a test may look at it. No tokens, except in `Told.document`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from oauthbroker.testing.provider.ledger import Agreement


@dataclass(frozen=True, slots=True)
class Family:
    """The tokens that came of one consent, as they are now.

    Refresh tokens are numbered by generation: 1 came with the code, each rotation adds one. `redeemed` says how
    often a generation bought tokens, `reused` how often a spent one was tried again and refused.
    `ended_by` is empty while the family lives, else `reuse` (of a refresh token), `codeReuse`, `revocation`
    (the client asked) or `person`.
    """

    client_id: str
    login: str
    scopes: tuple[str, ...]
    generation: int
    redeemed: Mapping[int, int]
    reused: int
    ended_by: str

    @property
    def is_alive(self) -> bool:
        """Whether its refresh token could still buy something."""
        return not self.ended_by


def family_of(agreement: Agreement) -> Family:
    """A picture of an agreement."""
    return Family(
        agreement.client_id,
        agreement.account.login,
        agreement.scopes,
        agreement.generation,
        MappingProxyType(dict(agreement.redeemed)),
        agreement.reused,
        agreement.ended_by,
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """One honest no of the token endpoint: the OAuth error word, whatever the dialect made of it."""

    client_id: str
    grant_type: str
    error: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Told:
    """One honest answer of the token endpoint, before a script altered it."""

    client_id: str
    login: str
    grant_type: str
    at: datetime
    document: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Revocation:
    """One revocation that was understood: of which kind of token, whose, and how many living tokens it ended.

    `kind` is empty for a token that nobody knows, and for a whole grant that was asked away.
    """

    client_id: str
    login: str
    kind: str
    ended: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll for a device: when, and what it was told (`granted`, or the error word)."""

    at: datetime
    answer: str


@dataclass(frozen=True, slots=True)
class DeviceStory:
    """A device's code as it is now. `status` is `pending`, `approved`, `denied`, `redeemed` or `expired`.

    `interval` is what the next poll must keep, in seconds; every `slow_down` adds five.
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
        """How often it was polled too fast."""
        return sum(poll.answer == "slow_down" for poll in self.polls)
