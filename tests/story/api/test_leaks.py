"""Case 91 over HTTP: what an agent, a model or a transcript gets holds no code, no state and no token."""

from __future__ import annotations

import json

import pytest

from oauthbroker.testing import Canaries
from tests.kit.running_broker import Harness
from tests.story.api.kit import Callers


@pytest.mark.case("91")
async def test_events_blocks_states_and_problems_of_a_whole_story_hold_no_secret(
    harness: Harness, api: Callers
) -> None:
    """Every answer of the kit is swept: only the token call may show a token, and only blocks a link."""
    tool = await api.tool()
    asked = (await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=["ticket"])).json()
    link, session = asked["authorizationUrl"], asked["authSessionId"]
    Canaries.active().add(link.rpartition("/")[2], "ticket")
    await tool.get("/v1/turn/pending", allow=["ticket"])
    state = await tool.get(f"/v1/auth-sessions/{session}")
    assert set(state.json()) == {"authSessionId", "status"}
    result = await harness.ask_link("files")
    await harness.connect(result, deny=True)
    await harness.connected("mail")
    for _ in range(2):
        leased = await api.runtime.get("/v1/agents/planner/events?wait=5")
        event = leased.json()["event"]
        assert {"state", "ticket", "accessToken", "authorizationUrl"}.isdisjoint(event["payload"])
        await api.runtime.post(f"/v1/agents/planner/events/{event['eventId']}/ack", {"lease": leased.json()["lease"]})
    await api.operator.get("/v1/grants")
    await tool.post("/v1/tokens/rejected", {"oauthAppRef": "team", "accessToken": "x"})
    ready = await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=["access token"])
    assert "ready" == ready.json()["status"]
    await tool.post("/v1/tokens", {"oauthAppRef": "mail", "accessToken": ready.json()["accessToken"]})


@pytest.mark.case("91")
async def test_a_tool_that_prints_its_token_does_not_put_it_into_the_transcript(harness: Harness, api: Callers) -> None:
    await harness.connected()
    begun = await api.begin()
    tool = api.holding(begun["toolTokens"]["Tool/mail"])
    token = (await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=["access token"])).json()["accessToken"]
    printed = f"calling with {token}: 401; my own is {begun['toolTokens']['Tool/mail']}; key {api.runtime.bearer}"
    said = harness.broker.scrub(printed)
    Canaries.active().look(said, "the transcript")
    assert "calling with ***: 401; my own is ***; key ***" == said
    data = harness.broker.scrubber.json({"stdout": [printed], "headers": {"authorization": f"Bearer {token}"}})
    Canaries.active().look(json.dumps(data), "the transcript as data")
    assert "Bearer ***" == data["headers"]["authorization"]


@pytest.mark.case("91")
async def test_a_refreshed_token_and_the_one_before_are_both_known_to_the_scrubber(harness: Harness) -> None:
    old = await harness.connected()
    harness.clock.advance(24 * 3600)
    new = await harness.ask()
    tokens = [old.access_token.reveal(), new.access_token.reveal()]
    assert tokens[0] != tokens[1]
    assert "***, ***" == harness.broker.scrub(", ".join(tokens))
