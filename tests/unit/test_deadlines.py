"""A step of the clock at every deadline: nothing waits longer than its own length, and every time in the code has a row.

The rows name every member of a class that is a time. A new one fails here until it has a kind: a deadline with a
law to keep, the start of one, a time that is only shown, or one that a named test looks at.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from oauthbroker.access.turns import Turns
from oauthbroker.authorization.device_polling import Polling
from oauthbroker.authorization.late_facts import LateFacts
from oauthbroker.core.clock import LONG_AGO, SET_BACK
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.protocol.answer_checks import LONGEST_WAIT
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records.api_key import ApiKey, roles_of
from oauthbroker.records.auth_session import NO_CLAIM_LASTS, Claim
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.records.event_queue import Item
from oauthbroker.records.open_facts import LONGEST_PAUSE
from oauthbroker.records.pending_code import PENDING_CODE_SECONDS
from oauthbroker.records.refresh_state import LONGEST_REST, UNCLEAR_SECONDS, Intent, RefreshState
from oauthbroker.records.token import Token
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.refresh.refusal_assessment import assess_refusal
from oauthbroker.repository.session_limits import OpenSessions
from oauthbroker.repository.versioned import DueWork, PendingRevocation
from oauthbroker.revocation.bulk import BulkRevocation
from oauthbroker.revocation.revoke import ASK_AGAIN
from oauthbroker.testing import TestClock
from oauthbroker.web.gate import browsers
from tests.kit.samples import turn_with
from tests.unit.records import kit

PACKAGE = Path(__file__).parents[2] / "oauthbroker"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
RUNTIME = roles_of(["runtime"])
LONGEST = timedelta(hours=20)  # no deadline here is longer; the clock has not caught up by then

Waits = Callable[[datetime], bool]
"""Whether it still counts, or keeps something waiting, at that time of day. Called again and again, as time goes on."""


def a_link(at: datetime, ends: datetime) -> Waits:
    session = kit.session(created_at=at, expires_at=ends)
    return lambda now: not session.is_past(now)


def a_pending_code(at: datetime, ends: datetime) -> Waits:
    begun = at - timedelta(seconds=500)
    session = kit.session(created_at=begun, expires_at=begun + timedelta(seconds=600)).with_pending_code(
        kit.pending_code(until=ends)
    )
    return lambda now: not session.is_past(now)


def a_login(at: datetime, ends: datetime) -> Waits:
    login = replace(kit.login(), until=ends, digest="login")
    session = kit.session(created_at=at, expires_at=ends, login=login)
    return lambda now: login.counts("login", now) and not session.is_past(now)


def a_claim(_: datetime, ends: datetime) -> Waits:
    return Claim("a process that died", ends).holds


def a_poll(at: datetime, ends: datetime) -> Waits:
    clock = TestClock(at)
    missing: dict[str, Any] = {
        each.name: None for each in fields(Polling) if each.init and each.default is each.default_factory is MISSING
    }
    polling = Polling(**missing | {"clock": clock})
    session = kit.session(device=kit.device(), created_at=at, expires_at=at + timedelta(seconds=LONGEST_WAIT))

    def waits(now: datetime) -> bool:
        clock.set(now)
        return polling._until(ends, session) > 0

    return waits


def a_lease(at: datetime, ends: datetime) -> Waits:
    item = Item(id="id", address="address", attempts=1, due=ends, lease="lease", since=at)
    return lambda now: not item.is_free(now)


def a_pause_of_a_provider(at: datetime, ends: datetime) -> Waits:
    clock, none = TestClock(at), SimpleNamespace()
    app: Any = SimpleNamespace(registration="client", at=lambda _: app)
    revocations = BulkRevocation(repository=none, revoke=none, apps={"mail": app}, clock=clock)  # type: ignore[arg-type]
    pending = DueWork(has_events=False, intent=None, revocations=(PendingRevocation("client", at, ends),))

    def waits(now: datetime) -> bool:
        clock.set(now)
        return revocations._rests("mail", pending)

    return waits


def a_pause_of_facts(at: datetime, ends: datetime) -> Waits:
    clock, none = TestClock(at), SimpleNamespace()
    asking = LateFacts(repository=none, reader=none, apps={}, clock=clock)  # type: ignore[arg-type]
    return lambda now: asking._rests(ends, now)


def a_lost_answer(at: datetime, _: datetime) -> Waits:
    return Intent("lost", at, lost=20, noticed=True).pauses


def an_unclear_refusal(at: datetime, _: datetime) -> Waits:
    state = [_refused(RefreshState(intent=Intent("first", at)), at)]

    def waits(now: datetime) -> bool:
        state[0] = _refused(state[0], now)
        return not state[0].given_up

    return waits


def a_token_that_was_given_up(at: datetime, _: datetime) -> Waits:
    return RefreshState(refused_at=at - timedelta(days=1)).give_up(at, spent=False).rests


def _refused(refresh_state: RefreshState, at: datetime) -> RefreshState:
    refused = RefreshRefused(Code.EXCHANGE_FAILED, spent=False, ambiguity="token")
    return assess_refusal(refresh_state, refused, "good", at).state


def a_counted_rejection(at: datetime, _: datetime) -> Waits:
    refresh_state = RefreshState().forced_at(at)
    return lambda now: bool(refresh_state.forced_before(now)) or bool(refresh_state.forced_at(now).forced[:-1])


def a_token(at: datetime, ends: datetime, lifetime: int | None = 3600) -> Waits:
    token = Token(
        access_token=Secret("access"),
        token_type="bearer",
        refresh_token=None,
        expires_at=ends,
        lifetime_seconds=lifetime,
    )
    return lambda now: token.lives(0, now) and not token.is_from_the_future(now, at)


def an_imported_token(at: datetime, ends: datetime) -> Waits:
    return a_token(at, ends, None)


def an_api_key(at: datetime, ends: datetime) -> Waits:
    return ApiKey(locator="l", name="runtime", roles=RUNTIME, created_at=at, expires_at=ends).alive_at


def an_overlap(at: datetime, ends: datetime) -> Waits:
    """The end of a key that was rotated; and the same for a copy of the key that its tombstone ends."""
    key = ApiKey(locator="l", name="runtime", roles=RUNTIME, created_at=at - timedelta(days=30))
    ended = ApiKey.from_plaintext(key.ended(ends, at).to_plaintext())
    return ended.alive_at


def a_turn(at: datetime, ends: datetime) -> Waits:
    return _turn(TurnRecord(locator="l", turn=turn_with(user="acme:user:alice"), created_at=at, expires_at=ends), ends)


def a_token_of_a_turn(at: datetime, ends: datetime) -> Waits:
    return _turn(
        TurnRecord(
            locator="l", turn=turn_with(user="acme:user:alice"), created_at=at, expires_at=ends + timedelta(seconds=600)
        ),
        ends,
    )


def _turn(record: TurnRecord, ends: datetime) -> Waits:
    clock, none = TestClock(record.created_at), SimpleNamespace()
    turns = Turns(records=none, config=none, clock=clock, audit=none)  # type: ignore[arg-type]

    def waits(now: datetime) -> bool:
        clock.set(now)
        return not turns._is_over(ends, record)

    return waits


def a_browser_session(at: datetime, ends: datetime) -> Waits:
    browser_session = BrowserSession(locator="l", pages="admin", created_at=at, expires_at=ends)
    return lambda now: not browser_session.is_past(now)


def a_counted_session(at: datetime, ends: datetime) -> Waits:
    quota = OpenSessions(Limits())
    quota.admit("l", "mail", ends, at)
    return lambda now: bool(quota.waiting(now))


def a_plugin_that_is_full(at: datetime, ends: datetime) -> Waits:
    quota = OpenSessions(replace(Limits(), sessions_total=1))
    quota.admit("l", "mail", ends, at)

    def waits(now: datetime) -> bool:
        try:
            quota.check("mail", now)
        except BrokerError:
            return True
        return False

    return waits


def a_browser_that_came_back(at: datetime, _: datetime) -> Waits:
    def mac(text: bytes) -> bytes:
        return text[:32].ljust(32, b".")

    def at_time(now: datetime) -> browsers.Browsers:
        return browsers.Browsers(Settings(), mac, TestClock(now))

    cookie = at_time(at).arrived("/", "A" * 22).headers["set-cookie"].partition(";")[0]
    request = Request({"type": "http", "headers": [(b"cookie", cookie.encode())]})
    return lambda now: at_time(now).arrived_from(request, "/") is not None


@dataclass(frozen=True)
class Deadline:
    """A law over what `begin` makes, which lasts `seconds`. `at_most`: after a step back it may last longer, because
    the record does not say when it began."""

    begin: Callable[[datetime, datetime], Waits]
    seconds: float
    at_most: timedelta = timedelta()


DEADLINES: dict[str, Deadline] = {
    "records.auth_session.AuthSession.expires_at": Deadline(a_link, 600),
    "records.pending_code.PendingCode.until": Deadline(a_pending_code, PENDING_CODE_SECONDS),
    "records.browser_attempt.Login.until": Deadline(a_login, 600),
    "records.auth_session.Claim.until": Deadline(a_claim, 60, NO_CLAIM_LASTS),
    "records.device_authorization.Device.next_poll_at": Deadline(a_poll, 15),
    "records.event_queue.Item.due": Deadline(a_lease, 60),
    "records.open_facts.OpenFacts.ask_after": Deadline(a_pause_of_facts, LONGEST_PAUSE.total_seconds()),
    "repository.versioned.DueWork.ask_facts_after": Deadline(a_pause_of_facts, LONGEST_PAUSE.total_seconds()),
    "records.grant.Grant.tell_after": Deadline(a_pause_of_a_provider, ASK_AGAIN.total_seconds()),
    "records.retired_tokens.Retired.tell_after": Deadline(a_pause_of_a_provider, ASK_AGAIN.total_seconds()),
    "repository.versioned.PendingRevocation.tell_after": Deadline(a_pause_of_a_provider, ASK_AGAIN.total_seconds()),
    "records.refresh_state.Intent.at": Deadline(a_lost_answer, 300),
    "records.refresh_state.RefreshState.refused_at": Deadline(an_unclear_refusal, UNCLEAR_SECONDS),
    "records.refresh_state.RefreshState.rests_until": Deadline(a_token_that_was_given_up, LONGEST_REST),
    "records.refresh_state.RefreshState.forced": Deadline(a_counted_rejection, 3600),
    "records.token.Token.expires_at": Deadline(a_token, 3600),
    "records.token.Token.lifetime_seconds": Deadline(an_imported_token, 3600),
    "records.api_key.ApiKey.expires_at": Deadline(an_api_key, 3600),
    "records.api_key.ApiKey.ending_since": Deadline(an_overlap, 600),
    "records.turn_record.TurnRecord.expires_at": Deadline(a_turn, 900),
    "access.turn_token_cache.TurnTokenHolder.expires_at": Deadline(a_token_of_a_turn, 300),
    "records.browser_session.BrowserSession.expires_at": Deadline(a_browser_session, 1800),
    "repository.session_limits._Open.expires_at": Deadline(a_counted_session, 600),
    "quota.OpenSessions.check": Deadline(a_plugin_that_is_full, 600),
    "web.browsers": Deadline(a_browser_that_came_back, browsers.ARRIVAL_SECONDS),
}

BY_ANOTHER_TEST = {
    "records.auth_session.AuthSession.finished_at": "story/test_clock_set_back.py::"
    "test_a_session_that_ended_before_is_kept_as_long_as_any_other_one",
    "records.tombstone.Tombstone.ends_at": "unit/repository/test_tombstones.py::"
    "test_no_step_of_the_clock_brings_back_an_ended_record",
    "records.tombstone.Tombstone.keep_until": "unit/repository/test_tombstones.py::"
    "test_no_step_of_the_clock_brings_back_an_ended_record",
    "records.tombstone.Tombstone.since": "unit/repository/test_tombstones.py::"
    "test_no_step_of_the_clock_brings_back_an_ended_record",
    "records.registered_client.RegisteredClient.ends_at": "story/test_mcp_apps.py::"
    "test_a_secret_that_has_ended_makes_a_new_client",
    "records.registered_client.RegisteredClient.replaced_at": "story/test_mcp_apps.py::"
    "test_a_client_that_the_server_has_forgotten_is_replaced_before_the_next_link",
    "records.registered_client.RegisteredClient.refused_at": "story/test_mcp_apps.py::"
    "test_a_server_that_refuses_new_clients_too_keeps_the_old_one_and_is_asked_for_another_once_a_day",
    "records.registered_client.RegisteredClient.looked_at": "story/test_mcp_apps.py::"
    "test_the_server_is_asked_again_after_a_day_and_after_the_clock_was_set_back",
    **dict.fromkeys(
        (f"records.refresh_end.RefreshEnd.{name}" for name in ("since", "token_at", "consent_at")),
        "unit/records/test_refresh_end.py::test_a_notice_comes_once_wherever_the_clock_goes",
    ),
    "records.use.GrantUse.at": "unit/access/test_people.py::test_a_use_after_the_clock_was_set_back_is_the_last_one",
    "records.browser_session.BrowserSession.proved_at": "story/test_operator_login.py::"
    "test_after_the_clock_was_set_back_a_sign_in_counts_no_longer",
    "admin.operator_login.SignedIn.proved_at": "story/test_operator_login.py::"
    "test_after_the_clock_was_set_back_a_sign_in_counts_no_longer",
    "refresh.clients._Latest.times": "unit/refresh/test_refusal_assessment.py::"
    "test_a_success_that_was_noted_before_the_clock_was_set_back_proves_nothing",
    "events.known_queue.Blocked.due": "unit/events/test_queue.py::"
    "test_an_event_that_was_not_free_before_the_clock_was_set_back_comes_at_once",
    "events.known_queue.Blocked.since": "unit/events/test_queue.py::"
    "test_an_event_that_was_not_free_before_the_clock_was_set_back_comes_at_once",
    "tokens.issuance.Issuance.since": "unit/tokens/test_issuance.py::test_the_clock_ends_it_also_when_it_was_set_back",
    "tokens.issuance.Issuance.until": "unit/tokens/test_issuance.py::test_the_clock_ends_it_also_when_it_was_set_back",
    "model.turn_token.Caveat.expires_at": "story/test_clock_set_back.py::test_a_turn_that_was_begun_before_is_over",
}

SINCE = {
    "records.auth_session.AuthSession.created_at", "records.turn_record.TurnRecord.created_at", "repository.session_limits._Open.created_at",
    "records.browser_session.BrowserSession.created_at", "records.api_key.ApiKey.created_at", "records.event_queue.Item.since",
    # A provider is told of what ended for a week from here on: faults/test_clock_growth.py.
    "records.retired_tokens.Retired.since", "repository.versioned.PendingRevocation.since", "records.grant.Grant.updated_at",
    "core.clock.CertainTime._began", "core.clock.CertainTime._before",
}  # fmt: skip

SHOWN = {
    "audit.memory.AuditList.lines", "audit.lines.Which.since", "audit.lines.Which.until", "audit.lines.Sought.since",
    "audit.lines.Sought.until", "records.grant_view.GrantView.expires_at", "records.grant_view.GrantView.refused_at",
    "records.grant_view.GrantView.created_at", "records.grant_view.GrantView.updated_at",
    "records.grant_head.GrantHead.created_at", "records.grant_head.GrantHead.updated_at",
    "records.grant_view.GrantView.used_at", "personal.logins.Connection.used_at", "records.grant_view.GrantView.ends_at", "records.refresh_end.StatedEnds.token",
    "records.refresh_end.StatedEnds.consent", "grants.import_lines.Incoming.refresh_expires_at", "diagnostics.forecast.Outlook.when",
    "diagnostics.forecast._Together.created_at", "diagnostics.grant_findings._Tally.first",
    "client.runtime_requests.Leased.lease_expires_at", "authorization.page_results.Invitation.expires_at",
    "authorization.page_results.Step.until", "grants.connections.WaitingRequest.expires_at",
    "events.dead_letters.DeadLetter.made",
    "admin.overview.AuditEntries.since", "admin.overview.AuditEntries.until", "admin.overview.AppState.failure",
    "tokens.grant_uses.Uses._noted",
    "records.grant_view.GrantView.until", "records.grant_summary.GrantSummary.created_at", "grants.import_lines.Incoming.expires_at",
    "grants.import_lines.Incoming.granted_at", "protocol.messages.ProviderResponse.date",
    "events.port.EventLease.until", "events.port.Depth.oldest", "events.port.QueueDepth.oldest", "records.event.AgentEvent.created_at",
    "records.grant.Grant.created_at", "records.use.GrantUse.first_at", "model.token_results.Ready.expires_at",
    "model.token_results.AuthorizationRequired.expires_at", "model.turn_token.BegunTurn.expires_at",
    "web.api.streaming.EventStream._open", "web.html.connections_html.UserLayout.now",
 "web.html.consent_html.ConnectView.now",
}  # fmt: skip


def times_of(harness: Path) -> Iterator[str]:
    """Every member of a class whose type speaks of a time, as `module.Class.member`."""
    for path in sorted(harness.rglob("*.py")):
        place = path.relative_to(harness).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        if place.startswith("testing."):
            continue
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "datetime" in text else ():
            if isinstance(node, ast.ClassDef):
                yield from (f"{place}.{node.name}.{member}" for member in _times_in(node))


def _times_in(owner: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(owner):
        if not isinstance(node, ast.AnnAssign) or "datetime" not in ast.unparse(node.annotation):
            continue
        if isinstance(node.target, ast.Attribute) or node in owner.body:
            yield ast.unparse(node.target).removeprefix("self.")


@pytest.mark.case("59")
def test_every_time_in_the_code_has_a_row() -> None:
    rows = [*DEADLINES, *BY_ANOTHER_TEST, *SINCE, *SHOWN]
    assert len(rows) == len(set(rows)), "each once"
    found = set(times_of(PACKAGE))
    beside = {
        "quota.OpenSessions.check",
        "web.browsers",
        "records.token.Token.lifetime_seconds",
    }  # deadlines that are no member's type
    assert (set(), set()) == (found - set(rows), set(rows) - found - beside)


def test_a_new_member_without_a_row_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(
        "class New:\n    until: datetime | None\n    def __init__(self):\n        x: datetime = now()\n"
        "        self.seen: dict[str, datetime] = {}\n"
    )
    assert {"new.New.until", "new.New.seen"} == set(times_of(tmp_path))


def test_the_tests_that_rows_name_are_there() -> None:
    for place in BY_ANOTHER_TEST.values():
        path, _, name = place.partition("::")
        assert f"def {name}(" in (PACKAGE.parent / "tests" / path).read_text("utf-8"), place


YEAR = timedelta(days=365)
STEPS = {
    "none": [], "back": [-DAY], "forward": [DAY], "forward and back": [DAY, -DAY], "back twice": [-DAY, -DAY],
    "back by a second": [-timedelta(seconds=1)], "back by a year": [-YEAR],
    "forward by a year and back": [YEAR, -YEAR], "back and forward": [-DAY, DAY],
}  # fmt: skip
ROWS = pytest.mark.parametrize("row", DEADLINES.values(), ids=DEADLINES)


@pytest.mark.case("59")
@ROWS
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_no_wait_is_longer_than_its_length_with_any_step_of_the_clock(row: Deadline, steps: list[timedelta]) -> None:
    """Looked at as time goes on, from the step on. Small steps are within what clocks of machines may differ by."""
    length = timedelta(seconds=row.seconds)
    waits, wall = row.begin(START, START + length), START
    assert waits(wall), "or this row tells nothing"
    for step in steps:
        wall += step
        waits(wall)
    seen = [waits(wall + passed) for passed in _while_time_passes(max(length, row.at_most))]
    assert not any(seen), seen


def _while_time_passes(length: timedelta) -> Iterator[timedelta]:
    """Moments after the length and its tolerance, up to long after; the first one follows looks in between."""
    over = length + SET_BACK + timedelta(seconds=1)
    while over < LONGEST:
        yield over
        over *= 2


@pytest.mark.case("59")
@ROWS
def test_a_deadline_lasts_its_length_where_the_clock_makes_no_step(row: Deadline) -> None:
    length = timedelta(seconds=row.seconds)
    assert row.begin(START, START + length)(START + length * 0.9)
    assert not row.begin(START, START + length)(START + length + timedelta(seconds=61))


def test_what_ended_at_once_ended_before_any_time_of_day() -> None:
    assert (
        not ApiKey(locator="l", name="runtime", roles=RUNTIME, created_at=START)
        .ended(LONG_AGO, None)
        .alive_at(LONG_AGO)
    )


SLEEPS = {"sleep", "timeout", "wait", "wait_for", "call_later", "call_at"}


def sleepers_by_the_time_of_day(harness: Path) -> Iterator[str]:
    """Functions that read the time of day and sleep: the one might become the other."""
    for path in sorted(harness.rglob("*.py")):
        if path.relative_to(harness).parts[0] == "testing":
            continue
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "clock.now" in text else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                called = {ast.unparse(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
                if any(each.endswith("clock.now") for each in called) and any(
                    each.rpartition(".")[2] in SLEEPS for each in called
                ):
                    yield f"{path.name}: {node.name}"


@pytest.mark.case("59")
def test_no_function_sleeps_by_the_time_of_day(tmp_path: Path) -> None:
    """What sleeps counts seconds that only grow: the clock may be set back by a day meanwhile."""
    assert [] == list(sleepers_by_the_time_of_day(PACKAGE))
    (tmp_path / "new.py").write_text(
        "async def f(self):\n    await self._clock.sleep((self.end - self._clock.now()).total_seconds())\n"
    )
    assert ["new.py: f"] == list(sleepers_by_the_time_of_day(tmp_path))
