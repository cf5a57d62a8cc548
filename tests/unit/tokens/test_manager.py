"""The token call, line by line (docs/embedding.md): `decide` as a table, and the requests that are refused before a lookup."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.token_request import MAX_TTL
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.records import Grant, RefreshState
from oauthbroker.records.refresh_state import Ended
from oauthbroker.refresh.writeback import Refreshed
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.port import Key
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tokens.decision import Decision, Need, RefreshToken, Refuse, RequestConsent, UseToken, decide, settle
from tests.kit.running_broker import ALICE, Harness, global_app, running, turn, user_app
from tests.kit.samples import NOW, grant_with, token_with

DEFAULT = 300
LIVE = grant_with(scopes=("read", "write"))
SPARE = RefreshState(spare=Secret("a-spare-refresh-token"))
INSUFFICIENT, TOO_LONG = Code.SCOPE_INSUFFICIENT, Code.MIN_TTL_UNSATISFIABLE
REAUTH = BrokerError(Code.REAUTH_REQUIRED)


def lives(seconds: float | None, lifetime: int | None = 3600) -> Grant:
    return grant_with(scopes=("read", "write"), token=token_with(seconds, lifetime))


def need(*scopes: str, ttl: int | None = None) -> Need:
    return Need(frozenset(scopes), ttl, DEFAULT)


TABLE: list[tuple[str, Grant | None, Need, Decision]] = [
    # 5: ready
    ("5 it has the scope and an hour", LIVE, need("read"), UseToken()),
    ("5 it has both", LIVE, need("read", "write"), UseToken()),
    ("5 nothing in particular is asked", LIVE, need(), UseToken()),
    ("5 a second more than the default", lives(DEFAULT + 1), need("read"), UseToken()),
    ("5 a token without an end outlives everything", lives(None, None), need("read", ttl=MAX_TTL), UseToken()),
    ("5 asked for less than there is", lives(61), need("read", ttl=60), UseToken()),
    ("5 asked for no time at all", lives(1), need("read", ttl=0), UseToken()),
    # 6: no token of this provider lives that long
    ("6 longer than it was issued for", lives(3000), need("read", ttl=3601), Refuse(Code.MIN_TTL_UNSATISFIABLE)),
    ("6 as long as it was issued for", lives(3600), need("read", ttl=3600), Refuse(Code.MIN_TTL_UNSATISFIABLE)),
    ("6 though it has ended", lives(-5), need("read", ttl=9999), Refuse(Code.MIN_TTL_UNSATISFIABLE)),
    # 8: alive, and no caller asked for more
    ("8 the default and not a second more", lives(DEFAULT), need("read"), UseToken(degraded=True)),
    ("8 its last second", lives(1), need("read"), UseToken(degraded=True)),
    # 11: a person has to agree
    ("11 nothing there", None, need("read"), RequestConsent("noGrant")),
    ("11 nothing there, nothing asked", None, need(), RequestConsent("noGrant")),
    ("11 revoked", grant_with(revoked=True), need("read"), RequestConsent("revoked")),
    ("11 revoked and erased", grant_with(revoked=True, token=None), need("read"), RequestConsent("revoked")),
    ("11 erased", grant_with(token=None), need("read"), RequestConsent("revoked")),
    ("11 one scope is missing", LIVE, need("read", "admin"), RequestConsent("scopes")),
    ("11 all are missing", grant_with(scopes=()), need("read"), RequestConsent("scopes")),
    ("11 over", lives(0), need("read"), RequestConsent("expired")),
    ("11 long over", lives(-3600), need("read"), RequestConsent("expired")),
    ("11 shorter than asked, though longer ones exist", lives(100), need("read", ttl=200), RequestConsent("expired")),
    ("11 over, no time asked", lives(0), need("read", ttl=0), RequestConsent("expired")),
    # what comes first
    ("revoked is said before scopes", grant_with(revoked=True, scopes=()), need("read"), RequestConsent("revoked")),
    ("scopes before the time", grant_with(token=token_with(-1)), need("write"), RequestConsent("scopes")),
    ("scopes before an impossible time", LIVE, need("admin", ttl=99_999), RequestConsent("scopes")),
]


@pytest.mark.rule("12.5.1-4", "12.5.1-5", "12.5.1-6")
@pytest.mark.parametrize("grant, wanted, answer", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_table_of_the_token_call(grant: Grant | None, wanted: Need, answer: Decision) -> None:
    assert answer == decide(grant, wanted, NOW)


def refreshable(seconds: float | None, lifetime: int | None = 3600, **refresh_state: Any) -> Grant:
    token = token_with(seconds, lifetime, refresh_token=Secret("a-refresh-token"))
    return grant_with(scopes=("read", "write"), token=token, refresh_state=RefreshState(**refresh_state))


REFRESHABLE: list[tuple[str, Grant | None, Need, Decision]] = [
    ("5 a token that lives long enough is not refreshed", refreshable(DEFAULT + 1), need("read"), UseToken()),
    ("5 half a short life is enough", refreshable(31, 60), need("read"), UseToken()),
    ("6 first: a refresh would not help", refreshable(10), need("read", ttl=3600), Refuse(Code.MIN_TTL_UNSATISFIABLE)),
    ("7 about to end", refreshable(DEFAULT), need("read"), RefreshToken()),
    ("7 less than half a short life", refreshable(30, 60), need("read"), RefreshToken()),
    ("7 ended", refreshable(-1), need("read"), RefreshToken()),
    ("7 shorter than asked", refreshable(599), need("read", ttl=600), RefreshToken()),
    ("7 it seems to outlive its lifetime", refreshable(90_000), need("read"), RefreshToken()),
    ("7 refused once in unclear words", refreshable(-1, refused_at=NOW), need("read"), RefreshToken()),
    ("7 with nothing but a spare", grant_with(token=token_with(-1), refresh_state=SPARE), need("read"), RefreshToken()),
    ("11 dead though a little is left", refreshable(DEFAULT, ended="dead"), need("read"), RequestConsent("expired")),
    ("11 dead", refreshable(-1, ended="dead"), need("read"), RequestConsent("expired")),
    (
        "11 its last answer was lost",
        refreshable(-1, ended="uncertain"),
        need("read"),
        RequestConsent("refreshUncertain"),
    ),
    (
        "11 another account came back",
        refreshable(3600, ended="quarantined"),
        need("read"),
        RequestConsent("revoked"),
    ),
    ("11 scopes are not refreshed", refreshable(-1), need("admin"), RequestConsent("scopes")),
    ("5 dead, and lives long enough all the same", refreshable(3600, ended="dead"), need("read"), UseToken()),
]


@pytest.mark.rule("12.5.1-6")
@pytest.mark.parametrize("grant, wanted, answer", [row[1:] for row in REFRESHABLE], ids=[row[0] for row in REFRESHABLE])
def test_the_table_for_grants_that_can_be_refreshed(grant: Grant, wanted: Need, answer: Decision) -> None:
    assert answer == decide(grant, wanted, NOW)


def alone(*scopes: str, ttl: int | None = None) -> Need:
    return Need(frozenset(scopes), ttl, DEFAULT, alone=True)


ASKED = RefreshState(asked=("read", "write", "admin"))
ALONE: list[tuple[str, Grant | None, Need, Decision]] = [
    ("nothing there", None, alone("read"), RefreshToken()),
    ("revoked", grant_with(revoked=True), alone("read"), RefreshToken()),
    ("erased", grant_with(revoked=True, token=None), alone("read"), RefreshToken()),
    ("of another registration", grant_with(registration="old"), alone("read"), RefreshToken()),
    ("lives", LIVE, alone("read"), UseToken()),
    ("ends", lives(DEFAULT), alone("read"), RefreshToken()),
    ("scopes that were never asked for", LIVE, alone("admin"), RefreshToken()),
    ("scopes that were asked for and not given", grant_with(refresh_state=ASKED), alone("admin"), Refuse(INSUFFICIENT)),
    ("longer than it is issued for", LIVE, alone("read", ttl=3600), Refuse(Code.MIN_TTL_UNSATISFIABLE)),
]


@pytest.mark.parametrize("grant, wanted, answer", [row[1:] for row in ALONE], ids=[row[0] for row in ALONE])
def test_a_client_that_asks_for_itself_never_needs_a_person(
    grant: Grant | None, wanted: Need, answer: Decision
) -> None:
    assert answer == decide(grant, wanted, NOW)


DOWN = BrokerError(Code.PROVIDER_UNREACHABLE, retry_after_seconds=7)
BUSY = BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=60)
OURS = BrokerError(Code.APP_MISCONFIGURED)
OTHER = BrokerError(Code.SUBJECT_MISMATCH)
SETTLED: list[tuple[str, Refreshed, Need, Decision]] = [
    ("renewed", Refreshed(refreshable(3600)), need("read"), UseToken()),
    ("8 down, a little is left", Refreshed(refreshable(10), DOWN), need("read"), UseToken(degraded=True)),
    ("8 misconfigured, a little is left", Refreshed(refreshable(10), OURS), need("read"), UseToken(degraded=True)),
    ("9 down, but more was asked for", Refreshed(refreshable(10), DOWN), need("read", ttl=60), Refuse(DOWN.code, 7)),
    ("9 down, nothing is left", Refreshed(refreshable(-1), DOWN), need("read"), Refuse(DOWN.code, 7)),
    ("9 busy", Refreshed(refreshable(-1), BUSY), need("read"), Refuse(BUSY.code, 60)),
    ("10 misconfigured", Refreshed(refreshable(-1), OURS), need("read"), Refuse(OURS.code)),
    ("11 dead", Refreshed(refreshable(-1, ended="dead"), REAUTH), need("read"), RequestConsent("expired")),
    (
        "11 uncertain",
        Refreshed(refreshable(-1, ended="uncertain"), REAUTH),
        need("read"),
        RequestConsent("refreshUncertain"),
    ),
    ("11 revoked meanwhile", Refreshed(grant_with(revoked=True)), need("read"), RequestConsent("revoked")),
    ("11 gone meanwhile", Refreshed(None), need("read"), RequestConsent("noGrant")),
    (
        "another account",
        Refreshed(refreshable(60, ended="quarantined"), OTHER),
        need("read"),
        Refuse(OTHER.code),
    ),
    ("refreshed, and the answer took its whole life", Refreshed(refreshable(0)), need("read"), Refuse(DOWN.code, 1)),
    (
        "refreshed, and has ended already",
        Refreshed(refreshable(0, 0)),
        need("read"),
        Refuse(Code.PROVIDER_UNREACHABLE, 1),
    ),
    ("the state of the grant is unknown", Refreshed(None, DOWN), need("read"), Refuse(DOWN.code, 7)),
    ("refreshed for less than was asked", Refreshed(refreshable(60, 60)), need("read", ttl=60), Refuse(TOO_LONG)),
    ("alone, and the scope did not come", Refreshed(LIVE, DOWN), alone("admin"), Refuse(DOWN.code, 7)),
]


@pytest.mark.parametrize("refreshed, wanted, answer", [row[1:] for row in SETTLED], ids=[row[0] for row in SETTLED])
def test_what_a_refresh_came_to(refreshed: Refreshed, wanted: Need, answer: Decision) -> None:
    assert answer == settle(refreshed, wanted, NOW)


# The same lines once more, in other words: each with its own condition, the first that fits wins.
Line = tuple[Callable[[Grant, Need, float], bool], Decision]
INFINITE = float("inf")


def floor(grant: Grant, want: Need) -> float:
    lifetime = grant.token.lifetime_seconds if grant.token else None
    return want.ttl if want.ttl is not None else min(DEFAULT, (lifetime or INFINITE) / 2)


def is_absurd(grant: Grant, left: float) -> bool:
    lifetime = grant.token.lifetime_seconds if grant.token else None
    return left < INFINITE and lifetime is not None and left > lifetime + 60


LINES: list[Line] = [
    (lambda grant, want, left: grant.revoked or grant.token is None, RequestConsent("revoked")),
    (lambda grant, want, left: grant.refresh_state.ended == "quarantined", RequestConsent("revoked")),
    (lambda grant, want, left: bool(want.scopes - set(grant.scopes)), RequestConsent("scopes")),
    (lambda grant, want, left: left > floor(grant, want) and not is_absurd(grant, left), UseToken()),
    (
        lambda grant, want, left: want.ttl is not None and want.ttl >= (grant.token.lifetime_seconds or INFINITE),  # type: ignore[union-attr]
        Refuse(Code.MIN_TTL_UNSATISFIABLE),
    ),
    (lambda grant, want, left: bool(grant.refresh_tokens), RefreshToken()),
    (
        lambda grant, want, left: want.ttl is None and left > 0 and not grant.refresh_state.ended,
        UseToken(degraded=True),
    ),
    (lambda grant, want, left: grant.refresh_state.ended == "uncertain", RequestConsent("refreshUncertain")),
    (lambda grant, want, left: True, RequestConsent("expired")),
]


@given(
    st.booleans(),
    st.sets(st.sampled_from("abc")),
    st.sets(st.sampled_from("abc")),
    st.none() | st.integers(0, 4000),
    st.none() | st.integers(-10, 4000),
    st.none() | st.integers(1, 4000),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "dead", "uncertain", "quarantined"]),
)
def test_the_first_line_that_fits_wins(
    revoked: bool,
    granted: set[str],
    wanted: set[str],
    ttl: int | None,
    left: int | None,
    lifetime: int | None,
    erased: bool,
    refreshable: bool,
    ended: Ended,
) -> None:
    refresh = Secret("a-refresh-token") if refreshable else None
    token = None if erased else token_with(left, lifetime, refresh_token=refresh)
    grant = grant_with(revoked=revoked, scopes=tuple(granted), token=token, refresh_state=RefreshState(ended=ended))
    want = need(*wanted, ttl=ttl)
    expected = next(answer for fits, answer in LINES if fits(grant, want, INFINITE if left is None else left))
    assert expected == decide(grant, want, NOW)


def test_a_token_never_becomes_ready_again_by_waiting() -> None:
    """As time passes, one grant is ready, then degraded, then expired, and never goes back."""
    grant, order = lives(1000, 1000), [UseToken(), UseToken(degraded=True), RequestConsent("expired")]
    seen = [decide(grant, need("read"), NOW + timedelta(seconds=second)) for second in range(0, 1200, 10)]
    assert order == [answer for answer, _ in itertools.groupby(seen)]


class CountingStore(MemoryStore):
    """Counts the calls that would reach a disk."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in {"get", "put", "delete", "scan", "lease", "unchanged"}:
            self.calls[name] += 1
        return super().__getattribute__(name)

    def key(self, kind: str, *parts: str) -> Key:
        self.calls["key"] += 1
        return super().key(kind, *parts)


TOOLS: dict[str, tuple[ToolAuth, ...]] = {
    "Tool/mail": (ToolAuth("mail"),),
    "Tool/narrow": (ToolAuth("mail", ("read",)),),
    "Tool/team": (ToolAuth("team"),),
}


@pytest.fixture
async def counted(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), global_app(identity_provider)]
    store = CountingStore(test_clock)
    async with running(
        identity_provider, apps, clock=test_clock, store=store, tools=TOOLS, background=False
    ) as harness:
        store.calls.clear()
        yield harness


def calls_of(harness: Harness) -> Counter[str]:
    assert isinstance(harness.store, CountingStore)
    return harness.store.calls


async def test_the_counting_store_does_count(counted: Harness) -> None:
    assert isinstance(await counted.ask(), AuthorizationRequired)
    assert {"key", "get", "put", "lease"} <= calls_of(counted).keys()


# (line of the token call, the problem, the caller, the request)
REFUSED: list[tuple[str, str, str | None, Turn, str, list[str] | None, Any, Code]] = [
    ("1", "unknown app", None, turn(), "nobody", None, None, Code.OAUTH_APP_NOT_FOUND),
    ("1", "unknown app, nothing else right either", "Tool/x", Turn("a", "i"), "x", ["y"], -1, Code.OAUTH_APP_NOT_FOUND),
    ("2", "undeclared app", "Tool/team", turn(), "mail", None, None, Code.APP_FORBIDDEN),
    ("2", "unknown tool", "Tool/unknown", turn(), "mail", None, None, Code.APP_FORBIDDEN),
    ("2", "undeclared app before the subject", "Tool/team", Turn("a", "i"), "mail", ["x"], -1, Code.APP_FORBIDDEN),
    ("2", "beyond the tool", "Tool/narrow", turn(), "mail", ["write"], None, Code.SCOPE_NOT_ALLOWED),
    (
        "2",
        "beyond the tool before the subject",
        "Tool/narrow",
        turn(None),
        "mail",
        ["write"],
        -1,
        Code.SCOPE_NOT_ALLOWED,
    ),
    ("3", "no subject", None, turn(user=None), "mail", None, None, Code.SUBJECT_UNAVAILABLE),
    ("3", "no auth at all", None, Turn("a", "i"), "mail", None, None, Code.SUBJECT_UNAVAILABLE),
    ("3", "no team", None, turn(team=None), "team", None, None, Code.SUBJECT_UNAVAILABLE),
    ("3", "no subject before the app's scopes", None, turn(user=None), "mail", ["x"], -1, Code.SUBJECT_UNAVAILABLE),
    ("4", "beyond the app", None, turn(), "mail", ["read", "delete"], None, Code.SCOPE_NOT_ALLOWED),
    ("4", "beyond the app through a tool", "Tool/mail", turn(), "mail", ["delete"], None, Code.SCOPE_NOT_ALLOWED),
    ("4", "beyond the app before the time", None, turn(), "mail", ["delete"], -1, Code.SCOPE_NOT_ALLOWED),
    ("-", "a time below zero", None, turn(), "mail", None, -1, Code.REQUEST_INVALID),
    ("-", "a time that is a word", None, turn(), "mail", None, "60", Code.REQUEST_INVALID),
    ("-", "a time that is a truth", None, turn(), "mail", None, True, Code.REQUEST_INVALID),
    ("-", "a time with a fraction", None, turn(), "mail", None, 1.5, Code.REQUEST_INVALID),
    ("-", "a time beyond all ends", None, turn(), "mail", None, MAX_TTL + 1, Code.REQUEST_INVALID),
]


@pytest.mark.case("37", "43")
@pytest.mark.rule("12.5.1-1", "12.5.1-2", "Tool.spec.auth")
@pytest.mark.parametrize(
    "tool, of, app, scopes, ttl, code",
    [row[2:] for row in REFUSED],
    ids=[f"line {row[0]}: {row[1]}" for row in REFUSED],
)
async def test_nothing_before_line_five_touches_disk_or_network(
    counted: Harness, tool: str | None, of: Turn, app: str, scopes: list[str] | None, ttl: Any, code: Code
) -> None:
    result = await counted.broker.oauth(of, tool).get_access_token(app, scopes, ttl)
    assert isinstance(result, Failed)
    assert code is result.code
    assert Counter() == calls_of(counted)
    assert [] == counted.idp.requests
    assert [] == counted.audit.entries


async def test_a_warm_answer_costs_one_look_at_whether_the_grant_is_still_the_newest(counted: Harness) -> None:
    await counted.connected()
    calls_of(counted).clear()
    before = len(counted.idp.requests)
    assert isinstance(await counted.ask(), Ready)
    assert Counter(unchanged=1) == calls_of(counted)
    assert before == len(counted.idp.requests)


@pytest.mark.parametrize(
    "ref",
    [
        "mail",
        "OAuthApp/mail",
        {"name": "mail"},
        {"kind": "OAuthApp", "name": "mail"},
        {"kind": "OAuthApp", "name": "mail", "apiVersion": "agents.example.io/v1alpha1"},
    ],
    ids=str,
)
async def test_an_app_may_be_named_in_every_spelling_of_a_reference(counted: Harness, ref: Any) -> None:
    assert isinstance(await counted.broker.oauth(turn()).get_access_token(ref), AuthorizationRequired)


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "/mail",
        "Tool/mail",
        "OAuthApp/",
        {"kind": "Tool", "name": "mail"},
        {"kind": "OAuthApp"},
        {"name": ""},
        {"name": 5},
        {"name": ["mail"]},
        {"name": "mail", "subject": "idp:user:1"},
        None,
        5,
        ["mail"],
    ],
    ids=str,
)
async def test_a_malformed_reference_is_refused_without_a_lookup(counted: Harness, ref: Any) -> None:
    result = await counted.broker.oauth(turn()).get_access_token(ref)
    assert isinstance(result, Failed)
    assert Code.REQUEST_INVALID is result.code
    assert Counter() == calls_of(counted)


REQUESTS: list[Any] = [
    {},
    None,
    [],
    "OAuthApp/mail",
    {"oauthAppRef": None},
    {"oauthAppRef": "OAuthApp/mail", "subject": "idp:user:U345678"},
    {"oauthAppRef": "OAuthApp/mail", "turn": {}},
    {"oauthAppRef": "OAuthApp/mail", "scopes": "read"},
    {"oauthAppRef": "OAuthApp/mail", "scopes": {"read": True}},
    {"oauthAppRef": "OAuthApp/mail", "minTtlSeconds": "60"},
    {"oauthAppRef": "OAuthApp/mail", "min_ttl_seconds": 60},
    {"oauthAppRef": "OAuthApp/mail", 5: 5},
]


@pytest.mark.case("81")
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: ascii(request)[:60])
async def test_a_request_with_anything_else_in_it_is_refused_above_all_one_that_names_a_subject(
    counted: Harness, request_: Any
) -> None:
    answer = await counted.broker.oauth(turn()).getAccessToken(request_)
    assert ("error", "requestInvalid") == (answer["status"], answer["error"]["code"])
    assert Counter() == calls_of(counted)


@pytest.mark.case("60")
async def test_a_time_that_this_provider_never_issues_is_said_so_and_no_link_is_made(counted: Harness) -> None:
    await counted.connected()
    result = await counted.ask(min_ttl_seconds=7200)
    assert isinstance(result, Failed)
    assert (Code.MIN_TTL_UNSATISFIABLE, False) == (result.code, result.retryable)
    assert None is await counted.broker.pending(turn())


UNFIT: dict[str, dict[str, Any]] = {
    "an object in its origin": {"origin": {"client": object()}},
    "half an emoji of a cut message": {"origin": {"text": "cut \ud83d"}},
    "half an emoji in its name": {"agent_name": "a\ud83d"},
    "a number that JSON has not": {"origin": {"score": float("nan")}},
    "a whole conversation": {"origin": {"text": "x" * 70_000}},
    "no agent": {"agent_name": ""},
    "an instance that is a number": {"instance_key": 5},
    "an actor that is none": {"auth": TurnAuth(actor=None, subjects={"user": ALICE})},  # type: ignore[arg-type]
}


@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
async def test_a_turn_that_cannot_be_resumed_is_an_error_and_no_exception(
    counted: Harness, unfit: dict[str, Any]
) -> None:
    result = await counted.broker.oauth(dataclasses.replace(turn(), **unfit)).get_access_token("mail")
    assert isinstance(result, Failed)
    assert Code.REQUEST_INVALID is result.code
    assert "put" not in calls_of(counted)


async def test_the_same_question_in_other_python_types_gets_the_same_link(counted: Harness) -> None:
    """A session keeps JSON, which has no tuples: the second call must still find the first one's session."""
    asker = dataclasses.replace(turn(), origin={"parts": ("a", 1)})
    links = {(await counted.broker.oauth(asker).get_access_token("mail")).authorization_url for _ in range(3)}  # type: ignore[union-attr]
    assert 1 == len(links)


async def test_a_grant_of_before_never_hands_out_a_scope_that_the_app_has_lost(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, store=store) as harness:
        assert ("read", "write", "admin") == (await harness.connected()).scopes
    store = _reopened(store)
    smaller = user_app(identity_provider, scopes=("read",))
    async with running(identity_provider, [smaller], clock=test_clock, store=store) as harness:
        ready = await harness.ask()
        assert isinstance(ready, Ready)
        assert ("read",) == ready.scopes


def _reopened(store: MemoryStore) -> MemoryStore:
    store._opened_here = OpenedHere()
    return store


@pytest.mark.parametrize(
    "left, rests, expected",
    [
        (-1, True, RequestConsent("expired")),
        (-1, False, RefreshToken()),
        (200, True, UseToken(degraded=True)),
        (200, False, RefreshToken()),
        (3600, True, UseToken()),
    ],
)
def test_a_refresh_token_that_was_given_up_is_not_sent_while_it_rests(
    left: float, rests: bool, expected: Decision
) -> None:
    at = NOW if rests else NOW - timedelta(hours=2)
    given_up = RefreshState(refused_at=NOW - timedelta(hours=9)).give_up(at, spent=False)
    grant = grant_with(token=token_with(left, refresh_token=Secret("rt")), refresh_state=given_up)
    assert expected == decide(grant, need("read"), NOW)
