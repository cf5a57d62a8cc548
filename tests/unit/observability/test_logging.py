"""The log of the process: each level writes a line of the same form."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.observability import logging
from oauthbroker.observability.logging import json_log
from oauthbroker.testing import TestClock

CLOCK = TestClock(datetime(2026, 11, 21, 10, 0, tzinfo=UTC))


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_a_line_of_each_level_has_the_same_form(level: str) -> None:
    stream = io.StringIO()
    log = json_log(stream, CLOCK).bind(worker=2)
    getattr(log, level)("a request", route="/v1/tokens", code=None, text='"\n\u2028')
    getattr(log, level)("100% of them", number=object)
    getattr(log, level)("again", worker=3)
    getattr(log.bind(number=1), level)("other fields")
    at = {"time": "2026-11-21T10:00:00Z"}
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert said == [
        at
        | {"worker": 2, "route": "/v1/tokens", "code": None, "text": '"\n\u2028', "event": "a request", "level": level},
        at | {"worker": 2, "number": "<class 'object'>", "event": "100% of them", "level": level},
        at | {"worker": 3, "event": "again", "level": level},
        at | {"worker": 2, "number": 1, "event": "other fields", "level": level},
    ]
    assert ["time", "worker", "route", "code", "text", "event", "level"] == list(said[0])
    assert stream.getvalue().isascii()


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


@given(st.dictionaries(st.sampled_from(["route", "status", "duration_ms", "note"]), VALUES))
def test_a_line_is_spelt_as_json_spells_it_with_and_without_an_encoder_in_c(fields: dict[str, object]) -> None:
    document = {"time": "2026-11-21T10:00:00Z", **fields, "event": "request", "level": "info"}
    stream = io.StringIO()
    json_log(stream, CLOCK).info("request", **fields)
    assert json.dumps(document) + "\n" == stream.getvalue()
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setattr("json.encoder.c_make_encoder", None)
        assert json.dumps(document) == logging._prepared()(document)
