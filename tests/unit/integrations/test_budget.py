"""The plug-in stays small: the broker asks and keeps, the frameworks run."""

from __future__ import annotations

from pathlib import Path

import oauthbroker.integrations

MOST_LINES = 1331
MOST_ADAPTER = 161


def test_the_plugin_of_adapters_keeps_to_its_budget() -> None:
    """Count every line, as `wc -l` does: blank lines, imports and docstrings too."""
    files = sorted(Path(oauthbroker.integrations.__file__).parent.glob("**/*.py"))
    counts = {path.name: path.read_bytes().count(b"\n") for path in files}
    assert sum(counts.values()) <= MOST_LINES, counts
    assert max(counts.values()) <= MOST_ADAPTER, counts
