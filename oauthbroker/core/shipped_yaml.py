"""Read YAML that this package ships: presets, and the API's document."""

from __future__ import annotations

from importlib.resources.abc import Traversable
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def shipped_yaml(file: Traversable) -> Any:
    """Return a file's data. libyaml reads it where it is installed: PyYAML's own parser takes ten times as long."""
    return yaml.load(file.read_text("utf-8"), Loader=_LOADER)  # noqa: S506  (a safe loader, in C)
