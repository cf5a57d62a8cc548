"""Parts of queues and values of plug-ins lie in the store in the form that earlier versions wrote and read."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.records import codec
from oauthbroker.records.event_queue import Head, Item, Segment, Settled
from oauthbroker.records.plugin_value import PluginValue
from tests.unit.records import kit

FREE = Item(id="evt-1", address="C1")
BEGUN = kit.UPDATED
LEASED = Item(id="evt-2", address="C2", attempts=1, due=BEGUN + timedelta(minutes=1), lease="lease-2", since=BEGUN)
SETTLED = (Settled(id="evt-0", lease=None, done=True, order=1),)
FREE_FORM = {"address": "C1", "attempts": 0, "due": None, "id": "evt-1", "lease": None}
LEASED_FORM = {
    "address": "C2",
    "attempts": 1,
    "due": "2026-01-31T09:11:01Z",
    "id": "evt-2",
    "lease": "lease-2",
    "since": "2026-01-31T09:10:01Z",
}
SETTLED_FORM = [{"done": True, "id": "evt-0", "lease": None, "order": 1}]

SEGMENT = Segment(agent="a", number=1, items=(FREE, LEASED), settled=SETTLED)
HEAD = Head("a", (1,), 2, retired=(0,), dead=(FREE,), settled=SETTLED)


@pytest.mark.parametrize(
    ("record", "form"),
    [
        pytest.param(
            SEGMENT,
            {"agent": "a", "number": 1, "settled": SETTLED_FORM, "waiting": [FREE_FORM, LEASED_FORM]},
            id="segment",
        ),
        pytest.param(
            HEAD,
            {"agent": "a", "dead": [FREE_FORM], "next": 2, "retired": [0], "segments": [1], "settled": SETTLED_FORM},
            id="head",
        ),
        pytest.param(
            PluginValue(plugin="tools", key="k", value={"ofItsOwn": [1, None]}, subjects=("slack:user:T1:U1",)),
            {"plugin": "tools", "key": "k", "value": {"ofItsOwn": [1, None]}, "subjects": ["slack:user:T1:U1"]},
            id="value of a plug-in",
        ),
    ],
)
def test_a_record_is_written_in_the_form_of_earlier_versions(
    record: Segment | Head | PluginValue, form: dict[str, Any]
):
    assert form == json.loads(record.to_plaintext())["spec"]
    assert record == type(record).from_plaintext(record.to_plaintext())


@pytest.mark.parametrize("record", [SEGMENT, HEAD, Segment(agent='"waiting":[]', number=1), Head("\u00e9")])
def test_a_part_of_texts_that_were_written_before_is_the_part_written_whole(record: Segment | Head):
    kind = "EventQueueSegment" if isinstance(record, Segment) else "EventQueueHead"
    for _ in range(2):  # the second time from texts
        assert codec.encode(kind, {"spec": codec.members(record)}) == record.to_plaintext()
