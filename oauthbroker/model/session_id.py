"""Ids of authorization sessions: `as-<locator>`."""

from __future__ import annotations

import re

from oauthbroker.core.errors import BrokerError, Code

SESSION_ID = re.compile(r"as-([A-Za-z0-9_-]{22})")


def locator_of(auth_session_id: str) -> str:
    """Return the locator in `as-<locator>`. Raises `requestInvalid`."""
    match = SESSION_ID.fullmatch(auth_session_id) if isinstance(auth_session_id, str) else None
    if match is None:
        raise BrokerError(Code.REQUEST_INVALID, note="authSessionId")
    return match[1]
