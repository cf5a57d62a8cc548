"""A run in which a test hangs ends by itself and says which one it was."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
TESTS = """
import threading
import pytest

@pytest.fixture
def stuck():
    yield
    threading.Event().wait(120)

def test_in_its_body():
    threading.Event().wait(120)

def test_after_a_failure(stuck):
    raise ValueError

def test_that_ends():
    pass
"""


def test_a_test_has_so_many_seconds():
    assert (600, True) == (SETTINGS["faulthandler_timeout"], SETTINGS["faulthandler_exit_on_timeout"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["in_its_body", "after_a_failure"])
def test_a_test_that_hangs_ends_alone_and_by_name(tmp_path: Path, name: str):
    (tmp_path / "test_children.py").write_text(TESTS, "utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfaulthandler_timeout=2\nfaulthandler_exit_on_timeout=true\n", "utf-8"
    )
    words = ["-q", "-n", "1", "-p", "xdist", "-p", "tests.kit.hangs", "-k", f"{name} or that_ends"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=100,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert 1 == done.returncode
    assert f"crashed while running 'test_children.py::test_{name}'" in done.stdout
    assert "1 passed" in done.stdout
    assert "in wait" in done.stderr, "the stack of the thread that hangs"
