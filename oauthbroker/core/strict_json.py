"""JSON as a cautious reader takes it: one meaning, few values, bounded depth, nothing that Python alone understands."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.json_values import MOST_VALUES, has_few_values

Json = Any  # what json.loads gives; checked where it is read
MAX_DEPTH = 32
_NOTE = "not strict JSON"
_DEEP = "more than {} levels"
_MANY = "more than {} values"


class _Refused(ValueError):
    """What Python alone would read. Its text is ours."""


def decode_json(body: bytes, code: Code, *, most_values: int = MOST_VALUES, levels: int = MAX_DEPTH) -> Json:
    """Decode UTF-8 JSON (RFC 8259, RFC 7493).

    Refused with `code`: more than `most_values`, before they are parsed; a byte order mark, other encodings, duplicate
    names, NaN and infinities, lone surrogates, nesting deeper than `levels`. The error holds nothing of the body.
    """
    try:
        few = len(body) <= most_values or has_few_values(body, most_values)
        value = _DECODER.decode(body.decode("utf-8")) if few else None
        # UTF-8 without an escape has no lone surrogate, and so few brackets are no deeper
        is_plain = b"\\" not in body and body.count(b"{") + body.count(b"[") <= levels
        is_sane = is_plain or _is_sane(value, levels)
        why = _MANY.format(most_values) if not few else "" if is_sane else _DEEP.format(levels)
    except (ValueError, RecursionError) as error:
        value, why = None, _why(error, levels)
    if why:
        raise BrokerError(code, note=f"{_NOTE}: {why}")
    return value


def _why(error: Exception, levels: int) -> str:
    """Return why a body is refused, without a part of it."""
    match error:
        case json.JSONDecodeError():
            return f"line {error.lineno}, column {error.colno}"
        case UnicodeDecodeError():
            return "no UTF-8"
        case UnicodeEncodeError():
            return "a lone surrogate"
        case RecursionError():
            return _DEEP.format(levels)
    return str(error) if isinstance(error, _Refused) else "a number is too long"


def decode_object(
    body: bytes, code: Code, *, most_values: int = MOST_VALUES, levels: int = MAX_DEPTH
) -> dict[str, Json]:
    """Decode as `decode_json` does, and accept only an object."""
    value = decode_json(body, code, most_values=most_values, levels=levels)
    if not isinstance(value, dict):
        raise BrokerError(code, note="not a JSON object")
    return value


def json_object(text: str | bytes | bytearray) -> dict[str, Json] | None:
    """Return the object in a text of our own or of an operator's service, None for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def decode_leniently(body: bytes, *, first_wins: bool = False) -> Json:
    """Decode a document that `decode_json` refuses, to save a text from it. No number is read: each is 0. Of equal
    names the last one counts, or the first one. Raises ValueError, also for too many values, and RecursionError."""
    if not has_few_values(body):
        raise ValueError(_MANY.format(MOST_VALUES))
    pairs = _first_of_each if first_wins else None
    return json.loads(body, parse_int=_unread, parse_float=_unread, parse_constant=_unread, object_pairs_hook=pairs)


def _first_of_each(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    return dict(reversed(pairs))


def _unread(_number: str) -> int:
    """Refuse the number: Python reads no integers of thousands of digits."""
    return 0


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Refused("a name twice")
    return members


def _refuse(_constant: str) -> NoReturn:
    raise _Refused("NaN or an infinity")


def _finite(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise _Refused("a number out of range")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite)


def _is_sane(value: Json, levels: int) -> bool:
    """Bounded depth, and every text can be written down as UTF-8 again. Walks without recursion."""
    level = [value]
    for _ in range(levels + 1):
        below: list[Json] = []
        for item in level:
            if isinstance(item, str):
                item.encode("utf-8")  # a lone surrogate raises UnicodeEncodeError, a ValueError
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, dict):
                below.extend(item)
                below.extend(item.values())
        if not below:
            return True
        level = below
    return False
