"""A pytest plugin: a test that hangs ends its process, also while it is torn down after a failure.

pytest's own timer (`faulthandler_timeout` and `faulthandler_exit_on_timeout` in pyproject.toml) prints the stack of each
thread and ends the process; pytest-xdist then names the test and goes on. But pytest stops that timer at the first
exception of a test, and servers and browsers are closed after it.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    if seconds := float(item.config.getini("faulthandler_timeout") or 0):
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(seconds, file=stderr, exit=True)
    return (yield)
