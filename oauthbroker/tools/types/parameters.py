"""The parameters of a tool: a JSON Schema of type object, compiled once, and the arguments of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from oauthbroker.plugins import NotPlainJson, json_schema_validator, plain_json
from oauthbroker.tools.types.results import VALUE

_MOST_PROBLEMS: Final = 5
_HIDDEN: Final = "the value"
_REMEDY: Final = "write type: object and correct the rest: no other documents, linear regexes"
ProblemsOf = Callable[[Mapping[str, Any]], list[str]]


class SchemaRefused(ValueError):
    """Parameters cannot be used. `args` are why, and the remedy."""


def plain_object(given: Any) -> dict[str, Any]:
    """Return a copy of arguments, or of a schema. Raises NotPlainJson, and the exceptions of a foreign mapping."""
    if not isinstance(given, Mapping):
        raise NotPlainJson("they are no object")
    copy: dict[str, Any] = plain_json(given if issubclass(type(given), dict) else dict(given), VALUE)
    return copy


def compiled(parameters: Mapping[str, Any] | None) -> ProblemsOf:
    """Return a function that lists the problems of arguments. Raises SchemaRefused for parameters that are no JSON
    Schema 2020-12 of type object, that need another document, or that have no engine, which is in the extra `tools`."""
    if parameters is None:
        return lambda _arguments: []
    refused = "no usable JSON Schema 2020-12 of type object", _REMEDY
    try:
        schema = plain_object(parameters)
        if schema.get("type") != "object":
            raise SchemaRefused(*refused)
        validator = json_schema_validator(schema, ignore_unknown_formats=True, mask=_HIDDEN)
    except ImportError:
        refused = "parameters need the extra `tools`", 'run `pip install "oauthbroker[tools]"`'
    except ValueError:
        pass
    else:
        return lambda arguments: (
            [] if validator.is_valid(arguments) else list(_rendered(validator.iter_errors(arguments)))
        )
    raise SchemaRefused(*refused)


def _rendered(errors: Iterator[Any]) -> Iterator[str]:
    """Yield the first problems, each with its place in the arguments and without its value."""
    for error in islice(errors, _MOST_PROBLEMS):
        place = ".".join(map(str, error.instance_path))
        yield f"{place}: {error.message}" if place else error.message
