"""The command of the sample plug-in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from oauthbroker import open_broker

app = typer.Typer(add_completion=False)


@app.callback()
def notebooks() -> None:
    """Notebooks of the sample plug-in: list."""


@app.command("list")
def list_notebooks(
    config: Annotated[Path, typer.Option("--config")] = Path("config"),
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List the notebooks of a configuration."""
    names = asyncio.run(_names(config))
    typer.echo(json.dumps({"notebooks": names}) if as_json else "\n".join(names))


async def _names(config: Path) -> list[str]:
    async with open_broker(config, background=False) as broker:
        resources = broker.bundle.plugins.get("sample")
        return sorted(resources.of("Notebook")) if resources is not None else []
