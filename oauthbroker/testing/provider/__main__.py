"""`python -m oauthbroker.testing.provider`: the provider as a process, for demos and for tests in other languages.

Prints one line of JSON (its address, its client, the client's secret, its accounts) and serves until SIGINT or SIGTERM,
or, with `--until-stdin-ends`, until the parent closes its stdin or exits.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence

from oauthbroker.core.secret import Secret
from oauthbroker.testing.provider.provider import IdentityProvider
from oauthbroker.testing.provider.types import Client

_ENDS = {signal.SIGINT, signal.SIGTERM}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m oauthbroker.testing.provider", description="An OAuth provider for tests."
    )
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 takes a free one (default)")
    parser.add_argument("--client-id", default="demo")
    parser.add_argument("--client-secret", help="made up if left out")
    parser.add_argument("--client-name", default="", help="what the consent page calls it")
    parser.add_argument(
        "--redirect-uri", action="append", default=[], help="exactly as the client sends it; repeatable"
    )
    parser.add_argument("--dialect", choices=["oidc", "slack", "github"], default="oidc")
    parser.add_argument(
        "--auth-method", default="client_secret_basic", choices=["client_secret_basic", "client_secret_post", "none"]
    )
    parser.add_argument("--auto-consent", metavar="LOGIN", help="this account agrees to everything unasked")
    parser.add_argument("--until-stdin-ends", action="store_true", help="stop when the parent process goes away")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    options = arguments(given)
    try:
        idp = IdentityProvider(port=options.port, auto_consent=options.auto_consent)
    except OSError as error:
        sys.exit(f"Cannot listen on 127.0.0.1 port {options.port}: {error.strerror}. Choose another --port.")
    client = idp.register(
        Client(
            options.client_id,
            Secret(options.client_secret) if options.client_secret else None,
            redirect_uris=tuple(options.redirect_uri),
            auth_method=options.auth_method,
            dialect=options.dialect,
            name=options.client_name,
        )
    )
    # blocked before any thread starts and before the address is printed: no early signal is lost
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    with idp:
        print(json.dumps(_introduction(idp, client)), flush=True)
        if options.until_stdin_ends:
            threading.Thread(target=_end_with_stdin, daemon=True).start()
        signal.sigwait(_ENDS)


def _introduction(idp: IdentityProvider, client: Client) -> dict[str, object]:
    secret = client.client_secret.reveal() if client.client_secret else None
    return {
        "issuer": idp.issuer,
        "endpoints": idp.endpoints,
        "api": idp.url("/api/messages"),
        "clientId": client.client_id,
        "clientSecret": secret,  # the test provider's own; the process that starts it needs it
        "accounts": {login: {"sub": (who := idp.account(login)).sub, "team": who.team} for login in idp.logins},
    }


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
