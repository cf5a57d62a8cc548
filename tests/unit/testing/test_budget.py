"""The test tools are code to read, too."""

from __future__ import annotations

from pathlib import Path

import oauthbroker.testing

MOST_LINES = 4944  # 10 of them docstrings of public members


def test_the_test_tools_keep_to_their_budget() -> None:
    """Count every line, as `wc -l` does: blank lines, imports and docstrings too."""
    files = sorted(Path(oauthbroker.testing.__file__).parent.glob("**/*.py"))
    counts = {str(path): path.read_bytes().count(b"\n") for path in files}
    assert sum(counts.values()) <= MOST_LINES, counts
