"""A pytest plugin: what a test logs is formatted once, and kept no longer than a report needs it.

The sweep of `oauthbroker.testing` lets every record through, from level 1 on: hundreds in a story. pytest formats each of
them twice, puts the text in each of a test's three reports, sends these to the process that prints, and keeps the text in
three places until the run ends, though only a failure shows it: a worker had grown to a gigabyte.
"""

from __future__ import annotations

import logging
from collections.abc import Generator

import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Format once. A worker of pytest-xdist loses its terminal, which writes to /dev/null and keeps each report."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.unregister(name="terminalreporter")
    formatter = config.pluginmanager.getplugin("logging-plugin").formatter
    formatter.format = FormattedOnce(formatter)


class FormattedOnce:
    """Formats a record for the first of the handlers that get it one after another."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self._format = formatter.format
        self._last: tuple[logging.LogRecord | None, str] = None, ""

    def __call__(self, record: logging.LogRecord) -> str:
        last, text = self._last
        if last is not record:
            text = self._format(record)
            self._last = record, text
        return text


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Drop the output of a phase that passed; a later phase that fails shows it. `-rP` shows all."""
    report = yield
    if report.passed and not set(item.config.option.reportchars) & set("PA"):
        report.sections = []
    if report.when == "teardown":
        item._report_sections.clear()
    return report
