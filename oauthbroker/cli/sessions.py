"""`oauthbroker sessions`: list authorizations that wait for a user or have just ended. Prints no link or secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.output.completion_words import app_option
from oauthbroker.cli.output.json_output import tell_record
from oauthbroker.cli.output.options import CONFIG, LIMIT, AsJson, ConfigPath, Limit
from oauthbroker.cli.stored_records import Listing, by_id, check_app, in_vault
from oauthbroker.core.clock import printed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oauthbroker.grants.grants import Vault
    from oauthbroker.records import AuthSession

HEAD = ("session", "app", "subject", "status", "expires", "agent")
app = typer.Typer(no_args_is_help=True, add_completion=False)
SessionId = Annotated[
    str, typer.Argument(metavar="SESSION_ID", help="As `sessions list` shows it; its beginning is enough.")
]
AppName = Annotated[str | None, app_option("Only sessions of this OAuthApp, or with NAME@ACCOUNT of one account.")]
Subject = Annotated[str | None, typer.Option("--subject", help="Only sessions of this subject.")]


@app.command("list")
def list_command(
    app_name: AppName = None,
    subject: Subject = None,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """List sessions, the newest first; those that ended stay for advanced.keepFinishedSeconds."""
    from oauthbroker.records.specification_form import session_record

    async def read(vault: Vault) -> Sequence[AuthSession]:
        found = await vault.sessions.list(app=app_name, subject=subject)
        if not found:
            await check_app(vault, config, app_name)
        return found

    found = in_vault(config, read)
    listing = Listing(HEAD, row_of, session_record, none="There are no such sessions.")
    listing.show(found, as_json=as_json, limit=limit)


def row_of(session: AuthSession) -> tuple[str, ...]:
    whose = f"{session.subject} {session.account}".rstrip()
    until = printed(session.expires_at)
    return session.id, session.app, whose, session.status, until, session.resume.agent_name


@app.command("show")
def show_command(session_id: SessionId, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Show the record of one session, with its secrets masked."""
    from oauthbroker.records.specification_form import session_record

    found = in_vault(config, lambda vault: vault.sessions.list())
    session = by_id(((each.id, each) for each in found), session_id, ("as-",), "session", "sessions list")
    tell_record(session_record(session), as_json=as_json)
