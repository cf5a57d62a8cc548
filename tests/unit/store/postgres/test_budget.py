"""The store in PostgreSQL keeps its size, and no file of more than 300."""

from __future__ import annotations

from pathlib import Path

import oauthbroker.store.postgres

MOST_LINES = 2_293
MOST_IN_A_FILE = 300


def test_the_store_in_postgresql_keeps_to_its_budget() -> None:
    """Count every line, as `wc -l` does: blank lines, imports and docstrings too."""
    files = sorted(Path(oauthbroker.store.postgres.__file__).parent.glob("*.py"))
    counts = {path.name: path.read_bytes().count(b"\n") for path in files}
    assert sum(counts.values()) <= MOST_LINES, counts
    assert max(counts.values()) <= MOST_IN_A_FILE, counts
