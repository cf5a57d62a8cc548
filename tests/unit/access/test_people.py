"""What stands behind the pages for people: a link is won once, uses cost little, dead letters come back, health is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.access.browser_sessions import MOST, BrowserSessions
from oauthbroker.audit import DeadLetterChanged
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.events.dead_letters import DeadLetters
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.records import Token
from oauthbroker.records.browser_session import BrowserSession, subjects_of
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.use import GrantUse
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.format.port import Entry
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Canaries, TestClock
from oauthbroker.testing.stores import open_file_store
from oauthbroker.tokens.grant_uses import MOST_NOTED, Uses
from tests.kit.running_broker import UnwellStore
from tests.unit.records import kit

SUBJECTS = {"user": "idp:user:alice"}


def browser_sessions_on(store: Any, clock: TestClock) -> BrowserSessions:
    return BrowserSessions(
        records=Repository(store).records("browsersessions", BrowserSession.from_plaintext), clock=clock
    )


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(clock: TestClock) -> MemoryStore:
    return MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)


# visits


@given(
    st.builds(
        BrowserSession,
        locator=st.text("abcXYZ019_-", min_size=22, max_size=22),
        pages=st.sampled_from(["connections", "admin"]),
        created_at=kit.moments,
        expires_at=kit.moments,
        subjects=st.dictionaries(st.sampled_from(["user", "global"]), kit.names).map(subjects_of),
        operator=kit.texts,
        key=kit.texts,
        ticket_hash=st.none() | kit.names,
        cookie_hash=st.none() | kit.names,
    )
)
def test_a_browser_session_is_read_as_it_was_written(browser_session: BrowserSession) -> None:
    assert browser_session == BrowserSession.from_plaintext(browser_session.to_plaintext())


@pytest.mark.case("59")
@pytest.mark.parametrize(("back", "is_last"), [(1, False), (600, False), (24 * 3600, True)])
def test_a_use_after_the_clock_was_set_back_is_the_last_one(back: int, is_last: bool) -> None:
    """What another process writes late is older by minutes, and changes nothing."""
    before = GrantUse.first("grant", "planner", None, NOW)
    after = GrantUse.first("grant", "writer", None, NOW - timedelta(seconds=back))
    assert ("writer" if is_last else "planner") == before.and_then(after).agent


@given(
    st.builds(
        GrantUse,
        grant=kit.names,
        first_agent=kit.names,
        first_at=kit.moments,
        agent=kit.names,
        tool=st.none() | kit.names,
        at=kit.moments,
    )
)
def test_a_use_is_read_as_it_was_written(use: GrantUse) -> None:
    assert use == GrantUse.from_plaintext(use.to_plaintext())


async def test_of_many_who_press_the_button_at_once_one_comes_in(tmp_path: Path, clock: TestClock) -> None:
    """In two processes of one store."""
    listeners = [browser_sessions_on(open_file_store(tmp_path, clock=clock), clock) for _ in range(2)]
    ticket, _ = await listeners[0].invite(SUBJECTS)
    Canaries.active().add(ticket, "ticket")
    tries = await asyncio.gather(*(listeners[n % 2].open(ticket.reveal()) for n in range(20)), return_exceptions=True)
    came_in = [each for each in tries if not isinstance(each, BaseException)]
    assert 1 == len(came_in)
    assert {Code.STATE_UNKNOWN} == {each.code for each in tries if isinstance(each, BrokerError)}
    cookie = came_in[0].cookie.reveal()
    assert [came_in[0].browser_session.id] * 2 == [
        getattr(await listener.admit(cookie, "connections"), "id", "") for listener in listeners
    ]


async def test_a_browser_session_tells_nothing_when_it_is_printed(store: MemoryStore, clock: TestClock) -> None:
    browser_sessions = browser_sessions_on(store, clock)
    ticket, _ = await browser_sessions.invite(SUBJECTS)
    arrival = await browser_sessions.open(ticket.reveal())
    for secret in (
        ticket.reveal()[22:],
        arrival.cookie.reveal()[22:],
        "idp:user:alice",
        str(arrival.browser_session.cookie_hash),
    ):
        assert secret not in repr(arrival)


async def test_the_number_of_links_is_bounded(store: MemoryStore, clock: TestClock) -> None:
    browser_sessions = browser_sessions_on(store, clock)
    browser_sessions._counted = MOST
    with pytest.raises(BrokerError) as refused:
        await browser_sessions.invite(SUBJECTS)
    assert Code.RATE_LIMITED is refused.value.code
    await browser_sessions.sweep()
    await browser_sessions.invite(SUBJECTS)
    browser_sessions._counted = MOST
    await browser_sessions.sweep()
    await browser_sessions.invite(SUBJECTS)


async def test_browser_sessions_are_read_through_once_in_five_minutes_however_often_they_are_swept(
    store: MemoryStore, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, scans = store.scan, list[str]()

    def counted(kind: str) -> AsyncIterator[Entry]:
        scans.append(kind)
        return scan(kind)

    monkeypatch.setattr(store, "scan", counted)
    browser_sessions = browser_sessions_on(store, clock)
    await browser_sessions.invite(SUBJECTS)
    for _ in range(40):  # twenty minutes of rounds
        await browser_sessions.sweep()
        clock.advance(30)
    assert 4 == len(scans)
    assert not [browser_session async for browser_session in browser_sessions.records.all()]


# uses


def uses_on(store: Any, clock: TestClock) -> Uses:
    return Uses(Repository(store).records("uses", GrantUse.from_plaintext), clock)


async def test_the_latest_use_of_any_process_counts_and_the_first_stays(tmp_path: Path, clock: TestClock) -> None:
    one, two = (uses_on(open_file_store(tmp_path, clock=clock), clock) for _ in range(2))
    one.note("g", "planner", None, clock.now())
    await one.write()
    clock.advance(60)
    two.note("g", "researcher", "Tool/x", clock.now())
    seen = await two.last("g")
    assert seen is not None
    assert ("planner", "researcher", "Tool/x", clock.now()) == (seen.first_agent, seen.agent, seen.tool, seen.at)
    assert 1 == await two.write()
    assert seen == await one.last("g")
    one.note("g", "late", None, clock.now() - timedelta(seconds=30))
    assert seen == await one.last("g"), "an older note changes nothing"


async def test_what_the_store_does_not_take_is_written_later(clock: TestClock) -> None:
    store = UnwellStore(clock)
    uses = uses_on(store, clock)
    uses.note("g", "planner", None, clock.now())
    store.refuses = 1
    with pytest.raises(BrokerError):
        await uses.write()
    assert 1 == await uses.write()
    assert 0 == await uses.write()


async def test_notes_are_bounded(store: MemoryStore, clock: TestClock) -> None:
    uses = uses_on(store, clock)
    for number in range(MOST_NOTED + 10):
        uses.note(str(number), "planner", None, clock.now())
    assert MOST_NOTED == len(uses._noted)


# queues


@pytest.fixture
def queues(store: MemoryStore, clock: TestClock) -> StoreQueues:
    return StoreQueues(repository=Repository(store), clock=clock, limits=Limits(queue_attempts=1), metrics=Metrics())


async def die(queues: StoreQueues, number: int) -> str:
    event = kit.event(number)
    await queues.enqueue(event)
    delivery = await queues.lease(event.target.agent_name)
    assert delivery is not None
    await delivery.nack()
    return event.id


async def test_a_dead_letter_that_is_revived_is_delivered_and_a_dropped_one_never(
    store: MemoryStore, clock: TestClock, queues: StoreQueues
) -> None:
    first, second = await die(queues, 1), await die(queues, 2)
    audit = AuditList()
    letters = DeadLetters(queues, clock, audit)
    (state,) = await letters.states()
    assert (0, 0, 2) == (state.waiting, state.leased, state.dead)
    agent = state.agent
    assert [second, first] == [letter.id for letter in await letters.dead()]
    assert await letters.retry(agent, first)
    assert await letters.drop(agent, second)
    assert not await letters.retry(agent, first)
    assert not await letters.drop(agent, second)
    assert not await letters.retry("nobody", second)
    assert [
        DeadLetterChanged(agent=agent, event=first, action="retried"),
        DeadLetterChanged(agent=agent, event=second, action="dropped"),
    ] == audit.entries
    delivery = await queues.lease(agent)
    assert delivery is not None
    assert (first, 1) == (delivery.id, delivery.attempt)
    (state,) = await letters.states()
    assert (0, 1, 0) == (state.waiting, state.leased, state.dead)
    assert await delivery.ack()
    assert [] == await letters.states()
    assert 0 == await store.count("events")


async def test_a_dead_letter_whose_body_is_gone_is_shown_as_far_as_it_is_known(
    store: MemoryStore, clock: TestClock, queues: StoreQueues
) -> None:
    event = await die(queues, 1)
    await Repository(store).events.drop(event)
    (letter,) = await DeadLetters(queues, clock, AuditList()).dead()
    assert (event, "", None, 1) == (letter.id, letter.type, letter.made, letter.attempts)


async def test_dead_letters_of_one_agent_are_shown_alone_and_at_most_so_many(
    store: MemoryStore, clock: TestClock, queues: StoreQueues
) -> None:
    first, second = await die(queues, 1), await die(queues, 2)
    letters = DeadLetters(queues, clock, AuditList())
    (state,) = await letters.states()
    assert [second, first] == [letter.id for letter in await letters.dead(state.agent)]
    assert [second] == [letter.id for letter in await letters.dead(most=1)]
    assert [] == await letters.dead("nobody")


async def test_where_it_cannot_be_written_down_a_dead_letter_stays(
    store: MemoryStore, clock: TestClock, queues: StoreQueues
) -> None:
    event = await die(queues, 1)
    letters = DeadLetters(queues, clock, AuditList())
    (state,) = await letters.states()

    async def refuse() -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    for act in (letters.retry, letters.drop):
        with pytest.raises(BrokerError, match="storeUnavailable"):
            await act(state.agent, event, refuse)
    assert [event] == [letter.id for letter in await letters.dead()]


# circuits and health


def test_open_circuits_are_listed_with_their_remaining_seconds(clock: TestClock) -> None:
    circuits = Circuits(clock)
    circuits.failed("mail", BrokerError(Code.APP_MISCONFIGURED))
    circuits.pause_one("files", "g", BrokerError(Code.PROVIDER_UNREACHABLE))
    clock.advance(0.25)
    mail, files = circuits.open_now()
    assert ("mail", "", Code.APP_MISCONFIGURED, 29.75) == (mail.app, mail.grant, mail.code, mail.seconds_left)
    assert ("files", "g", Code.PROVIDER_UNREACHABLE) == (files.app, files.grant, files.code)
    clock.advance(31)
    assert [] == circuits.open_now()


NOW = kit.CREATED


def a_token(seconds: float | None, *, refresh: bool) -> Token:
    ends = None if seconds is None else NOW + timedelta(seconds=seconds)
    return Token(
        access_token=Secret("not-a-token"),
        token_type="Bearer",
        refresh_token=Secret("not-either") if refresh else None,
        expires_at=ends,
        lifetime_seconds=3600,
    )


@pytest.mark.parametrize(
    ("changes", "state", "seconds"),
    [
        ({"token": a_token(3600, refresh=True)}, "alive", None),
        ({"token": a_token(-5, refresh=True)}, "alive", None),
        ({"token": a_token(None, refresh=False)}, "alive", None),
        ({"token": a_token(3600, refresh=False)}, "ending", 3600),
        ({"token": a_token(90_000, refresh=False)}, "alive", 90_000),
        ({"token": a_token(0, refresh=False)}, "again", 0),
        ({"token": a_token(-5, refresh=False), "flow": "client_credentials"}, "alive", None),
        ({"token": None}, "again", None),
        ({"revoked": True}, "ended", None),
    ],
)
def test_a_grants_health(changes: dict[str, Any], state: str, seconds: float | None) -> None:
    grant = replace(kit.grant(), **{"token": a_token(60, refresh=True), **changes})
    view = GrantView.of(grant, None, NOW)
    assert (state, None if seconds is None else NOW + timedelta(seconds=seconds)) == (view.health, view.until)


@pytest.mark.parametrize(("ended", "state"), [("dead", "ending"), ("uncertain", "ending"), ("quarantined", "again")])
def test_a_grant_whose_refreshes_have_ended_ends_with_its_token(ended: Any, state: str) -> None:
    grant = replace(kit.grant(), token=a_token(600, refresh=True))
    grant = replace(grant, refresh_state=grant.refresh_state.over(ended))
    assert state == GrantView.of(grant, None, NOW).health
