"""A closed set of counters. Labels are our own words (an app's name, a code), never data of a person."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Metric(StrEnum):
    """Every counter there is."""

    TOKENS_READY = "oauthbroker_tokens_ready_total"
    AUTHORIZATIONS_REQUIRED = "oauthbroker_authorizations_required_total"
    TOKEN_ERRORS = "oauthbroker_token_errors_total"
    CONNECTIONS_COMPLETED = "oauthbroker_connections_completed_total"
    CONNECTIONS_FAILED = "oauthbroker_connections_failed_total"
    CLIENT_SECRETS_REFUSED = "oauthbroker_client_secrets_refused_total"
    RENEWALS = "oauthbroker_renewals_total"
    RENEWAL_FAILURES = "oauthbroker_renewal_failures_total"
    RENEWALS_UNSTORED = "oauthbroker_renewals_unstored_total"
    EVENTS_QUEUED = "oauthbroker_events_queued_total"
    EVENTS_DEAD = "oauthbroker_events_dead_total"


class Metrics:
    """Counts per (metric, label)."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Metric, str]] = Counter()

    def add(self, metric: Metric, label: str = "") -> None:
        self.counts[metric, label] += 1

    def value(self, metric: Metric, label: str = "") -> int:
        return self.counts[metric, label]
