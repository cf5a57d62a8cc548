"""Lengths of time as people type them: `90d`, `24h`, `30m`, `45s`."""

from __future__ import annotations

import re

import typer

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WRITTEN = re.compile(r"(\d{1,9})([smhd])")


def seconds(text: str) -> int:
    """Whole seconds. Raises BadParameter for anything but a number with its unit."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter("Write a number and its unit: 90d, 24h, 30m or 45s.")
    return int(found[1]) * UNITS[found[2]]
