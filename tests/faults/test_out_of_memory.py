"""One allocation of memory fails, somewhere in a refresh, a claim or an enqueue: no token pair is lost that was kept."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.forms import is_long

ROOT = Path(__file__).parents[2]
SAMPLES = 100 if is_long() else 4
MOST_SECONDS = 540


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("_testcapi") is None, reason="this Python cannot let allocations fail")
@pytest.mark.parametrize("story", ["refresh", "callback"])
def test_the_next_broker_loses_nothing_that_was_kept(story: str, tmp_path: Path):
    command = [sys.executable, "-m", "tests.faults.memory_worker", story, "7", str(SAMPLES), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f" of {SAMPLES} did not end as usual" in done.stdout
    assert not done.stdout.startswith("0 of")  # some allocation was one that mattered
