"""The OpenAPI 3.1 document: made of the table of operations, the models of requests, and the words of openapi.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, get_args

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import WithDefaultSchema
from starlette.responses import Response

from oauthbroker.core.errors import Code
from oauthbroker.core.shipped_yaml import shipped_yaml
from oauthbroker.core.version import VERSION
from oauthbroker.core.words import LOCALES
from oauthbroker.diagnostics.health import HealthStatus
from oauthbroker.model.apps import AppKind, Flow
from oauthbroker.model.settings import Who
from oauthbroker.model.token_results import Reason
from oauthbroker.model.turn import SubjectMode
from oauthbroker.records.auth_session import SessionStatus
from oauthbroker.records.grant_summary import GrantState, Needs
from oauthbroker.revocation.pending_revocations import RevocationOutcome
from oauthbroker.web.api import request_models as m
from oauthbroker.web.api.call_table import OPERATIONS, PROBES, Operation
from oauthbroker.web.api.fields import RequestModel
from oauthbroker.web.api.handler_call import AnyCall, reply
from oauthbroker.web.api.proxy import PATH as PROXY_PATH
from oauthbroker.web.api.request_parsing import FieldFault
from oauthbroker.web.api.streaming import STREAM
from oauthbroker.web.gate.readiness import ReadyStatus

Schema = dict[str, Any]
_REF = "#/components/schemas/{model}"
_ENUMS = {
    "AppKind": get_args(AppKind), "Code": tuple(Code), "FieldFault": get_args(FieldFault),
    "Flow": (*get_args(Flow), "staticCredential"), "GrantState": get_args(GrantState),
    "HealthStatus": get_args(HealthStatus), "Locale": LOCALES, "Needs": get_args(Needs),
    "ReadyStatus": get_args(ReadyStatus), "Reason": get_args(Reason), "RevocationOutcome": get_args(RevocationOutcome),
    "SessionStatus": get_args(SessionStatus), "SubjectMode": get_args(SubjectMode),
}  # fmt: skip
_GROWS = "A later version may have more values."
_JSON, _PROBLEM, _LINES = "application/json", "application/problem+json", "application/x-ndjson"
_ALWAYS = (Code.RATE_LIMITED, Code.HOST_NOT_ALLOWED, Code.REQUEST_INVALID, Code.STORE_UNAVAILABLE, Code.STORE_LOCKED,
           Code.REQUEST_TIMEOUT, Code.SERVER_BUSY)  # fmt: skip
_ALSO = {Code.REQUEST_TIMEOUT: (503,)}  # it was we who took too long
_CALLER = (Code.UNAUTHENTICATED, Code.TURN_ENDED, Code.NOT_ALLOWED)
_BODY = (Code.REQUEST_TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE)
_SCHEMES: dict[Who, str] = {
    "runtime": "runtimeKey", "operator": "operatorKey", "turn": "turnToken", "wholeTurn": "turnToken",
}  # fmt: skip
SECURITY_SCHEMES = {
    name: {"type": "http", "scheme": "bearer", "bearerFormat": prefix, "description": meaning}
    for name, prefix, meaning in (
        ("turnToken", "oabt.", "A turn token: what POST /v1/turns gave for a turn or for one of its tools."),
        ("runtimeKey", "oabk.", "An API key with the role `runtime`."),
        ("operatorKey", "oabk.", "An API key with the role `operator`."),
    )
}


class _Schemas(GenerateJsonSchema):
    """Fields need no titles: their names are the specification's. A default stands in the description: generators of
    clients take a member with one as required."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  (a hook)
        return False


@cache
def described() -> dict[str, Any]:
    """Return openapi.yaml: the schemas of answers, and the words and examples of each operation."""
    words: dict[str, Any] = shipped_yaml(Path(__file__).with_name("openapi.yaml"))
    return words


@cache
def document() -> dict[str, Any]:
    """Return the whole document (OpenAPI 3.1.0)."""
    every = (*OPERATIONS, DOCUMENT, *PROBES)
    paths: dict[str, dict[str, Any]] = {}
    for operation in every:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "oauthbroker",
            "version": VERSION,
            "summary": "OAuth tokens for the tools of agents.",
            "description": "For runtimes, operators, and tools in other processes. Refusals are RFC 9457 problems. "
            "A later version may have more members in answers, and more values of an enumeration: read those you know. "
            f"`{PROXY_PATH}` forwards requests to providers' APIs and is not listed: no parameter here holds a slash.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This broker."}],
        "paths": paths,
        "components": {"schemas": _schemas(every), "securitySchemes": SECURITY_SCHEMES},
    }


async def get_document(call: AnyCall) -> Response:  # noqa: ARG001  (a handler's signature)
    return reply(document())


DOCUMENT = Operation("getDocument", "GET", "/v1/openapi.json", handler=get_document, who=())


def _schemas(operations: Iterable[Operation]) -> dict[str, Schema]:
    """Return the named schemas: of requests by their models, of answers by openapi.yaml, of enums by the code."""
    models = dict.fromkeys(model for operation in operations for model in operation.bodies)
    _, sent = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REF, schema_generator=_Schemas
    )
    answered = {name: _answered(name, schema) for name, schema in described()["schemas"].items()}
    enums = {
        name: {"title": name, "type": "string", "description": _GROWS, "enum": [str(each) for each in words]}
        for name, words in _ENUMS.items()
    }
    return dict(sorted(({name: _closed(each) for name, each in sent["$defs"].items()} | answered | enums).items()))


def _answered(name: str, said: Schema) -> Schema:
    """Return an answer's JSON Schema. One without `about` stands in the file as it is."""
    if "about" not in said:
        return {"title": name, **said}
    members = {member: value for member, value in said.items() if member != "about"}
    return {
        "title": name,
        "description": said["about"],
        "type": "object",
        "properties": {member.removesuffix("?"): schema_of(value) for member, value in members.items()},
        "required": [member for member in members if not member.endswith("?")],
    }


def schema_of(said: str | list[Any] | Schema) -> Schema:
    """Return the JSON Schema of a member's value: a kind, a reference, a list, or a schema as it stands."""
    if isinstance(said, list):
        return {"type": "array", "items": schema_of(said[0])}
    if isinstance(said, str):
        kind: Schema = described()["kinds"].get(said) or {"$ref": _REF.format(model=said)}
        return kind
    return said


def _closed(schema: Any) -> Any:
    """Close maps: one whose keys have a pattern has no other keys."""
    if isinstance(schema, dict):
        closed = {name: _closed(part) for name, part in schema.items()}
        if "patternProperties" in closed:
            closed.setdefault("additionalProperties", False)
        return closed
    return [_closed(part) for part in schema] if isinstance(schema, list) else schema


def _operation(operation: Operation) -> dict[str, Any]:
    words = described()["operations"][operation.id]
    made: dict[str, Any] = {
        "operationId": operation.id,
        "summary": words["summary"],
        "security": [{name: []} for name in dict.fromkeys(_SCHEMES[who] for who in operation.who if who in _SCHEMES)],
        "responses": _responses(operation, words["answers"]),
    }
    if "description" in words:
        made["description"] = words["description"]
    said = words.get("parameters", {})
    sent = [{"name": name, "in": "header", "required": True, **more} for name, more in words.get("headers", {}).items()]
    if parameters := [
        *_parameters(operation.parameters, "path", said), *_parameters(operation.query, "query", said), *sent
    ]:  # fmt: skip
        made["parameters"] = parameters
    if "lines" in words:
        made["requestBody"] = {"required": True, "content": {_LINES: words["lines"]}}
    if operation.bodies:
        found = [schema_of(kind.__name__) for kind in operation.bodies]
        content = {"schema": found[0] if len(found) == 1 else {"oneOf": found}}
        examples = {f"as {who}": {"value": body} for who, body in words["bodies"].items()}
        made["requestBody"] = {"required": True, "content": {_JSON: {**content, "examples": examples}}}
    return made


def _parameters(model: type[RequestModel], place: str, examples: dict[str, Any]) -> list[dict[str, Any]]:
    members = model.model_json_schema(schema_generator=_Schemas).get("properties", {})
    return [
        {"name": name, "in": place, "required": place == "path", "schema": _without_null(member)}
        | ({"example": examples[name]} if name in examples else {})
        for name, member in members.items()
    ]


def _without_null(member: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema without null: a parameter is present or absent."""
    options = [option for option in member.get("anyOf", ()) if option != {"type": "null"}]
    rest = {name: value for name, value in member.items() if name != "anyOf" and value is not None}
    return {**options[0], **rest} if options else rest


def _responses(operation: Operation, answers: dict[int, dict[str, Any]]) -> dict[str, Any]:
    codes: dict[int, list[Code]] = {}
    for code in codes_of(operation):
        for status in (code.status, *_ALSO.get(code, ())):
            codes.setdefault(status, []).append(code)
    if operation.handler is not None:
        codes[414] = [Code.REQUEST_TOO_LARGE]
    if operation.parameters is not m.NoParameters:
        codes.setdefault(404, []).append(Code.NOT_FOUND)
    refusals = {str(status): _refusal(status, codes[status]) for status in sorted(codes.keys() - answers.keys())}
    return {str(status): _answer(answer) for status, answer in answers.items()} | refusals


def codes_of(operation: Operation) -> list[Code]:
    """Return every code that a problem of this call may have."""
    caller = _CALLER if operation.who else ()
    always = _ALWAYS if operation.handler is not None else ()
    return [*operation.codes, *caller, *(_BODY if operation.bodies else ()), *always]


def _answer(said: dict[str, Any]) -> dict[str, Any]:
    if "schema" not in said:
        return {"description": said["meaning"]}
    content: dict[str, Any] = {"schema": schema_of(said["schema"])}
    if "examples" in said:
        content["examples"] = {name: {"value": value} for name, value in said["examples"].items()}
    contents = {said.get("media", _JSON): content}
    if "stream" in said:
        contents[STREAM] = {"schema": {"type": "string", "description": said["stream"]}}
    return {"description": said["meaning"], "content": contents}


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
