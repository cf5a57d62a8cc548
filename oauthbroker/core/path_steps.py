"""Check a request's path: its percent signs, and steps that lead out of it in any spelling that a server resolves."""

from __future__ import annotations

import re
from unicodedata import normalize
from urllib.parse import unquote, unquote_to_bytes

from oauthbroker.core.errors import BrokerError, Code

_MOST_TIMES = 8
_STEP_END = r"(?=[/\\;?#]|\Z)"
_CLIMBS = re.compile(rf"(?:^|[/\\])(?!\.\.\.+{_STEP_END})[\s\0-\x1f\x7f]*\.[.\s\0-\x1f\x7f]*{_STEP_END}")
_OVERLONG = re.compile(rb"[\xc0\xc1\xf8-\xff]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]")  # in no UTF-8
_LOOSE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class WrongPercentSign(BrokerError):
    """`requestInvalid` for a path with a percent sign that is not needed, or lacks its digits."""

    hint = "percentSign"

    def __init__(self, note: str) -> None:
        super().__init__(Code.REQUEST_INVALID, note=note)


def check_percent_signs(path: str) -> None:
    """Raise `requestInvalid` unless two hexadecimal digits follow each percent sign (RFC 3986 section 2.1)."""
    if "%" in path and _LOOSE.search(path):
        raise WrongPercentSign("a percent sign of the path lacks its two digits")


def climbs(path: str) -> bool:
    """Return whether a path, with or without its query, has a step `.` or `..` as some server reads it: also encoded,
    overlong, fullwidth, with blanks or parameters. A path that is encoded more than _MOST_TIMES counts as such."""
    path = path.partition("?")[0]
    if "%" in path or not path.isascii():
        path = _as_read(path)
    return _CLIMBS.search(path) is not None


def is_utf8(path: str) -> bool:
    """Return whether the bytes that a path encodes are text, so that all servers read the same in it."""
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def _as_read(path: str) -> str:
    """Return a path decoded until nothing changes, in its plain form (NFKC); `..` if it has none."""
    for _ in range(_MOST_TIMES + 1):
        raw = unquote_to_bytes(path.encode("utf-8", "replace"))
        if _OVERLONG.search(raw):
            break
        plain = normalize("NFKC", raw.decode("utf-8", "replace"))
        if plain == path:
            return path
        path = plain
    return ".."
