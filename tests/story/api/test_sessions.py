"""Authorizations over HTTP: how they stand, taken back, and confirmed; and links that never enter a transcript."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BOB, Harness, turn
from tests.story import binding_kit
from tests.story.api.kit import TOOLS, Answer, Callers, checked
from tests.story.binding_kit import came_back, code_on, confirming_harness, handle_on, of_alice

MAY_SHOW = ("ticket",)
UNKNOWN = f"as-{'A' * 22}"


def reported(answer: Answer) -> tuple[int, str, str | None]:
    said = checked("SessionOutcomeBody", answer.body)
    return answer.status, said["status"], said.get("code")


async def test_a_runtime_sees_how_an_authorization_stands(harness: Harness, api: Callers) -> None:
    asked = await harness.ask_link()
    path = f"/v1/auth-sessions/{asked.auth_session_id}"
    for caller in (api.runtime, api.operator, await api.turn(), await api.tool()):
        assert (200, "pending", None) == reported(await caller.get(path))
    await harness.connect(asked, deny=True)
    assert (200, "failed", "providerDenied") == reported(await api.runtime.get(path))
    assert (200, "expired", None) == reported(await api.runtime.get(f"/v1/auth-sessions/{UNKNOWN}"))
    assert (400, "requestInvalid") == ((no := await api.runtime.get("/v1/auth-sessions/as-1")).status, no.code)


async def test_a_block_that_cannot_be_made_is_a_problem_and_no_empty_block(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one would say that nothing waits."""
    await harness.ask_link()
    tool, read = await api.tool(), harness.store.get

    async def broken(key: Key) -> Entry | None:
        if key.kind == "sessions":
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await read(key)

    monkeypatch.setattr(harness.store, "get", broken)
    answer = await tool.get("/v1/turn/pending")
    assert (503, "storeUnavailable") == (answer.status, answer.code)


@pytest.mark.parametrize(
    "name, more",
    [
        ("another conversation", {"instance": "another"}),
        ("another agent", {"agent": "another"}),
        ("another person in the same conversation", {"user": BOB}),
        ("nobody", {"user": None}),
    ],
)
async def test_a_turn_sees_and_ends_only_what_its_own_conversation_asked_for_its_own_subjects(
    harness: Harness, api: Callers, name: str, more: dict[str, str]
) -> None:
    """Another user's session is a 404, as for an unknown id."""
    asked = await harness.ask_link()
    path = f"/v1/auth-sessions/{asked.auth_session_id}"
    stranger = await api.turn(**more)
    unknown = await stranger.get(f"/v1/auth-sessions/{UNKNOWN}")
    seen = await stranger.get(path)
    assert unknown.json() | {"authSessionId": ""} == seen.json() | {"authSessionId": ""}, name
    assert {"cancelled": False} == (await stranger.delete(path)).json()
    assert (200, "pending", None) == reported(await api.runtime.get(path))
    assert {"cancelled": True} == (await (await api.turn()).delete(path)).json()
    assert {"cancelled": False} == (await api.runtime.delete(path)).json()
    assert (200, "expired", None) == reported(await api.runtime.get(path))


async def test_a_tool_sees_nothing_of_apps_that_it_may_not_use(harness: Harness, api: Callers) -> None:
    asked = await harness.ask_link("files")
    mail = await harness.ask_link("mail")
    tool = await api.tool("Tool/mail")
    path = f"/v1/auth-sessions/{asked.auth_session_id}"
    assert (200, "expired", None) == reported(await tool.get(path))
    block = checked("PendingBlock", (await tool.get("/v1/turn/pending", allow=MAY_SHOW)).body)
    assert [mail.auth_session_id] == [item["authSessionId"] for item in block["items"]]
    assert [] == (await (await api.tool("Tool/idle")).get("/v1/turn/pending")).json()["items"]
    everything = (await (await api.turn()).get("/v1/turn/pending", allow=MAY_SHOW)).json()
    assert (await harness.broker.pending(turn())) == everything


@pytest.mark.parametrize("private", [True, False])
async def test_links_can_be_delivered_apart_from_the_block(harness: Harness, api: Callers, private: bool) -> None:
    asked = await harness.ask_link()
    Canaries.active().add(asked.authorization_url.rpartition("/")[2], "ticket")
    begun = await api.begin(privateLinks=private)
    whole, tool = api.holding(begun["turnToken"]), api.holding(begun["toolTokens"]["Tool/mail"])
    for caller in (whole, tool):
        path = "/v1/turn/pending" + ("" if private else "?links=apart")
        block = (await caller.get(path)).json()  # the sweep would find the link
        assert [asked.auth_session_id] == [item["authSessionId"] for item in block["items"]]
        assert {"authorizationUrl", "deviceCode"}.isdisjoint(block["items"][0])
    links = checked("PrivateLinks", (await whole.get("/v1/turn/links", allow=MAY_SHOW)).body)["links"]
    assert [(asked.authorization_url, ALICE)] == [(link["authorizationUrl"], link["subject"]) for link in links]
    assert (403, "notAllowed") == ((no := await tool.get("/v1/turn/links")).status, no.code)


@pytest.fixture
async def confirming(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with confirming_harness(identity_provider, test_clock, "runtimeConfirm", tools=TOOLS) as harness:
        yield harness


async def test_the_runtime_confirms_the_handle_that_a_browser_brought(confirming: Harness) -> None:
    api = await Callers.of(confirming)
    asked = await confirming.ask_link(of=of_alice())
    handle = handle_on(await came_back(confirming, asked, confirming.browser()))
    body = {"handle": handle, "subject": binding_kit.ALICE}
    answer = await api.runtime.post("/v1/auth-sessions/confirm", body)
    assert (200, "completed", None) == reported(answer)
    assert asked.auth_session_id == answer.json()["authSessionId"]
    again = await api.runtime.post("/v1/auth-sessions/confirm", body)
    unknown = await api.runtime.post("/v1/auth-sessions/confirm", {**body, "handle": "unknown"})
    assert (400, "stateUnknown") == (again.status, again.code)
    assert again.body == unknown.body


@pytest.mark.case("14b", "15")
async def test_another_subject_is_the_end_of_it_over_http_too(confirming: Harness) -> None:
    api = await Callers.of(confirming)
    asked = await confirming.ask_link(of=of_alice())
    body = {
        "handle": handle_on(await came_back(confirming, asked, confirming.browser())),
        "subject": binding_kit.MALLORY,
    }
    answer = await api.runtime.post("/v1/auth-sessions/confirm", body)
    assert (403, "ownerBindingFailed") == (answer.status, answer.code)
    assert binding_kit.ALICE not in answer.text
    path = f"/v1/auth-sessions/{asked.auth_session_id}"
    assert (200, "failed", "ownerBindingFailed") == reported(await api.runtime.get(path))


@pytest.mark.case("14b")
async def test_a_turn_cannot_confirm_a_handle_and_the_sessions_id_confirms_nothing(confirming: Harness) -> None:
    api = await Callers.of(confirming)
    asked = await confirming.ask_link(of=of_alice())
    handle = handle_on(await came_back(confirming, asked, confirming.browser()))
    mallory = await api.turn(user=binding_kit.ALICE, team=None)
    body = {"handle": handle, "subject": binding_kit.ALICE}
    assert (400, "requestInvalid") == ((no := await mallory.post("/v1/auth-sessions/confirm", body)).status, no.code)
    for said in ({"channelCode": handle}, {"channelCode": asked.auth_session_id}):
        assert "stateUnknown" == (await mallory.post("/v1/auth-sessions/confirm", said)).code
    by_id = {"handle": asked.auth_session_id, "subject": binding_kit.ALICE}
    assert "stateUnknown" == (await api.runtime.post("/v1/auth-sessions/confirm", by_id)).code
    assert "requestInvalid" == (await api.runtime.post("/v1/auth-sessions/confirm", {"channelCode": handle})).code
    assert (200, "completed", None) == reported(await api.runtime.post("/v1/auth-sessions/confirm", body))


async def test_a_turn_relays_the_code_that_was_said_in_its_conversation(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with confirming_harness(identity_provider, test_clock, "channelCode", tools=TOOLS) as harness:
        api = await Callers.of(harness)
        asked = await harness.ask_link(of=of_alice())
        body = {"channelCode": code_on(await came_back(harness, asked, harness.browser()))}
        alice = {"user": binding_kit.ALICE, "team": None}
        for wrong in (
            await api.turn(user=binding_kit.MALLORY, team=None),
            await api.turn(**alice, instance="another"),
        ):
            assert (400, "stateUnknown") == (
                (no := await wrong.post("/v1/auth-sessions/confirm", body)).status, no.code,
            )  # fmt: skip
        own = await api.turn(**alice)
        answer = await own.post("/v1/auth-sessions/confirm", body)
        assert (200, "completed", None) == reported(answer)
        assert asked.auth_session_id == answer.json()["authSessionId"]
        assert "stateUnknown" == (await own.post("/v1/auth-sessions/confirm", body)).code


async def test_a_runtime_makes_a_link_to_the_page_of_connections(harness: Harness, api: Callers) -> None:
    answer = await api.runtime.post("/v1/connections", {"subjects": {"user": ALICE}})
    assert 201 == answer.status
    link = answer.json()
    assert link["url"].startswith(f"{harness.origin}/connections/open/")
    assert 200 == (await harness.browser().open(link["url"])).status
    for subjects in ({}, {"user": None}, {"tenant": "x"}):
        refused = await api.runtime.post("/v1/connections", {"subjects": subjects})
        assert (400, "requestInvalid") == (refused.status, refused.code), subjects
