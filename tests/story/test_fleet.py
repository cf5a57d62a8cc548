"""A thousand people at one app, twenty of whom the provider refuses from one moment on: the others notice nothing, and
each of the twenty, or the operator, is told the right thing."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from oauthbroker.protocol.network.transport import Transport
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.forms import is_long
from tests.kit.running_broker import running, user_app
from tests.story.fleet_kit import LATE, Fleet, reported
from tests.story.refresh_docs import LastingStore

PEOPLE, HOURS = (1_000, 6) if is_long() else (60, 3)
SICK = 20
SOON = 300 + 1200  # seconds after which a link has come: five minutes, and a few calls
TOO_MANY = {"error": "Access Denied", "error_description": "You have made too many requests continuously."}
UNREACHABLE, LIMITED, LINK = "providerUnreachable", "providerRateLimited", "expired"
CIRCUIT_KINDS: dict[str, tuple[Any, str]] = {
    "dead": (reported({"error": "invalid_grant"}, 400), LINK),
    "dead in odd words": (reported({"error": "invalid_token"}, 401), LINK),
    "dead, and no word": (reported({"success": False}, 200), LINK),
    "dead, by a status": (reported({"message": "gone"}, 410), LINK),
    "dead, by a login page": (reported(b"<html>Sign in</html>", 200, "text/html"), LINK),
    "dead, by a redirect": (reported(b"", 302, ""), LINK),
    "dead, and the server fails": (reported({"error": "invalid_grant"}, 500), LINK),
    "our client, for these alone": (reported({"error": "invalid_client"}, 401), LINK),
    "unauthorized, these alone": (reported({"error": "unauthorized_client"}, 400), LINK),
    "away for an hour": (reported(b"down", 503, "text/plain", 3600), UNREACHABLE),
    "away": (reported(b"down", 503, "text/plain"), UNREACHABLE),
    "fails": (reported(b"oops", 500, "text/plain"), UNREACHABLE),
    "late": (LATE, UNREACHABLE),
    "busy for an hour": (reported({}, 429, retry_after=3600), LIMITED),
    "busy": (reported({}, 429), LIMITED),
    "busy in odd words": (reported(TOO_MANY, 400), LIMITED),
}


PLAYS = [(error, start) for error in CIRCUIT_KINDS for start in ("from the start", "after an hour")]


@pytest.mark.sample(3)
@pytest.mark.case("52", "54", "55", "56")
@pytest.mark.parametrize("play", PLAYS, ids=" ".join)
async def test_twenty_sick_grants_among_very_many(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    monkeypatch: pytest.MonkeyPatch,
    play: tuple[str, str],
) -> None:
    """Halfway the process is replaced by another one, which knows nothing but the records."""
    error, start = play
    answer, word = CIRCUIT_KINDS[error]
    since = 3600.0 if start == "after an hour" else 0.0
    fleet = Fleet(PEOPLE, SICK, answer, since=since, seconds=HOURS * 3600.0)

    async def send(_: Transport, request: Any, **_more: Any) -> Any:
        return fleet.answer(request, test_clock.monotonic())

    monkeypatch.setattr(Transport, "send", send)
    apps, store = [user_app(identity_provider)], LastingStore(test_clock)
    plan, logs = fleet.plan(), ""
    halves = plan[: len(plan) // 2], plan[len(plan) // 2 :]
    for number, half in enumerate(halves):
        async with running(identity_provider, apps, clock=test_clock, store=store, background=False) as harness:
            if number == 0:
                await fleet.plant(harness)
            await fleet.play(harness, half)
            logs += harness.log.getvalue()
    assert {"ready"} == set(fleet.healthy()), Counter(fleet.healthy())
    for answers in fleet.of_sick():
        first = next(at for at, each in answers if each != "ready")
        later = [(at - first, each) for at, each in answers if at >= first and each != "degraded"]
        settled = {each for after, each in later if after > (0 if error == "dead" else SOON)}
        assert {word} == settled, (error, settled)
        assert error == "dead" or LINK not in {each for after, each in later if after < 300}
    most = (HOURS + 1) * 3600 / 7.5 if word != LINK else 40 + HOURS * 10
    assert max(fleet.requests[person] for person in range(SICK)) < most
    lines = [json.loads(line) for line in logs.splitlines()]
    assert not [line for line in lines if line["level"] == "error"], "the client is proven good: no operator is called"
    fetches = [line for line in lines if line["event"] == "a token could not be fetched"]  # one a minute for an app
    assert (len(fetches) <= HOURS * 60, len(lines) - len(fetches) <= 6 * SICK) == (True, True)
