"""`oauthbroker demo`: run the whole flow on one machine, with the built-in provider and an agent with one tool."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.options import AsJson
from oauthbroker.core.refused import STOPPED

app = typer.Typer(add_completion=False)
NOT_READY = 1


@app.command("demo")
def demo_command(
    auto: Annotated[bool, typer.Option("--auto", help="Play the person too; the last line is JSON.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the broker listens; 0 takes a free one.")] = 0,
    store: Annotated[
        str, typer.Option(metavar="URL", help="Keep the records in this empty PostgreSQL database, not in files.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Watch the whole story on this machine.

    Starts a provider, the broker and a small agent on 127.0.0.1, prints a link, and waits until you have agreed in
    your browser. With --json the story goes to stderr. Everything is kept in store/demo, which every demo begins by
    emptying.
    """
    from oauthbroker.cli.demo.stage import play

    try:
        ending = asyncio.run(play(auto=auto, port=port, store=store, aside=as_json))
    except (asyncio.CancelledError, KeyboardInterrupt):
        typer.echo("\nStopped. Nothing runs any more.", err=True)
        raise typer.Exit(STOPPED) from None
    if as_json:
        answer(ending.to_json())
    elif auto:
        typer.echo(json.dumps(ending.to_json(), ensure_ascii=False))
    if ending.status != "ready":
        raise typer.Exit(NOT_READY)
