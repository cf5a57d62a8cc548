"""pytest fixtures: `identity_provider`, `test_clock`, `browser`, `canaries`, and a leak sweep for every test.

Load with `pytest_plugins = ["oauthbroker.testing.pytest_plugin"]` in the top conftest.py. See docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from oauthbroker.testing.browser import Browser
from oauthbroker.testing.canary import Canaries, Find
from oauthbroker.testing.clock import TestClock
from oauthbroker.testing.provider import IdentityProvider
from oauthbroker.testing.sweep import PRINTED, CanarySweep, SecretLeakedError

_SWEEP = pytest.StashKey[CanarySweep]()
_FINDS = pytest.StashKey[list[Find]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("secret_sweep", "sweep every test's output for secrets (oauthbroker.testing)", "bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    line = "secrets_may_leak(why): no_secret_leaks looks away; for tests that leak on purpose"
    config.addinivalue_line("markers", line)


@pytest.fixture(autouse=True)
def no_secret_leaks(request: pytest.FixtureRequest) -> Iterator[CanarySweep]:
    """Fail the test if a secret appears in a log record, the captured output, a file below `tmp_path`, a broker's
    HTTP answer or an argument of `canaries.look`. Costs very little without canaries."""
    if not _is_on(request.node):
        yield CanarySweep()
        return
    with CanarySweep() as sweep:
        if "tmp_path" in request.fixturenames:
            sweep.canaries.watch(request.getfixturevalue("tmp_path"))
        for name in {"capsys", "capfd"} & set(request.fixturenames):
            _overhear(request.getfixturevalue(name), sweep.canaries)
        request.node.stash[_SWEEP] = sweep
        yield sweep
    request.node.stash[_FINDS] = sweep.finds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn finds into a failure once all output of the test is known."""
    report = yield
    sweep = item.stash.get(_SWEEP, None)
    if call.when == "teardown" and sweep is not None:
        known, shown = sweep.canaries, sweep.canaries.shown
        printed = zip(PRINTED, (report.capstdout, report.capstderr), strict=True)
        finds = [find for where, text in printed for find in known.search(text, where, allow=shown)]
        if finds := item.stash.get(_FINDS, []) + finds:
            report.outcome = "failed"
            earlier = f"{report.longreprtext}\n\n" if report.longreprtext else ""
            report.longrepr = f"{earlier}{SecretLeakedError(finds)}"
            report.sections = []  # they hold the secret, and a report is output too
    return report


@pytest.fixture
def canaries(no_secret_leaks: CanarySweep) -> Canaries:
    """Return the secrets of this test: `add` more, `look` at more, `watch` more folders."""
    return no_secret_leaks.canaries


@pytest.fixture
def test_clock() -> TestClock:
    """Return a clock that the test moves. Pass it to the broker; `identity_provider` uses it too."""
    return TestClock()


@pytest.fixture
def identity_provider(test_clock: TestClock, canaries: Canaries) -> Iterator[IdentityProvider]:
    """Run a provider in a thread of its own, usable from sync tests and from any event loop."""
    with IdentityProvider(clock=test_clock, canaries=canaries) as provider:
        yield provider


@pytest.fixture
def browser(canaries: Canaries) -> Browser:
    """Return one user's browser. Create another user's with `Browser()`."""
    return Browser(canaries=canaries)


def _is_on(item: pytest.Item) -> bool:
    return bool(item.config.getini("secret_sweep")) and item.get_closest_marker("secrets_may_leak") is None


def _overhear(capture: Any, canaries: Canaries) -> None:
    """Note the output that a test takes out of capsys or capfd, because the report lacks it."""
    read = capture.readouterr

    def readouterr() -> Any:
        taken = read()
        for stream, text in zip(PRINTED, taken, strict=True):
            canaries.look(text, stream)
        return taken

    capture.readouterr = readouterr
