"""Validate JSON by a JSON Schema 2020-12. The engine is in the extras of the plug-ins that use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_REGEX_SIZE = 1 << 20


def json_schema_validator(schema: Mapping[str, Any], **engine_options: Any) -> Any:
    """Return a validator of `jsonschema_rs`, without remote references and with regexes of linear time. Raises
    ImportError without the engine, and ValueError for a schema that cannot be used."""
    import jsonschema_rs as engine

    linear = engine.RegexOptions(size_limit=_REGEX_SIZE, dfa_size_limit=_REGEX_SIZE)
    options = {"ignore_unknown_formats": False, **engine_options}
    return engine.Draft202012Validator(
        dict(schema), offline=True, validate_formats=True, pattern_options=linear, **options
    )
