"""A new backend joins a contract with a few lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

MOST_LINES = 30
BACKENDS = {
    "test_store.py": {"TestMemory", "memory_store"},
    "test_queue.py": {"TestMemory", "in_memory", "queues_on"},
    "test_audit_writer.py": {"TestMemory", "Memory", "Limited"},
}


@pytest.mark.parametrize(("module", "names"), BACKENDS.items(), ids=BACKENDS)
def test_a_backend_subclasses_a_contract_in_under_thirty_lines(module, names):
    nodes = ast.parse(Path(__file__).with_name(module).read_text("utf-8")).body
    parts = [node for node in nodes if getattr(node, "name", None) in names]
    assert len(names) == len(parts)
    assert sum((part.end_lineno or 0) - part.lineno + 1 for part in parts) < MOST_LINES
