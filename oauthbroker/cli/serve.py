"""`oauthbroker serve`: the broker as a process. SIGTERM and SIGINT end it in order, with status 0; SIGHUP makes it take
its configuration anew."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from oauthbroker.cli.answers import answer
from oauthbroker.cli.options import CONFIG, AsJson, ConfigPath

app = typer.Typer(add_completion=False)
Workers = Annotated[int, typer.Option("--workers", min=1, max=64, help="How many processes serve, on one store.")]
WorkerPost = Annotated[str, typer.Option("--worker-post", hidden=True, help="What a parent tells its worker.")]


@app.command("serve")
def serve_command(
    config: ConfigPath = CONFIG, workers: Workers = 1, as_json: AsJson = False, worker: WorkerPost = ""
) -> None:
    """Serve the pages and the API until told to stop.

    Where it listens, which store it opens and with which key is the configuration's Broker resource to say. Logs are
    lines of JSON on stderr. SIGTERM and Ctrl-C finish what is under way; the second time, callers are not waited for.
    SIGHUP reads the configuration anew and takes it as a whole or, if anything is wrong with it, goes on with the old
    one. With --json stdout says once where it serves, as soon as it does.
    """
    from oauthbroker.serving.loop import run_serving

    if worker:
        run_serving(_work(config, worker))
        return
    serving = _serve(config, workers, as_json=as_json)
    if status := run_serving(serving) if workers == 1 else asyncio.run(serving):  # a parent only waits
        raise typer.Exit(status)


async def _work(config: Path, post: str) -> None:
    from oauthbroker.clock import SystemClock
    from oauthbroker.serving.worker import Post, work
    from oauthbroker.web.access_log import json_log

    clock = SystemClock()
    await work(config, Post.from_text(post), clock, json_log(sys.stderr, clock))


async def _serve(config: Path, workers: int, *, as_json: bool) -> int:
    """In this process, or as the parent of several; the exit status."""
    from oauthbroker.clock import SystemClock
    from oauthbroker.config import load
    from oauthbroker.serving.doors import open_doors
    from oauthbroker.serving.parent import Parent
    from oauthbroker.serving.worker import serve
    from oauthbroker.web.access_log import json_log

    clock = SystemClock()
    log = json_log(sys.stderr, clock)
    settings = load(config).settings

    def say() -> None:
        if as_json:
            answer({"url": settings.public_base_url, "pid": os.getpid(), "workers": workers})

    with open_doors(settings) as doors:
        if workers > 1:
            return await Parent(config, doors, workers, clock, log, on_serving=say).run()
        await serve(config, doors, clock, log, on_serving=say)
    return 0
