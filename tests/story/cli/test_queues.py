"""`oauthbroker queues`: what waits for agents, and dead letters, which get another try or are removed."""

from __future__ import annotations

import asyncio
import json

import pytest

from oauthbroker import open_broker
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, Desk

EMPTY = (0, "", "All queues are empty.\n")
NONE_DEAD = (0, "", "There are no dead letters.\n")


@pytest.fixture
def harness(desk: Desk, idp: IdentityProvider) -> Desk:
    """Where an event is dead after one attempt."""
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  advanced: {queueAttempts: 1}\n")
    desk.ready_to_serve(idp)
    return desk


def lease(*, settle: str = "") -> str | None:
    """What a runtime does: the id of the agent's next event, which it acks, nacks, or keeps."""

    async def leased() -> str | None:
        async with open_broker("config", env={}, background=False) as broker:
            delivery = await broker.events.lease("planner")
            if delivery is not None and settle:
                assert await getattr(delivery, settle)()
            return delivery.id if delivery is not None else None

    return asyncio.run(leased())


def die(harness: Desk, idp: IdentityProvider, *accounts: str) -> list[str]:
    """Ids of dead letters, one for each account that connects, in the order of their death."""
    for account in accounts:
        harness.connect(account, idp)
    return [str(lease(settle="nack")) for _ in accounts]


def audit(harness: Desk) -> list[tuple[str, str, str]]:
    lines = json.loads(harness.type("audit", "tail", "--type", "DeadLetterChanged", "--json").out)
    return [(line["agent"], line["event"], line["action"]) for line in lines]


def test_queues_are_listed_by_agent(harness: Desk, idp: IdentityProvider):
    empty = harness.type("queues", "list")
    assert EMPTY == (empty.code, empty.out, empty.err)
    harness.connect("alice", idp)
    die(harness, idp, "bob")  # the first of the two dies, the other one waits
    head, row = harness.type("queues", "list").out.splitlines()
    assert ["agent", "waiting", "leased", "dead", "oldest"] == head.split()
    assert ["planner", "1", "0", "1"] == row.split()[:4]
    lease()
    [queue] = json.loads(harness.type("queues", "list", "--json").out)
    assert {"agentName": "planner", "waiting": 0, "leased": 1, "dead": 1} == {
        name: value for name, value in queue.items() if name != "oldestAt"
    }
    assert len("2026-02-01T10:00:00Z") == len(queue["oldestAt"])


@pytest.mark.case("91")
def test_dead_letters_are_listed_without_their_payload(harness: Desk, idp: IdentityProvider):
    none = harness.type("queues", "dead")
    assert NONE_DEAD == (none.code, none.out, none.err)
    [event] = die(harness, idp, "alice")
    head, row = harness.type("queues", "dead", "--agent", "planner").out.splitlines()
    assert ["event", "agent", "type", "app", "swarm", "instance", "attempts", "created"] == head.split()
    assert [event, "planner", "auth.granted", "mail"] == row.split()[:4]
    [letter] = json.loads(harness.type("queues", "dead", "--json").out)
    assert (event, {"kind": "OAuthApp", "name": "mail"}, 1) == (
        letter["eventId"], letter["oauthAppRef"], letter["attempts"],
    )  # fmt: skip
    assert {"payload", "origin", "auth"}.isdisjoint(letter)
    other = harness.type("queues", "dead", "--agent", "planer")
    assert (0, "", True) == (other.code, other.out, "Did you mean planner?" in other.err)


def test_a_dead_letter_that_is_retried_comes_again_and_is_in_the_audit_log(harness: Desk, idp: IdentityProvider):
    [event] = die(harness, idp, "alice")
    assert lease() is None
    done = harness.type("queues", "retry", event[:15])
    assert (0, f"Queued again: {event} of planner.\n") == (done.code, done.out)
    assert event == lease(settle="ack")
    assert [("planner", event, "retried")] == audit(harness)
    again = harness.type("queues", "retry", event)
    assert (2, "") == (again.code, again.out)
    assert "queues dead" in again.err
    assert 1 == len(audit(harness))


def test_a_dead_letter_is_dropped_after_a_question(harness: Desk, idp: IdentityProvider):
    first, second = die(harness, idp, "alice", "bob")
    refused = harness.type("queues", "drop", first)
    assert (2, "") == (refused.code, refused.out)
    assert 2 == len(json.loads(harness.type("queues", "dead", "--json").out))
    assert [] == audit(harness)
    done = harness.type("queues", "drop", first, "--yes", "--json")
    assert (0, {"eventId": first, "agentName": "planner"}) == (done.code, json.loads(done.out))
    assert [second] == [letter["eventId"] for letter in json.loads(harness.type("queues", "dead", "--json").out)]
    assert [("planner", first, "dropped")] == audit(harness)
    assert lease() is None


@pytest.mark.parametrize("command", ["retry", "drop"])
@pytest.mark.parametrize(
    ("typed", "said"), [("evt-as-!", "queues dead"), ("evt-as-zzzzzzzz", "queues dead"), ("zzzzzzzz", "queues dead")]
)
def test_an_unknown_or_short_id_is_refused_with_what_to_do(
    harness: Desk, idp: IdentityProvider, command: str, typed: str, said: str
):
    die(harness, idp, "alice")
    yes = ["--yes"] if command == "drop" else []
    done = harness.type("queues", command, typed, *yes)
    assert (2, "") == (done.code, done.out)
    assert said in done.err


def test_a_letter_of_another_agent_is_not_meant(harness: Desk, idp: IdentityProvider):
    [event] = die(harness, idp, "alice")
    done = harness.type("queues", "drop", event, "--agent", "nobody", "--yes")
    assert (2, "") == (done.code, done.out)
    assert 1 == len(json.loads(harness.type("queues", "dead", "--json").out))
