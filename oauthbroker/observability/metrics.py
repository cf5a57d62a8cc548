"""A closed set of counters and timings. Labels are our own words (an app's name, a code, a route's template), never
data of a person, and there is a bound on how many of them there can be.

Here they are only kept: `web/pages/metrics_page.py` prints them, `shared_metrics.py` adds up those of several
processes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Self

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import Code, check_argument

MOST_SERIES = 20_000  # of one process; a thousand apps with a dozen codes each, and then some
NO_ANSWER = "none"
OTHER = "other"  # stands for every label once there are too many
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bounds of every timing's buckets; the last bucket, which holds everything else, has none."""


class Name(StrEnum):
    """A figure's name, its help sentence, and the names of its labels."""

    about: str
    labels: tuple[str, ...]

    def __new__(cls, name: str, about: str, *labels: str) -> Self:
        made = str.__new__(cls, name)
        made._value_ = name
        made.about, made.labels = about, labels
        return made


class Metric(Name):
    """Every counter there is."""

    TOKENS_READY = "oauthbroker_tokens_ready_total", "Tokens that were handed out.", "app"
    AUTHORIZATIONS_REQUIRED = "oauthbroker_authorizations_required_total", "Links that were handed out.", "app"
    GRANTS_ENDING = "oauthbroker_grants_ending_total", "Notices that a grant ends by itself soon.", "app"
    TOKEN_ERRORS = "oauthbroker_token_errors_total", "Token calls that were answered with an error.", "code"
    CONNECTIONS_COMPLETED = "oauthbroker_connections_completed_total", "Completed connections.", "app"
    CONNECTIONS_FAILED = "oauthbroker_connections_failed_total", "Failed connection attempts.", "code"
    CLIENT_SECRETS_REFUSED = (
        "oauthbroker_client_secrets_refused_total",
        "Client secrets that were refused while another one of the list works.",
        "app",
    )
    REFRESHES = "oauthbroker_refreshes_total", "New tokens that are stored, refreshed or fetched.", "app"
    REFRESH_FAILURES = "oauthbroker_refresh_failures_total", "Failed attempts to refresh or fetch a token.", "code"
    REFRESHES_UNSTORED = "oauthbroker_refreshes_unstored_total", "Tries to store a new token that failed.", "app"
    RECORDS_RESEALED = "oauthbroker_records_resealed_total", "Records that were sealed anew after a rotation."
    AUDIT_ENTRIES_MISSING = "oauthbroker_audit_entries_missing_total", "Entries that the audit log did not take."
    EVENTS_QUEUED = "oauthbroker_events_queued_total", "Events that reached an agent's queue.", "type"
    EVENTS_DEAD = "oauthbroker_events_dead_total", "Events that were set aside."
    EVENTS_FORWARDED = (
        "oauthbroker_events_forwarded_total",
        "Attempts to forward an event: taken, refused, or away.",
        "forwarder",
        "outcome",
    )
    PROVIDER_REQUESTS = (
        "oauthbroker_provider_requests_total",
        "Requests to providers, by kind and status.",
        "app",
        "kind",
        "status",
    )
    HTTP_REQUESTS = "oauthbroker_http_requests_total", "Requests to this server.", "route", "method", "status"


FROM_THE_START = (
    (Metric.TOKEN_ERRORS, (Code.STORE_UNAVAILABLE.value,)),
    (Metric.REFRESH_FAILURES, (Code.APP_MISCONFIGURED.value,)),
)
"""The series of codes that alerts name. One that began at its first error would show no increase."""


class Timing(Name):
    """Every histogram there is. All are seconds, in the buckets of `SECONDS`."""

    TOKEN_CALL = "oauthbroker_token_call_seconds", "How long token calls took.", "outcome"
    PROVIDER_REQUEST = "oauthbroker_provider_request_seconds", "How long providers took to answer.", "app", "kind"


class Gauge(Name):
    """Current values. Those of the process are added up over all processes; of the store there is one."""

    CIRCUITS_OPEN = "oauthbroker_circuits_open", "Circuits that keep an app's provider from being asked.", "app"
    SESSIONS_WAITING = "oauthbroker_sessions_waiting", "Authorizations that wait for a person.", "app"
    HEALTH_PROBLEMS = "oauthbroker_health_problems", "Processes with this problem.", "code"
    WORKERS = "oauthbroker_workers", "Processes that serve and share these figures."
    QUEUE_EVENTS = "oauthbroker_queue_events", "Events in the agents' queues.", "state"
    QUEUE_OLDEST = "oauthbroker_queue_oldest_event_seconds", "How long the oldest waiting event has been waiting."
    KEY_EPOCH = "oauthbroker_key_epoch", "Current key epoch (1 + number of rotations)."
    OLD_SEEDS = "oauthbroker_old_seeds", "Seeds that only open records, by the work that is left for them.", "action"
    STORE_FEEDS = "oauthbroker_store_feeds", "Processes by the state of their feed: off, late or live.", "state"
    STORE_DEGRADED = "oauthbroker_store_degraded", "Processes that hand out tokens while their database is away."
    STORE_LEASES = "oauthbroker_store_leases", "Leases in the database: held, or lapsed.", "state"
    BUILD = "oauthbroker_build_info", "Always 1; the label is the version.", "version"


Labels = tuple[str, ...]
Counted = tuple[Metric, Labels]
Timed = tuple[Timing, Labels]
Now = dict[tuple[Gauge, Labels], float]
"""The current values, by gauge and labels."""


@dataclass(slots=True)
class Times:
    """One series of a timing: how many fell into each bucket, and the sum of seconds."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    seconds: float = 0.0

    def add(self, buckets: Iterable[int], seconds: float) -> None:
        self.buckets = [ours + theirs for ours, theirs in zip(self.buckets, buckets, strict=True)]
        self.seconds += seconds


class Metrics:
    """Counts per (metric, labels), times per (timing, labels). `changes` grows with everything that is noted."""

    def __init__(self) -> None:
        self.counts: Counter[Counted] = Counter()
        self.times: dict[Timed, Times] = {}
        self.changes = 0

    def add(self, metric: Metric, *labels: str) -> None:
        """Count one more. `labels` are as many as the metric has, in its order; omitted ones are empty."""
        self.count((metric, labels))

    def count(self, key: Counted) -> None:
        """Do `add` with a key that is made once."""
        if key not in self.counts and self._is_full():
            key = (key[0], (OTHER,) * len(key[1]))
        self.counts[key] += 1
        self.changes += 1

    def time(self, timing: Timing, seconds: float, *labels: str) -> None:
        """Record a duration."""
        self.note((timing, labels), seconds)

    def note(self, key: Timed, seconds: float) -> None:
        """Do `time` with a key that is made once."""
        times = self.times.get(key)
        if times is None:
            if self._is_full():
                key = (key[0], (OTHER,) * len(key[1]))
            times = self.times.setdefault(key, Times())
        times.buckets[bisect_left(SECONDS, seconds)] += 1
        times.seconds += seconds
        self.changes += 1

    def value(self, metric: Metric, *labels: str) -> int:
        """Return a count. Raises `requestInvalid` for an unknown metric."""
        is_metric = metric in Metric.__members__.values()
        check_argument(is_metric, "metric", "a member of Metric, such as Metric.TOKENS_READY")
        return self.counts[metric, labels]

    def timed(self, timing: Timing, *labels: str) -> int:
        """Return the number of durations."""
        times = self.times.get((timing, labels))
        return sum(times.buckets) if times is not None else 0

    def to_json(self) -> dict[str, Any]:
        """Return all metrics as plain JSON, for `absorb`."""
        return {
            "counts": [[metric.value, list(labels), count] for (metric, labels), count in self.counts.items()],
            "times": [
                [timing.value, list(labels), list(times.buckets), times.seconds]
                for (timing, labels), times in self.times.items()
            ],
        }

    def absorb(self, found: Mapping[str, Any]) -> None:
        """Add what `to_json` of another process gave. Figures that this version does not know are left out. Raises
        ValueError, KeyError or TypeError for other JSON, and adds nothing then."""
        counts = [
            (_COUNTERS[name], _labels(labels), int(n)) for name, labels, n in found["counts"] if name in _COUNTERS
        ]
        times = [
            (_TIMINGS[name], _labels(labels), [int(n) for n in buckets], float(seconds))
            for name, labels, buckets, seconds in found["times"]
            if name in _TIMINGS and len(buckets) == len(SECONDS) + 1
        ]
        for metric, labels, n in counts:
            self.counts[metric, labels] += n
        for timing, labels, buckets, seconds in times:
            self.times.setdefault((timing, labels), Times()).add(buckets, seconds)
        self.changes += 1

    def _is_full(self) -> bool:
        return len(self.counts) + len(self.times) >= MOST_SERIES


@cache
def status_class(status: int) -> str:
    """`4xx` of 404; `none` where there was no answer."""
    return f"{status // 100}xx" if 100 <= status <= 599 else NO_ANSWER


_COUNTERS = {metric.value: metric for metric in Metric}
_TIMINGS = {timing.value: timing for timing in Timing}


def _labels(found: Iterable[object]) -> Labels:
    return tuple(str(each) for each in found)
