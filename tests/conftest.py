"""What every test run here shares: choosing tests by number, and tests/e2e on machines that lack something."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from oauthbroker.protocol import transport
from tests.kit import installed

pytest_plugins = ["oauthbroker.testing.pytest_plugin"]  # no test may leak a secret, asked or not

E2E = Path(__file__).parent / "e2e"

hypothesis.settings.register_profile("oauthbroker", deadline=None)  # a busy machine is slow, and no law is about time
hypothesis.settings.load_profile("oauthbroker")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("oauthbroker")
    group.addoption("--case", action="append", default=[], metavar="N", help="only tests of case N (tests/CASES.md)")
    group.addoption("--rule", action="append", default=[], metavar="N", help="only tests of rule N (tests/CASES.md)")


def pytest_configure(config: pytest.Config) -> None:
    """`tmp_path` lies in memory where it can: thousands of stores are written, and each of their writes is synced.
    What a machine does to a disk that it loses is played by `oauthbroker.testing.crashfs`, so that nothing is proven
    by a real one. PYTEST_DEBUG_TEMPROOT, pytest's own, names another place."""
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ and (memory := installed.memory()):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(memory)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it puts into the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the commands that we stop by Ctrl-C would inherit it


@pytest.fixture(scope="session", autouse=True)
def one_trust_store() -> Iterator[None]:
    """The machine's certificates are read once, not by each of thousands of brokers: that took an eighth of a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "_tls", functools.cache(transport._tls))
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    strangers = [item.nodeid for item in items if item.get_closest_marker("e2e") and E2E not in item.path.parents]
    if strangers:
        raise pytest.UsageError(f"`make test-e2e` collects {E2E.name}/ only, and would not see {strangers}")
    wanted = {("case", number) for number in config.getoption("--case")}
    wanted |= {("rule", number) for number in config.getoption("--rule")}
    if wanted:
        dropped = [item for item in items if not wanted & numbers_of(item)]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


def numbers_of(item: pytest.Item) -> set[tuple[str, str]]:
    return {
        (mark.name, number) for mark in item.iter_markers() if mark.name in {"case", "rule"} for number in mark.args
    }


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("e2e"):
        installed.demand(installed.missing())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The last word of a run that left something out."""
    reports = terminalreporter.stats.get("skipped", [])
    said = [report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple)]
    skips = [text.partition(installed.SKIPPED)[2] for text in said if installed.SKIPPED in text]
    if skips:
        terminalreporter.write_sep("!", f"{len(skips)} TESTS NOT RUN", red=True, bold=True)
        for lacks in sorted(set(skips)):
            terminalreporter.write_line(f"this machine lacks: {lacks}", red=True, bold=True)
        terminalreporter.write_line(
            "Install it and run `make test` again; E2E=required makes this a failure.", red=True
        )
