"""JSON-RPC messages of MCP over HTTP: the request in an HTTP request, and answers in a server's place."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

import httpx2

from oauthbroker import AuthorizationRequired, BrokerError, Code
from oauthbroker.mcp.consent import INPUT
from oauthbroker.plugins import decode_json

FAILED: Final = -32000
MOST_VALUES: Final = 100_000  # of a host's request
OURS: Final = ("requestState", "inputResponses")


def call_of(request: httpx2.Request) -> dict[str, Any] | None:
    """Return the JSON-RPC request of an HTTP request. None for notifications, streams and the end of a session."""
    try:
        found = decode_json(request.content, Code.REQUEST_INVALID, most_values=MOST_VALUES)
    except (BrokerError, httpx2.RequestNotRead):
        return None
    is_call = request.method == "POST" and isinstance(found, dict) and "method" in found and found.get("id") is not None
    return found if is_call and isinstance(found.get("params", {}), dict) else None


def elicits_urls(capabilities: Any) -> bool:
    return member(member(capabilities, "elicitation"), "url") is not None


def member(found: Any, name: str) -> Any:
    return found.get(name) if isinstance(found, dict) else None


def without_ours(params: dict[str, Any]) -> dict[str, Any]:
    """Return params without our state and our answer. Answers to the server's own questions stay."""
    responses = params.get("inputResponses")
    theirs = {name: said for name, said in responses.items() if name != INPUT} if isinstance(responses, dict) else {}
    kept = {name: value for name, value in params.items() if name not in OURS}
    return {**kept, "inputResponses": theirs} if theirs else kept


def with_body(request: httpx2.Request, call: dict[str, Any]) -> httpx2.Request:
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    body = json.dumps(call).encode()
    return httpx2.Request(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


def for_user(result: AuthorizationRequired) -> dict[str, Any]:
    return {"mode": "url", "message": result.message, "url": result.authorization_url}


def failed_answer(call: dict[str, Any] | None, sentence: str) -> httpx2.Response:
    """Return the failure of one request: a tool's failure reaches the model, another one the host."""
    if call is None:
        return httpx2.Response(HTTPStatus.SERVICE_UNAVAILABLE)
    if call.get("method") == "tools/call":
        result = {"resultType": "complete", "content": [{"type": "text", "text": sentence}], "isError": True}
        return httpx2.Response(HTTPStatus.OK, json={"jsonrpc": "2.0", "id": call["id"], "result": result})
    return error_answer(call, FAILED, sentence)


def error_answer(call: dict[str, Any], code: int, message: str, data: Any = None) -> httpx2.Response:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return httpx2.Response(HTTPStatus.OK, json={"jsonrpc": "2.0", "id": call["id"], "error": error})
