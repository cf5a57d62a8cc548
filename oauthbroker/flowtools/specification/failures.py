"""Why a run ends without success: codes and sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from oauthbroker import Turn

_MOST_ERRORS: Final = 20
_MOST_PLACES, _LONGEST_PLACE = 5, 128  # in the sentence
Errors = Iterable[tuple[str, str]]


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
    """A run cannot go on. `code` is stable; the message names no value of a row or of the input. `errors` are places in
    the input, as JSON pointers, each with the keyword of the rule that it breaks."""

    def __init__(self, code: str, message: str, errors: Errors = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.errors = code, message, tuple(errors)


def input_invalid(what: str, errors: Iterable[tuple[str, str]]) -> FlowFailed:
    """Return the refusal of an input, with its places."""
    found = tuple(islice(errors, _MOST_ERRORS))
    places = ", ".join(f"{pointer[:_LONGEST_PLACE]} ({keyword})" for pointer, keyword in found[:_MOST_PLACES])
    return FlowFailed("inputInvalid", f"{what}: {places}", found)
