"""Check the parts that all endpoints' answers share: media type, 429, 5xx, Date and Retry-After."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import Json, decode_object
from oauthbroker.protocol.messages import ProviderResponse

LONGEST_WAIT = 3600
_MOST_WORDS = 8192  # bytes of an answer that are searched for words
_SLOW_DOWN = re.compile(
    r"too[ _-]?many[ _-]?(?:\w+[ _-]){0,2}(?:requests|attempts|calls|logins|times)|toomanyrequests|slow[ _-]?down"
    r"|rate[ _-]?limit|rate[ _-]exceeded|throttl(?:ed|ing)|quota[ _-]?exceeded|exceeded[ _-](?:\w+[ _-]){0,3}quota"
    r"|request[ _-]?limit[ _-]?exceeded|\"(?:status|code|err(?:or)?_?code|status_?code)\"\s*:\s*\"?429\b",
    re.IGNORECASE,
)
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")
_JSON = re.compile(r"application/(?:[a-z0-9.!#$&^_-]+\+)?json")


def is_json(answer: ProviderResponse) -> bool:
    """Tell whether the answer is labelled as JSON: `application/json` or a structured suffix of it."""
    return _JSON.fullmatch(answer.media_type) is not None


def refuse_if_busy(answer: ProviderResponse) -> None:
    """Raise `providerRateLimited` for 429 and `providerUnreachable` for 5xx, with the wait that the provider asked
    for."""
    if answer.status == 429:
        raise BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=answer.retry_after)
    if answer.status >= 500:
        raise BrokerError(Code.PROVIDER_UNREACHABLE, note="the provider failed", retry_after_seconds=answer.retry_after)


def asks_to_slow_down(answer: ProviderResponse) -> bool:
    """Tell whether a refusal is a rate limit in other words than 429: by `Retry-After`, or by its text, in any member.
    Of a page only an error is read, because pages hold scripts. Compare the text, never show it."""
    if answer.retry_after is not None:
        return True
    if answer.media_type == "text/html" and not 400 <= answer.status < 500:
        return False
    return _SLOW_DOWN.search(answer.body[:_MOST_WORDS].decode("utf-8", "replace")) is not None


def members_of(answer: ProviderResponse) -> Mapping[str, Json]:
    """Return the members of a JSON body with any label; empty if the body is not a JSON object."""
    try:
        return decode_object(answer.body, Code.TOKEN_RESPONSE_INVALID)
    except BrokerError:
        return {}


def lookup(facts: Json, path: str) -> Json:
    """Return the value at a dotted path: `team.id`, `accounts.0.id` (lists count from 0). None if there is no value."""
    found: Any = facts
    for step in path.split("."):
        if isinstance(found, list):
            found = found[int(step)] if _INDEX.fullmatch(step) and int(step) < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


def said_by(ok: Mapping[str, bool | int | str]) -> set[str]:
    """Return the members for which a profile's `okMembers` say the values, so that no other rule judges them."""
    return {path.partition(".")[0] for path in ok}


def not_ok(ok: Mapping[str, bool | int | str], members: Mapping[str, Json]) -> list[str]:
    """Return the paths of `okMembers` that are there with another value than in a success. 1 is not true."""
    found = [(path, lookup(dict(members), path), wanted) for path, wanted in ok.items()]
    return [path for path, it, wanted in found if it is not None and (type(it) is not type(wanted) or it != wanted)]


def date_of(header: str) -> datetime | None:
    """Parse a Date header (RFC 9110 section 6.6.1). None for an absent or malformed date and for one without a zone."""
    try:
        date = parsedate_to_datetime(header)
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo is not None else None


def retry_after_seconds(value: str, date: str, now: datetime) -> int | None:
    """Parse Retry-After (RFC 9110 section 10.2.3) to seconds in 1..3600. None for an absent or malformed value.

    A date is measured from the answer's own `Date`, so the provider's clock may be off; without one from `now`.
    """
    value = value.strip()
    if re.fullmatch(r"-?[0-9]{1,12}", value):
        return min(max(int(value), 1), LONGEST_WAIT)
    until = date_of(value)
    if until is None:
        return None
    return int(min(max((until - (date_of(date) or now)).total_seconds(), 1), LONGEST_WAIT))
