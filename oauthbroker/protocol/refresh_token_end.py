"""Read when a refresh token ends, and what its user agreed to. Advice only: an odd value is ignored, and refuses no
answer, because the tokens beside it are good."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from oauthbroker.core.strict_json import Json
from oauthbroker.model.apps import App
from oauthbroker.records.refresh_end import LONGEST, StatedEnds

# draft-ietf-oauth-refresh-token-expiration; Keycloak and TikTok; Intuit; LinkedIn and others; dates.
_TOKEN: Final = (
    "refresh_token_expires_in", "refresh_expires_in", "x_refresh_token_expires_in", "refreshTokenExpiresIn",
    "refresh_token_expires_at", "refreshTokenExpiresAt",
)  # fmt: skip
_CONSENT: Final = "authorization_expires_in"  # the same draft
_DIGITS: Final = re.compile(r"[0-9]{1,20}")
_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 10**9, 10**12  # no lifetime is 31 years; no second of today is that large


def stated_ends(app: App, members: Mapping[str, Json]) -> StatedEnds:
    """Return the ends that an answer states. A number as large as a time of today is one, in seconds or milliseconds
    since 1970; smaller ones are seconds to live, and 0 is what Keycloak sends for a token without an end."""
    own = app.habits.refresh_token_end_field
    names = (own,) if own else _TOKEN
    stated = {name: _end_of(members[name]) for name in (*names, _CONSENT) if name in members}
    token = next((stated[name] for name in names if stated.get(name) is not None), None)
    return StatedEnds(token, stated.get(_CONSENT))


def _end_of(value: Json) -> timedelta | datetime | None:
    with suppress(ValueError, OverflowError, OSError):  # the last two from a time that no calendar has
        return _moment(value) if isinstance(value, str) and not _DIGITS.fullmatch(value) else _number(value)
    return None


def _moment(text: str) -> datetime | None:
    moment = datetime.fromisoformat(text)
    return None if moment.tzinfo is None else moment.astimezone(UTC)


def _number(value: Json) -> timedelta | datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    number = int(value)
    if number >= _EPOCH_SECONDS:
        return datetime.fromtimestamp(number / 1000 if number >= _EPOCH_MILLISECONDS else number, UTC)
    return timedelta(seconds=number) if 0 < number <= LONGEST.total_seconds() else None
