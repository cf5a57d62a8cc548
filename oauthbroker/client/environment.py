"""The variables that a runtime gives to a tool's process, and an operator to a runtime's."""

from __future__ import annotations

import os
from collections.abc import Mapping

URL, TURN_TOKEN, KEY = "OAUTHBROKER_URL", "OAUTHBROKER_TURN_TOKEN", "OAUTHBROKER_API_KEY"
LOCALE = "OAUTHBROKER_LOCALE"  # the turn's


def needed(name: str, env: Mapping[str, str] | None) -> str:
    """Raises ValueError that names the variable."""
    value = given(name, env)
    if value is None:
        raise ValueError(f"{name} is not set")
    return value


def given(name: str, env: Mapping[str, str] | None) -> str | None:
    """None where it is not set, or empty."""
    return (os.environ if env is None else env).get(name) or None  # noqa: TID251  (who calls from_env asks for this)
