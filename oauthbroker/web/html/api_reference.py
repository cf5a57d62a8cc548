"""The OpenAPI document in the form in which the page `/docs` shows it: calls, and the schemas that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from oauthbroker.core.dataclasses import dataclass

_CODE = re.compile(r"`([^`]*)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A parameter, or a member of a schema. `kind` links to the schemas that it names."""

    name: str
    kind: Markup
    words: Markup
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCall:
    """One call. `answers` are (status, meaning, the schema of its body)."""

    method: str
    path: str
    name: str
    summary: str
    words: Markup
    callers: tuple[str, ...]
    parameters: tuple[Member, ...]
    body: Markup
    answers: tuple[tuple[str, Markup, Markup], ...]


def calls_of(document: Mapping[str, Any]) -> list[ReferenceCall]:
    return [_call(path, method, it) for path, methods in document["paths"].items() for method, it in methods.items()]


def schemas_of(document: Mapping[str, Any]) -> list[tuple[str, Markup, Markup, tuple[Member, ...]]]:
    """Return (name, description, kind, members) of each schema."""
    found = document["components"]["schemas"].items()
    return [(name, _prose(it.get("description", "")), _kind(it), tuple(_members(it))) for name, it in found]


def _call(path: str, method: str, said: Mapping[str, Any]) -> ReferenceCall:
    return ReferenceCall(
        method=method.upper(),
        path=path,
        name=said["operationId"],
        summary=said["summary"],
        words=_prose(said.get("description", "")),
        callers=tuple(scheme for each in said["security"] for scheme in each),
        parameters=tuple(
            Member(
                name=f"{it['name']} ({it['in']})",
                kind=_kind(it.get("schema", it)),
                words=_prose(it.get("schema", it).get("description", "")),
                required=it["required"],
            )
            for it in said.get("parameters", ())
        ),
        body=_body(said.get("requestBody", {})),
        answers=tuple((status, _prose(it["description"]), _body(it)) for status, it in said["responses"].items()),
    )


def _body(said: Mapping[str, Any]) -> Markup:
    kinds = (
        _kind(it["schema"])
        for media, it in said.get("content", {}).items()
        if not media.startswith("application/problem")
    )
    return Markup(", ").join(dict.fromkeys(kinds))


def _members(schema: Mapping[str, Any]) -> Iterator[Member]:
    required = schema.get("required", ())
    for name, it in schema.get("properties", {}).items():
        words = _prose(it.get("description", ""))
        yield Member(name=name, kind=_kind(it), words=words, required=name in required)


def _kind(schema: Mapping[str, Any]) -> Markup:
    """Return what values have this schema, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#{0}">{0}</a>').format(name)
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return Markup(" or ").join(dict.fromkeys(_kind(each) for each in schema[several]))
    if "const" in schema:
        return Markup("<code>{}</code>").format(schema["const"])
    if "enum" in schema:
        return Markup(" or ").join(Markup("<code>{}</code>").format(each) for each in schema["enum"])
    if schema.get("type") == "array":
        return Markup("list of ") + _kind(schema.get("items", {}))
    return Markup("{}").format(schema.get("format") or schema.get("type") or "anything")


def _prose(said: str) -> Markup:
    """Return a text with its `code` as an element."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(Markup.escape(said))))  # noqa: S704  (escaped before)
