"""Run `oauthbroker grants import`: read and check the whole file, then write; show progress and a summary."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import typer

from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.new_files import new_file
from oauthbroker.cli.output.progress import progress, unchanged
from oauthbroker.cli.output.tables import counted, facts, shown
from oauthbroker.cli.stored_records import unknown
from oauthbroker.config import Loaded
from oauthbroker.config.bundle.server_environment import load_here
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import to_its_end
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.core.refused import CRASHED, STOPPED, Refused
from oauthbroker.grants.import_lines import MOST_LINES, MOST_PROBLEMS, CheckedLines, Incoming, LineProblem, validate
from oauthbroker.grants.importing import Importing, ImportOutcome
from oauthbroker.model.apps import App
from oauthbroker.records import grant_id
from oauthbroker.wiring import open_broker, open_vault

WRITTEN_AT_ONCE, VERIFIED_AT_ONCE = 32, 4
MOST_SHOWN = 50
OURS: tuple[ImportOutcome, ...] = ("imported", "replaced", "there")  # the grant is the line's
OUTCOME_TEXTS: dict[ImportOutcome, str] = {
    "imported": "imported",
    "replaced": "replaced another grant, or gave it its next credential",
    "there": "were imported before",
    "kept": "left alone: a grant is alive (--replace)",
    "revoked": "left alone: revoked here (--replace)",
}


@dataclass(slots=True, kw_only=True)
class ImportFigures:
    """The progress of a run, by line. `unsound` are the lines that could not be verified, with the error; `unverified`
    those whose provider has not said whose they are, None until the end of the run."""

    outcomes: dict[int, ImportOutcome] = field(default_factory=dict)
    failed: dict[int, Code] = field(default_factory=dict)
    unverified: set[int] | None = None
    verified: set[int] = field(default_factory=set)
    unsound: dict[int, Code] = field(default_factory=dict)
    progress: Progress = unseen

    def count(self, outcome: ImportOutcome) -> int:
        return Counter(self.outcomes.values())[outcome]

    @property
    def to_verify(self) -> int:
        """Return how many lines a run with `--verify` that was stopped has not asked about."""
        return sum(map(self.count, OURS)) - len(self.verified) - len(self.unsound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of the command. `refused` is a new file for the lines that are not written, by number and reason: the
    lines themselves hold tokens, and are in no file but the operator's."""

    app: str | None = None
    dry_run: bool = False
    replace: bool = False
    verify: bool = False
    refused: Path | None = None
    as_json: bool = False


def run(config: Path, file: str, wanted: Wanted) -> int:
    """Import the file and return the exit status. Without `refused`, one problem and nothing is written."""
    with unchanged():
        loaded = load_here(config)
    with new_file(wanted.refused, 0o600) if wanted.refused is not None else nullcontext() as refused:
        with unchanged():
            checked = _validated(file, loaded, wanted)
        if refused is not None:
            _write(refused, checked.problems)
        elif checked.problems:
            _refuse(checked)
        figures = ImportFigures()
        if not checked.incoming:
            typer.echo("There are no lines to import in it.", err=True)
        stopped = _run(config, loaded, checked.incoming, figures, wanted)
        if refused is not None:
            codes = sorted({**figures.unsound, **figures.failed}.items())
            _write(refused, [LineProblem(line, code.value) for line, code in codes])
    _tell(checked, figures, wanted)
    return STOPPED if stopped else CRASHED if checked.problems or figures.failed or figures.unsound else 0


def _run(config: Path, loaded: Loaded, incoming: Sequence[Incoming], figures: ImportFigures, wanted: Wanted) -> bool:
    """Write the lines, or predict what would be written. True if Ctrl-C ended it before."""
    if wanted.dry_run:
        with unchanged():
            asyncio.run(_foresee(loaded, incoming, figures, replace=wanted.replace))
        return False
    try:
        with progress(as_json=wanted.as_json) as figures.progress:
            asyncio.run(_import(config, incoming, figures, replace=wanted.replace, verify=wanted.verify))
    except KeyboardInterrupt:
        return True
    return False


def _write(refused: TextIO, problems: Sequence[LineProblem]) -> None:
    refused.writelines(f"{json.dumps(problem.to_json())}\n" for problem in problems)
    refused.flush()


def _validated(file: str, loaded: Loaded, wanted: Wanted) -> CheckedLines:
    apps: dict[str, App] = {name: draft.app for name, draft in loaded.apps.items()}
    if wanted.app is not None and wanted.app not in apps:
        raise Refused(f"{unknown('app', wanted.app, apps)} Nothing was changed.")
    most = MOST_PROBLEMS if wanted.refused is None else MOST_LINES
    with nullcontext(sys.stdin.buffer) if file == "-" else _opened(Path(file)) as stream:
        return validate(stream, apps, SystemClock().now(), app=wanted.app, most_problems=most)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file or a pipe. Warns if other users can read it."""
    try:
        stream = path.open("rb")
    except OSError:
        raise Refused(
            f"{shown(str(path))} cannot be read. Nothing was changed. Name a file that you may read, or - for stdin."
        ) from None
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
    """Predict the result of each line from the grant that is there."""
    async with open_vault(loaded.settings, env=loaded.env) as vault:
        for line in incoming:
            there = await vault.grants.record_of(line.key)
            alive: ImportOutcome = "replaced" if replace else "revoked" if there and there.revoked else "kept"
            figures.outcomes[line.line] = "imported" if there is None else alive


async def _import(
    config: Path, incoming: Sequence[Incoming], figures: ImportFigures, *, replace: bool, verify: bool
) -> None:
    """Write all grants before the first provider is called, so that a slow provider delays none."""
    only = {line.app for line in incoming}
    async with open_broker(config, background=False, only=only) as broker:
        importing = broker.grants.importing
        written = Count("grants written", len(incoming), figures.progress)

        def take(line: Incoming) -> Awaitable[None]:
            return to_its_end(asyncio.ensure_future(_take(importing, line, figures, written, replace=replace)))

        await _each(incoming, WRITTEN_AT_ONCE, take)
        ours = [line for line in incoming if figures.outcomes.get(line.line) in OURS]
        if verify:
            verified = Count("grants verified by their provider", len(ours), figures.progress)
            await _each(ours, VERIFIED_AT_ONCE, lambda line: _verify(importing, line, figures, verified))
        unverified = set[int]()

        async def look(line: Incoming) -> None:
            if await importing.is_unverified(line):
                unverified.add(line.line)

        await _each(ours, WRITTEN_AT_ONCE, look)
        figures.unverified = unverified


async def _each(lines: Sequence[Incoming], at_once: int, work: Callable[[Incoming], Awaitable[None]]) -> None:
    queue = iter(lines)

    async def one_after_the_other() -> None:
        for line in queue:
            await work(line)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_after_the_other())


async def _take(importing: Importing, line: Incoming, figures: ImportFigures, count: Count, *, replace: bool) -> None:
    try:
        figures.outcomes[line.line] = await importing.import_grant(line, replace=replace)
    except BrokerError as error:
        figures.failed[line.line] = error.code
    count.add()


async def _verify(importing: Importing, line: Incoming, figures: ImportFigures, count: Count) -> None:
    try:
        code = await importing.verify(line)
    except BrokerError as error:
        code = error.code
    if code is None:
        figures.verified.add(line.line)
    else:
        figures.unsound[line.line] = code
    count.add()


def _tell(checked: CheckedLines, figures: ImportFigures, wanted: Wanted) -> None:
    incoming = checked.incoming
    if wanted.as_json:
        answer(_as_json(checked, figures, wanted))
        return
    refused = len({problem.line for problem in checked.problems})
    rows = [("lines", len(incoming) + refused), ("refused", refused)]
    rows += [(OUTCOME_TEXTS[outcome], figures.count(outcome)) for outcome in OUTCOME_TEXTS]
    rows.append(("unverified: the provider has not said whose they are", len(figures.unverified or ())))
    to_verify = figures.to_verify if wanted.verify and not wanted.dry_run else 0
    if wanted.verify:
        rows += [("verified by their provider", len(figures.verified)), ("not verified", len(figures.unsound))]
    left = len(incoming) - len(figures.outcomes) - len(figures.failed)
    rows += [("left to verify", to_verify), ("NOT written", left)]
    facts((text, str(count)) for text, count in rows if count or text == "lines")
    texts = [f"line {problem.line}: {problem.what}" for problem in checked.problems]
    problems, by_line = {**figures.unsound, **figures.failed}, {line.line: line for line in incoming}
    for number in sorted(problems):
        line, what = by_line[number], "NOT written" if number in figures.failed else "written, not verified"
        whose = " ".join(shown(part) for part in line.key if part)
        texts.append(f"line {number}: {whose}: {what}: {problems[number].value}")
    for text in texts[:MOST_SHOWN]:
        typer.echo(text, err=True)
    if len(texts) > MOST_SHOWN:
        typer.echo(f"{len(texts) - MOST_SHOWN} more; --refused FILE and --json have all.", err=True)
    if wanted.dry_run:
        typer.echo("Nothing was changed.", err=True)
    elif figures.failed or left or to_verify:
        stopped = f"{counted(left, 'line')} not written. " if left else ""
        stopped += f"{counted(to_verify, 'line')} to verify. " if to_verify else ""
        typer.echo(f"{stopped}Type this again: lines already done are not repeated.", err=True)


def _as_json(checked: CheckedLines, figures: ImportFigures, wanted: Wanted) -> dict[str, Any]:
    incoming = checked.incoming
    return {
        "dryRun": wanted.dry_run,
        "lines": len(incoming) + len({problem.line for problem in checked.problems}),
        **{outcome: figures.count(outcome) for outcome in OUTCOME_TEXTS},
        "failed": len(figures.failed),
        "notWritten": len(incoming) - len(figures.outcomes) - len(figures.failed),
        "unverified": None if figures.unverified is None else len(figures.unverified),
        "verified": len(figures.verified) if wanted.verify else None,
        "notVerified": len(figures.unsound) if wanted.verify else None,
        "toVerify": figures.to_verify if wanted.verify else None,
        "grants": [_one_as_json(line, figures) for line in incoming],
        "refused": [problem.to_json() for problem in checked.problems],
    }


def _one_as_json(line: Incoming, figures: ImportFigures) -> dict[str, Any]:
    code = figures.failed.get(line.line) or figures.unsound.get(line.line)
    return {
        "line": line.line,
        "app": line.app,
        "subject": line.subject,
        **({"connection": line.connection} if line.connection else {}),
        "grantId": grant_id(*line.key),
        "outcome": figures.outcomes.get(line.line),
        "verified": line.line in figures.verified,
        "code": code.value if code is not None else None,
    }
