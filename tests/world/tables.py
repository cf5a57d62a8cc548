"""The tables of a store as values in memory, and the exact statements that can be played on them.

A statement is known by its text. Each player stands beside a digest of the text that it was written for: a change of a
statement needs a look at its player, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Rows = list[tuple[Any, ...]]
Values = Mapping[str, Any]
Place = tuple[str, bytes]  # kind and name


class Stored(NamedTuple):
    """A row of `entry`."""

    generation: int
    version: int
    record: bytes


class Queued(NamedTuple):
    """A row of `queued`."""

    agent: bytes
    id: bytes
    address: bytes
    place: int
    record: bytes | None = None
    state: str = "waiting"
    attempts: int = 0
    due: Any = None
    lease: bytes | None = None
    refused: tuple[bytes, ...] = ()


@dataclass
class Tables:
    """All rows. They are values, so that `copied` keeps a moment. Times are of the clock `now`, in seconds."""

    now: Callable[[], float]
    timeline: int = 1
    keyring: tuple[bytes, int] | None = None
    entry: dict[Place, Stored] = field(default_factory=dict)
    tag: set[tuple[str, bytes, str, bytes]] = field(default_factory=set)  # kind, name, label, value
    set_aside: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    lease: dict[str, tuple[bytes, float]] = field(default_factory=dict)  # owner, until
    process: dict[bytes, tuple[bytes, float]] = field(default_factory=dict)  # mark, until
    feature: dict[str, float] = field(default_factory=dict)
    queued: dict[tuple[bytes, bytes], Queued] = field(default_factory=dict)  # by agent and id
    versions: int = 0
    places: int = 0
    notified: list[str] = field(default_factory=list)  # by the statement that runs

    def copied(self) -> Tables:
        found = copy(self)
        for name in ("entry", "tag", "set_aside", "lease", "process", "feature", "queued", "notified"):
            setattr(found, name, getattr(self, name).copy())
        return found

    def next_version(self) -> int:
        self.versions += 1
        return self.versions

    def next_place(self) -> int:
        self.places += 1
        return self.places

    def put(self, place: Place, row: Stored) -> None:
        if place in self.entry:
            self._tell_change(place)
        self.entry[place] = row

    def remove(self, place: Place) -> Stored:
        """Delete an entry with its tags, which refer to it."""
        self._tell_change(place)
        self.tag = {row for row in self.tag if row[:2] != place}
        return self.entry.pop(place)

    def seals(self, epoch: int) -> bool:
        return self.keyring is not None and self.keyring[1] == epoch

    def _tell_change(self, place: Place) -> None:
        """Do as the trigger `tell_change`."""
        if "feed" in self.feature:
            self.notified.append(f"{place[0]} {place[1].hex()}")


Player = Callable[[Tables, Values], Rows]
PLAYERS: dict[str, Player] = {}


class UnknownStatementError(Exception):
    """A statement that no player knows."""


def digest(statement: str) -> str:
    return hashlib.sha256(" ".join(statement.split()).encode()).hexdigest()[:8]


def plays(statement: str, written_for: str) -> Callable[[Player], Player]:
    """Note that the function plays this statement. Raises where its text is no longer the one it was written for."""
    if digest(statement) != written_for:
        raise UnknownStatementError(
            f"the text is another one ({digest(statement)}), look at the player and write that down: {statement}"
        )

    def note(player: Player) -> Player:
        PLAYERS[statement] = player
        return player

    return note


def play(tables: Tables, statement: str, values: Values) -> tuple[Rows, list[str]]:
    """Run a statement as one transaction, and return its rows and its notifications."""
    player = PLAYERS.get(statement)
    if player is None:
        raise UnknownStatementError(statement)
    tables.notified = []
    rows = player(tables, values)
    return rows, tables.notified
