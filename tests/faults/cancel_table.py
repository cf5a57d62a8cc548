"""The table of actions that the storm draws from. Each names the calls of the public surface that it covers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from oauthbroker.core.errors import Code
from tests.faults.cancel_world import Side, World

Act = Callable[[World, Side, Random], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Action:
    """`covers`: `events.lease` of the broker, `http endTurn` of the API, `page POST /admin/leave`. `allows`: the codes it may
    raise, because others act at the same time."""

    name: str
    act: Act
    covers: tuple[str, ...]
    allows: frozenset[Code]
    weight: int


TABLE: dict[str, Action] = {}


def action(*covers: str, allows: tuple[Code, ...] = (), weight: int = 2) -> Callable[[Act], Act]:
    def enter(act: Act) -> Act:
        name = getattr(act, "__name__", str(act))
        assert name not in TABLE, name
        TABLE[name] = Action(name, act, covers, frozenset(allows), weight)
        return act

    return enter
