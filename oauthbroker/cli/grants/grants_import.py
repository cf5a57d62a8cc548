"""Run `oauthbroker grants import`: read and check the whole file, then write; show progress and a summary."""

from __future__ import annotations

import asyncio
import stat
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import typer

from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.tables import counted, facts, progress, shown
from oauthbroker.config import Loaded, load
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import CRASHED, STOPPED, Refused
from oauthbroker.grants.import_lines import CheckedLines, Incoming, validate
from oauthbroker.grants.importing import Importing, ImportOutcome
from oauthbroker.model.apps import OAuthApp
from oauthbroker.records import grant_id
from oauthbroker.wiring import open_broker, open_vault

WRITTEN_AT_ONCE, VERIFIED_AT_ONCE = 32, 4
MOST_SHOWN = 50
OUTCOME_TEXTS: dict[ImportOutcome, str] = {
    "imported": "imported",
    "replaced": "replaced another grant",
    "there": "were imported before",
    "kept": "left alone: a grant is alive (--replace)",
    "revoked": "left alone: revoked here (--replace)",
}


@dataclass(slots=True, kw_only=True)
class ImportFigures:
    """The progress of a run, by line. `unsound` are the lines that the provider did not refresh, with the error."""

    outcomes: dict[int, ImportOutcome] = field(default_factory=dict)
    failed: dict[int, Code] = field(default_factory=dict)
    verified: set[int] = field(default_factory=set)
    unsound: dict[int, Code] = field(default_factory=dict)
    on_change: Callable[[str, int], None] = lambda _name, _done: None

    def count(self, outcome: ImportOutcome) -> int:
        return Counter(self.outcomes.values())[outcome]


def run(config: Path, file: str, app: str | None, *, dry_run: bool, replace: bool, verify: bool, as_json: bool) -> int:
    """Import the file and return the exit status. Raises Refused, with every problem of the file, before any write."""
    loaded = load(config)
    validated = _validated(file, loaded, app)
    if validated.problems:
        _refuse(validated)
    incoming, figures = validated.incoming, ImportFigures()
    if not incoming:
        typer.echo("There are no lines in it.", err=True)
    if dry_run:
        asyncio.run(_foresee(loaded, incoming, figures, replace=replace))
        _tell(incoming, figures, dry_run=True, verify=False, as_json=as_json)
        return 0
    stopped = False
    try:
        with progress(dict.fromkeys(["written", "verified"] if verify else ["written"], len(incoming))) as show:
            figures.on_change = show
            asyncio.run(_import(config, incoming, figures, replace=replace, verify=verify))
    except KeyboardInterrupt:
        stopped = True
    _tell(incoming, figures, dry_run=False, verify=verify, as_json=as_json)
    return STOPPED if stopped else CRASHED if figures.failed or figures.unsound else 0


def _validated(file: str, loaded: Loaded, app: str | None) -> CheckedLines:
    apps: dict[str, OAuthApp] = {name: draft.app for name, draft in loaded.apps.items()}
    if app is not None and app not in apps:
        raise Refused(f"No OAuthApp is called {shown(app)}. Nothing was changed.")
    now = SystemClock().now()
    if file == "-":
        return validate(sys.stdin.buffer, apps, now, app=app)
    with _opened(Path(file)) as stream:
        return validate(stream, apps, now, app=app)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file or a pipe. Warns if other users can read it."""
    try:
        stream = path.open("rb")
    except OSError:
        raise Refused(f"{shown(str(path))} cannot be read. Nothing was changed.") from None
    with stream:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            typer.echo(f"warning: others can read {shown(str(path))}, and the tokens in it", err=True)
        yield stream


def _refuse(validated: CheckedLines) -> None:
    for problem in validated.problems:
        typer.echo(f"line {problem.line}: {problem.what}", err=True)
    text = f"{counted(len(validated.problems), 'problem')}; nothing of this file was used."
    raise Refused(text, lines=[problem.to_json() for problem in validated.problems])


async def _foresee(loaded: Loaded, incoming: Sequence[Incoming], figures: ImportFigures, *, replace: bool) -> None:
    """Predict the result of each line from the list of grants."""
    async with open_vault(loaded.settings) as vault:
        there = {grant.grantId: grant.state async for grant in vault.grants.list()}
    for line in incoming:
        state = there.get(grant_id(line.app, line.subject))
        alive: ImportOutcome = "replaced" if replace else "kept" if state == "live" else "revoked"
        figures.outcomes[line.line] = "imported" if state is None else alive


async def _import(
    config: Path, incoming: Sequence[Incoming], figures: ImportFigures, *, replace: bool, verify: bool
) -> None:
    """Write all grants before the first provider is called, so that a slow provider delays none."""
    only = {line.app for line in incoming}
    async with open_broker(config, background=False, only=only) as broker:
        importing = broker.grants.importing
        await _each(incoming, WRITTEN_AT_ONCE, lambda line: _take(importing, line, figures, replace=replace))
        if verify:
            ours = [line for line in incoming if figures.outcomes.get(line.line) in {"imported", "replaced", "there"}]
            await _each(ours, VERIFIED_AT_ONCE, lambda line: _verify(importing, line, figures))


async def _each(lines: Sequence[Incoming], at_once: int, work: Callable[[Incoming], Awaitable[None]]) -> None:
    queue = iter(lines)

    async def one_after_the_other() -> None:
        for line in queue:
            await work(line)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_after_the_other())


async def _take(importing: Importing, line: Incoming, figures: ImportFigures, *, replace: bool) -> None:
    try:
        figures.outcomes[line.line] = await importing.import_grant(line, replace=replace)
    except BrokerError as error:
        figures.failed[line.line] = error.code
    figures.on_change("written", len(figures.outcomes) + len(figures.failed))


async def _verify(importing: Importing, line: Incoming, figures: ImportFigures) -> None:
    try:
        code = await importing.verify(line)
    except BrokerError as error:
        code = error.code
    if code is None:
        figures.verified.add(line.line)
    else:
        figures.unsound[line.line] = code
    figures.on_change("verified", len(figures.verified) + len(figures.unsound))


def _tell(incoming: Sequence[Incoming], figures: ImportFigures, *, dry_run: bool, verify: bool, as_json: bool) -> None:
    if as_json:
        answer(_as_json(incoming, figures, dry_run=dry_run, verify=verify))
        return
    rows = [("lines", len(incoming)), *((OUTCOME_TEXTS[outcome], figures.count(outcome)) for outcome in OUTCOME_TEXTS)]
    if verify:
        rows += [("refreshed by their provider", len(figures.verified)), ("not refreshed", len(figures.unsound))]
    facts((text, str(count)) for text, count in rows if count or text == "lines")
    problems = {**figures.unsound, **figures.failed}
    by_line = {line.line: line for line in incoming}
    for number in sorted(problems)[:MOST_SHOWN]:
        line, what = by_line[number], "NOT written" if number in figures.failed else "written, not refreshed"
        typer.echo(
            f"line {number}: {shown(line.app)} {shown(line.subject)}: {what}: {problems[number].value}", err=True
        )
    if len(problems) > MOST_SHOWN:
        typer.echo(f"{len(problems) - MOST_SHOWN} more; --json has all.", err=True)
    if dry_run:
        typer.echo("Nothing was changed.", err=True)
    elif figures.failed or len(figures.outcomes) < len(incoming):
        typer.echo("Type this again: lines already done are not repeated.", err=True)


def _as_json(incoming: Sequence[Incoming], figures: ImportFigures, *, dry_run: bool, verify: bool) -> dict[str, Any]:
    return {
        "dryRun": dry_run,
        "lines": len(incoming),
        **{outcome: figures.count(outcome) for outcome in OUTCOME_TEXTS},
        "failed": len(figures.failed),
        "verified": len(figures.verified) if verify else None,
        "notRefreshed": len(figures.unsound) if verify else None,
        "grants": [_one_as_json(line, figures) for line in incoming],
    }


def _one_as_json(line: Incoming, figures: ImportFigures) -> dict[str, Any]:
    code = figures.failed.get(line.line) or figures.unsound.get(line.line)
    return {
        "line": line.line,
        "app": line.app,
        "subject": line.subject,
        "grantId": grant_id(line.app, line.subject),
        "outcome": figures.outcomes.get(line.line),
        "verified": line.line in figures.verified,
        "code": code.value if code is not None else None,
    }
