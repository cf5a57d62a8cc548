"""Whose token it is: read from the turn, never from the tool's word (specification 12.5.1, rule 1)."""

from __future__ import annotations

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import OAuthApp
from oauthbroker.model.turn import Turn, is_mapping

MAX_BYTES = 1024


def resolve_subject(app: OAuthApp, turn: Turn) -> str:
    """Return the subject that `app.subject_mode` picks, byte for byte as the runtime gave it.

    Raises `subjectUnavailable` when the turn has none; user mode never falls back to global.
    """
    subjects = turn.auth.subjects if turn.auth is not None else None
    subject = subjects.get(app.subject_mode) if subjects is not None and is_mapping(subjects) else None
    if not isinstance(subject, str) or not is_subject(subject):
        raise BrokerError(Code.SUBJECT_UNAVAILABLE, mode=app.subject_mode)
    return subject


def is_subject(text: str) -> bool:
    """Non-empty, encodable, at most 1 KiB. No normalisation: NFC and NFD spellings are two subjects."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    return 0 < size <= MAX_BYTES
