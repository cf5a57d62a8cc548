"""`oauthbroker audit tail`: show the newest lines of the log, with the grants that they name by pseudonyms."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oauthbroker.cli.output.completion_words import all_entry_types, app_option, entry_types
from oauthbroker.cli.output.json_output import begin_stream, one_of_many
from oauthbroker.cli.output.options import CONFIG, LIMIT, AsJson, ConfigPath
from oauthbroker.cli.output.tables import shown
from oauthbroker.cli.stored_records import Listing, check_app, in_vault, vault_of
from oauthbroker.core.refused import STOPPED, Refused

if TYPE_CHECKING:
    from oauthbroker.audit.lines import AuditLine, Which
    from oauthbroker.grants.grants import Vault

POLL = 0.5  # seconds between two reads of the log
KNOWN = 10_000  # grants whose names in the log are remembered
SILENT = {"app", "after"}  # shown in a column of its own, or of no use to a person
TITLES = ("no", "time", "entry", "app", "who", "details")

Count = Annotated[int, typer.Option("--limit", "-n", min=0, max=100_000, help="How many lines are shown at most.")]
Following = Annotated[bool, typer.Option("--follow", "-f", help="Go on with the lines that come, until Ctrl-C.")]
AppName = Annotated[str | None, app_option("Only lines of this OAuthApp.")]
Kind = Annotated[
    str | None,
    typer.Option("--type", help="Only this type of entry, such as TokenIssued.", autocompletion=all_entry_types),
]


def tail_command(
    limit: Count = LIMIT,
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
    which: Which = {"app": app_name, "type": entry_type}
    if follow:
        begin_stream()
        try:
            asyncio.run(_follow(config, limit, which, as_json=as_json))
        except KeyboardInterrupt:  # the usual end
            raise typer.Exit(STOPPED) from None
        return
    found, people = in_vault(config, lambda vault: _newest(vault, config, limit + 1, which))
    listing = Listing(TITLES, lambda line: _row(line, people), people.to_json, none="There are no such lines.")
    listing.show(found[max(len(found) - limit, 0) :], as_json=as_json)
    if len(found) > limit:
        typer.echo(f"There are older lines: --limit {2 * limit or LIMIT} shows more.", err=True)


async def _newest(vault: Vault, config: Path, count: int, which: Which) -> tuple[list[AuditLine], GrantNames]:
    found, people = await _tail(vault, config, count, which), GrantNames(vault)
    await people.learn(found)
    return found, people


async def _tail(vault: Vault, config: Path, count: int, which: Which) -> list[AuditLine]:
    """Return the newest lines. Raises Refused for an app that is not configured, has no line and no record."""
    found, app = await vault.audit.tail(count, **which), which.get("app")
    if not found and isinstance(app, str) and not await vault.audit.tail(1, app=app):
        await check_app(vault, config, app)
    return found


async def _follow(config: Path, count: int, which: Which, *, as_json: bool) -> None:
    from oauthbroker.audit.lines import parsed
    from oauthbroker.audit.trail import Follow

    sought = parsed(count, which)
    async with vault_of(config) as vault:
        people, coming = GrantNames(vault), Follow(vault.audit)
        try:
            found = await _tail(vault, config, count, which)
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
        """Read the grants until each one that a line names is known, and note others on the way, as far as there is
        space. A deleted grant stays unknown."""
        missing = {str(line.grant) for line in lines if line.grant} - self._known.keys()
        if not missing:
            return
        self._known |= dict.fromkeys(missing, ("", "", ""))
        async for grant in self._vault.grants.list():
            name = self._vault.audit.name("grant", grant.grantId)
            if name in missing or len(self._known) < KNOWN:
                self._known[name] = (grant.grantId, grant.subject, grant.accountName)
                missing.discard(name)
            if not missing:
                return

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
    words = {name: value for name, value in line.details if name not in SILENT}
    grant_id, subject, called = people.of(line)
    if grant_id:
        words["grant"] = grant_id.removeprefix("sha256:")[:12]
    if isinstance(digest := words.get("digest"), str):
        words["digest"] = digest[:12]
    marks = {True: [], False: ["NOT GENUINE"], None: ["unchained"]}[line.genuine]
    details = [f"{name}={'yes' if value is True else value}" for name, value in words.items()]
    number = "-" if line.seq is None else of_slot(line.slot, str(line.seq))
    time, app_name = line.at.partition(".")[0].removesuffix("Z"), str(line.fields.get("app") or "-")
    return number, time, line.type, app_name, subject + (f" ({called})" if called else ""), " ".join([*marks, *details])


def _check_type(name: str | None) -> None:
    """Raise Refused for an unknown type. A misspelt one would look like a log without such events. The type of a
    plug-in may be older than the plug-ins of today."""
    from oauthbroker.audit.plugin_entry import is_of_plugin
    from oauthbroker.core.spelling import nearest

    known = entry_types()
    if name is None or name in known or is_of_plugin(name):
        return
    close = nearest(name, known)
    instead = f"The nearest known one is {close}." if close else f"Known are {', '.join(known)}."
    raise Refused(f"There is no entry of type {shown(name)}. {instead}")


def of_slot(slot: int, number: str) -> str:
    """Write a number of a slot; slot 0, which most logs have alone, is not named."""
    return f"{slot}/{number}" if slot else number
