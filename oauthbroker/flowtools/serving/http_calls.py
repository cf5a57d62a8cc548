"""Calls by HTTP: `POST /v1/flowtools/tools/{name}`, and the method and path of a specification below one prefix."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import ConfigDict
from starlette.responses import JSONResponse, Response

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.running.checks import authorise, own_key
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.working import RunResult, refusal
from oauthbroker.flowtools.serving.callers import FlowCallers
from oauthbroker.flowtools.serving.service import FlowService
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
from oauthbroker.flowtools.specification.source import nearest
from oauthbroker.plugins import PluginCall, PluginRoute, RequestModel, decode_json, two_sentences

TOOLS: Final = "/v1/flowtools/tools/{name}"
PATHS: Final = "/v1/flowtools/api/{path:path}"
_IN_QUERY: Final = ("GET", "DELETE")  # their input
_LONGEST_KEY: Final = 255
_PENDING: Final = frozenset({"waiting", "running", "failing", "escalated"})
_OURS: Final = {
    "inputInvalid": Code.REQUEST_INVALID,
    "forbidden": Code.NOT_ALLOWED,
    "rowForbidden": Code.NOT_ALLOWED,
    "notFound": Code.NOT_FOUND,
}
_CODES: Final = {
    409: "conflict contention idempotencyConflict transitionRefused",
    410: "versionWithdrawn answerGone",
    422: "assertFailed invariantBroken policyBlocked consentRefused declined cancelled undecided expressionFailed "
    "requestInvalid valueInvalid valueMissing tooManyRows writeUnbounded",
    502: "externalFailed unknown",
}
_STATUS: Final = {code: status for status, codes in _CODES.items() for code in codes.split()}


class ToolPath(RequestModel):
    name: str


class CustomPath(RequestModel):
    path: str


class AnyQuery(RequestModel):
    """The query of a call, which the tool's input schema assesses."""

    model_config = ConfigDict(extra="allow")


class HttpCalls:
    def __init__(self, service: FlowService, callers: FlowCallers) -> None:
        self._service, self._callers = service, callers

    def routes(self) -> list[PluginRoute]:
        given: dict[str, Any] = {"who": (), "takes_long": True, "authenticate": self._callers.authenticate}
        custom: dict[str, Any] = {"path": PATHS, "parameters": CustomPath, "handler": self._custom, **given}
        return [
            PluginRoute(method="POST", path=TOOLS, parameters=ToolPath, handler=self._tool, **given),
            *(PluginRoute(method=method, query=AnyQuery, **custom) for method in _IN_QUERY),
            *(PluginRoute(method=method, **custom) for method in ("POST", "PUT")),
        ]

    async def _tool(self, call: PluginCall) -> Response:
        flow = None
        try:
            flow = await self._service.work(lambda: self._service.flow(call.path.name))
        except BrokerError as error:
            if error.code is not Code.NOT_FOUND:
                raise
        if flow is None or flow.tool.trigger.type != "http":
            return self._no_tool(call.path.name, call.request.state.actor)
        return await self._answered(call, flow)

    def _no_tool(self, name: str, actor: Actor | None) -> Response:
        """Refuse a name or version that is not served. A known caller gets the nearest name that it may call."""
        if actor is None:
            raise BrokerError(Code.NOT_FOUND)
        known = [name for name, flow in self._service.serving.items() if _is_open(flow, actor)]
        hint = nearest(name, known) or "check the name and the version"
        return answer(refusal(FlowFailed("notFound", two_sentences("no such tool", hint))))

    async def _custom(self, call: PluginCall) -> Response:
        wanted = (call.request.method, f"/{call.path.path}")
        there = [flow for flow in self._service.serving.values() if flow.tool.route == wanted]
        found = [flow for flow in there if not flow.withdrawn] or there
        if len(found) != 1:
            raise BrokerError(Code.NOT_FOUND)
        return await self._answered(call, found[0])

    async def _answered(self, call: PluginCall, flow: ReadyFlow) -> Response:
        actor: Actor | None = call.request.state.actor
        try:
            if actor is None:
                authorise(flow, None)  # a stranger learns no rule of the input
            in_query = call.request.method in _IN_QUERY
            data = from_query(flow.tool.input, call.query.model_extra or {}) if in_query else await _body(call)
            key = caller_key(call.request.headers.getlist("idempotency-key"), actor)
        except FlowFailed as refused:
            return answer(refusal(refused))
        result = await self._service.work(lambda: self._service.runs.call(flow, data, actor, key=key))
        return answer(result)


def _is_open(flow: ReadyFlow, actor: Actor) -> bool:
    """Tell whether a caller may call a tool by HTTP."""
    try:
        authorise(flow, actor)
    except FlowFailed:
        return False
    return flow.tool.trigger.type == "http" and not flow.withdrawn


def from_query(schema: Mapping[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the input of a query: texts where the schema asks for one, else JSON; a text where it is none."""
    declared = schema.get("properties", {})
    return {name: _typed(declared.get(name, {}), text) for name, text in query.items()}


def answer(result: RunResult) -> Response:
    """Return the answer to a caller: 200 with the output, 202 for a run that is not over, or a problem (RFC 9457),
    whose `errors` are places in the input. Raises `unauthenticated`, which has a header of its own."""
    headers = {"flow-run": result.run} if result.run else {}
    if result.state == "succeeded":
        return JSONResponse(result.output, headers=headers)
    if result.state in _PENDING:
        asked = {"authorization": result.authorization.to_json()} if result.authorization else {}
        return JSONResponse({"run": result.run, "state": result.state, **asked}, 202, headers)
    code = result.code or result.state
    if code == "unauthenticated":
        raise BrokerError(Code.UNAUTHENTICATED)
    ours = _OURS.get(code)
    status = ours.status if ours else _STATUS.get(code, 500)
    said = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": result.message}
    members = {**said, "code": ours.value if ours else code, "retryable": False, "run": result.run}
    if result.errors:
        members["errors"] = [{"pointer": pointer, "keyword": keyword} for pointer, keyword in result.errors]
    return JSONResponse(members, status, headers, media_type="application/problem+json")


async def _body(call: PluginCall) -> Any:
    """Return the JSON of a body; an empty one is the empty object. Raises FlowFailed, with the reason."""
    raw = await call.request.body()
    if not raw:
        return {}
    kind, _, parameter = call.request.headers.get("content-type", "").lower().partition(";")
    is_coded = call.request.headers.get("content-encoding", "identity") != "identity"
    if kind.strip() != "application/json" or parameter.strip() not in {"", "charset=utf-8"} or is_coded:
        raise BrokerError(Code.UNSUPPORTED_MEDIA_TYPE)
    try:
        return decode_json(raw, Code.REQUEST_INVALID)
    except BrokerError as error:
        why = error.note  # it has no word of the body
    raise FlowFailed("inputInvalid", two_sentences(f"the body is {why}", "correct the JSON"))


def caller_key(sent: list[str], actor: Actor | None) -> str | None:
    """Return the idempotency key of a caller: two callers never share one, and a stranger has none."""
    if not sent:
        return None
    if len(sent) != 1 or not 0 < len(sent[0]) <= _LONGEST_KEY or actor is None:
        what = f"the header Idempotency-Key is not one of 1 to {_LONGEST_KEY} characters, of an authenticated caller"
        raise FlowFailed("inputInvalid", two_sentences(what, "send a shorter one, or leave it out"))
    return own_key("header", actor, sent[0])


def _typed(schema: Any, text: str) -> Any:
    kind = schema.get("type", "string") if isinstance(schema, dict) else "string"
    if kind == "string" or "string" in kind:
        return text
    try:
        return decode_json(text.encode(), Code.REQUEST_INVALID)
    except BrokerError:
        return text
