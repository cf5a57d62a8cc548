"""Records and queues over HTTP, for operators: as the specification prints them, and never a secret."""

from __future__ import annotations

import pytest

from oauthbroker.records import grant_id
from oauthbroker.repository.queue_rows import DAMAGED
from oauthbroker.testing import Canaries
from tests.kit import planted_records
from tests.kit.queues import lose_body
from tests.kit.running_broker import ALICE, BOB, Harness, turn
from tests.story.api.kit import Callers, checked

MASK = "<secret>"


@pytest.mark.rule("12.5.4")
@pytest.mark.case("91")
async def test_a_grants_record_shows_no_secret_and_of_its_data_what_a_tool_is_told(
    harness: Harness, api: Callers
) -> None:
    """Slack's `authed_user` holds a token of its own: what the preset does not declare for tools is masked."""
    hidden = Canaries.active().mint("another token").reveal()
    data = {"instance_url": "https://eu7.example", "authed_user": {"id": "U1", "access_token": hidden}}
    grant = await planted_records.grant(harness, "mail", ALICE, provider="salesforce", provider_data=data)
    record = checked("GrantRecordBody", (await api.operator.get(f"/v1/grants/{grant.id}/record")).body)
    spec = record["spec"]
    assert (grant.id, "mail", ALICE) == (record["metadata"]["name"], spec["oauthAppRef"]["name"], spec["subject"])
    assert (MASK, MASK) == (spec["token"]["accessToken"], spec["token"]["refreshToken"])
    assert {"instance_url": "https://eu7.example", "authed_user": MASK} == spec["providerData"]


async def test_a_revoked_grant_still_has_a_record_and_an_unknown_one_none(harness: Harness, api: Callers) -> None:
    grant = await planted_records.ended_grant(harness, "mail", ALICE)
    spec = (await api.operator.get(f"/v1/grants/{grant.id}/record")).json()["spec"]
    assert (True, {}) == (spec["revoked"], spec["token"])
    unknown = await api.operator.get(f"/v1/grants/{grant_id('mail', BOB)}/record")
    assert (404, "grantNotFound") == (unknown.status, unknown.code)


@pytest.mark.rule("12.5.5")
@pytest.mark.case("91")
async def test_a_sessions_record_shows_neither_its_link_nor_a_secret(harness: Harness, api: Callers) -> None:
    asked = await harness.ask_link()
    Canaries.active().add(asked.authorization_url.rpartition("/")[2], "ticket")
    record = (await api.operator.get(f"/v1/auth-sessions/{asked.auth_session_id}/record")).json()
    assert [record] == checked("SessionPage", (await api.operator.get("/v1/auth-sessions")).body)["sessions"]
    spec = record["spec"]
    assert (ALICE, "pending", "planner") == (spec["subject"], spec["status"], spec["resume"]["agentName"])
    assert MASK == spec["flow"].get("state", MASK) == spec["flow"]["pkce"].get("codeVerifier", MASK)
    unknown = await api.operator.get(f"/v1/auth-sessions/as-{'A' * 22}/record")
    assert (404, "notFound") == (unknown.status, unknown.code)


async def test_sessions_are_chosen_and_their_pages_follow_each_other(harness: Harness, api: Callers) -> None:
    await harness.connected("mail")
    await harness.ask_link("files")
    await harness.ask_link("mail", of=turn(user=BOB))
    for query, count in (
        ("", 3),
        ("?app=mail", 2),
        (f"?subject={BOB}", 1),
        ("?status=pending", 2),
        ("?status=completed&app=mail", 1),
        ("?app=team", 0),
    ):
        assert count == len((await api.operator.get(f"/v1/auth-sessions{query}")).json()["sessions"]), query
    seen, after = list[str](), ""
    for _ in range(3):
        page = (await api.operator.get(f"/v1/auth-sessions?limit=1{after}")).json()
        seen += [each["metadata"]["name"] for each in page["sessions"]]
        after = f"&after={page.get('next')}"
    assert (3, sorted(seen), False) == (len(set(seen)), seen, "next" in page)


async def test_dead_letters_of_an_agent_are_seen_without_their_payload_and_settled(
    harness: Harness, api: Callers
) -> None:
    first, second = await planted_records.dead_letter(harness, 1), await planted_records.dead_letter(harness, 2)
    await planted_records.dead_letter(harness, 3, agent="other agent", app="meter", kind="CredentialApp")
    queues = checked("QueueList", (await api.operator.get("/v1/queues")).body)["queues"]
    found = [(each["agentName"], each["waiting"], each["dead"]) for each in queues]
    assert [("other agent", 0, 1), ("planner", 0, 2)] == found
    path = "/v1/agents/planner/dead-letters"
    letters = checked("DeadLetterList", (await api.operator.get(path)).body)["deadLetters"]
    assert [second.id, first.id] == [each["eventId"] for each in letters]
    assert ("auth.granted", "mail", "1700000000.000100") == (
        letters[0]["type"],
        letters[0]["oauthAppRef"]["name"],
        letters[0]["instanceKey"],
    )
    [of_other] = (await api.operator.get("/v1/agents/other agent/dead-letters")).json()["deadLetters"]
    assert {"kind": "CredentialApp", "name": "meter"} == of_other["oauthAppRef"]
    assert 204 == (await api.operator.post(f"{path}/{first.id}/retry")).status
    assert 204 == (await api.operator.delete(f"{path}/{second.id}")).status
    assert {"deadLetters": []} == (await api.operator.get(path)).json()
    leased = (await api.runtime.get("/v1/agents/planner/events?wait=2")).json()
    assert (first.id, 1) == (leased["event"]["eventId"], leased["attempt"])
    assert 204 == (await api.runtime.get("/v1/agents/planner/events")).status


async def test_a_damaged_dead_letter_is_shown_as_far_as_it_is_known(harness: Harness, api: Callers) -> None:
    event = await planted_records.dead_letter(harness)
    await lose_body(harness.repository, event.id)
    path = "/v1/agents/planner/dead-letters"
    [letter] = checked("DeadLetterList", (await api.operator.get(path)).body)["deadLetters"]
    if harness.repository.shared is None:
        assert event.id == letter["eventId"]
    else:
        assert letter["eventId"].startswith(DAMAGED), "a row has the keyed name of its event"
        assert {"swarmRef", "instanceKey"}.isdisjoint(letter)
    assert "planner" == letter["agentName"]
    assert {"type", "oauthAppRef", "createdAt"}.isdisjoint(letter)
