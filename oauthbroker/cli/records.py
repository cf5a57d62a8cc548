"""A record on the terminal: YAML as the specification prints it, or JSON."""

from __future__ import annotations

from typing import Any

import typer
import yaml

from oauthbroker.cli.answers import answer


def tell_record(record: dict[str, Any], *, as_json: bool) -> None:
    """Prints it. YAML escapes what is not ASCII, so no stored text can speak to a terminal."""
    if as_json:
        answer(record)
    else:
        typer.echo(yaml.safe_dump(record, sort_keys=False, allow_unicode=False, width=10_000).rstrip("\n"))
