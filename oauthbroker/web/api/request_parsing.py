"""Requests, read strictly: one meaning, only known fields, and a refusal that never repeats a value."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.spelling import nearest
from oauthbroker.core.strict_json import decode_object
from oauthbroker.model.token_request import MAX_TTL, WrongArgument
from oauthbroker.model.turn_token import NoToolName, is_tool, pointer_step
from oauthbroker.web.api.fields import RequestModel
from oauthbroker.web.api.handler_call import Still
from oauthbroker.web.gate.request_limits import UnsupportedBody

M = TypeVar("M", bound=RequestModel)
MOST_PROBLEMS = 16
MOST_BODIES, LONGEST_BODY = 1_000, 2048  # that are remembered
MOST_SCHEMAS = 256  # of models that refused something; plug-ins have their own
LONGEST_NAME = 64  # of a field that is looked for among ours
_JSON = b"application/json"
_HINTS = {
    "/turn/auth/subjects/user": "subject", "/turn/auth/subjects/global": "subject", "/subject": "subject",
    "/subjects/user": "subject", "/subjects/global": "subject", "/turn/agentName": "agentName",
    "/agentName": "agentName", "/agent": "agentName", "/minTtlSeconds": "minTtl",
}  # fmt: skip
FieldFault = Literal["missing", "unknown", "type", "value"]
_PROBLEMS: dict[str, FieldFault] = {
    "missing": "missing",
    "extra_forbidden": "unknown",
}


class RequestInvalid(BrokerError):
    """`requestInvalid`, and where. `unknown` says that a field was sent which the call does not have, and `meant`
    has the name of ours that is close to it, and the place."""

    def __init__(self, problems: list[dict[str, str]], meant: dict[str, str]) -> None:
        super().__init__(Code.REQUEST_INVALID, most=str(MAX_TTL))
        self.words |= meant
        self.errors = tuple(problems)
        self.hint = "nearestMember" if meant else _hint(problems)
        self.unknown = any(each["problem"] == "unknown" for each in problems)


async def read_body(request: Request, model: type[M], still: Still) -> M:
    """Read the body as `model`. If it was waited for, `still` is asked before anything of it is checked: a store on
    another machine makes that dear. Raises `unsupportedMediaType`, `requestTooLarge`, `requestInvalid`, what
    `still` raises, and ClientDisconnect."""
    said = [value for name, value in request.scope["headers"] if name == b"content-type"]
    if not said or not is_json(said[0]):
        raise UnsupportedBody("" if not said or not _is_json(said[0]) else "bodyCharset")
    waits: list[bool] = []
    noted = asyncio.get_running_loop().call_soon(waits.append, True)  # runs only if this task gives way
    parts, is_whole = list[bytes](), False
    while not is_whole:
        message = await request.receive()  # the gate has limited the body's size
        parts.append(message.get("body", b""))
        is_whole = not message.get("more_body", False)
    noted.cancel()
    if message["type"] != "http.request":
        raise ClientDisconnect
    if waits or len(parts) > 1:
        await still()
    return parsed(model, b"".join(parts))


def is_json(content_type: bytes) -> bool:
    """Return whether a Content-Type says JSON in UTF-8."""
    if content_type == _JSON:
        return True
    parameter = content_type.partition(b";")[2]
    return _is_json(content_type) and parameter.strip().lower() in {b"", b"charset=utf-8"}


def _is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == _JSON


def parsed(model: type[M], body: bytes) -> M:
    """Parse a body as `model`. Raises `requestInvalid`."""
    return (_remembered if model.is_remembered and len(body) <= LONGEST_BODY else _parsed)(model, body)


def _parsed(model: type[M], body: bytes) -> M:
    try:
        members = decode_object(body, Code.REQUEST_INVALID)
    except BrokerError as error:
        error.hint = "strictJson"
        raise
    try:
        return model.model_validate(members)
    except ValidationError as error:
        refused = _refusal(model, error)
    if refused.errors == ({"pointer": "/tools", "problem": "value"},) and isinstance(tools := members["tools"], dict):
        for number, tool in enumerate(tools, 1):
            if not is_tool(tool):
                raise NoToolName(number)
    raise refused


_remembered = lru_cache(MOST_BODIES)(_parsed)  # what a body means follows from its bytes alone


def read_query(request: Request, model: type[M]) -> M:
    """Read the query as `model`; a parameter that comes twice has no meaning. Raises `requestInvalid`."""
    pairs = request.query_params.multi_items()
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = next(name for name, _ in pairs if request.query_params.getlist(name)[1:])
        raise WrongArgument("", twice if twice in _names_in(model) else "query")
    return _from_strings(model, fields)


def read_path(request: Request, model: type[M]) -> M:
    """Read the variable parts of the path as `model`. Raises `requestInvalid`."""
    return _from_strings(model, request.path_params)


def _from_strings(model: type[M], fields: dict[str, str]) -> M:
    try:
        return model.model_validate_strings(fields)
    except ValidationError as error:
        refused = _refusal(model, error)
    raise refused


def _refusal(model: type[RequestModel], error: ValidationError) -> RequestInvalid:
    found = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_PROBLEMS]
    return RequestInvalid(_problems(model, found), _meant(model, found))


def _problems(model: type[RequestModel], found: Sequence[ErrorDetails]) -> list[dict[str, str]]:
    """Name the place of each error by our own names: a caller's key or value may be a secret in the wrong place."""
    ours = _names_in(model)
    made = [{"pointer": _pointer(each, ours), "problem": _PROBLEMS.get(each["type"], _sort(each))} for each in found]
    return [each for number, each in enumerate(made) if each not in made[:number]]


def _meant(model: type[RequestModel], found: Sequence[ErrorDetails]) -> dict[str, str]:
    """Return which field of its object an unknown field was meant to be, and the object; empty if none is close."""
    schema = _schema_of(model)
    for each in found:
        if each["type"] == "extra_forbidden":
            *steps, word = each["loc"]
            holder = schema
            for step in steps:
                holder = holder.get("properties", {}).get(step, {})
                ref = next((it["$ref"] for it in (holder, *holder.get("anyOf", ())) if "$ref" in it), "")
                holder = schema["$defs"][ref.rpartition("/")[2]] if ref else holder
            if near := nearest(str(word)[:LONGEST_NAME], holder.get("properties", ())):
                return {"place": "/" + "/".join(map(str, steps)), "nearest": near}
    return {}


def _sort(problem: ErrorDetails) -> Literal["type", "value"]:
    return "type" if problem["type"].endswith(("_type", "_parsing")) else "value"


def _pointer(problem: ErrorDetails, ours: frozenset[str]) -> str:
    """Return a JSON pointer (RFC 6901) as far as the names are ours, or `Kind/name` as a bundle has them; of an unknown
    field, the object that holds it."""
    steps = problem["loc"][:-1] if problem["type"] == "extra_forbidden" else problem["loc"]
    pointer = ""
    for step in steps:
        if isinstance(step, str) and step not in ours and not is_tool(step):
            break
        pointer += f"/{pointer_step(str(step))}"
    return pointer


def _hint(problems: list[dict[str, str]]) -> str:
    """Return the sentence that an embedded call has for the same argument, or an empty text."""
    if problems == [{"pointer": "/scopes", "problem": "type"}]:
        return "notScopes"
    pointers = [each["pointer"] for each in problems]
    if all(f"{each}/".startswith("/oauthAppRef/") for each in pointers):
        return "appReference"
    hints = {_HINTS.get(each, "") for each in pointers}
    return hints.pop() if len(hints) == 1 else ""


def _names_in(model: type[RequestModel]) -> frozenset[str]:
    schema = _schema_of(model)
    parts = [schema, *schema.get("$defs", {}).values()]
    return frozenset(name for part in parts for name in part.get("properties", ()))


@lru_cache(MOST_SCHEMAS)
def _schema_of(model: type[RequestModel]) -> dict[str, Any]:
    """Return the schema of a model. Making it takes longer than all else of a refusal."""
    return model.model_json_schema()
