"""Get a token by the turn token in the environment, for the shell commands `token` and `run`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.tables import shown
from oauthbroker.core.refused import REFUSED, Refused
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult

UNAVAILABLE, ASK_A_PERSON = 69, 75  # EX_UNAVAILABLE and EX_TEMPFAIL of sysexits.h
AppArgument = Annotated[str, typer.Argument(metavar="APP", help="The app: its name, or OAuthApp/NAME.")]
Scopes = Annotated[list[str] | None, typer.Option("--scope", help="Ask for this scope; repeat it for more.")]
Lifetime = Annotated[int | None, typer.Option("--min-ttl", min=0, help="Seconds that the token must still be valid.")]


def token_for(app: str, scopes: list[str] | None, min_ttl: int | None, *, as_json: bool) -> Ready:
    """Return the token. Without one, say on stderr what to do and end the command.

    The turn token alone says whose token it is. Raises Refused for an environment without one.
    """
    result = asyncio.run(_ask(app, scopes, min_ttl))
    if isinstance(result, Ready):
        return result
    if as_json:
        document = result.to_json()  # of an error only the members that every refused command prints, and when to retry
        answer(document if isinstance(result, AuthorizationRequired) else {"error": document["error"]})
    raise typer.Exit(_tell(result))


async def _ask(app: str, scopes: list[str] | None, min_ttl: int | None) -> TokenResult:
    from oauthbroker.client.tool import OAuth

    try:
        client = OAuth.from_env()
    except ValueError as wrong:
        problem = str(wrong)
    else:
        async with client:
            return await client.get_access_token(app, scopes or None, min_ttl)
    raise Refused(f"The environment names no broker and turn: {problem}. The runtime sets it for each tool.")


def _tell(result: AuthorizationRequired | Failed) -> int:
    """Print the link, or the error, on stderr. Return the exit status."""
    if isinstance(result, Failed):
        typer.echo(shown(f"{result.code.value}: {result.message}"), err=True)
        return UNAVAILABLE if result.retryable else REFUSED
    typer.echo(shown(result.message), err=True)
    if (device := result.device_code) is not None:
        typer.echo(shown(f"{device.verification_uri} {device.user_code}"), err=True)
    elif result.authorization_url:
        typer.echo(shown(result.authorization_url), err=True)
    return ASK_A_PERSON
