"""The night a provider is slow, busy or refuses us: no user is asked who cannot help, and the provider is not hammered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Endpoints
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.records import Grant, Token
from oauthbroker.refresh.background import BackgroundRefresh
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import ALICE, BOB, Harness, UnwellStore, running, turn, user_app

HOUR = 3600.0


@pytest.fixture
async def quiet(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """Run nothing in the background, so that each counted request is the test's own. `ahead` is refreshed before its end."""
    apps = [
        user_app(identity_provider),
        user_app(identity_provider, "files"),
        user_app(identity_provider, "ahead", refresh_ahead_seconds=600),
    ]
    async with running(identity_provider, apps, clock=test_clock, background=False) as harness:
        yield harness


async def plant(harness: Harness, count: int, *, lives: float) -> list[str]:
    """Grants of so many people, whose tokens the provider has never seen; it refuses their refresh tokens or worse."""
    app, now = harness.broker.bundle.apps["mail"], harness.clock.now()
    subjects = [f"idp:user:U{number}" for number in range(count)]
    for subject in subjects:
        end = now + timedelta(seconds=lives)
        token = Token(
            access_token=Secret(f"at-{subject}"),
            token_type="bearer",
            refresh_token=Secret(f"rt-{subject}"),
            expires_at=end,
            lifetime_seconds=3600,
        )
        grant = Grant(
            app="mail",
            provider="oidc",
            subject=subject,
            flow="authorization_code",
            scopes=app.scopes,
            token=token,
            created_at=now,
            updated_at=now,
            registration=app.registration,
        )
        await harness.repository.save_grant(grant, expect=0)
    return subjects


@pytest.mark.case("54")
@pytest.mark.parametrize(
    "error, status", [("invalid_client", 401), ("unauthorized_client", 400), ("", 401), ("invalid_request", 400)]
)
async def test_a_client_that_is_refused_touches_no_grant_and_raises_one_alarm(
    quiet: Harness, error: str, status: int
) -> None:
    """A hundred people's tools ask. The word may be about one grant alone, so that a grant that works would be found;
    after 32 the others are spared. The operator gets one message for all of them."""
    harness, subjects = quiet, await plant(quiet, 100, lives=-1)
    before = {versioned.record.id: versioned.record async for versioned in harness.repository.grants()}
    refresh = harness.idp.script.refresh
    if error:
        refresh.refuse(error, status, times=FOREVER)
    else:
        refresh.answer(status, b"", times=FOREVER)
    for subject in subjects:
        answer = await harness.ask(of=turn(user=subject))
        assert isinstance(answer, Failed)
        assert Code.APP_MISCONFIGURED is answer.code
    assert 32 == harness.idp.count("refresh_token")
    assert 1 == harness.log.getvalue().count("refreshes pause")
    assert 2 == harness.log.getvalue().count("refreshes of one grant pause")
    async for versioned in harness.repository.grants():
        then, now = before[versioned.record.id], versioned.record
        assert replace(now, updated_at=then.updated_at, refresh_state=then.refresh_state) == then
        assert "" == now.refresh_state.ended
        assert not now.refresh_state.given_up


@pytest.mark.case("54")
@pytest.mark.parametrize("error", ["unauthorized_client", "invalid_request", "invalid_scope", "invalid_target"])
async def test_an_error_about_one_grant_stops_no_other_grant(quiet: Harness, error: str) -> None:
    """Bob's tenant has removed our client; Alice's tools go on. Her refreshes show that the client is good: Bob gets a
    link, and as soon as the tenant allows it again, a token."""
    harness = quiet
    await harness.connected()
    await harness.connected(account="bob", of=turn(user=BOB))
    harness.clock.advance(HOUR)
    codes = []
    for _ in range(5):
        harness.idp.script.refresh.refuse(error, 400)
        codes.append(reported(await harness.ask(of=turn(user=BOB))))
        harness.idp.script.reset()
        assert isinstance(await harness.ask(), Ready)
        harness.clock.advance(HOUR)
    assert ["appMisconfigured", *4 * ["expired"]] == codes
    bob = await harness.ask(of=turn(user=BOB))
    assert isinstance(bob, Ready)


def reported(answer: Any) -> str:
    if isinstance(answer, Failed):
        return answer.code.value
    return answer.reason if isinstance(answer, AuthorizationRequired) else "ready"


@pytest.mark.case("55")
@pytest.mark.parametrize("status", [400, 403, 404, 405, 408, 413])
async def test_a_wall_in_front_of_the_provider_ends_no_grant(quiet: Harness, status: int) -> None:
    """HTML where a token endpoint should be, for an hour: no user has to agree again."""
    harness = quiet
    await harness.connected()
    harness.clock.advance(HOUR)
    page = b"<html>Attention required!</html>"
    harness.idp.script.refresh.answer(status, page, {"content-type": "text/html"}, times=FOREVER)
    for _ in range(60):
        assert isinstance(await harness.ask(), Failed)
        harness.clock.advance(60)
    harness.idp.script.reset()
    harness.clock.advance(301)
    assert isinstance(await harness.ask(), Ready)


ALONE = [
    ("500", lambda refresh: refresh.answer(500, times=FOREVER)),
    ("a wall", lambda refresh: refresh.answer(403, b"<html>", {"content-type": "text/html"}, times=FOREVER)),
    ("lost", lambda refresh: refresh.close_after_accept(times=FOREVER)),
    ("endless", lambda refresh: refresh.endless(times=FOREVER)),
    ("a bare 400", lambda refresh: refresh.answer(400, b"", times=FOREVER)),
    ("refused", lambda refresh: refresh.refuse("unauthorized_client", times=FOREVER)),
    ("junk", lambda refresh: refresh.answer(200, b"{", times=FOREVER)),
    ("busy", lambda refresh: refresh.busy("60", 429, times=FOREVER)),
]


@pytest.mark.case("55")
@pytest.mark.parametrize("spoil", [row[1] for row in ALONE], ids=[row[0] for row in ALONE])
async def test_an_app_with_one_grant_that_cannot_be_refreshed_is_no_secret_to_its_operator(
    quiet: Harness, spoil: Any
) -> None:
    """A bot has one grant. One line, not one a try."""
    harness = quiet
    await harness.connected()
    harness.clock.advance(HOUR)
    spoil(harness.idp.script.refresh)
    for _ in range(5):
        await harness.ask()
        harness.clock.advance(61)
    lines = [line for line in harness.log.getvalue().splitlines() if "refresh" in line]
    assert lines
    assert all('"app": "mail"' in line and '"code"' in line and '"note"' in line for line in lines)


@pytest.mark.case("52")
async def test_a_bare_400_that_comes_again_after_minutes_is_the_end(quiet: Harness) -> None:
    """Several providers have no other word for a dead refresh token."""
    harness = quiet
    await harness.connected()
    harness.clock.advance(HOUR)
    harness.idp.script.refresh.answer(400, b"", times=FOREVER)
    answers = []
    for _ in range(12):
        answers.append((await harness.ask()).status)
        harness.clock.advance(61)
    assert "error" == answers[0]
    assert "authorization_required" == answers[-1]
    assert harness.idp.count("refresh_token") <= 8


@pytest.mark.case("54")
async def test_once_the_operator_has_fixed_it_the_same_grants_go_on(quiet: Harness) -> None:
    harness = quiet
    await harness.connected()
    harness.clock.advance(HOUR)
    harness.idp.script.refresh.refuse("invalid_client", 401)
    assert isinstance(await harness.ask(), Failed)
    assert isinstance(await harness.ask(), Failed)
    harness.clock.advance(31)
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.case("55")
@pytest.mark.parametrize("how", ["500", "502", "503", "reset", "lost"])
async def test_a_provider_that_is_down_is_asked_less_and_less_and_then_all_is_well(quiet: Harness, how: str) -> None:
    """A tool that asks every second for ten minutes costs a few dozen requests, and the first one after the provider
    is back gets a token."""
    harness = quiet
    harness.idp.change("client-mail", reuse_grace=10_000)  # so that the lost answers cost no grant
    await harness.connected()
    harness.clock.advance(HOUR)
    refresh = harness.idp.script.refresh
    if how == "reset":
        refresh.close_after_accept(reset=True, times=FOREVER)
    elif how == "lost":
        refresh.close_after_accept(after_work=True, times=FOREVER)
    else:
        refresh.answer(int(how), times=FOREVER)
    for _ in range(600):
        answer = await harness.ask()
        assert isinstance(answer, Failed)
        assert (Code.PROVIDER_UNREACHABLE, True) == (answer.code, answer.retryable)
        harness.clock.advance(1)
    assert 5 <= harness.idp.count("refresh_token") <= 70
    harness.idp.script.reset()
    harness.clock.advance(301)
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.case("55")
async def test_a_provider_that_is_not_there_is_no_reason_to_bother_a_person(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = user_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        await harness.connected()
        harness.clock.advance(HOUR)
        endpoints = replace(app.endpoints, refresh_url="http://127.0.0.1:9/token")
        async with running(
            identity_provider,
            [replace(app, endpoints=endpoints)],
            clock=test_clock,
            store=harness.store,
            background=False,
        ) as cut_off:
            answer = await cut_off.ask()
            assert isinstance(answer, Failed)
            assert Code.PROVIDER_UNREACHABLE is answer.code
            grant = await cut_off.grant()
            assert grant is not None
            assert grant.refresh_state.intent is None, "nothing was sent, so nothing can be spent"


RETRY_AFTER = [("7", 7), ("-1", 1), ("0", 1), ("1000000000", 3600), ("soon", None), ("", None)]


@pytest.mark.case("56")
@pytest.mark.parametrize("said, seconds", RETRY_AFTER)
async def test_a_provider_that_is_not_available_for_a_time_is_left_in_peace_by_that_grant(
    quiet: Harness, said: str, seconds: int | None
) -> None:
    """Clamped to 1 s..1 h. Another person's tool goes on: perhaps it is the account's trouble."""
    harness, code, bob = quiet, Code.PROVIDER_UNREACHABLE, turn(user=BOB)
    await harness.connected()
    await harness.connected(account="bob", of=bob)
    harness.clock.advance(HOUR)
    harness.idp.script.refresh.busy(said, 503)
    answer = await harness.ask(of=bob)
    assert isinstance(answer, Failed)
    assert (code, seconds) == (answer.code, answer.retry_after_seconds)
    if seconds is not None:
        again = await harness.ask(of=bob)
        assert isinstance(again, Failed)
        assert (code, seconds) == (again.code, again.retry_after_seconds)
    assert 1 == harness.idp.count("refresh_token")
    assert isinstance(await harness.ask(), Ready)
    harness.clock.advance(seconds or 0)
    assert isinstance(await harness.ask(of=bob), Ready)


@pytest.mark.case("56")
@pytest.mark.parametrize("said, seconds", RETRY_AFTER)
async def test_one_rate_limited_person_stops_no_other_person(quiet: Harness, said: str, seconds: int | None) -> None:
    """Bob's account has a limit of its own: it is kept, clamped to 1 s..1 h, and Alice's tools go on."""
    harness, bob = quiet, turn(user=BOB)
    await harness.connected()
    await harness.connected(account="bob", of=bob)
    harness.clock.advance(HOUR)
    harness.idp.script.refresh.busy(said, 429)
    for waits in ({seconds}, {seconds} if seconds is not None else {1, 2}):
        answer = await harness.ask(of=bob)
        assert isinstance(answer, Failed)
        assert Code.PROVIDER_RATE_LIMITED is answer.code
        assert answer.retry_after_seconds in waits
    assert 1 == harness.idp.count("refresh_token")
    assert isinstance(await harness.ask(), Ready)
    assert "refreshes of one grant pause" in harness.log.getvalue()
    harness.clock.advance(seconds or 2)
    assert isinstance(await harness.ask(of=bob), Ready)
    assert 3 == harness.idp.count("refresh_token")


@pytest.mark.case("56")
async def test_a_provider_that_limits_many_people_gets_a_pause_from_the_whole_app(quiet: Harness) -> None:
    """A hundred people's tools ask: when 32 were sent away and none got a token, the others are spared, at first for a
    second. Another app is not concerned."""
    harness, subjects = quiet, await plant(quiet, 100, lives=-1)
    await harness.connected("files")
    harness.clock.advance(HOUR)
    harness.idp.script.client("client-mail").refresh.busy("600", 429, times=FOREVER)
    for subject in subjects:
        answer = await harness.ask(of=turn(user=subject))
        assert isinstance(answer, Failed)
        assert Code.PROVIDER_RATE_LIMITED is answer.code
    assert 32 == harness.idp.count("refresh_token", "client-mail")
    assert isinstance(await harness.ask("files"), Ready)
    assert [*2 * ["refreshes of one grant pause"], "refreshes pause"] == [
        json.loads(line)["event"] for line in harness.log.getvalue().splitlines() if "pause" in line
    ]
    harness.clock.advance(1)
    for subject in subjects[40:60]:
        await harness.ask(of=turn(user=subject))
    assert 33 == harness.idp.count("refresh_token", "client-mail"), "one tries for all"
    told_to_wait = await harness.ask(of=turn(user=subjects[0]))
    assert isinstance(told_to_wait, Failed)
    assert 599 == told_to_wait.retry_after_seconds, "a grant keeps the time that it was told"


@pytest.mark.case("56")
async def test_a_pause_until_a_date_counts_by_the_providers_own_clock(quiet: Harness) -> None:
    harness = quiet
    await harness.connected()
    harness.clock.advance(HOUR)
    dates = {"Retry-After": "Wed, 21 Oct 2026 07:30:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    harness.idp.script.refresh.answer(429, {}, dates)
    answer = await harness.ask()
    assert isinstance(answer, Failed)
    assert 120 == answer.retry_after_seconds


@pytest.mark.case("60")
async def test_a_time_that_no_token_of_the_provider_lives_is_said_at_once(quiet: Harness) -> None:
    harness = quiet
    await harness.connected()
    for _ in range(20):
        answer = await harness.ask(min_ttl_seconds=7200)
        assert isinstance(answer, Failed)
        assert (Code.MIN_TTL_UNSATISFIABLE, False) == (answer.code, answer.retryable)
    assert harness.idp.count("refresh_token") <= 1


@pytest.mark.case("60")
async def test_a_provider_that_has_begun_to_issue_shorter_tokens_is_asked_once(quiet: Harness) -> None:
    harness = quiet
    await harness.connected()
    harness.clock.advance(HOUR - 60)
    harness.idp.change("client-mail", access_lifetime=600)
    for _ in range(20):
        answer = await harness.ask(min_ttl_seconds=1800)
        assert isinstance(answer, Failed)
        assert Code.MIN_TTL_UNSATISFIABLE is answer.code
    assert 1 == harness.idp.count("refresh_token")
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.case("60")
async def test_a_tool_that_wants_all_but_a_second_of_a_tokens_life_is_stopped_within_the_hour(quiet: Harness) -> None:
    """It could have the token refreshed at every call."""
    harness = quiet
    await harness.connected()
    answers = []
    for _ in range(200):
        harness.clock.advance(2)
        answers.append(await harness.ask(min_ttl_seconds=3599))
    assert harness.broker.bundle.settings.limits.rejections_per_hour == harness.idp.count("refresh_token")
    last = answers[-1]
    assert isinstance(last, Failed)
    assert Code.RATE_LIMITED is last.code
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.case("49")
async def test_a_spare_refresh_token_is_kept_although_the_disk_fails_once(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The provider has rotated, we refuse the answer, and the only refresh token that lives meets a bad disk."""
    store = UnwellStore(test_clock)
    apps = [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=store, background=False) as harness:
        await harness.connected()
        harness.clock.advance(HOUR)

        def grown_while_the_disk_fills_up(answer: dict[str, Any]) -> dict[str, Any]:
            store.refuses = 1
            return {**answer, "scope": "read write admin everything"}

        harness.idp.script.refresh.alter(grown_while_the_disk_fills_up)
        assert isinstance(await harness.ask(), Failed)
        assert 0 == store.refuses
        while (versioned := await harness.grant()) is None or versioned.refresh_state.spare is None:
            await asyncio.sleep(0.01)
        harness.clock.advance(100)
        async with asyncio.timeout(30):
            while not isinstance(await harness.ask(), Ready):
                await asyncio.sleep(0.01)
        (family,) = harness.idp.families("client-mail")
        assert "" == family.ended_by


async def test_a_grant_that_is_revoked_while_its_refresh_waits_and_fails_is_not_served(
    quiet: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the caller saw before the revoke is no answer any more."""
    harness = quiet
    await harness.connected()
    harness.clock.advance(HOUR - 200)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def endpoints(_: object) -> Any:
        began.set()
        await go_on.wait()
        raise BrokerError(Code.PROVIDER_UNREACHABLE)

    monkeypatch.setattr(harness.parts.manager.refresh.discovery, "endpoints", endpoints)
    asking = asyncio.create_task(harness.ask())
    await began.wait()
    monkeypatch.undo()
    revoking = asyncio.create_task(harness.broker.revoke("mail", subject=ALICE))
    while not (grant := await harness.grant()) or not grant.revoked:
        await asyncio.sleep(0.01)
    go_on.set()
    assert "authorization_required" == (await asking).status
    assert await revoking


@pytest.mark.case("60")
async def test_tokens_that_live_a_minute_are_not_refreshed_at_every_call(quiet: Harness) -> None:
    """Shorter than our default minimum: half of their life is enough."""
    harness = quiet
    harness.idp.change("client-mail", access_lifetime=60)
    await harness.connected()
    for _ in range(300):
        assert isinstance(await harness.ask(), Ready)
        harness.clock.advance(1)
    assert 9 <= harness.idp.count("refresh_token") <= 11


@pytest.mark.case("100")
async def test_a_provider_that_hangs_for_one_app_keeps_no_other_app_waiting(quiet: Harness) -> None:
    harness = quiet
    await harness.connected()
    await harness.connected("files")
    harness.clock.advance(HOUR)
    hanging = harness.idp.script.client("client-mail").refresh.hang()
    waiting = asyncio.create_task(harness.ask())
    await hanging.arrived()
    assert isinstance(await harness.ask("files"), Ready)
    assert not waiting.done()
    hanging.release()
    assert isinstance(await waiting, Ready)


def upkeep_of(harness: Harness) -> BackgroundRefresh:
    return harness.parts.background_refresh


async def test_a_token_in_use_is_refreshed_ahead_of_its_end_where_the_app_says_so(quiet: Harness) -> None:
    """No caller waits for it. A grant that is not used again is let go."""
    harness = quiet
    await harness.connected("ahead")
    await harness.connected()
    upkeep = upkeep_of(harness)
    assert 0 == await upkeep.ahead()
    harness.clock.advance(HOUR - 301)
    assert 1 == await upkeep.ahead()
    assert (1, 0) == (
        harness.idp.count("refresh_token", "client-ahead"),
        harness.idp.count("refresh_token", "client-mail"),
    )
    assert isinstance(await harness.ask("ahead"), Ready)
    assert 1 == harness.idp.count("refresh_token")
    harness.clock.advance(HOUR)
    assert 1 == await upkeep.ahead()
    harness.clock.advance(HOUR)
    assert 0 == await upkeep.ahead()


async def test_a_grant_that_another_process_refreshed_or_ended_is_not_refreshed_ahead(quiet: Harness) -> None:
    harness = quiet
    first = await harness.connected("ahead")
    await harness.broker.oauth(turn()).report_rejected("ahead", first.access_token)
    harness.clock.advance(HOUR - 301)
    assert 1 == await upkeep_of(harness).ahead()
    assert 2 == harness.idp.count("refresh_token")
    assert isinstance(await harness.ask("ahead"), Ready)
    await harness.broker.revoke("ahead", subject=ALICE)
    harness.clock.advance(HOUR)
    assert 0 == await upkeep_of(harness).ahead()


@pytest.mark.case("100")
async def test_refreshes_ahead_are_spread(quiet: Harness) -> None:
    """Tokens issued in one second are not refreshed in one second."""
    harness = quiet
    upkeep, app = upkeep_of(harness), harness.broker.bundle.apps["ahead"]
    for subject in await plant(harness, 200, lives=HOUR):
        grant = await harness.grant("mail", subject)
        assert grant is not None
        upkeep.watch(app, grant)
    due = sorted(at for _, (_, at) in upkeep._watched.items())
    assert 250 < due[-1] - due[0] <= 300
    assert len(set(due)) > 150


async def test_refreshes_are_counted_and_named_by_app_and_code_alone(quiet: Harness) -> None:
    harness = quiet
    await harness.connected()
    harness.clock.advance(HOUR)
    harness.idp.script.refresh.answer(500)
    await harness.ask()
    harness.clock.advance(10)
    await harness.ask()
    counts = harness.broker.metrics
    assert (1, 1) == (
        counts.value(Metric.REFRESHES, "mail"),
        counts.value(Metric.REFRESH_FAILURES, Code.PROVIDER_UNREACHABLE.value),
    )


@pytest.mark.case("56")
async def test_a_provider_whose_metadata_cannot_be_read_opens_the_circuit_of_its_app(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """No refresh reaches it, and every call would wait for its metadata."""
    app = user_app(identity_provider, endpoints=Endpoints(issuer=identity_provider.issuer))
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        await harness.connected()
        test_clock.advance(25 * HOUR)
        identity_provider.script.discovery.answer(503, times=FOREVER)
        for _ in range(3):
            test_clock.advance(31)
            failed = await harness.ask()
            assert isinstance(failed, Failed)
            assert Code.PROVIDER_UNREACHABLE is failed.code
        assert ["mail"] == harness.parts.manager.refresh.circuits.open_for()
