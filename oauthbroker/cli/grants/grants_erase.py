"""`oauthbroker grants erase`: delete the records of a subject."""

from __future__ import annotations

import asyncio
from pathlib import Path

import typer

from oauthbroker.cli.output.error_output import confirm
from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.progress import progress, resumable, unchanged
from oauthbroker.cli.output.tables import counted, facts, shown
from oauthbroker.core.progress import Progress
from oauthbroker.grants.found_records import Erased, FoundRecords
from oauthbroker.plugins.discovery import installed
from oauthbroker.wiring import open_broker

DONE, LEFT_TO_DO = 0, 3
COUNTED = {
    "grants": "grants, ended ones included",
    "sessions": "authorizations",
    "events": "events, dead letters included",
    "turns": "running turns",
    "browserSessions": "browser sessions of the connections page",
    "uses": "notes on when a grant was used",
    "pluginValues": "values of plug-ins",
    "pluginRecords": "records that plug-ins keep elsewhere, such as runs",
}


def run(config: Path, subject: str, patience: float, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Erase a subject after confirmation. Return the exit status. Idempotent; may be stopped at any moment."""
    with unchanged(), progress(as_json=as_json) as counts:
        found = asyncio.run(_look(config, subject, counts))
    if found.empty or dry_run:
        typer.echo(f"{_summed(found)} Nothing was changed.", err=True)
        _tell(Erased(found.empty, found), as_json=as_json)
        return DONE
    typer.echo(_summed(found), err=True)
    confirm(f"Revoke and erase all of {shown(subject)}?", yes=yes)
    with resumable(), progress(as_json=as_json) as counts:
        erased = asyncio.run(_erase(config, found, patience, counts, found if yes else None))
    _tell(erased, as_json=as_json)
    if erased.done:
        return DONE
    typer.echo(_why(erased.found), err=True)
    return LEFT_TO_DO


async def _look(config: Path, subject: str, counts: Progress) -> FoundRecords:
    async with open_broker(config, background=False, only=_plugins()) as broker:
        return await broker.erasure.find_records(subject, counts)


async def _erase(
    config: Path, found: FoundRecords, patience: float, counts: Progress, seen: FoundRecords | None
) -> Erased:
    """Erase the subject. Loads only the values of apps whose providers have to be told. `seen`: None after a question,
    in whose time another person's grant may have come to name the subject."""
    only = _plugins() | {grant.app for grant in found.grants if not grant.revoked or grant.revocation_pending}
    async with open_broker(config, background=False, only=only) as broker:
        return await broker.erasure.erase(found.subject, patience=patience, progress=counts, seen=seen)


def _plugins() -> set[str]:
    """Return the names of the installed plugins: their values lead to data that they keep elsewhere."""
    return {plugin.name for plugin in installed()}


def _summed(found: FoundRecords) -> str:
    if found.empty:
        return f"Nothing is kept of {shown(found.subject)}."
    of_others = (
        f" {counted(len(found.named_in), 'grant')} of other subjects will still name it." if found.named_in else ""
    )
    damaged = f" {counted(found.unreadable, 'record')} of it cannot be read." if found.unreadable else ""
    return f"{shown(found.subject)}: {counted(sum(found.counts().values()), 'record')}.{damaged}{of_others}"


def _why(found: FoundRecords) -> str:
    if found.to_tell:
        summary = f"{counted(found.to_tell, 'grant')} ended here, but the provider has still to be told."
        return f"Not erased: {summary} Type this again once it knows; a running broker tells it."
    if found.of_plugins.ending:
        runs = counted(found.of_plugins.ending, "record")
        return f"Not erased: {runs} of plug-ins, such as runs, must end first. A broker ends them; type this again."
    if found.unreadable and not found.connecting:
        damaged = counted(found.unreadable, "record")
        return (
            f"Not erased: {damaged} cannot be read. Restore or remove what `oauthbroker doctor` names; type this again."
        )
    return "Not erased: a browser is just connecting this subject. Type this again in a minute."


def _tell(erased: Erased, *, as_json: bool) -> None:
    if as_json:
        answer(erased.to_json())
        return
    facts((text, str(count)) for kind, text in COUNTED.items() if (count := erased.found.counts()[kind]))
    facts(("still named in", grant_id) for grant_id in sorted(erased.found.named_in))
