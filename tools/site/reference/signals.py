"""The pages of what a broker tells its operators and agents: metrics, entries of the audit log, and events.

Names, labels and members are those of the code; meanings are those of the tables in docs/, where they are written once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.chain import LogEntry
from oauthbroker.observability.metrics import SECONDS, Gauge, Metric, Name, Timing
from oauthbroker.plugins.discovery import declared, installed, named
from oauthbroker.records.event import EventType
from tools.site.reference.configuration import from_here
from tools.site.reference.markdown import Rows, block, code, heading, slug, table
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
    kinds: dict[str, tuple[str, Iterable[Name]]] = {
        "Counters": ("counts", Metric),
        "Histograms": ("seconds", Timing),
        "Gauges": ("value", Gauge),
    }
    metrics, meanings = [METRICS], _meanings("how-to/monitoring.md", 3)
    for title, (head, names) in kinds.items():
        rows = ((code(each.value), ", ".join(map(code, each.labels)), meanings[each.value]) for each in names)
        metrics += [heading(2, title, slug(title)), table(("metric", "labels", head), rows)]
    metrics.append(f"All histograms count seconds, in buckets that end at {', '.join(map(str, SECONDS))}.\n")
    audit, meanings = [AUDIT], _meanings("audit.md", 2)
    for name, entry in audit_entries().items():
        audit += [heading(2, code(name), slug(name)), *_entry(entry, meanings[name])]
    made = {"metrics": metrics, "audit-entries": audit, "events": [EVENTS, *_events()]}
    return {f"{name}.md": "\n".join(lines) for name, lines in made.items()}


def audit_entries() -> dict[str, type[Any]]:
    """Return the entries of the broker, of the plug-ins that come with it, and of the log about itself, by their types."""
    found = {each.__name__: each for each in AuditEntry.types()}
    for point in installed():
        plugin = declared(point.name)
        types = named(plugin, plugin.audit_types) if plugin.audit_types else ()
        found |= {each.type_name(): each for each in types}
    return found | {each.__name__: each for each in LogEntry.types()}


def _events() -> Iterator[str]:
    """Yield a section for each type: meaning and members from the table of docs/embedding.md, and an example, which is
    the page's own with the members of the type."""
    page = (ROOT / "docs" / "embedding.md").read_text("utf-8")
    rows = Rows("embedding.md", {kind: (from_here(when, "embedding.md", "../docs/"), from_here(members, "embedding.md", "../docs/")) for kind, when, members in _ROW.findall(page)})  # fmt: skip
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


def _meanings(page: str, column: int) -> Rows[str]:
    """Return the words of a column of the tables of a page in docs/, by the name in the first one."""
    place = Path("docs") / page
    rows = re.findall(r"(?m)^\| (`[\w.]+` \| .*) \|$", (ROOT / place).read_text("utf-8"))
    cells = [re.split(r" ?(?<!\\)\| ", row) for row in rows]
    said = {
        row[0].strip("`"): from_here(row[column - 1], place.name, f"../{place.parent}/")
        for row in cells
        if len(row) >= column
    }
    return Rows(page, said)


def _entry(entry: type[Any], meaning: str) -> list[str]:
    rows = ((code(each.name), code(str(each.type))) for each in fields(entry))
    return [f"{meaning}\n", table(("member", "type"), rows)]
