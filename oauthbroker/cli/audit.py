"""`oauthbroker audit`: verify the log, show its newest lines, name a person as it does. Needs keys, no other values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.audit_tail import of_slot, tail_command
from oauthbroker.cli.output.json_output import answer, say
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.cli.output.progress import progress
from oauthbroker.cli.output.tables import counted, shown, table
from oauthbroker.cli.stored_records import in_vault
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from oauthbroker.audit.chain import ChainHead
    from oauthbroker.audit.trail import FileTrail
    from oauthbroker.audit.verification import SlotVerification, TrailVerification
    from oauthbroker.core.progress import Progress
    from oauthbroker.grants.grants import Vault

BROKEN = 1
HEAD = re.compile(r"(?:(\d{1,3})/)?(\d{1,18}):([0-9a-f]{32})")

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command("tail")(tail_command)
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
    with progress(as_json=as_json) as counts:
        results = in_vault(config, lambda vault: _results(vault.audit, folders, noted, counts))
    if as_json:
        logs = {name: result.to_json() for name, result in results.items()}
        answer({"sound": all(it.sound for it in results.values()), "logs": logs} if folders else logs[""])
    else:
        for name, result in results.items():
            _show(result, shown(f"{name}: ") if name else "")
    raise typer.Exit(0 if all(result.sound for result in results.values()) else BROKEN)


async def _results(
    own: FileTrail, folders: Sequence[Path], noted: Mapping[int, ChainHead], progress: Progress
) -> dict[str, TrailVerification]:
    """Verify the logs in these folders, or without any this host's, whose name is empty. Raises Refused for a folder
    that has no log, and for a log that comes twice, because then that of another host is missing."""
    if not folders:
        return {"": await own.verify(noted, progress)}
    results: dict[str, TrailVerification] = {}
    ends: dict[ChainHead, str] = {}
    for folder in folders:
        if not (folder / "audit.jsonl").is_file():
            raise Refused(
                f"There is no audit.jsonl in {shown(str(folder))}. Name copies of the folder `data` of a host."
            )
        result = results[str(folder)] = await replace(own, folder=folder).verify(noted, progress)
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
    say(name, {"name": name}, as_json=as_json)


def _head(noted: str) -> tuple[int, ChainHead]:
    from oauthbroker.audit.chain import ChainHead

    found = HEAD.fullmatch(noted)
    if found is None:
        raise Refused("--head is written NUMBER:MAC or SLOT/NUMBER:MAC, as `audit verify` prints it.")
    return int(found[1] or 0), ChainHead(int(found[2]), found[3].encode())


def _used(result: TrailVerification) -> dict[int, SlotVerification]:
    return {number: slot for number, slot in result.slots.items() if slot.verified}


def _range(result: TrailVerification) -> str:
    ranges = [f"{of_slot(number, str(slot.first))} to {slot.head.seq}" for number, slot in _used(result).items()]
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
            yield f"Lines before number {of_slot(number, str(slot.first))} are in files that are not here."
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
        last = of_slot(number, f"{slot.head.seq}:{slot.head.mac.decode()}")
        yield f"The last line is {last}. Noted elsewhere, --head shows later that it is still there."
