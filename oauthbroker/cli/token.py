"""`oauthbroker token`: print a token for a script, by the turn token in the environment."""

from __future__ import annotations

import sys

import typer

from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import AsJson
from oauthbroker.cli.turn_call import AppArgument, Lifetime, Scopes, token_for
from oauthbroker.core.refused import Refused

app = typer.Typer(add_completion=False)


@app.command("token")
def token_command(
    app_name: AppArgument, scopes: Scopes = None, min_ttl: Lifetime = None, as_json: AsJson = False
) -> None:
    """Print an access token of this turn on stdout.

    The environment says which turn: OAUTHBROKER_URL and OAUTHBROKER_TURN_TOKEN, as the runtime sets them for a tool.
    Exit status 75: the user must agree first, and stderr has the link. 69: try again later. 2: refused. Prints no
    token on a terminal.
    """
    if sys.stdout.isatty():
        raise Refused("No token is printed on a terminal: use $(oauthbroker token ...) or `oauthbroker run`.")
    ready = token_for(app_name, scopes, min_ttl, as_json=as_json)
    say(ready.access_token.reveal(), ready.to_json(), as_json=as_json)
