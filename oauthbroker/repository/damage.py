"""Report a record that cannot be read: its place and why, never its content."""

from __future__ import annotations

import logging
from collections.abc import Callable

from oauthbroker.core.errors import Code

Damage = Callable[[str, Code], None]
_log = logging.getLogger("oauthbroker.repository")


def log_damage(place: str, code: Code) -> None:
    _log.warning("unreadable record %s: %s", place, code.value)
