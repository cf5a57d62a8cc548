"""`oauthbroker sessions`: list authorizations that wait for a user or have just ended. Never prints a link or a
secret."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.answers import answer
from oauthbroker.cli.options import CONFIG, AsJson, ConfigPath
from oauthbroker.cli.text import table
from oauthbroker.cli.words import app_option
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oauthbroker.records import AuthSession

SHORTEST_ID = 6

app = typer.Typer(help="Authorizations under way: list, show.", no_args_is_help=True, add_completion=False)
SessionId = Annotated[
    str, typer.Argument(metavar="SESSION_ID", help="As `sessions list` shows it; its beginning is enough.")
]
AppName = Annotated[str | None, app_option("Only sessions of this OAuthApp.")]
Subject = Annotated[str | None, typer.Option("--subject", help="Only sessions of this subject.")]


@app.command("list")
def list_command(
    app_name: AppName = None, subject: Subject = None, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """List sessions, the newest first; those that ended stay for limits.keepFinishedSeconds."""
    from oauthbroker.core.clock import printed
    from oauthbroker.records.display import session_record

    found = asyncio.run(_sessions(config, app_name, subject))
    if as_json:
        answer([session_record(session) for session in found])
    elif found:
        rows = [(it.id, it.app, it.subject, it.status, printed(it.expires_at), it.resume.agent_name) for it in found]
        table(("session", "app", "subject", "status", "expires", "agent"), rows)
    else:
        typer.echo("There are no such sessions.", err=True)


@app.command("show")
def show_command(session_id: SessionId, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Show the record of one session, with its secrets masked."""
    from oauthbroker.cli.answers import tell_record
    from oauthbroker.records.display import session_record

    tell_record(session_record(_one(asyncio.run(_sessions(config)), session_id)), as_json=as_json)


def _one(sessions: Sequence[AuthSession], session_id: str) -> AuthSession:
    """Return the session with this id or beginning of an id. Raises Refused if none or several match."""
    typed = session_id.removeprefix("as-")
    found = [session for session in sessions if session.locator.startswith(typed)]
    if len(typed) < SHORTEST_ID:
        raise Refused(f"Type at least {SHORTEST_ID} characters of the id.")
    if len(found) != 1:
        raise Refused(
            "There is no such session. `oauthbroker sessions list` shows what there is."
            if not found
            else "That is the beginning of several sessions' ids. Type more of it."
        )
    return found[0]


async def _sessions(config: Path, app_name: str | None = None, subject: str | None = None) -> Sequence[AuthSession]:
    from oauthbroker.config import load
    from oauthbroker.wiring import open_vault

    async with open_vault(load(config).settings, upgrading=False) as vault:
        return await vault.sessions.list(app=app_name, subject=subject)
