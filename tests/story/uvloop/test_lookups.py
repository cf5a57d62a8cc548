"""Name resolution once more: uvloop's own has four threads, which nothing may wait for."""

from __future__ import annotations

from tests.unit.protocol.test_lookups import *  # noqa: F403
