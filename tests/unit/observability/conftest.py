"""A clock, and the text that a log is written to."""

from __future__ import annotations

import io

import pytest

from oauthbroker.testing import TestClock


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()
