"""Regular expressions that operators write."""

from __future__ import annotations

import re


def is_pattern(text: str) -> bool:
    """Tell whether the text is a regular expression that can be used. Some that are well formed are too large to be
    compiled."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
