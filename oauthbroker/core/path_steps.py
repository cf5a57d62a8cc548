"""Check a request's path: its percent signs, and steps that lead out of it in any spelling that a server resolves."""

from __future__ import annotations

import re
from urllib.parse import unquote

from oauthbroker.core.errors import BrokerError, Code

_MOST_TIMES = 8
_ENDS = re.compile(r"[/\\]")
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
    """Return whether a path, with or without its query, has a step `.` or `..`, also encoded or with parameters. A path
    that is encoded more than _MOST_TIMES counts as such."""
    path, times = path.partition("?")[0], 0
    while (plain := unquote(path)) != path:
        path, times = plain, times + 1
        if times > _MOST_TIMES:
            return True
    return not {".", ".."}.isdisjoint(each.partition(";")[0] for each in _ENDS.split(path))
