"""`oauthbroker health`: probe the broker of this configuration on this machine, such as from a container."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from typing import Annotated, Any

import typer

from oauthbroker.cli.output.commands_here import runnable
from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.cli.output.tables import shown

ANSWER_SECONDS = 4.0
MOST_BYTES = 64 * 1024
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (compared, never listened on)
RED = SILENT = 1

app = typer.Typer(add_completion=False)
Alive = Annotated[bool, typer.Option("--alive", help="A red broker is no failure: for a probe that restarts it.")]
CAUSE = "The broker's log has the cause of each code. `oauthbroker doctor` looks for what to do."


@app.command("health")
def health_command(alive: Alive = False, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Check the health of a running broker.

    Asks at the address where this configuration has it listen. Prints the answer of `/healthz`: `ok`, or `red` with the
    codes of the problems that an operator must fix, and a line for each finding of a plug-in. Exit status 1: red, or no
    broker answered. It looks for the store as `/readyz` does, for half a second. A restart does not fix a problem, and
    may lose a token: a probe that restarts says --alive.
    """
    from oauthbroker.config.bundle.server_environment import load_here

    settings = load_here(config).settings
    answered = ask(settings.listen_host.strip("[]"), settings.listen_port)
    if as_json:
        answer(answered if answered is not None else {"status": "silent"})
    elif answered is not None:
        typer.echo(shown(" ".join([str(answered["status"]), *map(str, answered.get("problems", []))])))
        for code, text, hint in findings_in(answered):
            typer.echo(runnable(shown(f"{code}: {text} {hint}")))
        if answered.get("problems"):
            typer.echo(runnable(CAUSE), err=True)
    if answered is None:
        silent = f"No broker answers on port {settings.listen_port}. Start it with `oauthbroker serve`."
        typer.echo(runnable(silent), err=True)
        raise typer.Exit(SILENT)
    if answered["status"] == "red" and not alive:
        raise typer.Exit(RED)


def findings_in(answered: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what plug-ins found: the code, a sentence, the remedy."""
    for each in answered.get("findings", []):
        yield str(each["code"]), str(each["text"]), str(each["hint"])


def ask(host: str, port: int) -> dict[str, Any] | None:
    """Return what `/healthz` of a running broker answers; None without an answer."""
    connection = HTTPConnection(EVERY_ADDRESS.get(host, host), port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        answered = json.loads(response.read(MOST_BYTES))
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return answered if response.status == 200 and isinstance(answered, dict) and "status" in answered else None
