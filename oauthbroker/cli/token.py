"""`oauthbroker token`: print a token for a script, of the turn in the environment or of the person's own connection."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import AsJson
from oauthbroker.cli.turn_call import Account, AppArgument, Lifetime, Scopes, call_of, token_for
from oauthbroker.core.refused import Refused

app = typer.Typer(add_completion=False)


Show = Annotated[bool, typer.Option("--show", help="Print it on a terminal, too.")]


@app.command("token")
def token_command(
    app_name: AppArgument,
    account: Account = None,
    scopes: Scopes = None,
    min_ttl: Lifetime = None,
    show: Show = False,
    as_json: AsJson = False,
) -> None:
    """Print an access token on stdout, for a script.

    It is that of your own connection, which `oauthbroker login APP` makes. With OAUTHBROKER_URL and
    OAUTHBROKER_TURN_TOKEN, which a runtime sets for a tool, it is that of the turn, and only that.
    Exit status 75: the user must agree first, and stderr says how. 69: try again later. 2: refused.
    """
    if sys.stdout.isatty() and not show:
        raise Refused(
            "No token is printed on a terminal, which would keep it: use $(oauthbroker token ...), "
            "`oauthbroker run APP -- COMMAND`, or --show."
        )
    ready, _ = token_for(call_of("token", app_name, account), scopes, min_ttl, as_json=as_json)
    say(ready.access_token.reveal(), ready.to_json(), as_json=as_json)
