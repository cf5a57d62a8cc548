"""What a hostile MCP server answers: few bytes that are much work."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MIB = 1024 * 1024
Asked = dict[str, Any]
Answer = tuple[str, bytes]
Bomb = Callable[[Asked], Answer]


_COMPLETE = '"resultType":"complete","ttlMs":0,"cacheScope":"private",'


def repeated(text: str) -> str:
    return text * (MIB // len(text))


def in_result(member: str, times: int = 1, before: str = "", after: str = "") -> Bomb:
    """Answer with `times` times `member`, and what stands before and after, as the result's members."""

    def answer(asked: Asked) -> Answer:
        members = _COMPLETE + before + ",".join([member] * times) + after
        return _json(f'{{"jsonrpc":"2.0","id":{json.dumps(asked["id"])},"result":{{{members}}}}}')

    return answer


def list_of(member: str, entry: str, times: int) -> Bomb:
    return in_result(entry, times, f'"{member}":[', "]")


def _json(text: str) -> Answer:
    return "application/json", text.encode()


def _stream(text: str) -> Bomb:
    return lambda _: ("text/event-stream", repeated(text).encode())


def _in_event(asked: Asked) -> Answer:
    return "text/event-stream", b"data: " + list_of("content", "[]", MIB // 3)(asked)[1] + b"\n\n"


def _audiences(asked: Asked) -> Answer:
    text = '"content":[{"type":"text","text":"a","annotations":{"audience":['
    return in_result("0", 15_000, text, "]}}]")(asked)


def error_of(message: str) -> Bomb:
    """Answer with an error."""

    def answer(asked: Asked) -> Answer:
        error = {"code": -32000, "message": message}
        return _json(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}))

    return answer


BOMBS: dict[str, Bomb] = {
    "lists": list_of("content", "[]", MIB // 3),
    "lists within the count": list_of("content", "[]", 9_000),
    "objects": list_of("content", "{}", MIB // 3),
    "objects within the count": list_of("content", "{}", 9_000),
    "audiences within the count": _audiences,
    "depth": lambda _: _json(repeated("[")),
    "members": in_result(",".join(f'"k{number}":0' for number in range(MIB // 10))),
    "structured": in_result("0", MIB // 2, '"content":[],"structuredContent":{"a":[', "]}"),
    "a number": in_result('"content":[],"structuredContent":{"a":' + repeated("9") + "}"),
    "escapes": in_result('"content":[{"type":"text","text":"' + repeated("\\u0041") + '"}],"x":[['),
    "events": _stream("data: {}\n\n"),
    "lines": _stream("\n"),
    "comments": _stream(": a\n"),
    "an event": _in_event,
    "UTF-16": lambda asked: ("application/json", list_of("content", "[]", 1)(asked)[1].decode().encode("utf-16")),
    "an error": error_of("m" * MIB),
}
LISTS: dict[str, Bomb] = {
    "tools": list_of("tools", '{"name":"a","inputSchema":{}}', MIB // 30),
    "empty tools": list_of("tools", "{}", 15_000),
    "a schema": in_result("{}", MIB // 3, '"tools":[{"name":"a","inputSchema":{"x":[', "]}}]"),
}


class HostileServer:
    """An ASGI application: as `app`, but it answers calls of `method` with a bomb."""

    def __init__(self, app: Any, method: str, bomb: Bomb) -> None:
        self._app, self._method, self._bomb, self.answered = app, method, bomb, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while scope["type"] == "http" and scope["method"] == "POST":
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body) if body else {}
        if asked.get("method") != self._method:
            await self._app(scope, _replayed(body, receive), send)
            return
        self.answered += 1
        kind, content = self._bomb(asked)
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def _replayed(body: bytes, receive: Any) -> Any:
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return left.pop() if left else await receive()

    return again
