"""`oauthbroker serve`: run the broker as a process. SIGTERM and SIGINT drain it (status 0); SIGHUP reloads."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log

if TYPE_CHECKING:
    from oauthbroker.model.settings import Settings

app = typer.Typer(add_completion=False)
Workers = Annotated[int, typer.Option("--workers", min=1, max=64, help="How many processes serve, on one store.")]
WorkerPost = Annotated[str, typer.Option("--worker-post", hidden=True, help="What a parent tells its worker.")]


@app.command("serve")
def serve_command(
    config: ConfigPath = CONFIG, workers: Workers = 1, as_json: AsJson = False, worker: WorkerPost = ""
) -> None:
    """Serve the pages and the API until told to stop.

    The configuration's Broker resource sets its address, store and key. Logs are lines of JSON on stderr. SIGTERM and
    Ctrl-C drain open requests; a second signal does not wait for them. SIGHUP reloads the configuration as a whole, or
    keeps the old one if the new one is invalid. A terminal gets a line with the addresses of the pages, the operators'
    pages and the API as soon as the broker serves; with --json stdout holds one document with them.
    """
    from oauthbroker.cli.named_config import bundle_here
    from oauthbroker.serving.event_loop import run_serving

    if worker:
        run_serving(_work(config, worker))
        return
    serving = _serve(bundle_here(config)[0], workers, as_json=as_json)
    if status := run_serving(serving) if workers == 1 else asyncio.run(serving):  # a parent only waits
        raise typer.Exit(status)


def addresses(settings: Settings) -> dict[str, str]:
    """Return where the users' pages, the operators' pages and the API's documentation are."""
    base = settings.public_base_url
    api = f"{base}/docs"
    if settings.api_port:
        host = f"[{settings.api_host}]" if ":" in settings.api_host else settings.api_host
        api = f"http://{host}:{settings.api_port}/docs"
    elif settings.api_socket is not None:
        api = f"unix:{settings.api_socket.path}"
    return {"url": base, "operators": f"{base}/admin", "api": api}


async def _work(config: Path, post: str) -> None:
    from oauthbroker.workers.post import Post
    from oauthbroker.workers.worker import work

    clock = SystemClock()
    await work(config, Post.from_text(post), clock, json_log(sys.stderr, clock))


async def _serve(config: Path, workers: int, *, as_json: bool) -> int:
    """Serve in this process, or as the parent of several. Return the exit status."""
    from oauthbroker.config.bundle.server_environment import load_here
    from oauthbroker.personal.places import Places
    from oauthbroker.personal.serve_socket import local_listener
    from oauthbroker.serving.listeners import open_listeners

    clock = SystemClock()
    log = json_log(sys.stderr, clock)
    settings = load_here(config).settings

    def say() -> None:
        places = addresses(settings)
        if as_json:
            answer({**places, "pid": os.getpid(), "workers": workers})
        elif sys.stdout.isatty():  # a collector of logs reads lines of JSON
            typer.echo(f"pages {places['url']}   operators {places['operators']}   API {places['api']}")

    with open_listeners(settings) as opened, local_listener(settings, Places.of_user()) as local:
        listeners = replace(opened, local=local)
        if workers > 1:  # a parent loads neither broker nor server
            from oauthbroker.workers.parent import Parent

            return await Parent(
                config=config, listeners=listeners, workers=workers, clock=clock, log=log, on_serving=say
            ).run()
        from oauthbroker.workers.worker import serve

        await serve(config, listeners, clock, log, on_serving=say)
    return 0
