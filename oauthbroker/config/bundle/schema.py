"""The JSON Schema of a bundle's documents, for editors: the kinds of the broker and of the installed plug-ins.

It is made of the models that read the documents, so it knows each field, and less than the checks: `oauthbroker check`
has the last word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from oauthbroker.config.plugins.named_plugins import plugins_of
from oauthbroker.config.written.fields import API_VERSIONS
from oauthbroker.config.written.kinds import OURS, Kinds
from oauthbroker.config.written.resource_specs import Header
from oauthbroker.plugins.discovery import installed

FILE_NAME: Final = "oauthbroker.schema.json"
SCHEMA_LINE: Final = f"# yaml-language-server: $schema=../{FILE_NAME}\n"
"""The first line of a YAML file in the bundle's folder."""
_NULL: Final = {"type": "null"}


def bundle_schema() -> dict[str, Any]:
    """Return the schema of one document."""
    kinds = _kinds()
    models: set[type[BaseModel]] = {Header, *(each.model for readers in kinds.readers.values() for each in readers)}
    refs, found = models_json_schema([(each, "validation") for each in sorted(models, key=str)], by_alias=True)
    definitions: dict[str, Any] = _cleaned(found["$defs"])
    header = definitions.pop(refs[Header, "validation"]["$ref"].rpartition("/")[2])
    specs = {kind: [refs[reader.model, "validation"] for reader in readers] for kind, readers in kinds.readers.items()}
    properties: dict[str, Any] = header["properties"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A resource of an OAuth broker's bundle",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {
            "apiVersion": {"type": "string", "examples": list(API_VERSIONS)},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "required": ["name"]},
        },
        "if": {"properties": {"apiVersion": {"enum": list(API_VERSIONS)}}},
        "then": {
            "properties": properties | {"kind": {"enum": sorted(specs)}},
            "required": ["spec"],
            "additionalProperties": False,
            "allOf": [_of_kind(kind, each) for kind, each in sorted(specs.items())],
        },
        "$defs": definitions,
    }


def write_schema(bundle: Path) -> None:
    """Write the schema beside a bundle. A folder that cannot be written stays as it is."""
    with suppress(OSError):
        text = json.dumps(bundle_schema(), indent=1, ensure_ascii=False)
        bundle.absolute().parent.joinpath(FILE_NAME).write_text(text + "\n", "utf-8")


def _kinds() -> Kinds:
    """Return the kinds of the broker and of the plug-ins that can be used here."""
    usable = [each.name for each in installed() if not plugins_of([each.name]).problems]
    return plugins_of(usable).kinds if usable else OURS


def _of_kind(kind: str, specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    spec = specs[0] if len(specs) == 1 else {"allOf": specs}
    return {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"spec": spec}}}


def _cleaned(part: Any) -> Any:
    """Return a schema without the null of absent fields, which YAML may not write, and without made-up titles."""
    if isinstance(part, list):
        return [_cleaned(each) for each in part]
    if not isinstance(part, dict):
        return part
    kept = {name: _cleaned(value) for name, value in _without_null(part)}
    either = kept.pop("anyOf", None)
    return kept if either is None else kept | (either[0] if len(either) == 1 else {"anyOf": either})


def _without_null(part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in part.items():
        if name == "anyOf":
            yield name, [each for each in value if each != _NULL]
        elif not (name == "title" and isinstance(value, str)) and not (name == "default" and value is None):
            yield name, value
