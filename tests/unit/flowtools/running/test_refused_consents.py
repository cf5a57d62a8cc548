"""A consent that is refused ends the run that waits for it, and no run that waits for a later one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired
from oauthbroker.flowtools.running.ports import ConsentNeeded, Effect, Ports
from tests.unit.flowtools.run_kit import STAFF, world_in

pytestmark = pytest.mark.rule("run-waits")
REQUEST = ("httpRequest", {"url": "https://api.example.com/v1", "oauthAppRef": "OAuthApp/mail", "method": "POST"})


class ConsentRequests:
    """The way to an API whose user has to consent: each look opens another session."""

    def __init__(self) -> None:
        self.sessions: list[str] = []

    def problem(self, app: str, method: str, url: str) -> str:
        return ""

    def ask(self, effect: Effect) -> None:
        self.sessions.append(f"s{len(self.sessions) + 1}")
        raise ConsentNeeded(
            AuthorizationRequired(
                auth_session_id=self.sessions[-1],
                authorization_url="https://broker.example/connect/1",
                message="Agree.",
                expires_at=datetime(2030, 1, 1, tzinfo=UTC),
                reason="noGrant",
            )
        )

    def send(self, effect: Effect) -> Any:
        raise AssertionError("nothing is sent")


@pytest.mark.parametrize(
    ("declined", "state", "code"),
    [("s1", "waiting", None), ("s2", "failed", "consentRefused")],
    ids=["earlier", "last"],
)
def test_a_refusal_counts_for_the_session_that_the_run_waits_for(tmp_path, declined, state, code):
    world = world_in(tmp_path, ports=Ports(requests=ConsentRequests()))
    flow = world.flow({"r": REQUEST}, [], idempotencyKey="input.id")
    first = world.runs.call(flow, {"id": "a"}, STAFF)
    again = world.runs.call(flow, {"id": "a"}, STAFF)
    assert ("waiting", "waiting", first.run) == (first.state, again.state, again.run)
    world.runs.refused(str(first.run), declined, "accessDenied")
    world.runs.work(str(first.run), lambda _: flow)
    ended = world.runs.find(str(first.run))
    assert (state, code) == (ended.state, ended.code)
