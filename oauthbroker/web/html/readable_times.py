"""Moments as people tell them: how long ago, or until when; the exact one beside it."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

from oauthbroker.core.clock import printed
from oauthbroker.web.words import Words

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def relative_time(moment: datetime, now: datetime, text: Words) -> str:
    """`5 min ago`, `in 3 h`, `12 days ago`; rounded down, so that nothing seems older or later than it is."""
    seconds = (now - moment).total_seconds()
    past = seconds >= 0
    seconds = abs(seconds)
    if seconds < _MINUTE:
        return text.just_now if past else text.soon
    if seconds < 2 * _HOUR:
        return (text.minutes_ago if past else text.in_minutes).format(count=int(seconds // _MINUTE))
    if seconds < 2 * _DAY:
        return (text.hours_ago if past else text.in_hours).format(count=int(seconds // _HOUR))
    return (text.days_ago if past else text.in_days).format(count=int(seconds // _DAY))


def time_element(moment: datetime, now: datetime, text: Words) -> Markup:
    """`relative_time` in a `<time>`, with the exact moment for machines and in the title."""
    element = Markup('<time datetime="{}" title="{}">{}</time>')
    return element.format(printed(moment), _exact(moment), relative_time(moment, now, text))


def stamp_element(moment: datetime) -> Markup:
    """Return the exact moment itself, in a `<time>`."""
    return Markup('<time datetime="{}">{}</time>').format(printed(moment), _exact(moment))


def _exact(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def moment_of(field: str) -> datetime | None:
    """Parse the value of a `datetime-local` field as UTC; None for an empty one and for any other text."""
    try:
        moment = datetime.fromisoformat(field)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def end_of_second(moment: datetime | None) -> datetime | None:
    """Return the last moment that is shown as this one: a page shows whole seconds, and lines have microseconds."""
    return None if moment is None else moment.replace(microsecond=999_999)


def field_of(moment: datetime | None) -> str:
    """Return the value of the field: the inverse."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
