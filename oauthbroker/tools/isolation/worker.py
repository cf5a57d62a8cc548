"""The process of one isolated call: read the call, run the handler, write its result. It holds no key of the store.
Arguments: the descriptor of a socket. One line of JSON comes in, `{entry, export, context, args, changesets,
processes?, oauth?}`, and one goes out: `{output}`, `{handle}`, `{consent}` with a request for consent, `{refused}` with
the problem of the output, or `{error: {name, message, code?, suggestion?, helpUrl?}}`."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import resource
import sys
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NoReturn

from oauthbroker.plugins import NotPlainJson, plain_json, type_name
from oauthbroker.tools.types.foreign_values import cause_of, ended_at_space, text_of
from oauthbroker.tools.types.results import READ_BESIDE, VALUE, Message

_RESULTS: Final = "oauthbroker.model.token_results"
_ENDS: Final = "oauthbroker.tools.types.results"


def main() -> NoReturn:
    channel = int(sys.argv[1])
    with open(channel, "rb", closefd=False) as lines:
        call = json.loads(lines.readline())
    if "processes" in call:  # in a user namespace of our own the kernel counts ours alone
        resource.setrlimit(resource.RLIMIT_NPROC, (call["processes"],) * 2)
    try:
        answer = _end(_result(call))
    except NotPlainJson as problem:
        answer = {"refused": str(problem)}
    except BaseException as error:  # noqa: BLE001 - SystemExit, too, is a result
        answer = _failed(error)
    with open(channel, "wb") as lines:
        lines.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
    os._exit(0)  # threads that the tool left behind do not hold up the end


class _Context(SimpleNamespace):
    """The context of the call."""

    @cached_property
    def logger(self) -> Any:
        import logging  # a tenth of the start of this process, which few handlers need

        return logging.getLogger("tool")


def _result(call: dict[str, Any]) -> Any:
    handler = _module(call["entry"]).handlers[call["export"]]
    context = _Context(**call["context"], runtime=None)
    context.workdir, context.message = Path(context.workdir), Message.from_json(context.message)
    runtime = sys.modules.get("oauthbroker.tools.calling.context")
    if runtime is not None:  # else no code of the tool asks for them
        folders = [Path(each) for each in call["changesets"]]
        runtime.changeset_folders.set(lambda _ctx: folders)
    if "oauth" not in call:
        return _awaited(handler(context, call["args"]))
    if inspect.iscoroutinefunction(handler):
        return _awaited(_with_oauth(handler, context, call))
    from oauthbroker.client import SyncOAuth

    with SyncOAuth(**call["oauth"]) as context.oauth:
        return _awaited(handler(context, call["args"]))


def _awaited(value: Any) -> Any:
    """Return a value, or that of a coroutine."""
    if not hasattr(type(value), "__await__"):
        return value
    import asyncio  # a third of the start of this process, which other handlers do not need

    async def ended() -> Any:
        return await value

    return asyncio.run(ended())


async def _with_oauth(handler: Any, context: SimpleNamespace, call: dict[str, Any]) -> Any:
    from oauthbroker.client import OAuth

    async with OAuth(**call["oauth"]) as context.oauth:
        return await handler(context, call["args"])


def _failed(error: BaseException) -> dict[str, Any]:
    """Return the answer for an exception: that of the result which it carries, or an error."""
    cause: Any = cause_of(error)
    with suppress(BaseException):  # code of the tool
        if _is(cause, "oauthbroker.injection.errors", "InjectionError"):
            return _end(cause.result)
        if _is(cause, "oauthbroker.core.errors", "BrokerError"):
            return {"error": {"name": cause.code.value, "message": cause.message()}}
    return {"error": _error(cause)}


def _error(cause: Any) -> dict[str, Any]:
    """Return an exception as JSON. A ToolFailure has members of its own."""
    rendered = {"name": type_name(cause), "message": text_of(cause)}
    with suppress(BaseException):  # of another exception, or of code of the tool
        members: Any = cause
        own = members.error.to_json()
        known = [member for member in ("name", "code", "suggestion", "helpUrl") if isinstance(own.get(member), str)]
        rendered |= {member: ended_at_space(text_of(own[member]), READ_BESIDE) for member in known}
        rendered["message"] = text_of(own["message"])
    return rendered


def _module(entry: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("isolated_tool", entry)
    if spec is None or spec.loader is None:
        raise ImportError("the entry is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _end(value: Any) -> dict[str, Any]:
    """Return the answer for the value of a handler, which may be more than an output. Raises NotPlainJson."""
    if _is(value, _RESULTS, "AuthorizationRequired"):
        return {"consent": plain_json(value.to_json(), VALUE)}
    if _is(value, _RESULTS, "Failed"):
        return {"error": {"name": value.code.value, "message": text_of(value.message)}}
    if _is(value, _ENDS, "Submitted"):
        return {"handle": plain_json(value.handle, VALUE)}
    return {"output": plain_json(value, VALUE)}


def _is(value: object, module: str, name: str) -> bool:
    """Tell whether a value is of a class. Only code that has loaded the module made one: this process loads little."""
    return (found := sys.modules.get(module)) is not None and issubclass(type(value), getattr(found, name))
