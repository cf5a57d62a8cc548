"""Arguments of base tools. A Tool resource of one's own may declare no `parameters`, so that nothing checks them."""

from __future__ import annotations

from collections.abc import Mapping

from oauthbroker.tools.types.failures import ToolCode, ToolFailure


def needed(given: Mapping[str, object], name: str) -> str:
    """Return an argument that is a text. Raises ToolFailure without it."""
    if isinstance(value := given.get(name), str):
        return value
    problem = "is not a text" if name in given else "is missing"
    raise ToolFailure(f"The argument {name!r} {problem}.", name="ToolArgumentsError", code=ToolCode.ARGUMENTS)
