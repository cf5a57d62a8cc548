"""Print commands as they have to be typed here: with the `--config` of this command line."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from oauthbroker.core.printed_commands import with_config

OPTIONS = ("--config", "-c")
_given: ContextVar[str] = ContextVar("_given", default="")


def name_config(config: str) -> None:
    """Remember the configuration that the commands of this process's texts have to name. Empty: none."""
    _given.set(config)


def runnable(text: str) -> str:
    """Return a text whose commands read the configuration of this command line."""
    given = _given.get()
    return with_config(text, given) if given else text


def config_in(arguments: Sequence[str]) -> str:
    """Return the configuration that a command line names, empty for none."""
    for word, after in zip(arguments, [*arguments, ""][1:], strict=True):
        if word == "--":  # what follows is another program's
            break
        if word in OPTIONS:
            return after
        if word.startswith("--config="):
            return word.partition("=")[2]
    return ""
