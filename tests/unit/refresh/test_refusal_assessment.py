"""Answers of a provider to a refresh, crossed with the history of the grant and its client: who hears of it, and
when."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.observability.logging import json_log
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.refresh_messages import RefreshRefused, refresh_response
from oauthbroker.records import Grant, RefreshState
from oauthbroker.refresh.after_failure import Failures
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.refresh.clients import Clients
from oauthbroker.refresh.refusal_assessment import RefusalAssessment, is_dead
from oauthbroker.testing import TestClock
from tests.kit.samples import grant_with, token_with
from tests.unit.protocol.kit import APP, answer

Says = Literal["dead", "token", "any", "nothing"]
HTML, TEXT = "text/html", "text/plain"
TOO_MANY = "You have made too many requests continuously. Please try again after some time."
WORDS = {"error": "Access Denied", "error_description": TOO_MANY, "status": "failure"}

SHAPES: dict[str, tuple[Says, ProviderResponse | None]] = {
    "400 invalid_grant": ("dead", answer({"error": "invalid_grant"}, 400)),
    "401 invalid_grant": ("dead", answer({"error": "invalid_grant"}, 401)),
    "403 invalid_grant as a page": ("dead", answer(b'{"error": "invalid_grant"}', 403, HTML)),
    "200 invalid_grant": ("dead", answer({"error": "invalid_grant"})),
    "500 invalid_grant": ("token", answer({"error": "invalid_grant"}, 500)),
    "503 invalid_grant": ("token", answer({"error": "invalid_grant"}, 503)),
    "400 token_expired": ("token", answer({"error": "token_expired"}, 400)),
    "400 invalid_request": ("token", answer({"error": "invalid_request"}, 400)),
    "400 invalid_scope": ("token", answer({"error": "invalid_scope"}, 400)),
    "400 interaction_required": ("token", answer({"error": "interaction_required"}, 400)),
    "400 message alone": ("token", answer({"message": "bad"}, 400)),
    "400 empty": ("token", answer(b"", 400, "")),
    "403 access_denied": ("token", answer({"error": "access_denied"}, 403)),
    "200 bad_refresh_token": ("token", answer({"error": "bad_refresh_token"})),
    "401 invalid_token": ("token", answer({"error": "invalid_token"}, 401)),
    "401 expired_token": ("token", answer({"error": "expired_token"}, 401)),
    "401 token_revoked": ("any", answer({"error": "token_revoked"}, 401)),
    "401 message alone": ("any", answer({"message": "Unauthorized"}, 401)),
    "401 empty": ("any", answer(b"", 401, "")),
    "401 invalid_client": ("any", answer({"error": "invalid_client"}, 401)),
    "400 invalid_client": ("any", answer({"error": "invalid_client"}, 400)),
    "400 unauthorized_client": ("any", answer({"error": "unauthorized_client"}, 400)),
    "400 unsupported_grant_type": ("any", answer({"error": "unsupported_grant_type"}, 400)),
    "400 invalid_target": ("any", answer({"error": "invalid_target"}, 400)),
    "400 page": ("any", answer(b"<h1>Bad Request</h1>", 400, HTML)),
    "403 page": ("any", answer(b"<h1>Forbidden</h1>", 403, HTML)),
    "404 message": ("any", answer({"message": "not found"}, 404)),
    "410 message": ("any", answer({"message": "gone"}, 410)),
    "422 list": ("any", answer({"errors": [{"code": "refresh_token_invalid"}]}, 422)),
    "200 success false": ("any", answer({"success": False, "message": "Refresh token expired"})),
    "200 errcode": ("any", answer({"errcode": 40030, "errmsg": "invalid refresh_token"})),
    "200 empty object": ("any", answer({})),
    "200 login page": ("any", answer(b"<html><script>throttle(rateLimit)</script>Sign in</html>", 200, HTML)),
    "302": ("any", answer(b"", 302, "")),
    "429": ("nothing", answer({"error": "invalid_grant"}, 429)),
    "500": ("nothing", answer(b"oops", 500, TEXT)),
    "502 page": ("nothing", answer(b"<html>", 502, HTML)),
    "503 to wait": ("nothing", answer(b"down", 503, TEXT, retry_after=3600)),
    "400 temporarily_unavailable": ("nothing", answer({"error": "temporarily_unavailable"}, 400)),
    "200 server_error": ("nothing", answer({"error": "server_error"})),
    "408 page": ("nothing", answer(b"<html>", 408, HTML)),
    "400 too many in a description": ("nothing", answer(WORDS, 400)),
    "200 too many in a description": ("nothing", answer(WORDS)),
    "400 invalid_grant, rate exceeded": (
        "nothing",
        answer({"error": "invalid_grant", "error_description": "login rate exceeded"}, 400),
    ),
    "400 rate_limit_exceeded": ("nothing", answer({"error": "rate_limit_exceeded"}, 400)),
    "401 slow_down": ("nothing", answer({"error": "slow_down"}, 401)),
    "403 quota exceeded": ("nothing", answer({"error": {"code": 403, "message": "Quota exceeded"}}, 403)),
    "400 code 429": ("nothing", answer({"error": "x", "code": 429}, 400)),
    "200 status 429": ("nothing", answer({"success": False, "status": "429"})),
    "403 page of a limit": ("nothing", answer(b"<h1>Error 1015: you are being rate limited</h1>", 403, HTML)),
    "403 to wait": ("nothing", answer({"message": "abuse"}, 403, retry_after=60)),
    "400 throttled": ("nothing", answer({"fault": {"faultstring": "ThrottledException: throttled"}}, 400)),
    "lost": ("nothing", None),
}  # fmt: skip

# The client's life meanwhile, minute by minute, and the evidence that it gives.
HISTORIES = {
    "another is refreshed": "good",
    "a consent of another": "good",
    "a consent of another, and this one was never refreshed": "unknown",
    "another was refreshed before, and not since": "unknown",
    "its own consent": "unknown",
    "others are refused": "refused",
    "there is no other": "unknown",
}
AFTER: dict[tuple[Says, str], int | None] = {
    ("token", "good"): 300, ("token", "unknown"): 300, ("token", "refused"): 3600,
    ("any", "good"): 300, ("any", "unknown"): None, ("any", "refused"): None,
}  # fmt: skip
OTHER = "acme:user:2"


class World:
    """One grant that is refused from now on, and its client."""

    def __init__(self, history: str) -> None:
        self.clock, self.log, self.history = TestClock(), io.StringIO(), history
        log = json_log(self.log, self.clock)
        self.failures = Failures(circuits=Circuits(self.clock), clients=Clients(), clock=self.clock, log=log)
        worked = "never refreshed" not in history
        token = token_with(refresh_token=Secret("rt"))
        self.grant = grant_with(token=token, refresh_state=RefreshState(worked=worked))
        self.other = replace(self.grant, subject=OTHER)
        if history == "another was refreshed before, and not since":
            self.failures.worked(self.other, None)
            self.clock.advance(301)

    def meanwhile(self) -> None:
        match self.history:
            case "another is refreshed":
                self.failures.worked(self.other, None)
            case "a consent of another" | "a consent of another, and this one was never refreshed":
                self.failures.clients.consented(self.other, self.clock.now())
            case "its own consent":
                self.failures.clients.consented(self.grant, self.clock.now())
            case "others are refused":
                refused = RefreshRefused(Code.EXCHANGE_FAILED, spent=False, ambiguity="token")
                self.failures.refused(self.other, refused)

    def refused(self, reported: ProviderResponse | None) -> RefusalAssessment | None:
        """The next refresh, as the transaction makes it; None while it pauses."""
        state = self.grant.refresh_state
        try:
            self.failures.check_pause(self.grant, forced=False)
        except BrokerError:
            return None
        begun: Grant = replace(self.grant, refresh_state=state.begun("attempt", self.clock.now()))
        assessment = self.failures.refused(begun, refusal(reported, worked=state.worked))
        self.grant = begun.refused(assessment.state, self.clock.now(), rejected=False)
        return assessment

    def assessments(self, reported: ProviderResponse | None, seconds: int) -> Iterator[tuple[int, RefusalAssessment]]:
        for second in range(0, seconds, 60):
            if (assessment := self.refused(reported)) is not None:
                yield second, assessment
            self.meanwhile()
            self.clock.advance(60)

    def reports(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["level"] == "error"]


def refusal(reported: ProviderResponse | None, *, worked: bool = True) -> RefreshRefused:
    if reported is None:
        return RefreshRefused(Code.PROVIDER_UNREACHABLE, spent=True, note="no answer in time")
    try:
        refresh_response(APP, reported, worked=worked)
    except RefreshRefused as refused:
        return refused
    raise AssertionError(reported)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_an_answer_says(shape: str) -> None:
    says, reported = SHAPES[shape]
    refused = refusal(reported)
    assert ("dead" if refused.code is Code.REAUTH_REQUIRED else refused.ambiguity or "nothing") == says
    if says == "nothing":
        assert refused.code in {Code.PROVIDER_UNREACHABLE, Code.PROVIDER_RATE_LIMITED}


@pytest.mark.sample(80)
@pytest.mark.case("52", "54")
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_who_hears_of_a_refusal_and_when(shape: str, history: str) -> None:
    """A user gets a link by the provider's plain word, or by evidence; else the operator gets one line."""
    says, reported = SHAPES[shape]
    if "never refreshed" in history and shape in {"400 invalid_request", "400 invalid_scope"}:
        says = "any"  # perhaps it is the form of our request
    world = World(history)
    asked, codes = None, set[Code]()
    for second, assessment in world.assessments(reported, 3 * 3600):
        if assessment.state.is_over:
            asked = second
            break
        codes.add(assessment.error.code)
    if says == "dead":
        assert (0, "dead") == (asked, world.grant.refresh_state.ended)
        return
    expected = AFTER.get((says, HISTORIES[history]))
    assert (asked is None) is (expected is None)
    assert len(world.grant.refresh_tokens) == 1, "it is kept"
    if says == "nothing":
        assert [] == world.reports()
        assert codes <= {Code.PROVIDER_UNREACHABLE, Code.PROVIDER_RATE_LIMITED}
    elif expected is None or asked is None:
        assert 1 == len(world.reports()), "once, not once a try"
    else:
        assert expected <= asked < expected + 300
        assert (0 if expected == 300 else 1) == len(world.reports())


@pytest.mark.parametrize("shape", [name for name, (says, _) in SHAPES.items() if says in {"token", "any"}])
def test_a_token_that_was_given_up_is_tried_less_and_less_and_told_as_such(shape: str) -> None:
    world = World("another is refreshed")
    tries = [
        (second, assessment.error.code)
        for second, assessment in world.assessments(SHAPES[shape][1], 6 * 3600)
        if assessment.state.given_up
    ]
    assert {Code.REAUTH_REQUIRED} == {code for _, code in tries}
    gaps = [after - before for (before, _), (after, _) in pairwise(tries)]
    assert gaps == sorted(gaps)
    assert (300 <= gaps[0] <= 600, gaps[-1]) == (True, 3600)


def test_trouble_of_the_provider_takes_no_link_back() -> None:
    world = World("another is refreshed")
    for _, assessment in world.assessments(SHAPES["401 invalid_token"][1], 3600):
        if assessment.state.given_up:
            break
    world.clock.advance(3600)
    for shape, code in (("503 to wait", Code.REAUTH_REQUIRED), ("500", Code.REFRESH_UNCERTAIN)):
        reported = world.refused(SHAPES[shape][1])
        assert reported is not None
        assert (True, code) == (reported.state.given_up, reported.error.code), "of 500 the answer was lost"


def test_while_others_of_the_client_work_no_operator_is_told_that_it_is_misconfigured() -> None:
    world = World("another is refreshed")
    codes = [assessment.error.code for _, assessment in world.assessments(SHAPES["401 invalid_client"][1], 300)]
    assert [Code.APP_MISCONFIGURED, *4 * [Code.REFRESH_REFUSED]] == codes


def test_the_operator_is_told_again_after_the_client_has_worked() -> None:
    world = World("there is no other")
    reported = SHAPES["404 message"][1]
    assert [*world.assessments(reported, 3600)]
    assert 1 == len(world.reports())
    world.failures.worked(replace(world.grant, app="another app"), None)
    assert [*world.assessments(reported, 3600)]
    assert 1 == len(world.reports())
    world.failures.worked(world.grant, None)
    world.grant = replace(world.grant, refresh_state=RefreshState(worked=True))
    assert [*world.assessments(reported, 3600)]
    assert 2 == len(world.reports())
    (line, _) = world.reports()
    assert {"app": "mail", "code": "providerUnreachable"}.items() <= line.items()


def test_another_client_proves_nothing() -> None:
    clients, clock = Clients(), TestClock()
    grant = grant_with(refresh_state=RefreshState(worked=True))
    since = clock.now()
    for stranger in (replace(grant, app="files"), replace(grant, registration="another"), grant):
        clients.refreshed(replace(stranger, subject=OTHER if stranger is not grant else grant.subject), clock.now())
    assert "unknown" == clients.standing(grant, since, clock.now())
    clients.refreshed(replace(grant, subject=OTHER), clock.now())
    assert "good" == clients.standing(grant, since, clock.now())


def test_the_last_success_of_another_grant_is_kept_beside_the_grants_own() -> None:
    clients, clock = Clients(), TestClock()
    grant = grant_with(refresh_state=RefreshState(worked=True))
    since = clock.now()
    clients.refreshed(replace(grant, subject=OTHER), since)
    for _ in range(100):
        clock.advance(1)
        clients.refreshed(grant, clock.now())
    assert "good" == clients.standing(grant, since, clock.now())


@pytest.mark.case("59")
def test_a_success_that_was_noted_before_the_clock_was_set_back_proves_nothing() -> None:
    clients, clock = Clients(), TestClock()
    grant = grant_with(refresh_state=RefreshState(worked=True))
    clients.refreshed(replace(grant, subject=OTHER), clock.now())
    clock.set(clock.now() - timedelta(days=1))
    since = clock.now()
    clock.advance(600)
    assert "unknown" == clients.standing(grant, since, clock.now())


def test_nothing_is_concluded_at_once() -> None:
    assert not any(is_dead(ambiguity, "good", 299) for ambiguity in ("token", "any"))
    assert all(is_dead(ambiguity, "good", 300) for ambiguity in ("token", "any"))


@pytest.mark.case("49")
def test_an_answer_that_holds_tokens_is_no_rate_limit_although_a_scope_has_such_a_name() -> None:
    """Its refresh token may be the only one that lives."""
    body = {"access_token": "at", "token_type": "mac", "refresh_token": "new", "scope": "read rate_limits"}
    refused = refusal(answer(body, 200, TEXT))
    assert (Code.TOKEN_RESPONSE_INVALID, Secret("new"), "") == (refused.code, refused.spare, refused.ambiguity)


@pytest.mark.parametrize("reached", [True, False])
def test_three_requests_that_reached_no_provider_pause_all_grants_and_three_failures_of_grants_do_not(
    reached: bool,
) -> None:
    world = World("there is no other")
    for number in range(3):
        failed = RefreshRefused(Code.PROVIDER_UNREACHABLE, spent=reached, reached=reached)
        world.failures.refused(replace(world.grant, subject=f"acme:user:{number}"), failed)
    assert (world.failures.circuits.pause("mail", "another") > 0) is not reached


def test_the_host_of_one_connection_that_cannot_be_reached_pauses_its_grant_alone() -> None:
    world = World("there is no other")
    there = replace(world.grant, params={"site": "gone"})
    for _ in range(4):
        world.failures.refused(there, RefreshRefused(Code.PROVIDER_UNREACHABLE, spent=False, reached=False))
    assert world.failures.circuits.pause("mail", there.id) > 0
    assert 0 == world.failures.circuits.pause("mail", "another")
