"""The plug-in of flow tools stays small: 8,303 lines of Python for all of it.

It was 4,000 until flows also had to send requests and mail, to wait for consents and decisions, to be tools of agents,
and to be served: by HTTP, webhooks, schedules and queues. Refunds, composites, adapters of packages
and the operators' pages came next, withdrawals of versions and what a review of the security asked for followed.
The states of a run followed, with the erasure of users, retention, backups and an example to begin with. Its entries
in the audit log came last, for a table of its own. Then it was read as a whole: what stood twice stands once. Last, `flow check`
took entities and the members of their rows, refusals of the commands and of HTTP named causes and the nearest word, and
writes the id of the caller. Budgets that see no amount, absent filters and loops beyond their bound were refused then. Decisions print JSON, public members have docstrings.
"""

from __future__ import annotations

from pathlib import Path

import oauthbroker.flowtools

MOST_IN_ALL = 8_303


def test_the_plugin_keeps_to_its_budget() -> None:
    """Count every line of Python, as `wc -l` does: blank lines, imports and docstrings too. The JSON Schema is data."""
    folder = Path(oauthbroker.flowtools.__file__).parent
    counts = {str(path): path.read_bytes().count(b"\n") for path in folder.rglob("*.py")}
    assert sum(counts.values()) <= MOST_IN_ALL, counts
