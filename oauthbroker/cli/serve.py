"""`oauthbroker serve`: the broker as a process. SIGTERM and SIGINT end it in order, with status 0; SIGHUP makes it take
its configuration anew."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from oauthbroker.cli.options import CONFIG, ConfigPath
from oauthbroker.errors import BrokerError

if TYPE_CHECKING:
    from oauthbroker.broker import Broker

app = typer.Typer(add_completion=False)


@app.command("serve")
def serve_command(config: ConfigPath = CONFIG) -> None:
    """Serve the connect pages and callbacks until told to stop.

    Where it listens, which store it opens and with which key is the configuration's Broker resource to say. Logs are
    lines of JSON on stderr. SIGTERM and Ctrl-C finish what is under way. SIGHUP reads the configuration anew and
    takes it as a whole or, if anything is wrong with it, goes on with the old one.
    """
    asyncio.run(_serve(config))


async def _serve(config: Path) -> None:
    from oauthbroker.cli.process import calm_libraries
    from oauthbroker.cli.server import listen, on_signals, served
    from oauthbroker.clock import SystemClock
    from oauthbroker.config import load
    from oauthbroker.web.access_log import json_log
    from oauthbroker.wiring import open_broker

    clock = SystemClock()
    log = json_log(sys.stderr, clock)
    settings = load(config).settings
    ending, again = asyncio.Event(), asyncio.Event()
    with (
        listen(settings.listen_host, settings.listen_port) as door,
        on_signals(ending.set, again.set),
        calm_libraries(log),
    ):
        async with open_broker(config, clock=clock, log=log) as broker, served(broker.web, door):
            apps = len(broker.bundle.apps)
            log.info("serving", url=settings.public_base_url, port=settings.listen_port, apps=apps)
            reloading = asyncio.create_task(_reload_for_ever(broker, again))
            await ending.wait()
            reloading.cancel()
            log.info("stopping")
    log.info("stopped")


async def _reload_for_ever(broker: Broker, again: asyncio.Event) -> None:
    """Each time `again` is set. What was refused is in the log; `oauthbroker check` says it in full."""
    while True:
        await again.wait()
        again.clear()
        with suppress(BrokerError):
            await broker.reload()
