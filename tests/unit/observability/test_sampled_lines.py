"""A stranger cannot fill the disk with lines of the log: the first ones of a kind are written, then their number."""

from __future__ import annotations

import io
import json
import logging

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.observability.library_log import LibraryLog
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.observability.sampled_lines import FEW, MOST_KINDS, SampledLines
from oauthbroker.serving.connection_slots import Terms
from oauthbroker.testing.clock import TestClock
from oauthbroker.web.middleware.access_log import RequestLog


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_minute_has_few_lines_of_a_kind_and_the_number_of_the_others():
    stream, clock = io.StringIO(), TestClock(frozen=True)
    log = RequestLog(clock, json_log(stream, clock), metrics := Metrics())
    for _ in range(500):
        log.end_request(log.begin_request(), "-", "GET", 404, {"code": "notFound"}, known=False)
        log.end_request(log.begin_request(), "-", "GET", 429, {"code": "rateLimited"}, known=False)
    assert 2 * FEW == len(lines(stream))
    clock.advance(61)
    log.end_request(log.begin_request(), "-", "GET", 404, {"code": "notFound"}, known=False)
    *_, first, second, last = lines(stream)
    assert {"event": "lines left out", "status": 404, "code": "notFound", "left_out": 480}.items() <= first.items()
    assert {"event": "lines left out", "status": 429, "code": "rateLimited", "left_out": 480}.items() <= second.items()
    assert {"event": "request", "status": 404}.items() <= last.items()
    assert 1001 == metrics.value(Metric.HTTP_REQUESTS, "-", "GET", "4xx"), "each is counted"


@pytest.mark.parametrize(
    "known, status, written",
    [(True, 200, 100), (True, 303, 100), (False, 200, FEW), (False, 303, FEW), (True, 403, FEW), (True, 0, FEW)],
)
def test_successes_with_credentials_are_written_each(known: bool, status: int, written: int):
    stream, clock = io.StringIO(), TestClock(frozen=True)
    log = RequestLog(clock, json_log(stream, clock), Metrics())
    for _ in range(100):
        log.end_request(log.begin_request(), "/v1/tokens", "POST", status, known=known)
    assert written == len(lines(stream))


def test_refused_strangers_leave_the_lines_of_known_callers():
    stream, clock = io.StringIO(), TestClock(frozen=True)
    log = RequestLog(clock, json_log(stream, clock), Metrics())
    for known in (False, True):
        for _ in range(100):
            log.end_request(log.begin_request(), "/v1/tokens", "POST", 429, {"code": "rateLimited"}, known=known)
    assert 2 * FEW == len(lines(stream))


def test_kinds_without_end_take_bounded_memory_and_lines():
    stream = io.StringIO()
    sampled = SampledLines(json_log(stream, TestClock(frozen=True)))
    assert FEW + MOST_KINDS == sum(sampled.admits((("n", number),), 0.0) for number in range(10_000))
    assert sampled.admits((("n", 0),), 60.0)
    (reported,) = lines(stream)
    assert {"kind": "others", "left_out": 10_000 - MOST_KINDS - FEW}.items() <= reported.items()


def test_heads_that_are_no_http_are_counted_and_few_are_written():
    stream, clock = io.StringIO(), TestClock(frozen=True)
    terms = Terms(json_log(stream, clock), metrics=Metrics())
    for _ in range(100):
        terms.refused(1.0, status=400, code=Code.REQUEST_INVALID, note="header line")
    assert FEW == len(lines(stream))
    assert terms.metrics is not None
    assert 100 == terms.metrics.value(Metric.HTTP_REQUESTS, "-", "other", "4xx")


def test_a_library_that_repeats_itself_is_cut_short():
    stream = io.StringIO()
    handler = LibraryLog(json_log(stream, TestClock(frozen=True)))
    for _ in range(100):
        handler.emit(logging.LogRecord("asyncio", logging.WARNING, "a.py", 1, "text", (), None))
    assert FEW == len(lines(stream))
