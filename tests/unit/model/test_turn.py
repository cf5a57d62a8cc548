"""Turn: made by the runtime, handed on unchanged, and kept by a session as the place to come back to."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.core.errors import BrokerError, Locale
from oauthbroker.model.turn import ResumeTarget, checked_target, whole_turn

names = st.text(min_size=1, max_size=20)
flat = st.dictionaries(names, st.text(max_size=20), max_size=4)


@given(names, names, flat, flat, flat)
def test_a_place_to_resume_survives_being_stored(
    agent: str, instance: str, origin: dict[str, str], actor: dict[str, str], subjects: dict[str, str]
) -> None:
    target = Turn(agent, instance, "Swarm/default", origin=origin, auth=TurnAuth(actor, subjects)).resume_target
    assert target == ResumeTarget.from_json(json.loads(json.dumps(target.to_json())))


@pytest.mark.rule("12.5.5")
def test_a_place_to_resume_is_printed_as_the_specification_prints_it() -> None:
    turn = Turn(
        "planner",
        "1700000000.000100",
        "Swarm/default",
        origin={"connector": "slack-main", "channel": "C123"},
        auth=TurnAuth({"type": "user", "id": "slack:U234567"}, {"global": "slack:team:T111"}),
    )
    assert {
        "swarmRef": {"kind": "Swarm", "name": "default"},
        "instanceKey": "1700000000.000100",
        "agentName": "planner",
        "origin": {"connector": "slack-main", "channel": "C123"},
        "auth": {"actor": {"type": "user", "id": "slack:U234567"}, "subjects": {"global": "slack:team:T111"}},
    } == turn.resume_target.to_json()


@pytest.mark.parametrize("ref", ["default", "Swarm/a/b", "", "Swarm"])
def test_a_swarm_is_written_kind_and_name(ref: str) -> None:
    with pytest.raises(ValueError, match="Kind/name"):
        Turn("a", "i", ref)


def test_a_turn_is_immutable() -> None:
    turn = Turn("a", "i")
    with pytest.raises(dataclasses.FrozenInstanceError):
        turn.agent_name = "b"  # type: ignore[misc]


def test_a_conversation_is_swarm_agent_and_instance() -> None:
    one = Turn("a", "i", origin={"channel": "1"}).resume_target
    same = Turn("a", "i", origin={"channel": "2"}).resume_target
    assert one.address == same.address
    turns = [Turn("a", "i"), Turn("b", "i"), Turn("a", "j"), Turn("a", "i", "S/x")]
    assert 4 == len({turn.resume_target.address for turn in turns})


def test_a_turn_without_auth_has_no_account_after_a_round_trip() -> None:
    assert {"actor": {}, "subjects": {}} == Turn("a", "i").resume_target.to_json()["auth"]


@pytest.mark.parametrize("locale", ["en", "ko", None])
def test_a_turns_language_is_kept_where_it_has_one_and_comes_back(locale: Locale | None) -> None:
    turn = Turn("a", "i", auth=TurnAuth(), locale=locale)
    said = turn.resume_target.to_json()
    assert locale == said.get("locale")
    assert ("locale" in said) is (locale is not None)
    assert turn == checked_target(ResumeTarget.from_json(said)).turn


@pytest.mark.parametrize(
    "auth, problem",
    [
        ({"accounts": {"mail": 7}}, "accountsInvalid"),
        ({"accounts": {"mail": ["work"], "OAuthApp/mail": 7}}, "accountsInvalid"),
        ({"subjects": 7}, "(subjects)"),
        ({"more": 7}, "(auth has the members accounts, actor, subjects and no others)"),
        ({"subjects": {"usr": "slack:user:T1:U1"}}, "`subjects` that does not exist there. Did you mean user?"),
        ({"subject": {}}, "`auth` that does not exist there. Did you mean subjects?"),
    ],
)
def test_a_turn_that_cannot_be_used_names_the_part(auth: Any, problem: str) -> None:
    for said in (Turn("a", "i", auth=auth), {"agentName": "a", "instanceKey": "i", "auth": auth}):
        with pytest.raises(BrokerError) as refused:
            whole_turn(said)
        assert problem in str(refused.value)
        assert "usr" not in str(refused.value), "a misplaced secret is not repeated"


def test_a_kept_language_that_this_version_does_not_know_is_none() -> None:
    said = {**Turn("a", "i").resume_target.to_json(), "locale": "fr"}
    assert None is ResumeTarget.from_json(said).locale
