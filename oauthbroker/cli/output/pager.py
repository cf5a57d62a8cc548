"""Show a long text in the user's pager, as git does: `PAGER`, else `less`, which exits if the text fits the screen."""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import suppress

_LESS = "FRX"  # exit if the text fits, show colours, leave the text on the screen


def page(text: str) -> bool:
    """Show the text. False if there is no pager: `PAGER` is empty, `cat`, or cannot be started."""
    command = os.environ.get("PAGER", "less").strip()
    if command in {"", "cat"}:
        return False
    try:
        shown = subprocess.Popen(  # noqa: S603  (the user chose it)
            shlex.split(command), stdin=subprocess.PIPE, env={"LESS": _LESS, **os.environ}, text=True, encoding="utf-8"
        )
    except (OSError, ValueError):
        return False
    while True:
        with suppress(KeyboardInterrupt):  # Ctrl-C is for the pager
            shown.communicate(text)
            return True
