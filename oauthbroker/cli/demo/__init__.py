"""`oauthbroker demo`: the whole story on one machine, with the built-in provider and a small agent with one tool."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)
STOPPED = 130
NOT_READY = 1


@app.command("demo")
def demo_command(
    auto: Annotated[bool, typer.Option("--auto", help="Play the person too; the last line is JSON.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the broker listens; 0 takes a free one.")] = 0,
) -> None:
    """Watch the whole story on this machine.

    Starts a provider, the broker and a small agent on 127.0.0.1, prints a link, and waits until you have agreed in
    your browser. Everything is kept in store/demo, which every demo begins by emptying.
    """
    from oauthbroker.cli.demo.stage import play

    try:
        ending = asyncio.run(play(auto=auto, port=port))
    except (asyncio.CancelledError, KeyboardInterrupt):
        typer.echo("\nStopped. Nothing runs any more.", err=True)
        raise typer.Exit(STOPPED) from None
    if auto:
        typer.echo(json.dumps(ending.to_json(), ensure_ascii=False))
    if ending.status != "ready":
        raise typer.Exit(NOT_READY)
