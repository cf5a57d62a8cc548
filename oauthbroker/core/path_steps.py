"""Steps of a request's path that lead out of it, in every spelling that a server may resolve."""

from __future__ import annotations

import re
from urllib.parse import unquote

_ENDS = re.compile(r"[/\\]")


def climbs(path: str) -> bool:
    """Return whether a path, with or without its query, has a step `.` or `..`, also encoded or with parameters."""
    path = path.partition("?")[0]
    while (plain := unquote(path)) != path:
        path = plain
    return not {".", ".."}.isdisjoint(each.partition(";")[0] for each in _ENDS.split(path))
