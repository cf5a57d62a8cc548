"""Run code of another package. Its exceptions end there, reported by type and line: a text may quote a secret."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import described

_BETWEEN: Final = sys.stdlib_module_names | {
    *("oauthbroker", "click", "importlib_metadata", "jinja2", "pydantic", "starlette", "typer"),
}


class ForeignFault(Exception):
    """Code of another package failed: `whose` names package and call, `why` is no text of the package."""

    def __init__(self, whose: str, why: str) -> None:
        super().__init__(f"{whose}: {why}")
        self.why = why


class MisuseError(BrokerError):
    """`requestInvalid` for a wrong value that code of another package passed to the broker, not that code's caller."""

    def __init__(self, note: str) -> None:
        super().__init__(Code.REQUEST_INVALID, note=note)


@contextmanager
def foreign_code(whose: str, *passed: type[BaseException]) -> Iterator[None]:
    """Run a block of another package's code. Raises `ForeignFault` for each exception of it, `SystemExit` and others
    that are no `Exception` included, but not for `BrokerError`, those of `passed`, and what `is_from_outside` tells."""
    try:
        yield
        return
    except BaseException as error:
        is_known = isinstance(error, (BrokerError, *passed)) and not isinstance(error, MisuseError)
        if is_known or is_from_outside(error):
            raise
        fault = ForeignFault(whose, why_of(error))
    raise fault


def is_from_outside(error: BaseException) -> bool:
    """Tell whether an exception is Ctrl-C, a cancellation or the end of a generator: no code of the block raised it."""
    if isinstance(error, Exception | SystemExit):
        return False
    from asyncio import CancelledError  # a third of the start of a program that has no event loop

    return isinstance(error, KeyboardInterrupt | GeneratorExit | CancelledError)


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
