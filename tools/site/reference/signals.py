"""The page of what a broker tells its operators and agents: metrics, entries of the audit log, and events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, get_args

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.chain import LogEntry
from oauthbroker.observability.metrics import SECONDS, Gauge, Metric, Name, Timing
from oauthbroker.records.event import EventType
from tools.site.reference.configuration import from_here
from tools.site.reference.markdown import block, code, heading, prose, slug, table
from tools.site.stage import ROOT

METRICS = """\
# Metrics

Made from the broker's own list. [Monitor a broker](../docs/how-to/monitoring.md) says how they are scraped, and which ones to watch.

"""
AUDIT = """\
# Entries of the audit log

Made from the types of the entries. [The audit log](../docs/audit.md) says how lines are chained, read and verified.

"""
EVENTS = """\
# Events

What an agent's queue can hold. [Embedding](../docs/embedding.md#going-on-after-consent), [the HTTP API](../docs/api.md#events) and
[forwarding](../docs/forwarding.md) say how an agent gets them. Plug-ins add types of other namespaces. Every payload has
`oauthAppRef`, `provider`, `subject`, `authSessionId`, and `account` where one was named.

"""
OWN_MEMBERS: dict[str, dict[str, Any]] = {  # of a payload, in the example of its type
    "auth.denied": {"code": "providerDenied"},
    "auth.failed": {"code": "exchangeFailed"},
    "auth.revoked": {"grantId": "sha256:..."},
    "auth.expired": {},
    "auth.expiring": {
        "grantId": "sha256:...",
        "endsAt": "2026-02-07T09:12:40Z",
        "connectUrl": "https://agents.example.com/connect/...",
    },
}
_ROW = re.compile(r"(?m)^\| `(auth\.\w+)` \| (.+?) \| (.*?) ?\|$")


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
    made = {"metrics": metrics, "audit-entries": audit, "events": [EVENTS, *_events()]}
    return {f"{name}.md": "\n".join(lines) for name, lines in made.items()}


def _events() -> Iterator[str]:
    """Yield a section for each type: meaning and members from the table of docs/embedding.md, and an example, which is
    the page's own with the members of the type."""
    page = (ROOT / "docs" / "embedding.md").read_text("utf-8")
    rows = {kind: (from_here(when, "embedding.md", "../docs/"), from_here(members, "embedding.md", "../docs/")) for kind, when, members in _ROW.findall(page)}  # fmt: skip
    example = next(
        each for each in map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL)) if "eventId" in each
    )
    payload = {name: each for name, each in example["payload"].items() if name not in {"scopesGranted", "grantId"}}
    for kind in get_args(EventType):
        when, members = rows[kind]
        yield heading(2, code(kind), slug(kind))
        yield f"{when[0].upper()}{when[1:]}.\n"
        if members:
            yield f"Its payload also has {members}.\n"
        own = OWN_MEMBERS.get(kind)
        event_id = example["eventId"].replace(example["type"], kind)
        changed = {"eventId": event_id, "type": kind} | ({} if own is None else {"payload": payload | own})
        yield block(json.dumps(example | changed, indent=2), "json")


def _entry(entry: type[Any]) -> list[str]:
    rows = ((code(each.name), code(str(each.type))) for each in fields(entry))
    return [f"{prose(' '.join((entry.__doc__ or '').split()))}\n", table(("member", "type"), rows)]
