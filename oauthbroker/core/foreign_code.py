"""Run code of another package. What it raises ends there, and is told by its type and its line: its text may quote a
secret."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import described

_BETWEEN: Final = sys.stdlib_module_names | {"oauthbroker", "click", "starlette", "typer"}  # that run the other's code
_PASSED: Final = (BrokerError, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)


class ForeignFault(Exception):
    """Code of another package failed: `whose` says which, and what it was asked for; `why` has no text of its own."""

    def __init__(self, whose: str, why: str) -> None:
        super().__init__(f"{whose}: {why}")
        self.why = why


class MisuseError(BrokerError):
    """`requestInvalid` for what code of another package passed to the broker. No caller of that code can correct it."""

    def __init__(self, note: str) -> None:
        super().__init__(Code.REQUEST_INVALID, note=note)


@contextmanager
def foreign_code(whose: str, *passed: type[BaseException]) -> Iterator[None]:
    """Run a block of another package's code. Raises `ForeignFault` for all that it raises, `SystemExit` included, but
    `BrokerError`, those of `passed`, and what comes from outside of it: a cancellation, and Ctrl-C."""
    try:
        yield
        return
    except BaseException as error:
        if isinstance(error, (*_PASSED, *passed)) and not isinstance(error, MisuseError):
            raise
        fault = ForeignFault(whose, why_of(error))
    raise fault


def why_of(error: BaseException) -> str:
    """Return the type of an exception and its innermost line in the other package; lines of ours if that has none."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ForeignFault):
        return error.why
    place = foreign_place(error)
    if isinstance(error, MisuseError):
        return f"{error.note}{place}"
    return f"{type(error).__name__}{place}" if place else described(error)


def foreign_place(error: BaseException) -> str:
    """Return ` at <file>:<line>`, the innermost line of the package that was run; empty if it has none. That of a
    syntax error is in its text."""
    package, place = "", ""
    for frame, line in traceback.walk_tb(None if isinstance(error, SyntaxError) else error.__traceback__):
        top = str(frame.f_globals.get("__name__")).partition(".")[0]
        package = package or (top if top not in _BETWEEN else "")
        place = f" at {frame.f_code.co_filename}:{line}" if package and top == package else place
    return place
