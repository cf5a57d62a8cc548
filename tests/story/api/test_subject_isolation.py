"""Alice and Bob in the same conversation with the same agent: beside the token call (tests/story/test_turn_tokens.py),
nothing that a turn token opens shows, ends or troubles the other subject's records."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import pytest

from oauthbroker.model.token_results import AuthorizationRequired
from tests.kit.running_broker import ALICE, BOB, Harness, turn
from tests.story.api.kit import Caller, Callers, Json

MAY_SHOW = ("ticket", "access token")
PEOPLE = {"alice": ALICE, "bob": BOB}
PAIRS = list(permutations(PEOPLE))
TOKENS = ("the turn's own", "Tool/mail", "Tool/both")
pytestmark = pytest.mark.case("79", "81")


@dataclass(frozen=True)
class Person:
    """Connected to mail, asked for files; with every token of a turn of their own."""

    access_token: str
    asked: AuthorizationRequired
    callers: dict[str, Caller]


async def people_of(harness: Harness, api: Callers) -> dict[str, Person]:
    found = {}
    for name, subject in PEOPLE.items():
        ready = await harness.connected("mail", name, of=turn(user=subject))
        asked = await harness.ask_link("files", of=turn(user=subject))
        begun = await api.begin(user=subject)
        texts = {TOKENS[0]: begun["turnToken"], **begun["toolTokens"]}
        callers = {name: api.holding(texts[name]) for name in TOKENS}
        found[name] = Person(ready.access_token.reveal(), asked, callers)
    return found


async def token_of(caller: Caller) -> str:
    answer: Json = (await caller.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=MAY_SHOW)).json()
    return str(answer["accessToken"])


@pytest.mark.parametrize("me, other", PAIRS)
@pytest.mark.parametrize("token", TOKENS)
async def test_reporting_the_others_token_yields_ones_own_and_refreshes_neither(
    harness: Harness, api: Callers, me: str, other: str, token: str
) -> None:
    people = await people_of(harness, api)
    body = {"oauthAppRef": "mail", "accessToken": people[other].access_token}
    asked = harness.idp.count("token")
    answer = await people[me].callers[token].post("/v1/tokens/rejected", body, allow=MAY_SHOW)
    assert ("ready", people[me].access_token) == (answer.json()["status"], answer.json()["accessToken"])
    assert people[other].access_token not in answer.text
    assert asked == harness.idp.count("token"), "no token was refreshed for it"
    for each in people.values():
        assert each.access_token == await token_of(each.callers[token])


@pytest.mark.parametrize("me, other", PAIRS)
async def test_what_waits_for_the_other_is_in_no_block_and_among_no_links(
    harness: Harness, api: Callers, me: str, other: str
) -> None:
    people = await people_of(harness, api)
    mine, theirs = people[me].asked, people[other].asked
    for path in ("/v1/turn/pending", "/v1/turn/pending?links=apart", "/v1/turn/links"):
        for token, caller in people[me].callers.items():
            text = (await caller.get(path, allow=MAY_SHOW)).text
            assert not [it for it in (theirs.auth_session_id, theirs.authorization_url, PEOPLE[other]) if it in text]
            assert (mine.auth_session_id in text) is (token == TOKENS[0]), "the tools have nothing to do with files"


@pytest.mark.parametrize("me, other", PAIRS)
@pytest.mark.parametrize("token", TOKENS)
async def test_the_others_session_is_neither_seen_nor_taken_back(
    harness: Harness, api: Callers, me: str, other: str, token: str
) -> None:
    people = await people_of(harness, api)
    again = await harness.ask("mail", of=turn(user=PEOPLE[other]), switch_account=True)
    for session in (people[other].asked.auth_session_id, again.auth_session_id):
        path, caller = f"/v1/auth-sessions/{session}", people[me].callers[token]
        assert {"authSessionId": session, "status": "expired"} == (await caller.get(path)).json()
        refused = (403, {"code": "notAllowed"}) if token != TOKENS[0] else (200, {"cancelled": False})
        answer = await caller.delete(path)
        assert (refused[0], refused[1] | answer.json()) == (answer.status, answer.json())
        assert "pending" == (await people[other].callers[TOKENS[0]].get(path)).json()["status"]
        assert {"cancelled": True} == (await people[other].callers[TOKENS[0]].delete(path)).json(), "whose it is may"
