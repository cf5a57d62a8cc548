"""The published JSON Schema, and what of a document does not fit it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from oauthbroker.flowtools.source import Flaw, FlowSource, nearest

_SCHEMA_FILE: Final = "flow-tool.schema.json"
_REGEX_SIZE: Final = 1 << 20


@cache
def published_schema() -> Mapping[str, Any]:
    """Return the JSON Schema that editors and `load_tool` use."""
    loaded: Mapping[str, Any] = json.loads(files(__package__).joinpath(_SCHEMA_FILE).read_text("utf-8"))
    return loaded


@cache
def _judge(definition: str) -> Any:
    whole = dict(published_schema())
    if definition:
        whole = {"$schema": whole["$schema"], "$ref": f"#/$defs/{definition}", "$defs": whole["$defs"]}
    return schema_judge(whole)


def schema_judge(schema: Mapping[str, Any]) -> Any:
    """Return a validator without remote references, and with regexes of linear time. Raises ValueError."""
    import jsonschema_rs as engine

    linear = engine.RegexOptions(size_limit=_REGEX_SIZE, dfa_size_limit=_REGEX_SIZE)
    return engine.Draft202012Validator(
        dict(schema), offline=True, validate_formats=True, ignore_unknown_formats=False, pattern_options=linear
    )


def shape_flaws(source: FlowSource, definition: str) -> Iterator[Flaw]:
    """Yield the flaws by the published schema, or by one of its definitions. No text of the values is shown."""
    for error in _judge(definition).iter_errors(source.data):
        keyword, facts, path = error.kind.name, error.kind.as_dict(), tuple(error.instance_path)
        if keyword == "required":
            yield source.flaw((*path, facts["property"]), "missing", "write it")
        elif keyword == "additionalProperties":
            known = _known(list(error.schema_path)[:-1])
            for name in facts["unexpected"]:
                todo = nearest(name, known) or f"known here: {', '.join(sorted(known))}"
                yield source.flaw((*path, name), "unknown field", todo)
        else:
            yield source.flaw(path, *_words(keyword, facts))


def _known(path: list[str | int]) -> list[str]:
    """Return the members that the published schema knows at a schema path, which steps through references."""
    whole: Any = published_schema()
    found = whole
    for step in path:
        found = found if step == "$ref" else found[step]
        while "$ref" in found:
            found = whole["$defs"][str(found["$ref"]).rpartition("/")[2]]
    return list(found["properties"])


def _words(keyword: str, facts: Mapping[str, Any]) -> tuple[str, str]:
    match keyword:
        case "type":
            return "of another type", f"write {' or '.join(map(str, facts['types']))}"
        case "enum":
            options = facts["options"]
            options = json.loads(options) if isinstance(options, str) else options
            return "not one of the words known here", f"write one of {', '.join(map(str, options))}"
        case "pattern":
            return "not in the form that is asked for", f"it has to match {facts['pattern']}"
        case "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties":
            return "too small or too short", f"the bound is {keyword} {facts['limit']}"
        case "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties":
            return "too large or too long", f"the bound is {keyword} {facts['limit']}"
        case "not":
            return "not allowed here", "write a path without . and .. as segments"
        case "propertyNames":
            return "a name of another form", "use letters, digits and _"
    return "not valid here", "correct it, or remove it"
