"""Two hosts on one database, shortened; `python -m tests.faults.hosts` is the long form and prints its figures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.faults.hosts import FAKETIME
from tests.kit import installed, network_hosts, postgres
from tests.kit.docs import ROOT

HOSTS, TASKS, SECONDS = 2, 10, 6
LACKS: dict[str, Callable[[], bool]] = {
    postgres.LACKS: lambda: postgres.binaries() is None,
    network_hosts.LACKS: lambda: not network_hosts.possible(),
    "faketime (package faketime)": lambda: not FAKETIME.exists(),
}


@pytest.mark.slow
def test_hosts_that_are_killed_frozen_and_cut_off_keep_every_acknowledged_change() -> None:
    installed.demand([what for what, is_absent in LACKS.items() if is_absent()])
    figures = ["--hosts", str(HOSTS), "--tasks", str(TASKS), "--seconds", str(SECONDS)]
    command = [sys.executable, "-m", "tests.faults.hosts", *figures]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert 0 == done.returncode, done.stdout + done.stderr
    for kind in ("kill", "freeze", "cut_off", "restart_database", "fail_over"):
        assert f"{kind}: " in done.stdout
    assert "live: " in done.stdout, "no host has trusted its feed"
