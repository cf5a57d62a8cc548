"""Which texts name a subject, and which an agent: one rule for every caller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from oauthbroker.model.token_request import WrongArgument

MAX_BYTES: Final = 1024  # of a subject
LONGEST_AGENT: Final = 256
AGENT: Final = re.compile(r"([^/.\x00-\x1f\x7f]|\.[^/.\x00-\x1f\x7f]|\.\.[^/\x00-\x1f\x7f])[^/\x00-\x1f\x7f]*")
"""One segment of a path, so that the agent's events can be taken over HTTP: never `.` or `..`."""


def is_subject(text: object) -> bool:
    """Non-empty, encodable, at most 1 KiB. No normalisation: NFC and NFD spellings are two subjects."""
    return isinstance(text, str) and 0 < _size(text) <= MAX_BYTES


def is_agent(name: object) -> bool:
    """Tell whether a text can name an agent."""
    if not isinstance(name, str) or len(name) > LONGEST_AGENT or not AGENT.fullmatch(name):
        return False
    return name.isascii() or _size(name) > 0


def check_subject(subject: object, place: str = "subject") -> None:
    """Raise `requestInvalid` unless it names a subject. `place` is its place in a request of the API."""
    if not is_subject(subject):
        raise WrongArgument("subject", place, "value" if isinstance(subject, str) else "type")


def check_agent(name: object) -> None:
    """Raise `requestInvalid` unless it names an agent."""
    if not is_agent(name):
        raise WrongArgument("agentName", "agentName", "value" if isinstance(name, str) else "type")


def wrong_subject(subjects: Mapping[str, Any]) -> str:
    """Return the subject, by its place in a turn, that is given and is none; empty if there is none. An empty text is a
    missing subject."""
    try:
        for mode in ("user", "global"):
            if (said := subjects.get(mode)) not in (None, "") and not is_subject(said):
                return f"auth/subjects/{mode}"
    except Exception:  # noqa: BLE001  (a mapping whose own code raises)
        return "subjects"
    return ""


def _size(text: str) -> int:
    """Return the bytes of a text in UTF-8, 0 for one that cannot be encoded."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0
