"""The process of one isolated call: read the call, run the handler, write its result. It holds no key of the store.

Arguments: the descriptor of a socket. One line of JSON comes in, `{entry, export, context, args, changesets,
processes?, oauth?}`, and one goes out, `{output}` or `{error: {name, message, code?, suggestion?}}`.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
import os
import resource
import socket
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn


def main() -> NoReturn:
    channel = socket.socket(fileno=int(sys.argv[1]))
    with channel.makefile("rb") as lines:
        call = json.loads(lines.readline())
    if "processes" in call:  # in a user namespace of our own the kernel counts ours alone
        resource.setrlimit(resource.RLIMIT_NPROC, (call["processes"],) * 2)
    try:
        told = json.dumps({"output": _result(call)}, allow_nan=False, default=_as_json)
    except BaseException as error:  # noqa: BLE001 - SystemExit, too, is a result
        told = json.dumps({"error": _error(error)})
    channel.sendall(told.encode("ascii") + b"\n")
    os._exit(0)  # threads that the tool left behind do not hold up the end


def _result(call: dict[str, Any]) -> Any:
    handler = _module(call["entry"]).handlers[call["export"]]
    context = SimpleNamespace(**call["context"], logger=logging.getLogger("tool"), runtime=None)
    context.workdir, context.message = Path(context.workdir), SimpleNamespace(**context.message)
    if (runtime := sys.modules.get("oauthbroker.tools.context")) is not None:  # else no code of the tool asks for them
        folders = [Path(each) for each in call["changesets"]]
        runtime.changeset_folders.set(lambda _ctx: folders)
    if inspect.iscoroutinefunction(handler):
        import asyncio  # a third of the start of this process, which other handlers do not need

        return asyncio.run(_awaited(handler, context, call))
    if "oauth" not in call:
        return handler(context, call["args"])
    from oauthbroker.client import SyncOAuth

    with SyncOAuth(**call["oauth"]) as context.oauth:
        return handler(context, call["args"])


async def _awaited(handler: Any, context: SimpleNamespace, call: dict[str, Any]) -> Any:
    if "oauth" not in call:
        return await handler(context, call["args"])
    from oauthbroker.client import OAuth

    async with OAuth(**call["oauth"]) as context.oauth:
        return await handler(context, call["args"])


def _error(error: BaseException) -> dict[str, Any]:
    """Return an exception as JSON. A ToolFailure has members of its own."""
    members: Any = getattr(error, "error", None)
    own: dict[str, Any] = members.to_json() if hasattr(members, "to_json") else {}
    return {"name": type(error).__name__, "message": str(error), **own}


def _module(entry: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("isolated_tool", entry)
    if spec is None or spec.loader is None:
        raise ImportError("the entry is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _as_json(value: Any) -> Any:
    """Return a request for consent, or the answer without a token, as JSON: a handler may return it. No other object
    is an output, least of all a token."""
    if getattr(value, "status", None) in {"authorization_required", "error"}:
        return value.to_json()
    raise TypeError(f"an output is JSON, not {type(value).__name__}")


if __name__ == "__main__":
    main()
