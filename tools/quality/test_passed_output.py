"""What a test logs is kept no longer than a report needs it, and nothing that a failure shows is lost."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.passed_output import FormattedOnce

ROOT = Path(__file__).parents[2]
TESTS = """
import logging
import pytest

log = logging.getLogger("a")

@pytest.fixture
def logs():
    log.warning("while set up")
    yield
    log.warning("while torn down")

@pytest.fixture
def fails_at_its_end(logs):
    yield
    raise ValueError

def test_that_passes(logs, caplog):
    log.warning("in %s", "its body")
    print("printed")
    assert "in its body" in caplog.text

def test_that_fails_late(fails_at_its_end):
    log.warning("in %s", "its body")
    print("printed")
"""
PLUGIN = """
import pytest

def pytest_runtest_logreport(report):
    print("KEPT", report.nodeid, report.when, [text for _, text in report.sections])

def pytest_sessionfinish(session):
    print("LEFT", [item._report_sections for item in session.items])
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["terminal"] = session.config.pluginmanager.hasplugin("terminalreporter")

@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    print("TERMINAL OF A WORKER", node.workeroutput["terminal"])
"""


def ran(folder: Path, *words: str) -> str:
    (folder / "test_children.py").write_text(TESTS, "utf-8")
    (folder / "listens.py").write_text(PLUGIN, "utf-8")
    plugins = ["-p", "tests.kit.passed_output", "-p", "listens"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", *plugins, *words], check=False, cwd=folder, capture_output=True, text=True, timeout=100,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    ).stdout  # fmt: skip


@pytest.mark.slow
def test_a_failure_while_torn_down_shows_the_output_of_the_phases_that_passed(tmp_path: Path):
    failed = ran(tmp_path, "--capture=fd").partition("ValueError")[2]
    assert all(text in failed for text in ("while set up", "in its body", "printed", "while torn down"))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "kept"), [((), False), (("-rP",), True)])
def test_output_of_what_passed_is_kept_only_where_it_is_asked_for(tmp_path: Path, words: tuple[str, ...], kept: bool):
    lines = [line for line in ran(tmp_path, *words).splitlines() if "that_passes" in line and "KEPT" in line]
    assert 3 == len(lines)
    assert kept == any("in its body" in line for line in lines)


@pytest.mark.slow
def test_no_output_stays_at_a_test_that_is_over(tmp_path: Path):
    assert "LEFT [[], []]" in ran(tmp_path)


@pytest.mark.slow
def test_a_worker_has_no_terminal_and_its_failures_are_shown_in_that_of_the_run(tmp_path: Path):
    out = ran(tmp_path, "-p", "xdist", "-n", "1")
    assert "TERMINAL OF A WORKER False" in out
    assert "while torn down" in out.partition("ValueError")[2]
    assert "2 passed, 1 error" in out


def test_handlers_that_get_a_record_one_after_another_get_one_text():
    formatted: list[str] = []

    class Counting(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            formatted.append(record.getMessage())
            return formatted[-1]

    first, second = (logging.makeLogRecord({"msg": msg}) for msg in ("one", "two"))
    once = FormattedOnce(Counting())
    assert ["one", "one", "two", "one"] == [once(record) for record in (first, first, second, first)]
    assert ["one", "two", "one"] == formatted
