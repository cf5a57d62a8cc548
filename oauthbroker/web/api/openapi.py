"""The OpenAPI 3.1 document: made of the table of operations and the models' own schemas, so it cannot lag behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from starlette.responses import Response

from oauthbroker.core.errors import Code
from oauthbroker.web.api import answers as a
from oauthbroker.web.api import models as m
from oauthbroker.web.api.caller import Who
from oauthbroker.web.api.doors import AnyCall, reply
from oauthbroker.web.api.examples import ANSWERS, BODIES, PARAMETERS
from oauthbroker.web.api.fields import Model
from oauthbroker.web.api.operations import OPERATIONS, PROBES, ApiReply, Operation
from oauthbroker.web.api.streaming import STREAM

_REF = "#/components/schemas/{model}"
_JSON, _PROBLEM = "application/json", "application/problem+json"
_ALWAYS = (Code.RATE_LIMITED, Code.HOST_NOT_ALLOWED, Code.REQUEST_INVALID, Code.STORE_UNAVAILABLE, Code.STORE_LOCKED,
           Code.REQUEST_TIMEOUT, Code.SERVER_BUSY)  # fmt: skip
_ALSO = {Code.REQUEST_TIMEOUT: (503,)}  # it was we who took too long
_CALLER = (Code.UNAUTHENTICATED, Code.TURN_ENDED, Code.NOT_ALLOWED)
_BODY = (Code.REQUEST_TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE)
_SCHEMES: dict[Who, str] = {
    "runtime": "runtimeKey", "operator": "operatorKey", "turn": "turnToken", "wholeTurn": "turnToken",
}  # fmt: skip
SECURITY_SCHEMES = {
    "turnToken": ("oabt.", "A turn token: what POST /v1/turns gave for a turn or for one of its tools."),
    "runtimeKey": ("oabk.", "An API key with the role `runtime`."),
    "operatorKey": ("oabk.", "An API key with the role `operator`."),
}


class _Schemas(GenerateJsonSchema):
    """Fields need no titles: their names are the specification's."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  (a hook)
        return False


@cache
def document() -> dict[str, Any]:
    """The whole document (OpenAPI 3.1.0)."""
    described = (*OPERATIONS, DOCUMENT, *PROBES)
    schemas, components = _schemas(described)
    paths: dict[str, dict[str, Any]] = {}
    for operation in described:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "oauthbroker",
            "version": "1",
            "summary": "OAuth tokens for the tools of agents.",
            "description": "For runtimes, operators, and tools in other processes. Refusals are RFC 9457 problems. "
            "Answers may have more members one day: read those you know.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This broker."}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _security_schemes()},
    }


async def get_document(call: AnyCall) -> Response:  # noqa: ARG001  (a handler's signature)
    return reply(document())


DOCUMENT = Operation(
    "getDocument", "GET", "/v1/openapi.json", "This document", get_document, (), {200: ApiReply("OpenAPI 3.1.", dict)}
)


def _schemas(operations: Iterable[Operation]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """The schema of each model (or union) that a body or an answer has, and the named ones that they refer to."""
    wanted = {a.Problem: a.Problem}
    for operation in operations:
        kinds = [*operation.bodies.values(), *(answer.model for answer in operation.answers.values())]
        wanted.update({_key(kind): kind for kind in kinds if kind is not None})
    mode: JsonSchemaMode = "validation"
    adapters: list[tuple[Any, JsonSchemaMode, TypeAdapter[Any]]] = [
        (key, mode, TypeAdapter(kind)) for key, kind in wanted.items()
    ]
    by_key, rest = TypeAdapter.json_schemas(adapters, ref_template=_REF, schema_generator=_Schemas)
    named = {name: _closed(schema) for name, schema in sorted(rest.get("$defs", {}).items())}
    return {key: schema for (key, _), schema in by_key.items()}, named


def _key(kind: Any) -> Any:
    return kind if isinstance(kind, type) else id(kind)


def _closed(schema: Any) -> Any:
    """A map whose keys have a pattern has no other keys."""
    if isinstance(schema, dict):
        closed = {name: _closed(part) for name, part in schema.items()}
        if "patternProperties" in closed:
            closed.setdefault("additionalProperties", False)
        return closed
    return [_closed(part) for part in schema] if isinstance(schema, list) else schema


def _operation(operation: Operation, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "security": [{scheme: []} for scheme in dict.fromkeys(_SCHEMES[who] for who in operation.who)],
        "responses": _responses(operation, schemas),
    }
    if operation.description:
        made["description"] = operation.description
    if parameters := _parameters(operation):
        made["parameters"] = parameters
    if operation.bodies:
        found = [schemas[kind] for kind in operation.bodies.values()]
        content = {"schema": found[0] if len(found) == 1 else {"oneOf": found}}
        examples = {f"as {who}": {"value": body} for who, body in BODIES[operation.id].items()}
        made["requestBody"] = {"required": True, "content": {_JSON: {**content, "examples": examples}}}
    return made


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    return [*_of_model(operation, operation.parameters, "path"), *_of_model(operation, operation.query, "query")]


def _of_model(operation: Operation, model: type[Model], place: str) -> list[dict[str, Any]]:
    schema = model.model_json_schema(schema_generator=_Schemas)
    made = []
    for name, member in schema.get("properties", {}).items():
        said = {"name": name, "in": place, "required": place == "path", "schema": _without_null(member)}
        if name in PARAMETERS.get(operation.id, {}):
            said["example"] = PARAMETERS[operation.id][name]
        made.append(said)
    return made


def _without_null(member: dict[str, Any]) -> dict[str, Any]:
    """A parameter is there or it is not; it is never null."""
    options = [option for option in member.get("anyOf", ()) if option != {"type": "null"}]
    rest = {name: value for name, value in member.items() if name != "anyOf" and value is not None}
    return {**options[0], **rest} if options else rest


def _responses(operation: Operation, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    codes: dict[int, list[Code]] = {}
    for code in codes_of(operation):
        for status in (code.status, *_ALSO.get(code, ())):
            codes.setdefault(status, []).append(code)
    if operation.handler is not None:
        codes[414] = [Code.REQUEST_TOO_LARGE]
    if operation.parameters is not m.NoParameters:
        codes.setdefault(404, []).append(Code.NOT_FOUND)
    answers = {str(status): _answer(operation, status, answer, schemas) for status, answer in operation.answers.items()}
    refusals = {str(status): _refusal(status, found) for status, found in sorted(codes.items())}
    return {**answers, **{status: refusal for status, refusal in refusals.items() if status not in answers}}


def codes_of(operation: Operation) -> list[Code]:
    """Every code that a problem of this call may have."""
    caller = _CALLER if operation.who else ()
    always = _ALWAYS if operation.handler is not None else ()
    return [*operation.codes, *caller, *(_BODY if operation.bodies else ()), *always]


def _answer(
    operation: Operation, status: int, answer: ApiReply, schemas: Mapping[Any, dict[str, Any]]
) -> dict[str, Any]:
    made: dict[str, Any] = {"description": answer.meaning}
    if answer.model is None:
        return made
    content: dict[str, Any] = {"schema": schemas[_key(answer.model)]}
    examples = ANSWERS.get(operation.id, {}).get(status)
    if examples:
        content["examples"] = {name: {"value": value} for name, value in examples.items()}
    made["content"] = {answer.media: content}
    if answer.stream:
        meant = "Messages `id: <eventId>`, `event: <type>`, `data: <the JSON of one leased event>`; comments between."
        made["content"][STREAM] = {"schema": {"type": "string", "description": meant}}
    return made


def _refusal(status: int, codes: list[Code]) -> dict[str, Any]:
    words = {"properties": {"code": {"enum": [code.value for code in codes]}}, "required": ["code", "detail"]}
    content: dict[str, Any] = {"schema": {"allOf": [{"$ref": "#/components/schemas/Problem"}, words]}}
    content["examples"] = {code.value: {"value": _problem_example(code, status)} for code in codes}
    made = {"description": ", ".join(f"`{code.value}`" for code in codes), "content": {_PROBLEM: content}}
    if status == 401:
        made["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
    if status in {408, 429, 503}:
        made["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds, where known."}}
    return made


def _problem_example(code: Code, status: int) -> dict[str, Any]:
    return {
        "type": "about:blank", "title": HTTPStatus(status).phrase, "status": status,
        "detail": code.sentence(), "code": code.value, "retryable": code.retryable,
    }  # fmt: skip


def _security_schemes() -> dict[str, Any]:
    return {
        name: {"type": "http", "scheme": "bearer", "bearerFormat": prefix, "description": meaning}
        for name, (prefix, meaning) in SECURITY_SCHEMES.items()
    }
