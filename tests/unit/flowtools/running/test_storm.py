"""Processes are killed at random amid payments, refunds and consents: nothing twice, nothing lost, each run ends
once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.forms import is_long
from tests.unit.flowtools.entity_kit import url_of

ROOT = Path(__file__).parents[4]
KILLS = 100 if is_long() else 10


@pytest.mark.slow
@pytest.mark.rule("run-kills", "run-waits", "001-rollback", "001-example-4")
@pytest.mark.parametrize(("database", "processes"), [("sqlite", 1), ("postgresql", 1), ("postgresql", 2)])
def test_kills_do_nothing_twice_and_lose_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, processes: int
) -> None:
    url = url_of(database, request, tmp_path)
    command = [sys.executable, "-m", "tests.unit.flowtools.running.storm_worker", url]
    command += [str(tmp_path), str(processes), str(KILLS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert 0 == done.returncode, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"succeeded", "failed"} <= {row["state"] for row in rows}
    assert {"assertFailed", "consentRefused"} <= {row["code"] for row in rows}
    for row in rows:
        assert row["state"] == row["ends"][-1], row
        assert set(row["answers"]) <= {row["state"]}, row
        assert row["charge"] <= 1, row
        assert row["POST"] <= 1, row
        both = [f"one {row['order']}", f"two {row['order']}"]
        match row["state"]:
            case "succeeded":
                assert (1, 0, 1, both) == (row["charge"], row["refund"], row["POST"], row["texts"]), row
            case "failed":
                assert (row["charge"], both[:1]) == (row["refund"], row["texts"]), row
            case other:
                assert ("unknown", 1, 0, both[:1]) == (other, row["charge"], row["refund"], row["texts"]), row
                assert any("paymentRollback" in note for note in row["notes"]), row
    print(Counter((row["state"], row["code"]) for row in rows))
