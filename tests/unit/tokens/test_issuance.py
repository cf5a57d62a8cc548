"""A repeated token call gets the token again, until anything on which the answer depends has changed."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.audit import AuditEntry, TokenIssued
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.token_results import Failed, Ready, TokenResult
from oauthbroker.model.turn_token import narrow
from oauthbroker.observability.metrics import Metric, Timing
from oauthbroker.records import Grant
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tokens.context import OAuthContext
from oauthbroker.tokens.decision import Need, UseToken, decide
from oauthbroker.tokens.issuance import words_of
from oauthbroker.tokens.issuance_cache import MOST_REMEMBERED, Issuances
from oauthbroker.tokens.token_call import Caller
from tests.kit.running_broker import ALICE, BOB, Harness, global_app, running, turn, user_app
from tests.kit.samples import NOW, grant_with, token_with

TOOLS = {"Tool/narrow": (ToolAuth("mail", ("read",)),)}


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), global_app(identity_provider)]
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    async with running(
        identity_provider, apps, clock=test_clock, store=store, tools=TOOLS, background=False
    ) as harness:
        await harness.connected()
        yield harness


def caller_of(context: OAuthContext) -> Caller:
    return context._caller


def again(harness: Harness, context: OAuthContext, *words: Any) -> Ready | None:
    issuance = harness.parts.token_issuer.reissue(caller_of(context), words_of("mail", *(words or (None, None))))
    return None if issuance is None else issuance.fresh()


async def asked_twice(context: OAuthContext, *words: Any) -> TokenResult:
    """Ask until an answer is prepared: a caller that asks once needs none."""
    await context.get_access_token("mail", *words)
    return await context.get_access_token("mail", *words)


async def remembered(harness: Harness, of: Turn | None = None, **more: Any) -> OAuthContext:
    """A context whose call was answered and is answered again."""
    context = harness.broker.oauth(of or turn(), **more)
    first = await asked_twice(context)
    assert isinstance(first, Ready)
    assert first == again(harness, context)
    return context


def code_of(result: TokenResult) -> Code | str:
    return result.code if isinstance(result, Failed) else result.status


async def test_each_repeated_call_has_its_own_audit_entry_count_and_use(harness: Harness) -> None:
    context = await remembered(harness)
    before, counted = len(harness.audit.lines), harness.broker.metrics.value(Metric.TOKENS_READY, "mail")
    timed = harness.broker.metrics.timed(Timing.TOKEN_CALL, "ready")
    for _ in range(5):
        harness.clock.advance(1)
        assert isinstance(await context.get_access_token("mail"), Ready)
    lines = harness.audit.lines[before:]
    assert [TokenIssued] * 5 == [type(entry) for _, entry in lines]
    assert 5 == len({at for at, _ in lines})
    assert counted + 5 == harness.broker.metrics.value(Metric.TOKENS_READY, "mail")
    assert timed + 5 == harness.broker.metrics.timed(Timing.TOKEN_CALL, "ready")
    grant = await harness.grant()
    assert grant is not None
    used = await harness.parts.uses.last(grant.id)
    assert used is not None
    assert lines[-1][0] == used.at


@pytest.mark.parametrize("words", [(None, None), (["read"], None), (None, 60)])
async def test_a_caller_that_asks_once_has_no_answer_prepared(harness: Harness, words: tuple[Any, ...]) -> None:
    context = harness.broker.oauth(turn())
    for prepared in (0, 1):
        assert isinstance(await context.get_access_token("mail", *words), Ready)
        assert prepared == len(caller_of(context).issued)


async def test_a_turn_whose_accounts_were_exchanged_is_not_answered_with_those_before(harness: Harness) -> None:
    accounts: dict[str, list[str]] = {}
    context = await remembered(
        harness, Turn("planner", "1", auth=TurnAuth(subjects={"user": ALICE}, accounts=accounts))
    )
    accounts["OAuthApp/mail"] = ["work"]
    assert None is again(harness, context)


@pytest.mark.case("37")
async def test_a_turn_whose_subject_was_exchanged_is_not_answered_with_the_one_before(harness: Harness) -> None:
    subjects = {"user": ALICE}
    context = await remembered(harness, Turn("planner", "1", auth=TurnAuth(subjects=subjects)))
    subjects["user"] = BOB
    assert None is again(harness, context)
    assert "authorization_required" == code_of(await context.get_access_token("mail"))
    del subjects["user"]
    assert Code.SUBJECT_UNAVAILABLE is code_of(await context.get_access_token("mail"))


async def test_a_turn_without_subjects_has_no_answer_of_another_one(harness: Harness) -> None:
    (issuance,) = caller_of(await remembered(harness)).issued.values()
    apps = harness.broker.bundle.apps
    assert [True, False] == [issuance.fits(each, apps) for each in (turn(), Turn("planner", "1"))]


async def test_the_time_of_a_token_call_is_the_one_that_passed_on_the_clock(harness: Harness) -> None:
    await harness.broker.oauth(turn()).get_access_token("mail")
    times = harness.broker.metrics.times[Timing.TOKEN_CALL, ("ready",)]
    assert 0 <= times.seconds < 1


async def test_a_grant_that_was_written_elsewhere_is_read_anew(harness: Harness) -> None:
    context, elsewhere = await remembered(harness), Repository(harness.store)
    versioned = await elsewhere.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    await elsewhere.save_grant(versioned.record.tombstoned(harness.clock.now()), expect=versioned.generation)
    assert None is again(harness, context)
    assert "authorization_required" == code_of(await context.get_access_token("mail"))


async def test_a_grant_that_was_erased_elsewhere_is_noticed(harness: Harness) -> None:
    context, elsewhere = await remembered(harness), Repository(harness.store)
    versioned = await elsewhere.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    await elsewhere.erase_grant(versioned)
    assert None is again(harness, context)
    assert "authorization_required" == code_of(await context.get_access_token("mail"))


async def test_another_configuration_decides_anew(harness: Harness) -> None:
    context, bundle = await remembered(harness), harness.broker.bundle
    smaller = replace(bundle.apps["mail"], scopes=("read",))
    await harness.broker.reload(Bundle(bundle.settings, {"mail": smaller}, bundle.tools))
    assert None is again(harness, context)
    answer = await context.get_access_token("mail")
    assert isinstance(answer, Ready)
    assert ("read",) == answer.scopes
    await harness.broker.reload(Bundle(bundle.settings, {"team": bundle.apps["team"]}, bundle.tools))
    assert Code.OAUTH_APP_NOT_FOUND is code_of(await context.get_access_token("mail"))


@pytest.mark.parametrize("seconds", [3600, 3300, 100_000, -600, -100_000])
async def test_the_clock_ends_it_also_when_it_was_set_back(harness: Harness, seconds: int) -> None:
    context = await remembered(harness)
    harness.clock.set(harness.clock.now() + timedelta(seconds=seconds))
    assert None is again(harness, context)


async def test_the_form_of_the_specification_is_remembered_too(harness: Harness) -> None:
    context = harness.broker.oauth(turn())
    await asked_twice(context, ["read"])
    for ref in ("mail", "OAuthApp/mail", {"kind": "OAuthApp", "name": "mail"}):
        answer = await context.getAccessToken({"oauthAppRef": ref, "scopes": ["read"]})
        assert "ready" == answer["status"]
        assert again(harness, context, ["read"], None) is not None
        assert 1 == len(caller_of(context).issued)
    answer = await context.getAccessToken({"oauthAppRef": "OAuthApp/mail/x"})
    assert "oauthAppNotFound" == answer["error"]["code"]


async def test_no_entry_no_token(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = False

    def write(log: AuditList, entry: AuditEntry, at: datetime) -> None:
        if refusing:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        log.lines.append((at, entry))

    monkeypatch.setattr(AuditList, "write", write)
    context = await remembered(harness)
    refusing = True
    assert None is again(harness, context)
    answer = await context.get_access_token("mail")
    assert isinstance(answer, Failed)
    assert Code.STORE_UNAVAILABLE is answer.code
    refusing = False
    assert isinstance(await context.get_access_token("mail"), Ready)


async def test_a_refresh_is_seen_and_its_token_issued(harness: Harness) -> None:
    context = await remembered(harness)
    before = await context.get_access_token("mail")
    assert isinstance(before, Ready)
    reported = await context.report_rejected("mail", before.access_token)
    assert isinstance(reported, Ready)
    assert reported.access_token != before.access_token
    assert None is again(harness, context)
    for _ in range(2):
        answer = await context.get_access_token("mail")
        assert isinstance(answer, Ready)
        assert reported.access_token == answer.access_token
    assert answer == again(harness, context)


async def test_a_switch_of_accounts_and_a_rejected_token_have_no_answer_of_before(harness: Harness) -> None:
    context = await remembered(harness)
    assert "authorization_required" == code_of(await context.get_access_token("mail", switch_account=True))
    assert "ready" == code_of(await context.get_access_token("mail"))
    for odd in (1, "no", None, 0):
        assert Code.REQUEST_INVALID is code_of(await context.get_access_token("mail", switch_account=odd))  # type: ignore[arg-type]


async def test_callers_share_no_answers(harness: Harness) -> None:
    await remembered(harness)
    narrow = harness.broker.oauth(turn(), "Tool/narrow")
    assert None is again(harness, narrow)
    assert Code.SCOPE_NOT_ALLOWED is code_of(await narrow.get_access_token("mail", ["write"]))
    assert "authorization_required" == code_of(await harness.broker.oauth(turn(BOB)).get_access_token("mail"))


async def test_the_turn_of_a_token_is_looked_at_before_each_answer(harness: Harness) -> None:
    begun = await harness.broker.turns.begin(turn())
    context = harness.broker.oauth_for(await harness.broker.turns.admit(begun.token.reveal()))
    for _ in range(2):
        assert isinstance(await context.get_access_token("mail"), Ready)
    assert again(harness, context) is not None
    assert await harness.broker.turns.end(begun.turn_id)
    assert Code.TURN_ENDED is code_of(await context.get_access_token("mail"))


async def test_a_tool_that_changes_an_answer_changes_no_other_one(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    habits = Habits(always_scopes=("openid",), tool_data=("instance_url",))
    app = user_app(identity_provider, habits=habits)
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        await harness.connected()
        context = harness.broker.oauth(turn())
        for planted in ({"instance_url": "https://evil.example"}, {"more": "x"}):
            answer = await context.get_access_token("mail")
            assert isinstance(answer, Ready)
            assert {} == answer.provider_data
            with suppress(TypeError):
                answer.provider_data.update(planted)  # type: ignore[attr-defined]
        versioned = await harness.parts.repository.grant(GrantKey("mail", ALICE))
        assert versioned is not None
        reported = replace(versioned.record, provider_data={"instance_url": "https://api.example"})
        await harness.parts.repository.save_grant(reported, expect=versioned.generation)
        for _ in range(3):
            answer = await context.get_access_token("mail")
            assert isinstance(answer, Ready)
            assert {"instance_url": "https://api.example"} == answer.provider_data
            answer.provider_data["instance_url"] = "https://evil.example"  # type: ignore[index]


async def test_cached_issuances_are_bounded_and_no_part_of_the_caller(harness: Harness) -> None:
    context = await remembered(harness)
    for seconds in range(3 * MOST_REMEMBERED):
        assert isinstance(await context.get_access_token("mail", min_ttl_seconds=seconds), Ready)
    caller = caller_of(context)
    assert 0 < len(caller.issued) <= MOST_REMEMBERED
    assert Caller(turn(ALICE)) == caller
    assert repr(Caller(turn(ALICE))) == repr(caller)


@pytest.fixture
async def narrow_plugin(harness: Harness) -> int:
    """The bytes of a broker that remembers little."""
    most = 100_000
    object.__setattr__(harness.parts.token_issuer, "issuances", Issuances(most))
    return most


async def test_a_tool_that_narrows_its_token_without_end_is_remembered_in_the_same_plugin(
    harness: Harness, narrow_plugin: int
) -> None:
    token = (await harness.broker.turns.begin(turn())).token
    contexts = []
    for number in range(120):
        narrowed = narrow(token, expires_at=harness.clock.now() + timedelta(seconds=60 + number))
        contexts.append(harness.broker.oauth_for(await harness.broker.turns.admit(narrowed.reveal())))
        for seconds in range(MOST_REMEMBERED):
            assert isinstance(await asked_twice(contexts[-1], None, seconds), Ready)
    kept = [pair for context in contexts for pair in caller_of(context).issued.items()]
    assert MOST_REMEMBERED <= len(kept) < 120 * MOST_REMEMBERED
    assert sum(issuance.size_with(words) for words, issuance in kept) <= narrow_plugin
    for context in (contexts[0], contexts[-1]):
        assert isinstance(await asked_twice(context), Ready)
        assert again(harness, context) is not None


async def test_an_issuance_that_fills_the_plugin_alone_is_not_remembered(harness: Harness) -> None:
    object.__setattr__(harness.parts.token_issuer, "issuances", Issuances(100))
    context = harness.broker.oauth(turn())
    assert isinstance(await context.get_access_token("mail"), Ready)
    assert not caller_of(context).issued


async def test_no_refresh_token_is_remembered(harness: Harness) -> None:
    context = await remembered(harness)
    grant = await harness.grant()
    assert grant is not None
    assert grant.refresh_tokens
    (issuance,) = caller_of(context).issued.values()
    assert () == tuple(issuance.grant.refresh_tokens)
    assert issuance.version is not None
    assert b"" == issuance.version.body


async def test_what_no_longer_holds_is_forgotten_on_the_next_call(harness: Harness) -> None:
    context = await remembered(harness)
    assert await harness.broker.revoke("mail", subject=ALICE)
    assert "authorization_required" == code_of(await context.get_access_token("mail"))
    assert not caller_of(context).issued


ODD_SCOPES: list[Any] = [None, [], (), ["read"], ("read",), {"read"}, "read", ["read", "write"], [1], [True], ["x"]]
ODD_TIMES: list[Any] = [None, 0, 1, True, False, 1.0, "1", -1, 3599, 3600]


@pytest.mark.parametrize("tool", [None, "Tool/narrow"])
async def test_a_caller_that_has_asked_before_is_answered_as_one_that_asks_for_the_first_time(
    harness: Harness, tool: str | None
) -> None:
    asked = list(itertools.product(["mail", "OAuthApp/mail", "team", ""], ODD_SCOPES, ODD_TIMES))
    context = harness.broker.oauth(turn(), tool)
    for _ in range(2):
        for words in asked:
            fresh = await harness.broker.oauth(turn(), tool).get_access_token(*words)
            assert code_of(fresh) == code_of(await context.get_access_token(*words)), words


@given(
    lives=st.none() | st.integers(-10, 8000),
    lifetime=st.none() | st.integers(1, 8000),
    ttl=st.none() | st.integers(0, 8000) | st.just(10 * 365 * 24 * 3600),
    alone=st.booleans(),
    steps=st.lists(st.integers(-10_000, 10_000), max_size=20),
    near=st.sampled_from([timedelta(0), timedelta(microseconds=1), -timedelta(microseconds=1)]),
)
def test_between_its_times_the_decision_is_to_use_the_token_and_at_no_other_time(
    lives: int | None, lifetime: int | None, ttl: int | None, alone: bool, steps: list[int], near: timedelta
) -> None:
    grant, need = grant_with(token=token_with(lives, lifetime)), Need(frozenset({"read"}), ttl, 300, alone=alone)
    assume(decide(grant, need, NOW) == UseToken())
    since, until = times_of(grant, need)
    assert since <= NOW < until
    moments = [NOW + timedelta(seconds=step) for step in steps]
    if lives is not None:
        moments += [since + near, until + near]
    for moment in moments:
        assert (since <= moment < until) == (decide(grant, need, moment) == UseToken())


def times_of(grant: Grant, need: Need) -> tuple[datetime, datetime]:
    assert grant.token is not None
    return grant.token.usable(need.enough(grant.token), grant.updated_at)


def test_times_beyond_the_calendar_are_never() -> None:
    since, until = token_with(60, 10**14).usable(0, NOW)
    assert since >= until
    since, until = token_with(60).usable(10**14, NOW)
    assert since >= until
