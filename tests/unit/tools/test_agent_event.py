"""Events of agents in their one form: from the queue, over the IPC, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.tools.types.agent_event import ReplyTo, UnifiedEvent, normalised

AUTH = {
    "actor": {"type": "user", "id": "slack:U1"},
    "subjects": {"global": "slack:team:T1", "user": "slack:user:T1:U1"},
}
GRANTED = {
    "eventId": "evt-as-AAAAAAAAAAAAAAAAAAAAAA-auth.granted", "type": "auth.granted", "createdAt": "2026-01-31T09:12:40Z",
    "swarmRef": {"kind": "Swarm", "name": "default"}, "agentName": "planner", "instanceKey": "thread-1",
    "origin": {"connector": "slack-main"}, "auth": AUTH, "payload": {"provider": "slack", "scopesGranted": ["chat:write"]},
}  # fmt: skip


def test_an_event_of_the_broker_keeps_auth_and_origin_and_has_no_words_of_a_user():
    event = normalised(GRANTED)
    assert ("auth.granted", None, None) == (event.type, event.input, event.reply_to)
    assert event.auth == AUTH
    assert event.turn.origin == {"connector": "slack-main"}
    assert event.payload == GRANTED["payload"]
    assert f"trace-{GRANTED['eventId']}" == event.trace_id


def test_a_request_of_an_agent_brings_its_trace_and_where_the_answer_goes():
    payload = {
        "input": "What is due?",
        "source": {"kind": "agent", "name": "planner"},
        "traceId": "trace-7",
        "replyTo": {"target": "Agent/planner", "correlationId": "call-1"},
    }
    event = normalised(GRANTED | {"type": "agent.request", "payload": payload})
    assert ("What is due?", "trace-7", ReplyTo("Agent/planner", "call-1")) == (
        event.input,
        event.trace_id,
        event.reply_to,
    )
    assert {"kind": "agent", "name": "planner"} == event.source


@pytest.mark.parametrize(
    "payload",
    [
        {"input": 7, "source": "me", "traceId": None, "replyTo": "you"},
        {"replyTo": {"target": "a"}},
        {"replyTo": {"target": "a", "correlationId": 1}},
    ],
)
def test_members_of_another_type_come_from_other_programs_and_mean_nothing(payload):
    event = normalised(GRANTED | {"type": "tool.completed", "payload": payload})
    assert (event.input, event.reply_to, event.source) == (None, None, {"kind": "queue"})
    assert event.payload == payload


TEXTS = st.text(min_size=1, max_size=8)


@given(
    text=st.none() | TEXTS,
    reply=st.none() | st.builds(ReplyTo, TEXTS, TEXTS),
    auth=st.none() | st.builds(TurnAuth, st.just(AUTH["actor"]), st.just(AUTH["subjects"])),
    payload=st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=3),
)
def test_an_event_comes_over_the_ipc_as_it_was(text, reply, auth, payload):
    event = UnifiedEvent(
        id="evt-1", type="agent.message", input=text, source={"kind": "agent", "name": "a"}, trace_id="trace-1",
        turn=Turn("writer", "thread-1", "Swarm/default", origin={"channel": "C1"}, auth=auth, locale="ko"),
        reply_to=reply, payload=payload,
    )  # fmt: skip
    there = json.loads(json.dumps(event.to_json()))
    assert UnifiedEvent.from_json(there).to_json() == event.to_json()
    assert ("replyTo" in there) == (reply is not None)
