"""The environment variables that a runtime sets for a tool's process, and an operator for a runtime's."""

from __future__ import annotations

import os
from collections.abc import Mapping

URL, TURN_TOKEN, KEY = "OAUTHBROKER_URL", "OAUTHBROKER_TURN_TOKEN", "OAUTHBROKER_API_KEY"
LOCALE = "OAUTHBROKER_LOCALE"  # the turn's


def needed(name: str, env: Mapping[str, str] | None) -> str:
    """Return the variable. Raises ValueError, which names it, if it is missing."""
    value = given(name, env)
    if value is None:
        raise ValueError(f"{name} is not set")
    return value


def given(name: str, env: Mapping[str, str] | None) -> str | None:
    """Return the variable; None if it is unset or empty."""
    return (os.environ if env is None else env).get(name) or None  # noqa: TID251  (who calls from_env asks for this)
