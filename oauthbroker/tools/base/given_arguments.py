"""Arguments of base tools. A Tool resource of one's own may declare no `parameters`, so that nothing checks them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import wraps
from typing import Any

from oauthbroker.tools.types.failures import ToolCode, ToolFailure


def needs(handler: Any, *names: str) -> Any:
    """Return a handler that is called with these arguments as texts, and raises ToolFailure without one of them."""
    if inspect.iscoroutinefunction(handler):

        @wraps(handler)
        async def waiting(ctx: Any, given: Any) -> Any:
            _check(given, names)
            return await handler(ctx, given)

        return waiting

    @wraps(handler)
    def called(ctx: Any, given: Any) -> Any:
        _check(given, names)
        return handler(ctx, given)

    return called


def _check(given: Mapping[str, object], names: tuple[str, ...]) -> None:
    for name in names:
        if not isinstance(given.get(name), str):
            problem = "is not a text" if name in given else "is missing"
            raise ToolFailure(f"The argument {name!r} {problem}.", name="ToolArgumentsError", code=ToolCode.ARGUMENTS)
