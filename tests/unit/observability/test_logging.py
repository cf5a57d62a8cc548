"""The log of the process: each level writes a line of the same form."""

from __future__ import annotations

import io
import json
import logging as stdlib
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.observability import logging
from oauthbroker.observability.library_log import calm_libraries, shown_to_people
from oauthbroker.observability.logging import LOGGER, LoggerLog, json_log
from oauthbroker.testing import TestClock

PACKAGE = Path(logging.__file__).parents[1]
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


class Records(stdlib.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[stdlib.LogRecord] = []

    def emit(self, record: stdlib.LogRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_a_record_has_the_event_its_fields_and_its_callers_place(level: str) -> None:
    logger, seen = stdlib.Logger("oauthbroker"), Records()  # noqa: LOG001  (beside the one that the run sweeps)
    logger.addHandler(seen)
    log = LoggerLog(logger, {}).bind(worker=2)
    getattr(log, level)("100% of them", code="a b", number=None)
    [record] = seen.records
    assert (level.upper(), Path(__file__).name) == (record.levelname, record.filename)
    assert "100% of them worker=2 code='a b' number=None" == record.getMessage()
    fields = {"worker": 2, "code": "a b", "number": None}
    assert ("100% of them", fields) == (record.event, record.fields)  # type: ignore[attr-defined]


def test_a_level_that_is_off_makes_no_record() -> None:
    logger, seen = stdlib.Logger("oauthbroker", stdlib.WARNING), Records()  # noqa: LOG001
    logger.addHandler(seen)
    LoggerLog(logger, {}).info("quiet")
    assert [] == seen.records


EMBEDDED = """\
import logging
from oauthbroker.observability.logging import logger_log
logger_log().error("said", code=1)
logging.getLogger("oauthbroker.tools").error("said")
logging.basicConfig()
logger_log().error("shown", code=1)
"""


def test_a_program_that_embeds_hears_nothing_until_it_configures_logging() -> None:
    done = subprocess.run([sys.executable, "-c", EMBEDDED], capture_output=True, text=True, check=True)
    assert ("", "ERROR:oauthbroker:shown code=1\n") == (done.stdout, done.stderr)


def test_json_lines_have_our_records_whole_and_those_of_libraries_without_their_texts() -> None:
    stream, before = io.StringIO(), (LOGGER.handlers[:], LOGGER.level)
    with calm_libraries(json_log(stream, CLOCK)):
        for name in ("oauthbroker.tools", "oauthbroker", "oauthbrokers", "h11"):
            for level in ("debug", "info", "warning", "error", "critical"):
                getattr(stdlib.getLogger(name), level)("the run %s", name)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    ours = [(line["level"], line["logger"], line["text"]) for line in lines if line["event"] == "message"]
    levels = ["info", "warning", "error", "error"]
    assert [
        (level, name, f"the run {name}") for name in ("oauthbroker.tools", "oauthbroker") for level in levels
    ] == ours
    assert ["oauthbrokers"] * 3 + ["h11"] * 3 == [line["library"] for line in lines if line["event"] == "library"]
    assert "the run h11" not in stream.getvalue()
    assert before == (LOGGER.handlers, LOGGER.level)


def test_a_command_shows_our_warnings_as_text_and_only_the_place_of_a_librarys() -> None:
    said: list[str] = []
    with shown_to_people(said.append):
        stdlib.getLogger("oauthbroker").warning("a check is off: %s", "x")
        stdlib.getLogger("h11").warning("GET /?code=secret")
        stdlib.getLogger("h11").info("GET /?code=secret")
    stdlib.getLogger("oauthbroker").warning("after it")
    assert "warning: a check is off: x" == said[0]
    assert re.fullmatch(r"warning: h11 at test_logging\.py:\d+", said[1])
    assert 2 == len(said)


def test_every_logger_of_ours_is_below_one_name() -> None:
    """Beside these are filters on loggers of libraries, which are not held in a constant."""
    held = re.compile(r"^_?LOG(?:GER)?(?:: Final)? = logging\.getLogger\((.*)\)", re.MULTILINE)
    names = [name for path in PACKAGE.rglob("*.py") for name in held.findall(path.read_text("utf-8"))]
    assert len(names) > 10
    assert [] == [name for name in names if not name.startswith('"oauthbroker')]


def test_only_processes_that_own_their_streams_write_to_them() -> None:
    """A library that prints spoils the output of the program that embeds it."""
    own = {
        "mcp/serving.py", "tools/isolation/as_user.py", "tools/orchestration/agent_output.py",
        "tools/orchestration/agent_worker.py",
    }  # fmt: skip
    writes = re.compile(r"\bsys\.(?:stdout|stderr)\b|(?<![\w.])print\(|\bbasicConfig\(")
    paths = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if writes.search(path.read_text("utf-8"))}
    assert own == {path for path in paths if not path.startswith(("cli/", "testing/"))}
