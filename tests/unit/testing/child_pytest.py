"""Run a suite in a child pytest, as users of the plugin do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run_pytest(folder: Path, suite: str, *options: str) -> str:
    (folder / "test_suite.py").write_text(suite)
    (folder / "conftest.py").write_text('pytest_plugins = ["oauthbroker.testing.pytest_plugin"]\n')
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *options, str(folder)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=folder, check=False)
    assert done.returncode in {0, 1}, done.stderr  # tests passed or failed, and nothing else went wrong
    return done.stdout


def names_with_outcome(word: str, text: str) -> set[str]:
    return set(re.findall(rf"^{word} .*::(test_\w+)", text, re.MULTILINE))
