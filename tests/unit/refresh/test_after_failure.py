"""What a refresh that came to its end means for the next one: the pauses of its grant, and the circuits."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.logging import json_log
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import RefreshState
from oauthbroker.records.refresh_state import Intent
from oauthbroker.refresh.after_failure import Failures
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.refresh.clients import Clients
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW, grant_with, token_with

GRANT = grant_with()


class World:
    def __init__(self) -> None:
        self.clock, self.text = TestClock(NOW), io.StringIO()
        self.circuits, self.clients = Circuits(self.clock), Clients()
        log = json_log(self.text, self.clock)
        self.after = Failures(circuits=self.circuits, clients=self.clients, clock=self.clock, log=log)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(("lives", "paused"), [(1, False), (0.5, False), (0, True), (-5, True), (None, False)])
def test_a_new_token_that_is_already_over_pauses_its_grant(world: World, lives: float | None, paused: bool) -> None:
    world.after.worked(GRANT, token_with(lives))
    assert paused is (world.circuits.pause("mail", GRANT.id) > 0)


@pytest.mark.parametrize(
    ("lifetime", "code"), [(6, Code.PROVIDER_UNREACHABLE), (0, Code.TOKEN_RESPONSE_INVALID)], ids=["slow", "no time"]
)
def test_calls_in_the_pause_can_be_tried_again_if_only_the_answer_was_slow(
    world: World, lifetime: int, code: Code
) -> None:
    world.after.worked(GRANT, token_with(-1, lifetime))
    with pytest.raises(BrokerError) as refused:
        world.circuits.check("mail", GRANT.id)
    assert code is refused.value.code


def test_a_success_is_evidence_for_the_client(world: World) -> None:
    world.after.worked(GRANT, token_with())
    assert "good" == world.clients.standing(grant_with(subject="acme:user:2"), NOW, NOW)


RESTING = RefreshState(rests_until=NOW + timedelta(seconds=300))
PAUSING = RefreshState(intent=Intent("x", NOW, 5, noticed=True))


@pytest.mark.parametrize(
    ("state", "forced", "expected"),
    [
        (RefreshState(), False, None),
        (RESTING, False, (Code.REAUTH_REQUIRED, None)),
        (RESTING, True, None),
        (PAUSING, False, (Code.PROVIDER_UNREACHABLE, 32)),
        (PAUSING, True, (Code.PROVIDER_UNREACHABLE, 32)),
    ],
)
def test_a_refresh_token_rests_after_a_lost_answer_and_after_it_was_given_up(
    world: World, state: RefreshState, forced: bool, expected: Any
) -> None:
    grant = replace(GRANT, refresh_state=state)
    if expected is None:
        world.after.check_pause(grant, forced=forced)
        return
    with pytest.raises(BrokerError) as raised:
        world.after.check_pause(grant, forced=forced)
    assert expected == (raised.value.code, raised.value.retry_after_seconds)


@pytest.mark.parametrize("code", [Code.PROVIDER_UNREACHABLE, Code.APP_MISCONFIGURED, Code.EXCHANGE_FAILED])
def test_the_first_fetch_that_failed_is_told_to_the_operator(world: World, code: Code) -> None:
    world.after.not_fetched("mail", GRANT.id, BrokerError(code, note="why"))
    assert ("mail", code.value, "why") in told(world)


def told(world: World) -> list[tuple[str, str, str]]:
    """Return app, code and note of the lines that name the cause of one request."""
    lines = map(json.loads, world.text.getvalue().splitlines())
    return [
        (line["app"], line["code"], line["note"]) for line in lines if line["event"] == "a token could not be fetched"
    ]


def test_the_log_has_the_cause_of_a_failing_refresh_once_until_the_app_works_again(world: World) -> None:
    down, opens = (
        RefreshRefused(Code.PROVIDER_UNREACHABLE, note=note, spent=False) for note in ("the proxy is down", "TLS")
    )
    for _ in range(20):
        world.after.refused(GRANT, down)
        world.clock.advance(30)
    assert [("mail", "providerUnreachable", "the proxy is down")] == told(world)
    world.after.refused(GRANT, opens)
    assert [("mail", "providerUnreachable", "TLS")] == told(world)[1:]
    for _ in range(20):  # an app that works now and then
        world.after.worked(GRANT, token_with())
        world.after.refused(GRANT, down)
    assert 3 == len(told(world))
