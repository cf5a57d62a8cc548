"""How a tool is called: the trigger of a specification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import available_timezones

from oauthbroker.flowtools.specification.source import Keys
from oauthbroker.plugins import harmless_text

_ONLY_FOR: Final = {
    **dict.fromkeys(("method", "path"), "http"),
    **dict.fromkeys(("schedule", "timeZone", "missed"), "cron"),
    **dict.fromkeys(("webhookSecret", "signature", "sharedSecret"), "webhook"),
    "agent": "queue",
}
_NEEDED: Final = frozenset({"schedule", "webhookSecret"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    type: str
    method: str | None = None
    path: str | None = None
    schedule: str | None = None
    webhook_secret: str | None = None
    signature: str = "standard"
    shared_secret: bool = False
    time_zone: str = "UTC"
    missed: str = "once"
    agent: str | None = None


def trigger_problems(trigger: Any, auth: Any) -> Iterator[tuple[Keys, str, str]]:
    if not isinstance(trigger, dict) or not isinstance(kind := trigger.get("type"), str):
        return
    for member, owner in _ONLY_FOR.items():
        if member in trigger and kind != owner:
            what = f"not for the trigger {harmless_text(kind[:16])}"
            yield ("trigger", member), what, f"remove it, or write type: {owner}"
        elif owner == kind and member in _NEEDED and member not in trigger:
            yield ("trigger", member), "missing", f"a {kind} trigger requires it"
    if kind == "http" and isinstance(auth, dict) and "runAs" in auth:
        yield ("auth", "runAs"), "not for the trigger http: it runs as its caller", "remove it"
    if kind == "cron" and isinstance(schedule := trigger.get("schedule"), str) and not _is_schedule(schedule):
        yield ("trigger", "schedule"), "no cron expression that ever fires", "write five fields, such as 0 */6 * * *"
    if kind == "cron" and isinstance(zone := trigger.get("timeZone", "UTC"), str) and zone not in available_timezones():
        yield ("trigger", "timeZone"), "no IANA time zone known here", "write one such as Europe/Berlin"


def _is_schedule(text: str) -> bool:
    from datetime import UTC, datetime

    from cronsim import CronSim, CronSimError

    try:
        return len(text.split()) == 5 and bool(next(CronSim(text, datetime(2026, 1, 1, tzinfo=UTC))))
    except (CronSimError, StopIteration):
        return False
