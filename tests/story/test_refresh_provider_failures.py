"""The night a provider is slow, busy or refuses us: nobody is bothered who cannot help, and nobody hammers it."""

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
from oauthbroker.model.results import Failed, Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.records import Grant, Token
from oauthbroker.refresh.background import BackgroundRefresh
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import ALICE, BOB, House, UnwellStore, running, turn, user_app

HOUR = 3600.0


@pytest.fixture
async def quiet(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[House]:
    """Nothing runs in the background: what is counted is what was asked for. `ahead` is renewed ahead of its end."""
    apps = [
        user_app(identity_provider),
        user_app(identity_provider, "files"),
        user_app(identity_provider, "ahead", refresh_ahead_seconds=600),
    ]
    async with running(identity_provider, apps, clock=test_clock, background=False) as house:
        yield house


async def plant(house: House, count: int, *, lives: float) -> list[str]:
    """Grants of so many people, whose tokens the provider has never seen; it refuses their refresh tokens or worse."""
    app, now = house.broker.bundle.apps["mail"], house.clock.now()
    subjects = [f"idp:user:U{number}" for number in range(count)]
    for subject in subjects:
        end = now + timedelta(seconds=lives)
        token = Token(Secret(f"at-{subject}"), "bearer", Secret(f"rt-{subject}"), end, 3600)
        grant = Grant(
            "mail", "oidc", subject, "authorization_code", app.scopes, token, now, now, registration=app.registration
        )
        await house.repository.save_grant(grant, expect=0)
    return subjects


@pytest.mark.case("54")
@pytest.mark.parametrize(
    "error, status", [("invalid_client", 401), ("unauthorized_client", 400), ("", 401), ("invalid_request", 400)]
)
async def test_a_client_that_is_refused_touches_no_grant_and_raises_one_alarm(
    quiet: House, error: str, status: int
) -> None:
    """A hundred people's tools ask; the provider is asked once, or twice where the word may be about one grant alone;
    the operator is told once."""
    house, subjects = quiet, await plant(quiet, 100, lives=-1)
    before = {held.record.id: held.record async for held in house.repository.grants()}
    refresh = house.idp.script.refresh
    if error:
        refresh.refuse(error, status, times=FOREVER)
    else:
        refresh.answer(status, b"", times=FOREVER)
    for subject in subjects:
        answer = await house.ask(of=turn(user=subject))
        assert isinstance(answer, Failed)
        assert Code.APP_MISCONFIGURED is answer.code
    assert (1 if error in {"", "invalid_client"} else 2) == house.idp.count("refresh_token")
    assert 1 == house.log.getvalue().count("refreshes pause")
    async for held in house.repository.grants():
        then, now = before[held.record.id], held.record
        assert replace(now, updated_at=then.updated_at) == then


@pytest.mark.case("54")
@pytest.mark.parametrize("error", ["unauthorized_client", "invalid_request", "invalid_scope", "invalid_target"])
async def test_what_the_provider_says_of_one_persons_grant_stops_nobody_elses(quiet: House, error: str) -> None:
    """Bob's tenant has removed our client; Alice's tools go on."""
    house = quiet
    await house.connected()
    await house.connected(account="bob", of=turn(user=BOB))
    house.clock.advance(HOUR)
    for _ in range(5):
        house.idp.script.refresh.refuse(error, 400)
        bob = await house.ask(of=turn(user=BOB))
        assert isinstance(bob, Failed)
        assert Code.APP_MISCONFIGURED is bob.code
        house.idp.script.reset()
        assert isinstance(await house.ask(), Ready)
        house.clock.advance(HOUR)


@pytest.mark.case("55")
@pytest.mark.parametrize("status", [400, 403, 404, 405, 408, 413])
async def test_a_wall_in_front_of_the_provider_ends_no_grant(quiet: House, status: int) -> None:
    """HTML where a token endpoint should be, for an hour: nobody has to agree again."""
    house = quiet
    await house.connected()
    house.clock.advance(HOUR)
    page = b"<html>Attention required!</html>"
    house.idp.script.refresh.answer(status, page, {"content-type": "text/html"}, times=FOREVER)
    for _ in range(60):
        assert isinstance(await house.ask(), Failed)
        house.clock.advance(60)
    house.idp.script.reset()
    house.clock.advance(301)
    assert isinstance(await house.ask(), Ready)


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
    quiet: House, spoil: Any
) -> None:
    """A bot has one grant. One line, not one a try."""
    house = quiet
    await house.connected()
    house.clock.advance(HOUR)
    spoil(house.idp.script.refresh)
    for _ in range(5):
        await house.ask()
        house.clock.advance(61)
    lines = [line for line in house.log.getvalue().splitlines() if "refresh" in line]
    assert lines
    assert all('"app": "mail"' in line and '"code"' in line and '"note"' in line for line in lines)


@pytest.mark.case("52")
async def test_a_bare_400_that_comes_again_after_minutes_is_the_end(quiet: House) -> None:
    """Several providers have no other word for a dead refresh token."""
    house = quiet
    await house.connected()
    house.clock.advance(HOUR)
    house.idp.script.refresh.answer(400, b"", times=FOREVER)
    answers = []
    for _ in range(12):
        answers.append((await house.ask()).status)
        house.clock.advance(61)
    assert "error" == answers[0]
    assert "authorization_required" == answers[-1]
    assert house.idp.count("refresh_token") <= 8


@pytest.mark.case("54")
async def test_once_the_operator_has_mended_it_the_same_grants_go_on(quiet: House) -> None:
    house = quiet
    await house.connected()
    house.clock.advance(HOUR)
    house.idp.script.refresh.refuse("invalid_client", 401)
    assert isinstance(await house.ask(), Failed)
    assert isinstance(await house.ask(), Failed)
    house.clock.advance(31)
    assert isinstance(await house.ask(), Ready)


@pytest.mark.case("55")
@pytest.mark.parametrize("how", ["500", "502", "503", "reset", "lost"])
async def test_a_provider_that_is_down_is_asked_less_and_less_and_then_all_is_well(quiet: House, how: str) -> None:
    """A tool that asks every second for ten minutes costs a few dozen requests, and the first one after the provider
    is back gets a token."""
    house = quiet
    house.idp.change("client-mail", reuse_grace=10_000)  # so that the lost answers cost no grant
    await house.connected()
    house.clock.advance(HOUR)
    refresh = house.idp.script.refresh
    if how == "reset":
        refresh.close_after_accept(reset=True, times=FOREVER)
    elif how == "lost":
        refresh.close_after_accept(after_work=True, times=FOREVER)
    else:
        refresh.answer(int(how), times=FOREVER)
    for _ in range(600):
        answer = await house.ask()
        assert isinstance(answer, Failed)
        assert (Code.PROVIDER_UNREACHABLE, True) == (answer.code, answer.retryable)
        house.clock.advance(1)
    assert 5 <= house.idp.count("refresh_token") <= 40
    house.idp.script.reset()
    house.clock.advance(301)
    assert isinstance(await house.ask(), Ready)


@pytest.mark.case("55")
async def test_a_provider_that_is_not_there_is_no_reason_to_bother_a_person(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = user_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, background=False) as house:
        await house.connected()
        house.clock.advance(HOUR)
        endpoints = replace(app.endpoints, refresh_url="http://127.0.0.1:9/token")
        async with running(
            identity_provider,
            [replace(app, endpoints=endpoints)],
            clock=test_clock,
            store=house.store,
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
async def test_a_provider_that_is_not_available_for_a_time_is_left_in_peace_by_the_whole_app(
    quiet: House, said: str, seconds: int | None
) -> None:
    """Clamped to 1 s..1 h. Another person's tool is told the same without a request; another app is not concerned."""
    house, code = quiet, Code.PROVIDER_UNREACHABLE
    first, second = await plant(house, 2, lives=-1)
    await house.connected("files")
    house.clock.advance(HOUR)
    house.idp.script.client("client-mail").refresh.busy(said, 503)
    answer = await house.ask(of=turn(user=first))
    assert isinstance(answer, Failed)
    assert (code, seconds) == (answer.code, answer.retry_after_seconds)
    assert isinstance(await house.ask("files"), Ready)
    if seconds is not None:
        other = await house.ask(of=turn(user=second))
        assert isinstance(other, Failed)
        assert (code, seconds) == (other.code, other.retry_after_seconds)
        assert 1 == house.idp.count("refresh_token", "client-mail")
        house.clock.advance(seconds)
    else:
        house.clock.advance(2)
    assert "authorization_required" == (await house.ask(of=turn(user=second))).status  # asked again: it never knew it
    assert 2 == house.idp.count("refresh_token", "client-mail")


@pytest.mark.case("56")
@pytest.mark.parametrize("said, seconds", RETRY_AFTER)
async def test_one_person_who_is_too_much_for_a_provider_stops_nobody_else(
    quiet: House, said: str, seconds: int | None
) -> None:
    """Bob's account has a limit of its own: it is kept, clamped to 1 s..1 h, and Alice's tools go on."""
    house, bob = quiet, turn(user=BOB)
    await house.connected()
    await house.connected(account="bob", of=bob)
    house.clock.advance(HOUR)
    house.idp.script.refresh.busy(said, 429)
    for waits in ({seconds}, {seconds} if seconds is not None else {1, 2}):
        answer = await house.ask(of=bob)
        assert isinstance(answer, Failed)
        assert Code.PROVIDER_RATE_LIMITED is answer.code
        assert answer.retry_after_seconds in waits
    assert 1 == house.idp.count("refresh_token")
    assert isinstance(await house.ask(), Ready)
    assert "refreshes of one grant pause" in house.log.getvalue()
    house.clock.advance(seconds or 2)
    assert isinstance(await house.ask(of=bob), Ready)
    assert 3 == house.idp.count("refresh_token")


@pytest.mark.case("56")
async def test_a_provider_that_is_asked_too_much_by_everybody_gets_a_pause_from_the_whole_app(quiet: House) -> None:
    """A hundred people's tools ask: the second who is sent away speaks for all of them. Another app is not concerned."""
    house, subjects = quiet, await plant(quiet, 100, lives=-1)
    await house.connected("files")
    house.clock.advance(HOUR)
    house.idp.script.client("client-mail").refresh.busy("600", 429, times=FOREVER)
    for subject in subjects:
        answer = await house.ask(of=turn(user=subject))
        assert isinstance(answer, Failed)
        assert (Code.PROVIDER_RATE_LIMITED, 600) == (answer.code, answer.retry_after_seconds)
    assert 2 == house.idp.count("refresh_token", "client-mail")
    assert isinstance(await house.ask("files"), Ready)
    assert ["refreshes of one grant pause", "refreshes pause"] == [
        json.loads(line)["event"] for line in house.log.getvalue().splitlines() if "pause" in line
    ]
    house.clock.advance(600)
    for subject in subjects[:5]:
        await house.ask(of=turn(user=subject))
    assert 3 == house.idp.count("refresh_token", "client-mail"), "one tries for all"


@pytest.mark.case("56")
async def test_a_pause_until_a_date_counts_by_the_providers_own_clock(quiet: House) -> None:
    house = quiet
    await house.connected()
    house.clock.advance(HOUR)
    dates = {"Retry-After": "Wed, 21 Oct 2026 07:30:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    house.idp.script.refresh.answer(429, {}, dates)
    answer = await house.ask()
    assert isinstance(answer, Failed)
    assert 120 == answer.retry_after_seconds


@pytest.mark.case("60")
async def test_a_time_that_no_token_of_the_provider_lives_is_said_at_once(quiet: House) -> None:
    house = quiet
    await house.connected()
    for _ in range(20):
        answer = await house.ask(min_ttl_seconds=7200)
        assert isinstance(answer, Failed)
        assert (Code.MIN_TTL_UNSATISFIABLE, False) == (answer.code, answer.retryable)
    assert house.idp.count("refresh_token") <= 1


@pytest.mark.case("60")
async def test_a_provider_that_has_begun_to_issue_shorter_tokens_is_asked_once(quiet: House) -> None:
    house = quiet
    await house.connected()
    house.clock.advance(HOUR - 60)
    house.idp.change("client-mail", access_lifetime=600)
    for _ in range(20):
        answer = await house.ask(min_ttl_seconds=1800)
        assert isinstance(answer, Failed)
        assert Code.MIN_TTL_UNSATISFIABLE is answer.code
    assert 1 == house.idp.count("refresh_token")
    assert isinstance(await house.ask(), Ready)


@pytest.mark.case("60")
async def test_a_tool_that_wants_all_but_a_second_of_a_tokens_life_is_stopped_within_the_hour(quiet: House) -> None:
    """It could have the token renewed at every call."""
    house = quiet
    await house.connected()
    answers = []
    for _ in range(200):
        house.clock.advance(2)
        answers.append(await house.ask(min_ttl_seconds=3599))
    assert house.broker.bundle.settings.limits.rejections_per_hour == house.idp.count("refresh_token")
    last = answers[-1]
    assert isinstance(last, Failed)
    assert Code.RATE_LIMITED is last.code
    assert isinstance(await house.ask(), Ready)


@pytest.mark.case("49")
async def test_a_spare_refresh_token_is_kept_although_the_disk_fails_once(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The provider has rotated, we refuse the answer, and the only refresh token that lives meets a bad disk."""
    store = UnwellStore(test_clock)
    apps = [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=store, background=False) as house:
        await house.connected()
        house.clock.advance(HOUR)

        def grown_while_the_disk_fills_up(answer: dict[str, Any]) -> dict[str, Any]:
            store.refuses = 1
            return {**answer, "scope": "read write admin everything"}

        house.idp.script.refresh.alter(grown_while_the_disk_fills_up)
        assert isinstance(await house.ask(), Failed)
        assert 0 == store.refuses
        while (held := await house.grant()) is None or held.refresh_state.spare is None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        house.clock.advance(100)
        assert isinstance(await house.ask(), Ready)
        (family,) = house.idp.families("client-mail")
        assert "" == family.ended_by


async def test_a_grant_that_is_revoked_while_its_refresh_waits_and_fails_is_not_served(
    quiet: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the caller saw before the revoke is no answer any more."""
    house = quiet
    await house.connected()
    house.clock.advance(HOUR - 200)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def endpoints(_: object) -> Any:
        began.set()
        await go_on.wait()
        raise BrokerError(Code.PROVIDER_UNREACHABLE)

    monkeypatch.setattr(house.parts.manager.refresh.discovery, "endpoints", endpoints)
    asking = asyncio.create_task(house.ask())
    await began.wait()
    monkeypatch.undo()
    revoking = asyncio.create_task(house.broker.revoke("mail", subject=ALICE))
    while not (grant := await house.grant()) or not grant.revoked:
        await asyncio.sleep(0.01)
    go_on.set()
    assert "authorization_required" == (await asking).status
    assert await revoking


@pytest.mark.case("60")
async def test_tokens_that_live_a_minute_are_not_refreshed_at_every_call(quiet: House) -> None:
    """Shorter than our default minimum: half of their life is enough."""
    house = quiet
    house.idp.change("client-mail", access_lifetime=60)
    await house.connected()
    for _ in range(300):
        assert isinstance(await house.ask(), Ready)
        house.clock.advance(1)
    assert 9 <= house.idp.count("refresh_token") <= 11


@pytest.mark.case("100")
async def test_a_provider_that_hangs_for_one_app_keeps_no_other_app_waiting(quiet: House) -> None:
    house = quiet
    await house.connected()
    await house.connected("files")
    house.clock.advance(HOUR)
    hanging = house.idp.script.client("client-mail").refresh.hang()
    waiting = asyncio.create_task(house.ask())
    await hanging.arrived()
    assert isinstance(await house.ask("files"), Ready)
    assert not waiting.done()
    hanging.release()
    assert isinstance(await waiting, Ready)


def upkeep_of(house: House) -> BackgroundRefresh:
    return house.parts.background_refresh


async def test_a_token_in_use_is_refreshed_ahead_of_its_end_where_the_app_says_so(quiet: House) -> None:
    """Nobody waits for it. What is not used again is let go."""
    house = quiet
    await house.connected("ahead")
    await house.connected()
    upkeep = upkeep_of(house)
    assert 0 == await upkeep.ahead()
    house.clock.advance(HOUR - 301)
    assert 1 == await upkeep.ahead()
    assert (1, 0) == (house.idp.count("refresh_token", "client-ahead"), house.idp.count("refresh_token", "client-mail"))
    assert isinstance(await house.ask("ahead"), Ready)
    assert 1 == house.idp.count("refresh_token")
    house.clock.advance(HOUR)
    assert 1 == await upkeep.ahead()
    house.clock.advance(HOUR)
    assert 0 == await upkeep.ahead()


async def test_what_somebody_else_has_refreshed_or_ended_is_not_refreshed_ahead(quiet: House) -> None:
    house = quiet
    first = await house.connected("ahead")
    await house.broker.oauth(turn()).report_rejected("ahead", first.access_token)
    house.clock.advance(HOUR - 301)
    assert 1 == await upkeep_of(house).ahead()
    assert 2 == house.idp.count("refresh_token")
    assert isinstance(await house.ask("ahead"), Ready)
    await house.broker.revoke("ahead", subject=ALICE)
    house.clock.advance(HOUR)
    assert 0 == await upkeep_of(house).ahead()


@pytest.mark.case("100")
async def test_refreshes_ahead_are_spread(quiet: House) -> None:
    """Tokens issued in one second are not renewed in one second."""
    house = quiet
    upkeep, app = upkeep_of(house), house.broker.bundle.apps["ahead"]
    for subject in await plant(house, 200, lives=HOUR):
        grant = await house.grant("mail", subject)
        assert grant is not None
        upkeep.in_use(app, grant)
    due = sorted(at for _, (_, at) in upkeep._watched.items())
    assert 250 < due[-1] - due[0] <= 300
    assert len(set(due)) > 150


async def test_refreshes_are_counted_and_named_by_app_and_code_alone(quiet: House) -> None:
    house = quiet
    await house.connected()
    house.clock.advance(HOUR)
    house.idp.script.refresh.answer(500)
    await house.ask()
    house.clock.advance(10)
    await house.ask()
    counts = house.broker.metrics
    assert (1, 1) == (
        counts.value(Metric.RENEWALS, "mail"),
        counts.value(Metric.RENEWAL_FAILURES, Code.PROVIDER_UNREACHABLE.value),
    )


@pytest.mark.case("56")
async def test_a_provider_whose_metadata_cannot_be_read_opens_the_circuit_of_its_app(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """No refresh reaches it, and every call would wait for its metadata."""
    app = user_app(identity_provider, endpoints=Endpoints(issuer=identity_provider.issuer))
    async with running(identity_provider, [app], clock=test_clock, background=False) as house:
        await house.connected()
        test_clock.advance(25 * HOUR)
        identity_provider.script.discovery.answer(503, times=FOREVER)
        for _ in range(3):
            test_clock.advance(31)
            failed = await house.ask()
            assert isinstance(failed, Failed)
            assert Code.PROVIDER_UNREACHABLE is failed.code
        assert ["mail"] == house.parts.manager.refresh.circuits.open_for()
