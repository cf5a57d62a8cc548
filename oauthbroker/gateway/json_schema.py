"""The second form of an action's schema: JSON Schema 2020-12, with linear regexes and without remote references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from itertools import islice
from operator import getitem
from typing import Any, Final, NamedTuple

from oauthbroker.gateway.values import shown, type_of

_MOST_ERRORS: Final = 1000
_REGEX_SIZE: Final = 1 << 20
STAGES: Final = ("MISSING_REQUIRED_FIELD", "TYPE_MISMATCH", "INVALID_FORMAT", "VALUE_OUT_OF_RANGE")
_STAGE_OF: Final = {"required": STAGES[0], "type": STAGES[1], "pattern": STAGES[2], "format": STAGES[2]}


class Failure(NamedTuple):
    """Why an action is rejected. `more` is told in `errors` only."""

    tag: str
    text: str
    field: str | None = None
    more: str = ""


Fails = Callable[[Any], list[Failure]]


def matcher(schema: Mapping[str, Any]) -> Fails:
    """Return a function that lists the failures of an action. Raises ImportError, and ValueError for a wrong schema."""
    import jsonschema_rs as engine

    linear = engine.RegexOptions(size_limit=_REGEX_SIZE, dfa_size_limit=_REGEX_SIZE)
    judge = engine.Draft202012Validator(
        dict(schema), offline=True, validate_formats=True, ignore_unknown_formats=False, pattern_options=linear
    )
    return lambda action: [_failure(each, action) for each in islice(judge.iter_errors(action), _MOST_ERRORS)]


def _failure(error: Any, action: Any) -> Failure:
    keyword, facts, path = error.kind.name, error.kind.as_dict(), list(error.instance_path)
    value = reduce(getitem, path, action)
    name = ".".join(map(str, [*path, facts["property"]] if keyword == "required" else path))
    text = f"Field {shown(name)}" if path else "Action"
    if keyword == "required":
        text = f"Missing required field: {shown(name)}"
    elif keyword == "type":
        text += f" must be {' or '.join(facts['types'])}, got {type_of(value)}"
    else:
        limit = facts.get("limit", facts.get("format", ""))
        text += f" must satisfy {keyword} {shown(limit)}".rstrip()
    return Failure(_STAGE_OF.get(keyword, STAGES[3]), text, name or None)
