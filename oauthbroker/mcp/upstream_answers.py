"""Check the entries of a server's answer up to the first error.

The SDK checks an answer against unions of models and keeps each error of each entry, which takes a hundred times the
entry.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any, Final, Self

from mcp.client import Transport
from mcp_types import (
    INTERNAL_ERROR,
    BlobResourceContents,
    ContentBlock,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    Prompt,
    PromptMessage,
    Resource,
    ResourceTemplate,
    TextResourceContents,
    Tool,
)
from pydantic import FailFast, TypeAdapter, ValidationError

MOST_OTHERS: Final = 100  # entries of a list or object that is not listed below
UNSOUND: Final = "The answer of the server has not the form that the protocol demands."
SDK_LINE: Final = "a line of the MCP SDK, without its text"
_FREE: Final = frozenset({"structuredContent", "inputSchema", "outputSchema", "_meta"})  # no model is built for them
_ENTRIES: Final[Mapping[str, TypeAdapter[Any]]] = {
    "content": TypeAdapter(Annotated[list[ContentBlock], FailFast()]),
    "messages": TypeAdapter(Annotated[list[PromptMessage], FailFast()]),
    "contents": TypeAdapter(Annotated[list[TextResourceContents | BlobResourceContents], FailFast()]),
    "tools": TypeAdapter(Annotated[list[Tool], FailFast()]),
    "prompts": TypeAdapter(Annotated[list[Prompt], FailFast()]),
    "resources": TypeAdapter(Annotated[list[Resource], FailFast()]),
    "resourceTemplates": TypeAdapter(Annotated[list[ResourceTemplate], FailFast()]),
}


@asynccontextmanager
async def checked(streams: Transport) -> AsyncIterator[tuple[Any, Any]]:
    """Open streams whose answers are sound, or errors in their place."""
    async with streams as (read, write):
        yield _Checked(read), write


class _Checked:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Checked:
        return self

    async def __anext__(self) -> Any:
        return _sound(await self._stream.__anext__())

    async def receive(self) -> Any:
        return _sound(await self._stream.receive())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)


def _sound(item: Any) -> Any:
    """Return a message, or what stands for one that is not sound."""
    match getattr(item, "message", None):
        case JSONRPCResponse(id=id_, result=result) if not _is_sound(result):
            error = ErrorData(code=INTERNAL_ERROR, message=UNSOUND)
            return replace(item, message=JSONRPCError(jsonrpc="2.0", id=id_, error=error))
        case JSONRPCRequest(params=dict(params)) | JSONRPCNotification(params=dict(params)) if not _is_sound(params):
            return ValueError(UNSOUND)
    return item


def _is_sound(members: Mapping[str, Any]) -> bool:
    try:
        for name, value in members.items():
            if name not in _ENTRIES and not _is_short({name: value}):
                return False
            if name in _ENTRIES and (not isinstance(value, list) or not all(map(_is_short, value))):
                return False
            if name in _ENTRIES:
                _ENTRIES[name].validate_python(value, by_name=False)
    except ValidationError:
        return False
    return True


def _is_short(value: Any) -> bool:
    """Return whether no list or object within is longer than those of the protocol are. Free JSON is not looked at."""
    if isinstance(value, dict):
        return len(value) <= MOST_OTHERS and all(_is_short(value[name]) for name in value if name not in _FREE)
    return not isinstance(value, list) or (len(value) <= MOST_OTHERS and all(map(_is_short, value)))


def _without_answers(record: logging.LogRecord) -> bool:
    """Take the text out of a line that the SDK's client logs: it quotes answers."""
    record.msg, record.args, record.exc_info, record.exc_text = SDK_LINE, (), None, None
    return True


for _name in ("mcp.client.streamable_http", "mcp.client.client", "client", "mcp.shared.jsonrpc_dispatcher"):
    logging.getLogger(_name).addFilter(_without_answers)
