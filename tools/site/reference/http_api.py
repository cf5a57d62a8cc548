"""The pages of the HTTP API, from the OpenAPI document: a section for each route, and one for each named schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from oauthbroker.web.api.openapi import document
from tools.site.reference.markdown import block, code, heading, prose, slug, table

INTRO = """\
# Routes

Made from the OpenAPI document, which a broker answers at `GET /v1/openapi.json` and which lies [here](openapi.json) too.
[The HTTP API](../docs/api.md#who-calls) says who calls, and in which order. `turnToken` is a turn's own token or a tool's: a call that
a tool may not make answers `notAllowed`. [Schemas](schemas.md) has the named forms of bodies.

"""
SCHEMAS = """\
# Schemas

The named forms in bodies of [the API's calls](routes.md). A member that is not required may be missing.

"""
Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    found = document()
    calls = [(path, method, call) for path, methods in found["paths"].items() for method, call in methods.items()]
    rows = [
        (f"[{code(_title(path, method))}](#{_anchor(call)})", prose(call["summary"])) for path, method, call in calls
    ]
    routes = [INTRO + table(("call", "effect"), rows)]
    for path, method, call in calls:
        routes += [heading(2, code(_title(path, method)), _anchor(call)), *_call(call)]
    schemas = [SCHEMAS]
    for name, schema in found["components"]["schemas"].items():
        schemas += [heading(2, code(name), slug(name)), *_schema(schema)]
    return {"routes.md": "\n".join(routes), "schemas.md": "\n".join(schemas)}


def _title(path: str, method: str) -> str:
    return f"{method.upper()} {path}"


def _anchor(call: Schema) -> str:
    return str(call["operationId"])


def _call(call: Schema) -> Iterator[str]:
    yield f"{prose(call['summary'])}.\n"
    if "description" in call:
        yield f"{prose(call['description'])}\n"
    callers = [code(name) for scheme in call["security"] for name in scheme]
    yield f"Callers: {', '.join(callers) or 'anyone'}.\n"
    if "parameters" in call:
        yield "**Parameters**\n"
        head = ("name", "in", "type", "required", "meaning")
        yield table(head, (_parameter(each) for each in call["parameters"]))
    for media, content in call.get("requestBody", {}).get("content", {}).items():
        yield f"**Body**, {code(media)}: {_type(content['schema'])}\n"
        yield from _examples(content)
    yield "**Answers**\n"
    yield table(("status", "meaning", "body"), (_answer(status, each) for status, each in call["responses"].items()))
    for status, answer in call["responses"].items():
        for content in answer.get("content", {}).values():
            if status.startswith("2"):
                yield from _examples(content)


def _parameter(each: Schema) -> tuple[str, ...]:
    schema = each["schema"]
    meaning = each.get("description") or schema.get("description", "")
    return code(each["name"]), each["in"], _type(schema), "yes" if each["required"] else "no", prose(meaning)


def _answer(status: str, answer: Schema) -> tuple[str, str, str]:
    """Return a row. A refusal's description is its codes, which the page of errors explains."""
    content: Schema = answer.get("content", {})
    if "application/problem+json" in content:
        words: Schema = content["application/problem+json"]["schema"]["allOf"][1]["properties"]
        codes = [f"[{code(each)}](../docs/errors.md#{_of_error(each)})" for each in words["code"]["enum"]]
        return status, ", ".join(codes), "[`Problem`](schemas.md#problem)"
    bodies = [f"{_type(each['schema'])}" + ("" if media == "application/json" else f" as {code(media)}") for media, each in content.items()]  # fmt: skip
    body = " or ".join(bodies)
    more = (
        " With `status: error` it has [one of these codes](../docs/embedding.md#what-a-call-answers)."
        if "#tokenresult)" in body
        else ""
    )
    return status, prose(answer["description"]) + more, body


def _of_error(word: str) -> str:
    """Return the anchor of a code in docs/errors.md."""
    return "".join(f"-{each.lower()}" if each.isupper() else each for each in word)


def _examples(content: Schema) -> Iterator[str]:
    for name, example in content.get("examples", {}).items():
        shown = example["value"]
        text = shown if isinstance(shown, str) else json.dumps(shown, indent=2, ensure_ascii=False)
        yield f"Example, {prose(name)}:\n"
        yield block(text, "text" if isinstance(shown, str) else "json")


def _schema(schema: Schema) -> Iterator[str]:
    if "description" in schema:
        yield f"{prose(schema['description'])}\n"
    if "properties" not in schema:
        yield f"{_type(schema)}\n"
        return
    required = schema.get("required", ())
    rows = [
        (code(name), _type(each), "yes" if name in required else "no", prose(each.get("description", "")))
        for name, each in schema["properties"].items()
    ]
    yield table(("member", "type", "required", "meaning"), rows)


def _type(schema: Schema) -> str:
    """Return a schema in words, with links to the named ones."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{code(name)}](schemas.md#{slug(name)})"
    if either := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(dict.fromkeys(map(_type, either)))
    if "const" in schema or "enum" in schema:
        return ", ".join(code(str(each)) for each in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object":
            inner = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), None)
            return f"map to {_type(inner)}" if isinstance(inner, dict) else "object"
        case "string":
            return "a moment" if schema.get("format") == "date-time" else "text"
        case "null":
            return "`null`"
    return str(schema.get("type", "any"))
