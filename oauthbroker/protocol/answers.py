"""What every endpoint's answer has in common: being too busy, being down, asking for patience."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.messages import Answer
from oauthbroker.turn import Json

_LONGEST_WAIT = 3600
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")
_JSON = re.compile(r"application/(?:[a-z0-9.!#$&^_-]+\+)?json")


def is_json(answer: Answer) -> bool:
    """Labelled as JSON: `application/json` or a structured suffix of it."""
    return _JSON.fullmatch(answer.media_type) is not None


def refuse_if_busy(answer: Answer) -> None:
    """429 raises `providerRateLimited`, 5xx `providerUnreachable`, each with what the provider asked us to wait."""
    if answer.status == 429:
        raise BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=answer.retry_after)
    if answer.status >= 500:
        raise BrokerError(Code.PROVIDER_UNREACHABLE, note="the provider failed", retry_after_seconds=answer.retry_after)


def lookup(facts: Json, path: str) -> Json:
    """What lies at a dotted path: `team.id`, `accounts.0.id` (lists count from 0); None if nothing does."""
    found: Any = facts
    for step in path.split("."):
        if isinstance(found, list):
            found = found[int(step)] if _INDEX.fullmatch(step) and int(step) < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


def date_of(header: str) -> datetime | None:
    """A Date header (RFC 9110 section 6.6.1); None for absence, junk, and a date without a zone."""
    try:
        date = parsedate_to_datetime(header)
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo is not None else None


def retry_after_seconds(value: str, date: str) -> int | None:
    """Retry-After (RFC 9110 section 10.2.3) as seconds in 1..3600, or None for absence and junk.

    A date counts from the answer's own `Date`, so that a provider whose clock is off still means what it says.
    """
    value = value.strip()
    if re.fullmatch(r"-?[0-9]{1,12}", value):
        return min(max(int(value), 1), _LONGEST_WAIT)
    try:
        wait = (parsedate_to_datetime(value) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError, OverflowError):  # TypeError: one has a zone, the other none
        return None
    return int(min(max(wait, 1), _LONGEST_WAIT))
