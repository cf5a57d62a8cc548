"""`oauthbroker grants`: list, end and import grants. Never prints a token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.grants.reading import GrantReader
from oauthbroker.cli.output.completion_words import app_option
from oauthbroker.cli.output.error_output import confirm
from oauthbroker.cli.output.json_output import answer, tell_record
from oauthbroker.cli.output.options import CONFIG, LIMIT, AsJson, ConfigPath, Limit, Yes
from oauthbroker.cli.output.tables import counted, facts, table
from oauthbroker.cli.stored_records import Listing, in_vault
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from oauthbroker.grants.grants import GrantSummary

MOST_ROWS = 50  # a longer list would not be read before confirming
PATIENCE = 300.0
HEAD = ("grant", "app", "subject", "state", "expires", "scopes")
NEEDS = {None: "nothing", "refresh": "a refresh, which the next call makes", "consent": "a user who consents again"}

app = typer.Typer(no_args_is_help=True, add_completion=False)
GrantId = Annotated[str, typer.Argument(metavar="GRANT_ID", help="As `grants list` shows it; its beginning is enough.")]
AnyGrantId = Annotated[
    str | None, typer.Argument(metavar="[GRANT_ID]", help="As `grants list` shows it; its beginning is enough.")
]
AppName = Annotated[str | None, app_option("Only grants of this OAuthApp, or with NAME@ACCOUNT of one account.")]
OfApp = Annotated[str | None, app_option("The OAuthApp of every line; lines may leave it out then.")]
Subject = Annotated[str | None, typer.Option("--subject", help="Only grants of this subject.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what would be revoked.")]
Wait = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="How long to wait for providers that are busy; with --all and for `erase` 300, else not at all.",
    ),
]


@app.command("list")
def list_command(
    app_name: AppName = None,
    subject: Subject = None,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """List grants, the newest first; revoked ones too."""
    GrantReader(config, app_name, subject, as_json=as_json).print_newest(limit, _listing("There are no such grants."))


@app.command("show")
def show_command(
    grant_id: GrantId,
    record: Annotated[
        bool, typer.Option("--record", help="As the specification prints the record, with its secrets masked.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Show one grant."""
    from oauthbroker.records.specification_form import grant_record

    grant = GrantReader(config, None, None, as_json=as_json).one(grant_id)
    if record:
        found = in_vault(config, lambda vault: vault.grants.record_of(grant.key))
        if found is None:
            raise Refused("There is no such grant any more.")
        tell_record(grant_record(found), as_json=as_json)
        return
    if as_json:
        answer(grant.to_json())
        return
    members = grant.to_json() | {
        "scopes": " ".join(grant.scopes) or "none",
        "needs": NEEDS[grant.needs],
        "expiresAt": _expires(grant),
        "providerData": " ".join(f"{name}={value}" for name, value in grant.providerData.items()) or "none",
    }
    facts((name, "-" if value is None else str(value)) for name, value in members.items())


@app.command("revoke")
def revoke_command(  # noqa: PLR0913, PLR0917  (one for each option)
    grant_id: AnyGrantId = None,
    app_name: AppName = None,
    subject: Subject = None,
    everything: Annotated[bool, typer.Option("--all", help="Every grant that the other words leave.")] = False,
    dry_run: DryRun = False,
    wait: Wait = None,
    yes: Yes = False,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """End grants, here and at their provider.

    Name one by its id, or by --app and --subject; with --all, every grant of an app, of a subject, or all there are.
    """
    from oauthbroker.cli.grants import grants_revoke

    if not (grant_id or app_name or subject or everything):
        raise Refused("Say which: a GRANT_ID, --app and --subject, or --all. Nothing was changed.")
    there = GrantReader(config, app_name, subject, as_json=as_json)
    chosen = there.unended(grant_id)
    if chosen.gone is not None:
        grants_revoke.tell_gone(chosen.gone, dry_run=dry_run, as_json=as_json)
        return
    if not chosen.keys:
        if not everything:
            raise Refused("There is no such grant alive. `oauthbroker grants list` shows all. Nothing was changed.")
        grants_revoke.tell_nothing(app_name, subject, dry_run=dry_run, as_json=as_json)
        return
    count = len(chosen.keys)
    if count > 1 and not everything and not dry_run:
        raise Refused(
            f"That names {counted(count, 'grant')}. Name one as NAME@ACCOUNT or by its id, or say --all. "
            "Nothing was changed."
        )
    if dry_run:
        there.print(chosen.keys, _listing(""))
        typer.echo(f"{grants_revoke.summed(chosen)} They would be revoked. Nothing was changed.", err=True)
        return
    if count <= MOST_ROWS:
        table(HEAD, map(_row, there.summaries(chosen.keys)), aside=True)
    typer.echo(grants_revoke.summed(chosen), err=True)
    confirm(f"Revoke {counted(count, 'grant')}?", yes=yes)
    patience = (PATIENCE if everything else 0) if wait is None else wait
    raise typer.Exit(grants_revoke.run(config, chosen, patience, as_json=as_json))


@app.command("erase")
def erase_command(
    subject: Annotated[str, typer.Option("--subject", help="Whose records are removed.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be removed.")] = False,
    wait: Wait = None,
    yes: Yes = False,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Revoke a subject's grants and remove all its records.

    Nothing is removed while a provider has still to be told. The audit log stays: it names grants by keyed hashes.
    """
    from oauthbroker.cli.grants import grants_erase

    patience = PATIENCE if wait is None else wait
    raise typer.Exit(grants_erase.run(config, subject, patience, dry_run=dry_run, yes=yes, as_json=as_json))


@app.command("import")
def import_command(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSON lines; - is stdin.")],
    app_name: OfApp = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file, show the results, write nothing.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Also where there is a grant, alive or revoked.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Refresh each one at its provider at once.")] = False,
    refused: Annotated[
        Path | None,
        typer.Option(
            "--refused",
            metavar="FILE",
            help="Import the good lines, and write the numbers and reasons of the others into a new file.",
        ),
    ] = None,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Take over tokens of another system.

    One JSON object a line: {app, subject, refreshToken?, accessToken?, expiresAt?, scopes?, account?, connection?,
    connectParams?, grantedAt?}. The whole file is checked before any write. Repeat a run that was stopped: nothing is
    done twice.
    """
    from oauthbroker.cli.grants import grants_import

    wanted = grants_import.Wanted(
        app=app_name, dry_run=dry_run, replace=replace, verify=verify, refused=refused, as_json=as_json
    )
    raise typer.Exit(grants_import.run(config, file, wanted))


def _listing(none: str) -> Listing[GrantSummary]:
    return Listing(HEAD, _row, lambda grant: grant.to_json(), none=none)


def _row(grant: GrantSummary) -> tuple[str, ...]:
    short = grant.grantId.removeprefix("sha256:")[:12]
    again = "needs a new key" if grant.slots else "must agree again"
    state = again if grant.needs == "consent" else grant.state
    state += ", unverified" if grant.unverified else ""
    state += ", provider to tell" if grant.providerToTell else ""
    names = ", ".join(filter(None, (grant.label, grant.accountName)))
    whose = " ".join(filter(None, (grant.subject, grant.account, names and f"({names})")))
    scopes = " ".join(grant.scopes) or (f"key: {grant.slots}" if grant.slots else "none")
    return short, grant.app, whose, state, _expires(grant), scopes


def _expires(grant: GrantSummary) -> str:
    """Return when the token expires, and whether it can be refreshed."""
    if grant.state == "revoked":
        return "-"
    ends = (grant.expiresAt or "").removesuffix("Z")
    if grant.needs == "consent":
        return ends or "-"
    if not ends and grant.needs == "refresh":
        return "refreshed on first use"
    if grant.slots:
        return ends or "never"
    if grant.refreshable:
        return f"{ends or 'never'} (refreshable)"
    return f"{ends} (cannot be refreshed)" if ends else "never"
