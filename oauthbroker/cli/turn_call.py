"""Get a token for the shell commands `token` and `run`: of the turn in the environment, else of the person's own
connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.output.error_output import in_json, see, tell
from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.tables import shown
from oauthbroker.client.address import TURN_TOKEN, URL
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import REFUSED, Refused
from oauthbroker.model.accounts import is_account
from oauthbroker.model.token_request import call_ref, split_ref
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.personal.command_lines import NO_ACCOUNT, one_account

if TYPE_CHECKING:
    from oauthbroker.personal.connection import LocalConnection

UNAVAILABLE, ASK_A_PERSON = 69, 75  # EX_UNAVAILABLE and EX_TEMPFAIL of sysexits.h
AppArgument = Annotated[str, typer.Argument(metavar="APP", help="The app: its name, or OAuthApp/NAME.")]
Account = Annotated[str | None, typer.Option(help="One of several accounts.")]
Scopes = Annotated[list[str] | None, typer.Option("--scope", help="Ask for this scope; repeat it for more.")]
Lifetime = Annotated[int | None, typer.Option("--min-ttl", min=0, help="Seconds that the token must still be valid.")]


def is_of_turn() -> bool:
    """Return whether a runtime has set the environment, even to less than is needed. A person's own connection is then
    never used in its place."""
    return TURN_TOKEN in os.environ or URL in os.environ


def call_of(verb: str, app: str, account: str | None) -> str:
    """Return what a token call names. Raises Refused for `NAME@ACCOUNT`, with the option for it."""
    if said := one_account(verb, app):
        raise Refused(said)
    if account and not is_account(account):
        raise Refused(NO_ACCOUNT)
    return app if account is None else call_ref(app, account)


def own_connection(ref: str) -> LocalConnection:
    """Return the person's own connection of what a call names."""
    from oauthbroker.personal.connection import local

    name, account = split_ref(call_ref(ref))
    return local(name, account=account)


def token_for(
    ref: str, scopes: list[str] | None, min_ttl: int | None, *, as_json: bool, named: bool = False
) -> tuple[Ready, tuple[str, ...]]:
    """Return the token and, if `named`, the variables in which programs look for it. Without a token, say on stderr
    what to do and end the command.

    The turn token alone says whose token it is. Raises Refused for an environment that has only a part of a turn.
    """
    if not is_of_turn():
        from oauthbroker.personal.handed_out import token_of

        with own_refusals(as_json=as_json):
            return token_of(own_connection(ref), scopes or None, min_ttl)
    result, variables = asyncio.run(_ask(ref, scopes, min_ttl, named=named))
    if isinstance(result, Ready):
        return result, variables
    if as_json:
        document = result.to_json()  # of an error only the members that every refused command prints, and when to retry
        answer(document if isinstance(result, AuthorizationRequired) else {"error": document["error"]})
    raise typer.Exit(_tell(result))


@contextmanager
def own_refusals(*, as_json: bool) -> Iterator[None]:
    """Print why a person's own connection gives nothing, and end the command with the status that says what to do."""
    try:
        yield
    except BrokerError as refusal:
        error = refusal
    else:
        return
    tell(error)
    if as_json:
        in_json(error)
    if error.code is Code.GRANT_NOT_FOUND:
        raise typer.Exit(ASK_A_PERSON)
    raise typer.Exit(UNAVAILABLE if error.is_temporary else REFUSED)


async def _ask(
    ref: str, scopes: list[str] | None, min_ttl: int | None, *, named: bool
) -> tuple[TokenResult, tuple[str, ...]]:
    from oauthbroker.client.tool import OAuth

    try:
        client = OAuth.from_env()
    except BrokerError as wrong:
        problem = wrong.message()
    else:
        async with client:
            result = await client.get_access_token(ref, scopes or None, min_ttl)
            apps = await client.apps() if named and isinstance(result, Ready) else []
            return result, next((each.environment for each in apps if each.name == split_ref(call_ref(ref))[0]), ())
    raise Refused(
        f"The environment names no broker and turn: {problem}. The runtime sets {URL} and {TURN_TOKEN} for each tool. "
        f"Without them this command uses your own connection."
    )


def _hint(code: Code) -> str:
    """Return what the sentence of a code cannot know: the address and the variables of this process."""
    at = os.environ.get(URL, "")
    match code:
        case Code.BROKER_UNREACHABLE | Code.BROKER_ANSWER_INVALID:
            tls = ", with http:// if that one is served without TLS" if at.startswith("https:") else ""
            return f" ({URL} is {at}: correct it, or start the broker there{tls})"
        case Code.NOT_FOUND | Code.HOST_NOT_ALLOWED:
            return f" ({URL} is {at}: correct it)"
        case Code.NOT_ALLOWED:
            return f" ({TURN_TOKEN} is no turn token: the runtime sets one for each turn, and an API key is none)"
        case Code.UNAUTHENTICATED | Code.TURN_ENDED:
            return f" ({TURN_TOKEN} is of no running turn of {at}: the runtime sets one for each turn)"
    return ""


def _tell(result: AuthorizationRequired | Failed) -> int:
    """Print the link, or the error, on stderr. Return the exit status."""
    if isinstance(result, Failed):
        typer.echo(shown(f"{result.code.value}: {result.message}{_hint(result.code)}"), err=True)
        typer.echo(f"  {see(result.code)}", err=True)
        return UNAVAILABLE if result.retryable else REFUSED
    typer.echo(shown(result.message), err=True)
    if (device := result.device_code) is not None:
        typer.echo(shown(f"{device.verification_uri} {device.user_code}"), err=True)
    elif result.authorization_url:
        typer.echo(shown(result.authorization_url), err=True)
    return ASK_A_PERSON
