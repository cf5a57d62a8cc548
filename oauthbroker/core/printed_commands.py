"""Complete the commands in a printed text, so that the next command reads the same configuration."""

from __future__ import annotations

import re
import shlex
from typing import Final

# Those that read no configuration, or not by `--config`. A test compares them with the commands that there are.
WITHOUT_CONFIG: Final = (
    "completion", "config schema", "demo", "flow graph", "flow new", "flow schema", "gateway", "keys new",
    "login", "logout", "providers list", "providers show", "run", "status", "token",
)  # fmt: skip
_COMMAND: Final = re.compile(rf"`(oauthbroker (?!(?:{'|'.join(WITHOUT_CONFIG)})\b)[a-z](?:(?!--config\b| -c )[^`])*)`")


def with_config(text: str, config: str) -> str:
    """Return a text whose commands, each between backticks, name this configuration. Those that name one stay."""
    option = f" --config {shlex.quote(config)}"
    return _COMMAND.sub(lambda found: f"`{found[1]}{option}`", text)
