"""`oauthbroker audit`: verify the audit log, show its newest lines, and name a person as it does. Needs keys, no
configuration values."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oauthbroker.cli.output.completion_words import all_entry_types, app_option, entry_types
from oauthbroker.cli.output.json_output import answer, begin_stream, one_of_many
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.cli.output.tables import counted, shown, table
from oauthbroker.cli.stored_records import in_vault, show_all, vault_of
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from oauthbroker.audit.chain import ChainHead
    from oauthbroker.audit.lines import AuditLine
    from oauthbroker.audit.trail import FileTrail
    from oauthbroker.audit.verification import SlotVerification, TrailVerification
    from oauthbroker.grants.grants import Vault

BROKEN = 1
POLL = 0.5  # seconds between two reads of the log
HEAD = re.compile(r"(?:(\d{1,3})/)?(\d{1,18}):([0-9a-f]{32})")
SILENT = {"app", "after"}  # shown in a column of its own, or of no use to a person
TITLES = ("no", "time", "entry", "app", "who", "details")

app = typer.Typer(no_args_is_help=True, add_completion=False)
Count = Annotated[int, typer.Option("-n", "--lines", min=0, max=100_000, help="How many lines.")]
Following = Annotated[bool, typer.Option("--follow", "-f", help="Go on with the lines that come, until Ctrl-C.")]
AppName = Annotated[str | None, app_option("Only lines of this OAuthApp.")]
Kind = Annotated[
    str | None,
    typer.Option("--type", help="Only this type of entry, such as TokenIssued.", autocompletion=all_entry_types),
]
Collected = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FOLDER]...",
        help="Logs that were collected from the hosts of one store: copies of their folders `data`. "
        "Without one, this host's log.",
        show_default=False,
    ),
]
Noted = Annotated[
    list[str] | None,
    typer.Option(
        "--head",
        metavar="[SLOT/]NUMBER:MAC",
        help="A last line that you noted elsewhere: it must still be there. Once for each slot.",
    ),
]


@app.command("verify")
def verify_command(
    collected: Collected = None, head: Noted = None, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """Verify that every line is genuine and in its place, and that none is missing. Exit status 1 if not."""
    if head and len(collected or ()) > 1:
        raise Refused("--head belongs to the log of one host: name one folder with it.")
    noted, folders = dict(map(_head, head or ())), collected or ()
    results = in_vault(config, lambda vault: _results(vault.audit, folders, noted))
    if as_json:
        logs = {name: result.to_json() for name, result in results.items()}
        answer({"sound": all(it.sound for it in results.values()), "logs": logs} if folders else logs[""])
    else:
        for name, result in results.items():
            _show(result, shown(f"{name}: ") if name else "")
    raise typer.Exit(0 if all(result.sound for result in results.values()) else BROKEN)


async def _results(
    own: FileTrail, folders: Sequence[Path], noted: Mapping[int, ChainHead]
) -> dict[str, TrailVerification]:
    """Verify the logs in these folders, or without any this host's, whose name is empty. Raises Refused for a folder
    that has no log, and for a log that comes twice, because then that of another host is missing."""
    if not folders:
        return {"": await own.verify(noted)}
    results: dict[str, TrailVerification] = {}
    ends: dict[ChainHead, str] = {}
    for folder in folders:
        if not (folder / "audit.jsonl").is_file():
            raise Refused(
                f"There is no audit.jsonl in {shown(str(folder))}. Name copies of the folder `data` of a host."
            )
        result = results[str(folder)] = await replace(own, folder=folder).verify(noted)
        for slot in _used(result).values():
            if (other := ends.setdefault(slot.head, str(folder))) != str(folder):
                raise Refused(f"{shown(other)} and {shown(str(folder))} have the same log: one is a copy of the other.")
    return results


def _show(result: TrailVerification, prefix: str) -> None:
    if result.sound:
        typer.echo(f"{prefix}Sound: {counted(result.verified, 'line')}{_range(result)}.")
    else:
        _show_breaks(result, prefix)
    for note in _notes(result):
        typer.echo(prefix + note, err=True)


@app.command("name")
def name_command(
    person: Annotated[str, typer.Argument(help="The id of a caller, or a subject such as slack:user:T1:U1.")],
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Print the pseudonym by which the log names a person: as actor, by and subject."""

    async def named(vault: Vault) -> str:
        return vault.audit.name("person", person)

    name = in_vault(config, named)
    if as_json:
        answer({"name": name})
    else:
        typer.echo(name)


@app.command("tail")
def tail_command(
    lines: Count = 20,
    follow: Following = False,
    app_name: AppName = None,
    entry_type: Kind = None,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Show the newest lines, with the subjects of stored grants.

    With --follow and --json, each line is a JSON document of its own.
    """
    _check_type(entry_type)
    if follow:
        begin_stream()
    asyncio.run(_tail(config, lines, app_name, entry_type, follow=follow, as_json=as_json))


async def _tail(
    config: Path, count: int, app_name: str | None, entry_type: str | None, *, follow: bool, as_json: bool
) -> None:
    from oauthbroker.audit.lines import Sought
    from oauthbroker.audit.trail import Follow

    sought = Sought(app=app_name, type=entry_type)
    async with vault_of(config) as vault:
        people = GrantNames(vault)
        coming = Follow(vault.audit) if follow else None
        found = await vault.audit.tail(count, app=app_name, type=entry_type)
        if coming is None:
            await people.learn(found)
            documents, rows = [people.to_json(line) for line in found], [_row(line, people) for line in found]
            show_all(documents, rows, TITLES, "There are no such lines.", as_json=as_json)
            return
        try:
            while True:
                await _show_more(found, people, as_json=as_json)
                await asyncio.sleep(POLL)
                found = [line for line in await coming.more() if line.fits(sought)]
        finally:
            coming.close()


class GrantNames:
    """Finds the grant of a log line: the log holds keyed names only, the store holds the grants."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._known: dict[str, tuple[str, str, str]] = {}

    async def learn(self, lines: Iterable[AuditLine]) -> None:
        """Read the grants if a line names an unknown one. A deleted grant stays unknown."""
        named = {line.grant for line in lines} - self._known.keys() - {None}
        if named:
            name = self._vault.audit.name
            self._known |= {str(gone): ("", "", "") for gone in named}
            async for grant in self._vault.grants.list():
                self._known[name("grant", grant.grantId)] = (grant.grantId, grant.subject, grant.accountName)

    def of(self, line: AuditLine) -> tuple[str, str, str]:
        """Return (grantId, subject, what people call its account), empty for an unknown grant."""
        return self._known.get(line.grant or "", ("", "", ""))

    def to_json(self, line: AuditLine) -> dict[str, Any]:
        grant_id, subject, _ = self.of(line)
        return line.to_json() | {"grantId": grant_id or None, "subject": subject or None}


async def _show_more(found: list[AuditLine], people: GrantNames, *, as_json: bool) -> None:
    await people.learn(found)
    for line in found:
        if as_json:
            one_of_many(people.to_json(line))
        else:
            no, time, entry, *rest = _row(line, people)
            typer.echo(shown(f"{no:>7}  {time}  {entry:<22}  " + "  ".join(word for word in rest if word)))


def _row(line: AuditLine, people: GrantNames) -> tuple[str, ...]:
    empty = (None, False, "")  # no set: a line that was tampered with may have a list
    words = {name: value for name, value in line.fields.items() if name not in SILENT and value not in empty}
    grant_id, subject, called = people.of(line)
    if grant_id:
        words["grant"] = grant_id.removeprefix("sha256:")[:12]
    if isinstance(digest := words.get("digest"), str):
        words["digest"] = digest[:12]
    marks = {True: [], False: ["NOT GENUINE"], None: ["unchained"]}[line.genuine]
    details = [f"{name}={'yes' if value is True else value}" for name, value in words.items()]
    number = "-" if line.seq is None else _of_slot(line.slot, str(line.seq))
    time, app_name = line.at.partition(".")[0].removesuffix("Z"), str(line.fields.get("app", "-"))
    return number, time, line.type, app_name, subject + (f" ({called})" if called else ""), " ".join([*marks, *details])


def _check_type(name: str | None) -> None:
    """Raise Refused for an unknown type. A misspelt one would look like a log without such events. The type of a
    plug-in may be older than the plug-ins of today."""
    from oauthbroker.audit.plugin_entry import is_of_plugin
    from oauthbroker.config.problems.spelling import nearest

    known = entry_types()
    if name is None or name in known or is_of_plugin(name):
        return
    close = nearest(name, known)
    instead = f"The nearest known one is {close}." if close else f"Known are {', '.join(known)}."
    raise Refused(f"There is no entry of type {shown(name)}. {instead}")


def _head(noted: str) -> tuple[int, ChainHead]:
    from oauthbroker.audit.chain import ChainHead

    found = HEAD.fullmatch(noted)
    if found is None:
        raise Refused("--head is written NUMBER:MAC or SLOT/NUMBER:MAC, as `audit verify` prints it.")
    return int(found[1] or 0), ChainHead(int(found[2]), found[3].encode())


def _of_slot(slot: int, number: str) -> str:
    """Write a number of a slot; slot 0, which most logs have alone, is not named."""
    return f"{slot}/{number}" if slot else number


def _used(result: TrailVerification) -> dict[int, SlotVerification]:
    return {number: slot for number, slot in result.slots.items() if slot.verified}


def _range(result: TrailVerification) -> str:
    ranges = [f"{_of_slot(number, str(slot.first))} to {slot.head.seq}" for number, slot in _used(result).items()]
    return f", numbers {', '.join(ranges)}" if ranges else ""


def _show_breaks(result: TrailVerification, prefix: str) -> None:
    from oauthbroker.audit.verification import WHAT

    kinds = [each.kind + (f" ({each.reported})" if each.reported else "") for each in result.breaks]
    rows = [
        (each.file, str(each.line), kind, WHAT[each.kind] + _which(each.lines))
        for kind, each in zip(kinds, result.breaks, strict=True)
    ]
    table(("file", "line", "break", "what that is"), rows)
    more = result.broken - len(rows)
    also = f" {more} more are not listed." if more else ""
    typer.echo(
        f"{prefix}BROKEN: {counted(result.broken, 'break')}.{also} {counted(result.verified, 'line')} are genuine.",
        err=True,
    )


def _which(lines: tuple[int, int] | None) -> str:
    if lines is None:
        return ""
    return f": number {lines[0]}" if lines[0] == lines[1] else f": numbers {lines[0]} to {lines[1]}"


def _notes(result: TrailVerification) -> Iterable[str]:
    """Yield the facts that are no break but matter to a reviewer of the log."""
    for number, slot in result.slots.items():
        if slot.moved_away:
            yield f"Lines before number {_of_slot(number, str(slot.first))} are in files that are not here."
    if result.unchained:
        yield f"{counted(result.unchained, 'line')} of a version without a chain, as they were when it began."
    if result.torn:
        yield f"{counted(result.torn, 'line')} were cut off while being written (a crash); the next line says so."
    if result.unfinished:
        yield f"{counted(result.unfinished, 'byte')} after the last line: a crash, or an entry being written."
    if result.gaps:
        yield f"{counted(result.gaps, 'entry')} could not be written at the time (audit.onFailure: continue).".replace(
            "entrys", "entries"
        )
    for number, slot in _used(result).items():
        last = _of_slot(number, f"{slot.head.seq}:{slot.head.mac.decode()}")
        yield f"The last line is {last}. Noted elsewhere, --head shows later that it is still there."
