"""Runs and their steps as operators see them. No query reads an input, an output, a step's value or a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from oauthbroker.flowtools.running import approvals
from oauthbroker.flowtools.running.journal import RUN, STEP, notes_of

_SHOWN: Final = ("id", "tool", "version", "state", "code", "message", "notes", "caller", "started", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run. `seconds` is the time from its start to its end; None before the end."""

    id: str
    tool: str
    version: int
    state: str
    code: str | None
    message: str | None
    notes: tuple[str, ...]
    caller: str | None
    started: float
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run, its steps (node, state, attempts, rows), and decisions about it (policy, decision, by, at)."""

    line: RunLine
    steps: Sequence[Any]
    decisions: Sequence[Any]


def run_lines(connection: Connection, *, limit: int, offset: int = 0, **where: Any) -> list[RunLine]:
    """Return runs, the newest first."""
    wanted = sa.select(*(RUN.c[name] for name in _SHOWN)).filter_by(**where)
    found = connection.execute(wanted.order_by(RUN.c.started.desc(), RUN.c.id).limit(limit).offset(offset))
    return [_line(row) for row in found]


def run_detail(connection: Connection, run: str) -> RunDetail | None:
    """Return one run; None if there is none."""
    found = run_lines(connection, limit=1, id=run)
    if not found:
        return None
    steps = sa.select(STEP.c.node, STEP.c.state, STEP.c.attempts, STEP.c.rows).where(STEP.c.run == run)
    decisions = approvals.decisions(connection, run)
    return RunDetail(line=found[0], steps=connection.execute(steps).all(), decisions=decisions)


def _line(row: Any) -> RunLine:
    shown = {name: getattr(row, name) for name in ("id", "tool", "version", "state", "code", "message", "started")}
    seconds = None if row.ended is None else max(0.0, row.ended - row.started)
    return RunLine(**shown, notes=notes_of(row.notes), caller=row.caller, seconds=seconds)
