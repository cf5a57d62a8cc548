"""The page of what a broker tells its operators and agents: metrics, entries of the audit log, and events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, get_args

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.chain import LogEntry
from oauthbroker.observability.metrics import SECONDS, Gauge, Metric, Name, Timing
from oauthbroker.records.event import EventType
from tools.site.reference.markdown import code, heading, prose, slug, table

METRICS = """\
# Metrics

Made from the broker's own list. [Operations](../docs/operations.md) says how they are scraped, and which ones to watch.

"""
AUDIT = """\
# Entries of the audit log

Made from the types of the entries. [The audit log](../docs/audit.md) says how lines are sealed, read and verified.

"""
EVENTS = """\
# Events

What an agent's queue can hold. [Embedding](../docs/embedding.md), [the HTTP API](../docs/api.md) and
[forwarding](../docs/forwarding.md) say how an agent gets them. Plug-ins add types of other namespaces.

"""


def pages() -> dict[str, str]:
    kinds: dict[str, Iterable[Name]] = {"Counters": Metric, "Histograms": Timing, "Gauges": Gauge}
    metrics = [METRICS]
    for title, names in kinds.items():
        rows = ((code(each.value), ", ".join(map(code, each.labels)), prose(each.about)) for each in names)
        metrics += [heading(2, title, slug(title)), table(("metric", "labels", "meaning"), rows)]
    metrics.append(f"All histograms count seconds, in buckets that end at {', '.join(map(str, SECONDS))}.\n")
    audit = [AUDIT]
    for entry in (*AuditEntry.types(), *LogEntry.types()):
        audit += [heading(2, code(entry.__name__), slug(entry.__name__)), *_entry(entry)]
    events = table(("type",), ((code(each),) for each in get_args(EventType)))
    return {"metrics.md": "\n".join(metrics), "audit-entries.md": "\n".join(audit), "events.md": EVENTS + events}


def _entry(entry: type[Any]) -> list[str]:
    rows = ((code(each.name), code(str(each.type))) for each in fields(entry))
    return [f"{prose(' '.join((entry.__doc__ or '').split()))}\n", table(("member", "type"), rows)]
