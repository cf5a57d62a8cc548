"""Define the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CONFIG = Path("config")
ConfigPath = Annotated[Path, typer.Option("--config", "-c", help="A folder of YAML files, or one file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON, on stdout.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many are shown at most.")]
LIMIT = 30
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
