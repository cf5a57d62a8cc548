"""A run that is killed at any point is finished by the repeated call: nothing half, nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.forms import swept

ROOT = Path(__file__).parents[4]
STEP = swept(100).step


@pytest.mark.slow
@pytest.mark.rule("run-kills")
@pytest.mark.parametrize("keys", ["keys", "none"])
def test_a_run_killed_at_any_point_leaves_nothing_half_and_does_nothing_twice(tmp_path, keys):
    command = [sys.executable, "-m", "tests.unit.flowtools.running.kill_worker", str(tmp_path), keys, str(STEP)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert 0 == done.returncode, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [True] * (len(rows) - 1) + [False] == [row["died"] for row in rows]
    assert len(rows) > 30 // STEP
    for row in rows:
        ended = row["state"]
        assert ended in ({"succeeded"} if keys == "keys" else {"succeeded", "unknown"}), row
        assert [{"succeeded": "three", "unknown": "one"}[ended], "two"] == row["texts"], row
        assert (True, {ended}) == (row["same"], {*row["audit"]}), row
        assert row["sent"] == 1 or (row["sent"] == 0 and ended == "unknown"), row
    assert (keys == "none") == any(row["state"] == "unknown" for row in rows)


@pytest.mark.slow
@pytest.mark.rule("run-waits")
@pytest.mark.parametrize("phase", ["waiting", "going on"])
def test_a_kill_while_a_run_waits_or_goes_on_loses_nothing_and_sends_nothing_twice(tmp_path, phase):
    command = [sys.executable, "-m", "tests.unit.flowtools.running.waiting_worker", str(tmp_path), phase, str(STEP)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert 0 == done.returncode, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [True] * (len(rows) - 1) + [False] == [row["died"] for row in rows]
    assert len(rows) > 10 // STEP
    for row in rows:
        assert "waiting" == row["waits"], row
        if phase == "waiting":  # nothing was sent, so that nothing is unknown
            assert (["s1"], "succeeded", ["one", "two"], 1) == tuple(
                row[name] for name in ("sessions", "state", "texts", "sent")
            ), row
        elif row["state"] == "unknown":
            assert (["one"], True) == (row["texts"], row["sent"] <= 1), row
        else:
            assert ("succeeded", ["one", "two"], 1) == (row["state"], row["texts"], row["sent"]), row
    assert (phase == "going on") == any(row["state"] == "unknown" for row in rows)
