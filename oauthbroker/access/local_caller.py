"""The caller at the socket of a person's own `serve`: a command of that same person."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.model.local_turn import local_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCaller(TurnTokenHolder):
    """Gets tokens of one fixed subject. It holds no turn token, and the rights of one are none of its own."""


LOCAL_CALLER: Final = LocalCaller(turn=local_turn(), turn_id="local", expires_at=datetime.max.replace(tzinfo=UTC))
