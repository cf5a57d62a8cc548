"""The commands `oauthbroker tools check` and `oauthbroker tools run`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
import uvicorn

from oauthbroker import Broker, BrokerError, Code, open_broker
from oauthbroker.plugins import ConfigCauseError, read_resources
from oauthbroker.tools.bundle.spec import ToolResourceSpec
from oauthbroker.tools.changesets.activation import Activation, opened_activation
from oauthbroker.tools.changesets.changesets import FAILURES, open_changesets
from oauthbroker.tools.changesets.trial_worker import LoadingProblems
from oauthbroker.tools.isolation.containment import Containment
from oauthbroker.tools.isolation.places import user_named
from oauthbroker.tools.isolation.process_tool import ProcessTool
from oauthbroker.tools.orchestration.orchestrator import Orchestrator
from oauthbroker.tools.orchestration.plan import plans_from

app = typer.Typer(add_completion=False, help="Tools of agents: check, run.", callback=lambda: None)
Config = Annotated[Path, typer.Option("--config", help="A YAML file, or a folder.")]


@app.command("check")
def check(
    config: Config = Path("config"),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Load all tools, extensions and models as agents do, and list the names of the tools. This runs their code, but
    not that of isolated tools, and reads neither secrets nor the store."""
    resources = read_resources(config, "tools")
    loading = LoadingProblems(resources, resources.folder or config, isolate=_not_here)
    if problems := asyncio.run(loading.look()):
        raise ConfigCauseError("; ".join(problems))
    for each in loading.missing:
        typer.echo(each, err=True)
    typer.echo(json.dumps({"tools": [*loading.names]}) if as_json else "\n".join(loading.names))


def _not_here(entry: Path, _spec: ToolResourceSpec, _seconds: float) -> ProcessTool:
    return ProcessTool(entry=entry, containment=Containment())


@app.command("run")
def run(
    workspaces: Annotated[Path, typer.Option(help="The folder of the agents' working directories.")],
    config: Config = Path("config"),
    repository: Annotated[Path | None, typer.Option(help="The bundle's bare git repository, not --config.")] = None,
    changesets: Annotated[Path | None, typer.Option(help="With --repository: the folder of worktrees.")] = None,
    user: Annotated[str | None, typer.Option(help="The user of agents and tools, which root has to name.")] = None,
) -> None:
    """Run the agents of all swarms beside `oauthbroker serve`, until SIGTERM or SIGINT. Turns under way have the grace
    period of their swarm. SIGHUP reloads the configuration, as that of `serve` does."""
    if (repository is None) != (changesets is None):
        raise BrokerError(Code.REQUEST_INVALID, note="--repository and --changesets belong together")
    logging.getLogger("oauthbroker").setLevel(logging.INFO)  # the command shows it on stderr
    bundle = None if repository is None or changesets is None else (repository, changesets)
    try:
        asyncio.run(_run(config, workspaces, bundle, None if user is None else user_named(user)))
    except (ValueError, *FAILURES) as error:
        raise ConfigCauseError(str(error)) from None


async def _run(config: Path, workspaces: Path, bundle: tuple[Path, Path] | None, user: int | None) -> None:
    opened = opened_activation(open_changesets(*bundle, user=user), open_broker) if bundle else _without_git(config)
    async with opened as (broker, activation), _api(broker) as address:
        agents = Orchestrator(broker, plans_from(broker), workspaces, address=address, activation=activation, user=user)
        running, loop = asyncio.create_task(agents.run()), asyncio.get_running_loop()
        reloads = set[asyncio.Task[None]]()  # the loop itself keeps no task
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, running.cancel)
        reload = partial(_reload, broker, activation, agents)
        loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(loop.create_task(reload())))
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()


async def _reload(broker: Broker, activation: Activation | None, agents: Orchestrator) -> None:
    """Read the configuration again. The broker logs why it keeps the old one."""
    with suppress(BrokerError):
        await (broker.reload() if activation is None else activation.reload())
        agents.follow(plans_from(broker))


@asynccontextmanager
async def _without_git(config: Path) -> AsyncIterator[tuple[Broker, None]]:
    async with open_broker(config) as broker:
        yield broker, None


@asynccontextmanager
async def _api(broker: Broker) -> AsyncIterator[str]:
    """Serve the API to the agents alone, and yield its address. So this process hands out their tokens, knows them, and
    removes them from what tools say."""
    host = (b"host", urlsplit(broker.bundle.settings.public_base_url).netloc.encode())

    async def api(scope: Any, receive: Any, send: Any) -> None:
        """Answer under the broker's own name: no browser reaches the socket."""
        headers = [each for each in scope["headers"] if each[0] != b"host"]
        await broker.asgi.api({**scope, "headers": [*headers, host]}, receive, send)

    with tempfile.TemporaryDirectory(prefix="oauthbroker-") as folder:
        os.chmod(folder, 0o711)  # noqa: S103, PTH101 - agents of another user connect too, each with its turn token
        path = f"{folder}/api.sock"
        server = uvicorn.Server(uvicorn.Config(api, uds=path, lifespan="off", log_level="warning", access_log=False))
        server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
        serving = asyncio.create_task(server.serve())
        try:
            yield f"unix:{path}"
        finally:
            server.should_exit = True
            await serving
