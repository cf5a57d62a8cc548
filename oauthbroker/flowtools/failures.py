"""Why a run ends without success: codes and sentences."""

from __future__ import annotations

from dataclasses import dataclass, field

from oauthbroker import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The authenticated caller of a run, or the service identity of a trigger. `turn` says for whom its requests ask
    for tokens; without it they get none. `repeats`: it is an agent, whose turn goes on after a consent and repeats the
    call; no other process goes on with its run."""

    id: str
    roles: frozenset[str] = frozenset()
    turn: Turn | None = field(default=None, repr=False)
    repeats: bool = False


class FlowFailed(Exception):
    """A run cannot go on. `code` is stable; the message names no value of a row or of the input."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message
