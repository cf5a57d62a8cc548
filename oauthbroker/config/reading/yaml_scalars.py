"""The values of YAML scalars: text, and what both versions of YAML read alike."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

import yaml

_OLD = yaml.SafeLoader.yaml_implicit_resolvers
_NULL, _TRUE, _FALSE = {"", "~", "null", "Null", "NULL"}, {"true", "True", "TRUE"}, {"false", "False", "FALSE"}
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,17}")
_NEW_NUMBER = re.compile(
    r"[-+]?(0o[0-7]+|0x[0-9a-fA-F]+|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
)


class Odd(Enum):
    """What stands in the data instead of a value."""

    AMBIGUOUS = "a bare scalar that YAML 1.1 and 1.2 read differently: neither text nor a number here"
    UNREADABLE = "refused already, and not reported twice"


AMBIGUOUS_WORDS: Final = (
    "YAML versions disagree what this is",
    "put it into quotes, or write a plain number, true or false",
)
_TYPOGRAPHIC: Final = re.compile("[\u2018-\u201f\xab\xbb].*[\u2018-\u201f\xab\xbb]", re.DOTALL)
_OF_A_SHELL: Final = re.compile(r"\$\{[A-Z_][A-Z0-9_]*\}")
AMBIGUOUS: Final = Odd.AMBIGUOUS
UNREADABLE: Final = Odd.UNREADABLE


def scalar(event: Any) -> Any:
    """Return a scalar's value. Quoted and block scalars are text. Bare ones are what both YAML versions agree on, else
    ambiguous."""
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return AMBIGUOUS if is_ambiguous(text) else text


def not_meant(event: Any) -> tuple[str, str] | None:
    """Return (problem, remedy) for a scalar that is text to YAML, and a mistake of its author."""
    if event.implicit[0] and _TYPOGRAPHIC.fullmatch(event.value):
        return "typographic quotes, which YAML reads as text", "write plain quotes, or none"
    if event.style not in {"|", ">"} and _OF_A_SHELL.fullmatch(event.value):
        return "a variable as shells write it, which is not replaced", "write {valueFrom: {env: NAME}}"
    return None


def is_ambiguous(text: str) -> bool:
    """Return whether a bare scalar is a number, a date or a word of some version of YAML."""
    old = [pattern for _, pattern in [*_OLD.get(text[0], ()), *_OLD.get(None, ())]]
    return any(pattern.match(text) for pattern in old) or _NEW_NUMBER.fullmatch(text) is not None
