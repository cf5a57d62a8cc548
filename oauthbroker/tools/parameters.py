"""The parameters of a tool: a JSON Schema of type object, compiled once, and the arguments of calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

MOST_BYTES: Final = 1_000_000  # of the arguments or of the output of a call, as JSON in UTF-8
_MOST_FLAWS: Final = 5
_REGEX_SIZE: Final = 1 << 20
_HIDDEN: Final = "the value"
_MEND: Final = "write type: object and correct the rest: no other documents, linear regexes"
FlawsOf = Callable[[Mapping[str, Any]], list[str]]


class SchemaRefused(ValueError):
    """Parameters cannot be used. `args` are why, and the remedy."""


class NotJson(ValueError):
    """A value is no JSON, or too large. Its text says why and quotes nothing of the value."""


def as_json(value: Any, most_bytes: int = MOST_BYTES) -> Any:
    """Return a copy of a value as JSON has it: tuples become lists, keys texts. Raises NotJson."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except TypeError:
        raise NotJson("it holds a value that JSON does not have") from None
    except ValueError as error:
        raise NotJson(_cause(error)) from None
    if size > most_bytes:
        raise NotJson(f"it has {size} bytes, and {most_bytes} are allowed")
    return json.loads(text)


def arguments(given: Any) -> dict[str, Any]:
    """Return a copy of a call's arguments. Raises NotJson."""
    if not isinstance(given, Mapping):
        raise NotJson("they are no object")
    copy: dict[str, Any] = as_json(dict(given))
    return copy


def _cause(error: ValueError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it holds half a character"
    return "it contains itself" if "Circular" in str(error) else "it holds a number that is not finite"


def compiled(parameters: Mapping[str, Any] | None) -> FlawsOf:
    """Return a function that lists the flaws of arguments. Raises SchemaRefused for parameters that are no JSON Schema
    2020-12 of type object, that need another document, or that have no engine, which is in the extra `tools`."""
    if parameters is None:
        return lambda _arguments: []
    refused = "no usable JSON Schema 2020-12 of type object", _MEND
    try:
        if parameters.get("type") != "object":
            raise SchemaRefused(*refused)
        import jsonschema_rs as engine

        linear = engine.RegexOptions(size_limit=_REGEX_SIZE, dfa_size_limit=_REGEX_SIZE)
        judge = engine.Draft202012Validator(
            dict(parameters), offline=True, validate_formats=True, mask=_HIDDEN, pattern_options=linear
        )
    except ImportError:
        refused = "parameters need the extra `tools`", "install oauthbroker[tools]"
    except ValueError:
        pass
    else:
        return lambda arguments: [] if judge.is_valid(arguments) else list(_told(judge.iter_errors(arguments)))
    raise SchemaRefused(*refused)


def _told(errors: Iterator[Any]) -> Iterator[str]:
    """Yield the first flaws, each with its place in the arguments and without its value."""
    for error in islice(errors, _MOST_FLAWS):
        place = ".".join(map(str, error.instance_path))
        yield f"{place}: {error.message}" if place else error.message
