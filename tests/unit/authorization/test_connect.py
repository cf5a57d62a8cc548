"""A connect link: the one open session that its ticket names, what each press starts, and how it is declined or withdrawn."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.audit import ConnectStarted, RequestWithdrawn
from oauthbroker.authorization.connect import TRIES, Connect, Departure
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret, digest_of
from oauthbroker.model.apps import App
from oauthbroker.model.broker_login import BrokerLogin
from oauthbroker.records import Attempt, AuthSession, Login
from oauthbroker.records.auth_session import MAX_PRESSES, Claim
from oauthbroker.records.device_authorization import Device
from oauthbroker.records.pending_code import PendingCode
from oauthbroker.repository.repository import Conflict, Versioned
from tests.kit.samples import NOW, app_with, grant_with, session_with
from tests.unit.authorization.finish_kit import APP, FinishWorld, moved_on

LOCATOR = "L" * 22
TICKET = LOCATOR + "t" * 43
LATER = NOW + timedelta(seconds=60)
DEVICE = Device(
    code=Secret("dc"), user_code="ABCD", verification_uri="https://acme.example/device",
    verification_uri_complete=None, interval=5, next_poll_at=NOW,
)  # fmt: skip
PENDING = PendingCode(kind="channelCode", code=Secret("c"), proof=Secret("ABCDEFGH"), until=LATER)
LOGIN = BrokerLogin(app_with(name="login", scopes=("openid",)))


class World(FinishWorld):
    """A connect link, with a scripted builder of authorization URLs."""

    def __init__(self) -> None:
        super().__init__()
        self.pushing, self.fails = False, list[BrokerError]()
        self.asked = list[tuple[App, Attempt, tuple[str, ...]]]()
        self.discovered = list[str]()
        self.unknown: BrokerError | None = None
        others: Any = self
        self.connect = Connect(
            repository=self.repository, authorization_urls=others, discovery=others, finish=self.finish,
            clock=self.clock, audit=self.audit,
        )  # fmt: skip

    async def endpoints(self, app: App) -> Any:
        self.discovered.append(app.name)
        if self.unknown is not None:
            raise self.unknown
        return app.endpoints

    async def pushes(self, app: App) -> bool:
        return self.pushing

    async def now(self, app: App, attempt: Attempt, scopes: tuple[str, ...]) -> Secret:
        self.asked.append((app, attempt, scopes))
        if self.fails:
            raise self.fails.pop()
        return Secret(f"https://acme.example/{app.name}")

    async def start(self, ticket: str = TICKET, login: BrokerLogin | None = None) -> Any:
        return await outcome(self.connect.start(self.app, ticket, login))


async def outcome(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except BrokerError as error:
        return error.code


@pytest.fixture
def world() -> World:
    return World()


# The ticket


ENDS: dict[str, dict[str, Any]] = {
    "ended": {"status": "completed"},
    "claimed": {"claim": Claim("x", LATER)},
    "with a pending code": {"pending_code": PENDING},
    "expired": {"expires_at": NOW},
    "without a ticket": {"ticket": None},
    "with another ticket": {"ticket": Secret(LOCATOR + "u" * 43)},
}


async def test_a_ticket_names_its_open_session_and_changes_nothing(world: World) -> None:
    versioned = await world.put()
    found = await world.connect.session_of_ticket(TICKET)
    assert (versioned.record, versioned.generation) == (found.record, found.generation)
    assert ([], versioned.record) == (world.entries(), await world.session())


@pytest.mark.parametrize("name", ENDS)
async def test_a_session_that_waits_for_no_browser_is_unknown(world: World, name: str) -> None:
    await world.put(**ENDS[name])
    assert Code.STATE_UNKNOWN is await outcome(world.connect.session_of_ticket(TICKET))
    assert Code.STATE_UNKNOWN is await outcome(world.connect.shown(TICKET))


@pytest.mark.parametrize("ticket", ["M" * 22 + "t" * 43, LOCATOR, TICKET + "t", "", f"{LOCATOR}/{'t' * 42}"])
async def test_a_ticket_of_no_session_is_unknown(world: World, ticket: str) -> None:
    await world.put()
    assert Code.STATE_UNKNOWN is await outcome(world.connect.session_of_ticket(ticket))
    assert Code.STATE_UNKNOWN is await outcome(world.connect.shown(ticket))


@pytest.mark.parametrize(
    "changes", [{}, {"claim": Claim("x", LATER)}, {"expires_at": NOW}], ids=["open", "claimed", "expired"]
)
async def test_the_page_of_a_device_code_is_shown_again_while_its_ticket_is_known(world: World, changes: Any) -> None:
    await world.put(device=DEVICE, **changes)
    assert await world.session() == await world.connect.shown(TICKET)


async def test_the_page_of_a_device_code_is_shown_after_its_end_to_the_holder_of_its_link(world: World) -> None:
    versioned = await world.put(device=DEVICE, attempt=Attempt.none())
    ended = versioned.record.completed(NOW)
    await world.repository.save_session(ended, expect=versioned.generation)
    assert ended == await world.connect.shown(TICKET)
    assert Code.STATE_UNKNOWN is await outcome(world.connect.shown(LOCATOR + "u" * 43))


async def test_a_page_in_a_browser_is_shown_while_its_session_is_open(world: World) -> None:
    await world.put()
    assert await world.session() == await world.connect.shown(TICKET)


# The browser that comes back


def tried_by(cookie: str) -> Attempt:
    return replace(session_with().attempt, cookie=digest_of(cookie))


@pytest.mark.parametrize(
    ("changes", "cookie", "is_its_own"),
    [
        ({"attempt": tried_by("a")}, "a", True),
        ({"attempt": tried_by("a")}, "b", False),
        ({"attempt": tried_by("a"), "login": Login(attempt=tried_by("b"), digest="d")}, "b", True),
        ({"attempt": tried_by("a"), "login": Login(attempt=tried_by("b"), digest="d")}, "a", True),
        ({"attempt": tried_by("a"), "login": Login(attempt=tried_by("b"), digest="d")}, "c", False),
        ({"attempt": tried_by("a"), "status": "completed"}, "a", True),
    ],
)
async def test_a_session_is_known_to_the_browser_that_took_it_away(
    world: World, changes: Any, cookie: str, is_its_own: bool
) -> None:
    versioned = await world.put(**changes)
    assert (versioned.record if is_its_own else None) == await world.connect.session_of(LOCATOR, cookie)
    assert versioned.record == await world.connect.outcome_of(LOCATOR)


async def test_a_session_that_does_not_exist_is_none(world: World) -> None:
    assert None is await world.connect.session_of("M" * 22, "a")
    assert None is await world.connect.outcome_of("M" * 22)


@pytest.mark.parametrize(
    ("grant", "is_of"),
    [
        (grant_with(auth_session_id=f"as-{LOCATOR}"), True),
        (grant_with(auth_session_id="as-other"), False),
        (grant_with(auth_session_id=f"as-{LOCATOR}", revoked=True), False),
        (None, False),
    ],
)
async def test_a_session_has_the_living_grant_that_it_created(world: World, grant: Any, is_of: bool) -> None:
    if grant is not None:
        await world.put_grant(grant)
    assert (grant if is_of else None) == await world.connect.grant_of(session_with())


# The scopes


@pytest.mark.parametrize(
    ("session", "grant", "expected"),
    [
        ({}, {}, ("read", "write")),
        ({"switch_account": True}, {}, ("write",)),
        ({"device": DEVICE}, {}, ("write",)),
        ({}, {"revoked": True}, ("write",)),
        ({}, {"registration": "another"}, ("write",)),
        ({}, None, ("write",)),
    ],
    ids=["a grant", "a switch", "a device code", "revoked", "another client", "no grant"],
)
async def test_a_consent_removes_no_scope_of_a_grant_that_came_meanwhile(
    world: World, session: Any, grant: Any, expected: Any
) -> None:
    if grant is not None:
        await world.put_grant(grant_with(**{"registration": APP.registration, "scopes": ("read",), **grant}))
    assert expected == await world.connect.scopes_now(APP, session_with(scopes=("write",), **session))


async def test_a_consent_that_comes_between_the_two_reads_is_not_missed(world: World) -> None:
    """It stores its grant, and then it is no longer on the list."""
    read = world.repository.waiting

    async def ended(app: str, subject: str) -> list[Versioned[AuthSession]]:
        await world.put_grant(grant_with(registration=APP.registration, scopes=("read",)))
        return await read(app, subject)

    world.repository.waiting = ended  # type: ignore[method-assign]
    assert ("read", "write") == await world.connect.scopes_now(APP, session_with(scopes=("write",)))


# The button


async def test_a_press_stores_a_new_attempt_and_returns_the_way_to_the_provider(world: World) -> None:
    before = (await world.put()).record
    departure = await world.start()
    assert isinstance(departure, Departure)
    session = await world.session()
    assert (session, "https://acme.example/mail") == (departure.session, departure.url.reveal())
    assert (1, digest_of(departure.cookie.reveal())) == (session.presses, session.attempt.cookie)
    assert 43 == len(departure.cookie.reveal()), "256 random bits"
    assert session.attempt.state.reveal().startswith(LOCATOR)
    assert session.attempt.state != before.attempt.state
    ((app, attempt, scopes),) = world.asked
    assert (APP, session.attempt, ("read",)) == (app, attempt, scopes)
    assert [ConnectStarted(app="mail", session=session.id)] == [each for _, each in world.audit.lines]


async def test_the_last_browser_wins(world: World) -> None:
    await world.put()
    first, second = await world.start(), await world.start()
    assert isinstance(first, Departure)
    assert isinstance(second, Departure)
    session = await world.session()
    assert (2, digest_of(second.cookie.reveal())) == (session.presses, session.attempt.cookie)


@pytest.mark.parametrize("tries", [0, 1])
async def test_after_a_wrong_account_the_provider_is_to_ask_which_one(world: World, tries: int) -> None:
    await world.put(tries=tries)
    await world.start()
    ((app, *_),) = world.asked
    assert (APP.asking_which_account() if tries else APP) == app


async def test_the_scopes_of_a_grant_that_came_meanwhile_are_stored_with_the_attempt(world: World) -> None:
    await world.put(scopes=("write",))
    await world.put_grant(grant_with(registration=APP.registration))
    await world.start()
    assert ("read", "write") == (await world.session()).scopes == world.asked[0][2]


@pytest.mark.parametrize("presses", [MAX_PRESSES - 1, MAX_PRESSES])
async def test_a_link_may_be_started_a_bounded_number_of_times(world: World, presses: int) -> None:
    await world.put(presses=presses)
    is_worn_out = presses == MAX_PRESSES
    assert is_worn_out is (await world.start() is Code.STATE_UNKNOWN)
    assert ([] if is_worn_out else ["ConnectStarted"]) == world.entries()


async def test_a_device_code_takes_no_browser_away(world: World) -> None:
    await world.put(device=DEVICE)
    assert (Code.REQUEST_INVALID, []) == (await world.start(), world.asked)


async def test_an_app_that_has_changed_ends_the_session(world: World) -> None:
    await world.put(config_digest="old")
    assert Code.STATE_UNKNOWN is await world.start()
    assert ("expired", []) == ((await world.session()).status, world.entries())


@pytest.mark.parametrize("pushing", [True, False])
async def test_a_press_that_costs_the_provider_a_request_is_counted_before_it(world: World, pushing: bool) -> None:
    before = (await world.put()).record
    world.pushing, world.fails = pushing, [BrokerError(Code.PROVIDER_UNREACHABLE)]
    assert Code.PROVIDER_UNREACHABLE is await world.start()
    session = await world.session()
    assert (1 if pushing else 0, before.attempt) == (session.presses, session.attempt)


async def test_metadata_that_cannot_be_read_stops_a_press_before_anything_is_noted(world: World) -> None:
    before = (await world.put()).record
    world.unknown = BrokerError(Code.PROVIDER_UNREACHABLE)
    assert (Code.PROVIDER_UNREACHABLE, []) == (await world.start(), world.entries())
    assert before == await world.session()


async def test_a_press_beside_another_writer_is_tried_again_and_noted_once(world: World) -> None:
    await world.put()
    world.fails = [Conflict()]
    departure = await world.start()
    assert isinstance(departure, Departure)
    assert (2, ["ConnectStarted"]) == (len(world.asked), world.entries())
    assert world.asked[0][1] != world.asked[1][1], "each try has an attempt of its own"


async def test_a_press_gives_up_after_eight_conflicts(world: World) -> None:
    before = (await world.put()).record
    world.fails = [Conflict() for _ in range(TRIES)]
    assert (Code.STORE_LOCKED, TRIES) == (await world.start(), len(world.asked))
    assert before == await world.session()


# The broker's own login


@pytest.mark.parametrize("was_wrong", [False, True])
async def test_a_broker_login_comes_first_and_voids_earlier_attempts(world: World, was_wrong: bool) -> None:
    await world.put(login=Login(attempt=tried_by("a"), digest="d", wrong=was_wrong))
    departure = await world.start(login=LOGIN)
    assert isinstance(departure, Departure)
    session = await world.session()
    assert session.login is not None
    assert (LOGIN.digest(), was_wrong, False) == (session.login.digest, session.login.wrong, session.login.used)
    assert (digest_of(departure.cookie.reveal()), 1) == (session.login.attempt.cookie, session.presses)
    assert (Attempt.none(), "https://acme.example/login") == (session.attempt, departure.url.reveal())
    ((app, attempt, scopes),) = world.asked
    assert (LOGIN.asking(again=was_wrong), session.login.attempt, ("openid",)) == (app, attempt, scopes)


async def test_a_first_login_does_not_ask_which_account(world: World) -> None:
    await world.put()
    await world.start(login=LOGIN)
    assert LOGIN.asking(again=False) == world.asked[0][0]


# The end by its user


async def test_a_declined_link_fails_with_an_event(world: World) -> None:
    versioned = await world.put()
    assert versioned.record == await world.connect.decline(TICKET)
    session = await world.session()
    assert session.outbox is not None
    assert (Code.PROVIDER_DENIED, "auth.denied") == (session.failure, session.outbox.type)


async def test_a_link_is_declined_once_and_its_end_is_durable_before_that_is_told(world: World) -> None:
    await world.put()
    await world.connect.decline(TICKET)
    world.repository.synced.clear()
    assert Code.STATE_UNKNOWN is await outcome(world.connect.decline(TICKET))
    assert ["sessions"] == world.repository.synced


@pytest.mark.parametrize("changes", [{"claim": Claim("x", LATER)}, {"expires_at": NOW}], ids=["claimed", "expired"])
async def test_a_link_that_cannot_be_declined_and_has_not_ended_waits_for_no_sync(world: World, changes: Any) -> None:
    await world.put(**changes)
    assert Code.STATE_UNKNOWN is await outcome(world.connect.decline(TICKET))
    assert ([], True) == (world.repository.synced, (await world.session()).open)


@pytest.mark.parametrize("end", ["decline", "cancel"])
async def test_an_end_beside_other_writers_is_given_up_at_last(
    world: World, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    versioned, reads = await world.put(), list[str]()
    await world.repository.save_session(moved_on(versioned), expect=versioned.generation)

    async def as_it_was(locator: str) -> Any:
        reads.append(locator)
        return versioned

    monkeypatch.setattr(world.repository, "session", as_it_was)
    ending = world.connect.decline(TICKET) if end == "decline" else world.connect.cancel(LOCATOR)
    assert (Code.STORE_LOCKED, 15 if end == "decline" else 8) == (await outcome(ending), len(reads))
    assert (["RequestWithdrawn"] if end == "cancel" else []) == world.entries()


async def test_an_end_beside_another_writer_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    versioned, session = await world.put(), world.repository.session
    await world.repository.save_session(moved_on(versioned), expect=versioned.generation)
    reads = list[Versioned[AuthSession]]([versioned])

    async def late_once(locator: str) -> Any:
        return reads.pop() if reads else await session(locator)

    monkeypatch.setattr(world.repository, "session", late_once)
    assert await world.connect.cancel(LOCATOR)
    assert ("expired", ["RequestWithdrawn"]) == ((await world.session()).status, world.entries())


# The end by its runtime


async def test_a_withdrawn_request_lapses_without_an_event_and_is_noted_before(world: World) -> None:
    await world.put()
    noted = list[bool]()

    async def note() -> None:
        noted.append((await world.session()).open)

    assert await world.connect.cancel(LOCATOR, note)
    session = await world.session()
    assert ("expired", None, [True]) == (session.status, session.outbox, noted)
    assert [RequestWithdrawn(app="mail", session=session.id)] == [each for _, each in world.audit.lines]


async def test_a_caller_who_cannot_be_noted_withdraws_nothing(world: World) -> None:
    async def note() -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    await world.put()
    assert Code.STORE_UNAVAILABLE is await outcome(world.connect.cancel(LOCATOR, note))
    assert ([], True) == (world.entries(), (await world.session()).open)


@pytest.mark.parametrize("changes", [{"claim": Claim("x", LATER)}, {"status": "failed"}], ids=["claimed", "ended"])
async def test_a_request_that_is_claimed_or_has_ended_is_not_withdrawn(world: World, changes: Any) -> None:
    versioned = await world.put(**changes)
    assert not await world.connect.cancel(LOCATOR)
    assert (["sessions"], []) == (world.repository.synced, world.entries())
    assert versioned.record == await world.session()


async def test_a_request_that_does_not_exist_is_not_withdrawn(world: World) -> None:
    assert not await world.connect.cancel("M" * 22)
    assert [] == world.repository.synced
