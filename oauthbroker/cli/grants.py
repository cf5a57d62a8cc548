"""`oauthbroker grants`: what people agreed to, and ending it. Never a token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.options import CONFIG, AsJson, ConfigPath, Yes
from oauthbroker.cli.refusals import CRASHED, Refused, confirm
from oauthbroker.cli.text import columns, counted, shown

if TYPE_CHECKING:
    from oauthbroker.inventory import GrantSummary

SHORTEST_ID = 6

TOLD = {
    "done": "ended here and at the provider",
    "refused": "ended here; the provider refused to revoke it; check the client, a broker asks again for a week",
    "none": "ended here; this provider cannot be told, so its tokens live there until they expire",
    "later": "ended here; the provider did not answer, a running broker tells it as soon as it does",
}

app = typer.Typer(help="Grants people gave: list, show, revoke.", no_args_is_help=True, add_completion=False)
GrantId = Annotated[str, typer.Argument(metavar="GRANT_ID", help="As `grants list` shows it; its beginning is enough.")]
AnyGrantId = Annotated[
    str | None, typer.Argument(metavar="[GRANT_ID]", help="As `grants list` shows it; its beginning is enough.")
]
AppName = Annotated[str | None, typer.Option("--app", help="Only grants of this OAuthApp.")]
Subject = Annotated[str | None, typer.Option("--subject", help="Only grants of this subject.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what would be revoked.")]


@app.command("list")
def list_command(
    app_name: AppName = None, subject: Subject = None, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """List grants, the newest first; revoked ones too."""
    found = asyncio.run(_list(config, app_name, subject))
    if as_json:
        typer.echo(json.dumps([grant.to_json() for grant in found], ensure_ascii=False, indent=2))
    elif found:
        typer.echo(_table(found))
    else:
        typer.echo("There are no such grants.", err=True)


@app.command("show")
def show_command(grant_id: GrantId, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Show one grant."""
    grant = _one(asyncio.run(_list(config, None, None)), grant_id)
    if as_json:
        typer.echo(json.dumps(grant.to_json(), ensure_ascii=False, indent=2))
        return
    facts = grant.to_json() | {"scopes": " ".join(grant.scopes) or "none"}
    typer.echo(
        columns(("", ""), [(name, "-" if value is None else str(value)) for name, value in facts.items()]).strip()
    )


@app.command("revoke")
def revoke_command(
    grant_id: AnyGrantId = None,
    app_name: AppName = None,
    subject: Subject = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    config: ConfigPath = CONFIG,
) -> None:
    """End grants, here and at their provider.

    Name one by its id, or all of an app, of a subject, or of a subject for an app.
    """
    if not (grant_id or app_name or subject):
        raise Refused("Say which: a GRANT_ID, or --app, or --subject. Nothing was changed.")
    alive = [grant for grant in asyncio.run(_list(config, app_name, subject)) if grant.state != "revoked"]
    chosen = [_one(alive, grant_id)] if grant_id else alive
    if not chosen:
        raise Refused("There is no such grant alive. Nothing was changed.")
    typer.echo(_table(chosen), err=not dry_run)
    if dry_run:
        typer.echo(f"{counted(len(chosen), 'grant')} would be revoked. Nothing was changed.", err=True)
        return
    confirm(f"Revoke {counted(len(chosen), 'grant')}?", yes=yes)
    failed = asyncio.run(_revoke(config, chosen))
    if failed:
        typer.echo(f"{counted(failed, 'grant')} could not be ended; the command can be repeated.", err=True)
        raise typer.Exit(CRASHED)


def _one(grants: list[GrantSummary], grant_id: str) -> GrantSummary:
    """The grant whose id is, or begins with, what was typed. Raises Refused for none and for several."""
    typed = grant_id.removeprefix("sha256:")
    found = [grant for grant in grants if grant.grantId.removeprefix("sha256:").startswith(typed)]
    if len(typed) < SHORTEST_ID:
        raise Refused(f"Type at least {SHORTEST_ID} characters of the id.")
    if not found:
        raise Refused("There is no such grant. `oauthbroker grants list` shows what there is.")
    if len(found) > 1:
        raise Refused("That is the beginning of several grants' ids. Type more of it.")
    return found[0]


def _table(grants: list[GrantSummary]) -> str:
    head = ("grant", "app", "subject", "state", "expires", "scopes")
    return columns(head, [_row(grant) for grant in grants])


def _row(grant: GrantSummary) -> tuple[str, ...]:
    expires = "-" if grant.state == "revoked" else (grant.expiresAt or "never").partition(".")[0].removesuffix("Z")
    renewed = " (renewable)" if grant.refreshable else ""
    short = grant.grantId.removeprefix("sha256:")[:12]
    return short, grant.app, grant.subject, grant.state, expires + renewed, " ".join(grant.scopes) or "none"


async def _list(config: Path, app_name: str | None, subject: str | None) -> list[GrantSummary]:
    """Asks the store alone: whoever must see what there is may be in a shell without the configuration's values."""
    from oauthbroker.config import load
    from oauthbroker.wiring import open_vault

    async with open_vault(load(config).settings) as vault:
        found = [grant async for grant in vault.grants.list(app=app_name, subject=subject)]
    return sorted(found, key=lambda grant: (grant.createdAt, grant.grantId), reverse=True)


async def _revoke(config: Path, chosen: list[GrantSummary]) -> int:
    """Ends each; how many could not be ended."""
    from oauthbroker.errors import BrokerError
    from oauthbroker.wiring import open_broker

    failed = 0
    async with open_broker(config, background=False) as broker:
        for grant in chosen:
            try:
                told = await broker.grants.revoke(grant.app, grant.subject)
                outcome = TOLD[told] if told else "was ended meanwhile by somebody else"
            except BrokerError as error:
                outcome, failed = f"NOT ended: {error}", failed + 1
            typer.echo(f"{grant.app} {shown(grant.subject)}: {outcome}")
    return failed
