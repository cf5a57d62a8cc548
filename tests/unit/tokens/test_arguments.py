"""Arguments of any type: token calls answer `requestInvalid` and raise nothing, embedded and from the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.client import Options, Runtime, SyncOAuth
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, result_from_json
from oauthbroker.model.turn import TurnLike
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, TEAM, Harness, running, turn, user_app


class Hostile(Mapping[str, Any]):
    """A mapping whose own code raises."""

    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError("a secret of the caller")

    def __iter__(self) -> Iterator[str]:
        raise ZeroDivisionError("a secret of the caller")

    def __len__(self) -> int:
        raise ZeroDivisionError("a secret of the caller")


class HostileText(str):
    """A text whose own code raises."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        raise ZeroDivisionError

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        raise ZeroDivisionError


class Unequal:
    """An object that can neither be compared nor hashed, read as truth, or printed."""

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        raise ZeroDivisionError

    def __bool__(self) -> bool:
        raise ZeroDivisionError

    def __str__(self) -> str:
        raise ZeroDivisionError


class BrokenStore(MemoryStore):
    """A store that cannot be read while it has a `fault`."""

    fault: Exception | None = None

    async def get(self, key: Key) -> Entry | None:
        if self.fault is not None:
            raise self.fault
        return await super().get(key)


TEXTS = st.text(max_size=8) | st.sampled_from(["", "cut \ud83d", "a/b", "user", "global", "subjects", "actor", ALICE])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=8), TEXTS)
OBJECTS = st.builds(object) | st.builds(Hostile) | st.builds(Unequal) | st.just(Turn) | st.just(len)
HASHABLE = TEXTS | st.integers() | st.none()
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    SCALARS | OBJECTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.sets(HASHABLE, max_size=3),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.dictionaries(st.sampled_from(["agentName", "instanceKey", "auth", "subjects", "user"]), inner, max_size=4),
    ),
    max_leaves=6,
)
AUTHS = (
    ANYTHING
    | st.builds(TurnAuth, ANYTHING, ANYTHING)
    | st.builds(lambda other: TurnAuth({}, {"user": other}), ANYTHING)
)
SWARMS = ANYTHING.filter(lambda ref: not isinstance(ref, str) or ref.count("/") == 1)  # a text is checked at once
TURNS = (
    ANYTHING
    | st.builds(Turn, ANYTHING, ANYTHING, SWARMS, origin=ANYTHING, auth=AUTHS)
    | st.builds(lambda origin: Turn("planner", "1", origin=origin, auth=turn(ALICE).auth), ANYTHING)
)
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


async def answers_to(harness: Harness, of: Any, *asked: Any) -> list[Any]:
    """What every face of a turn answers to the same arguments."""
    ctx = harness.broker.oauth(of)
    app, scopes, ttl = asked
    request = {"oauthAppRef": app, "scopes": scopes, "minTtlSeconds": ttl}
    return [
        await ctx.get_access_token(app, scopes, ttl),
        result_from_json(await ctx.getAccessToken(request)),
        await ctx.report_rejected(app, ttl, scopes),
        await asyncio.to_thread(ctx.sync.get_access_token, app, scopes, ttl),
        result_from_json(await asyncio.to_thread(ctx.sync.getAccessToken, request)),
        await asyncio.to_thread(ctx.sync.report_rejected, app, ttl, scopes),
    ]


@asynccontextmanager
async def harness_with(connected: bool) -> AsyncIterator[Harness]:
    clock = TestClock()
    async with (
        IdentityProvider(clock=clock) as idp,
        running(idp, [user_app(idp)], clock=clock, background=False) as harness,
    ):
        if connected:
            await harness.connected()
        yield harness


@pytest.mark.slow
@pytest.mark.rule("12.5.1-1")
@pytest.mark.parametrize("connected", [False, True], ids=["asked for", "connected"])
def test_no_turn_and_no_argument_raises_out_of_a_token_call(connected: bool) -> None:
    """One broker for all examples, on a loop of its own."""
    with asyncio.Runner() as runner:
        there = harness_with(connected)
        harness = runner.run(there.__aenter__())

        @MANY
        @example(None, "mail", None, None)
        @example(Turn("planner", "1", auth=TurnAuth(5, {"user": ALICE})), "mail", None, None)  # type: ignore[arg-type]
        @example(Turn("cut \ud83d", "1", auth=turn(ALICE).auth), "mail", None, None)
        @example(turn(), "mail", Unequal(), None)
        @example(turn(), {"name": Unequal()}, None, None)
        @example(turn(), Hostile(), None, None)
        @given(TURNS, st.just("mail") | ANYTHING, st.none() | ANYTHING, st.none() | ANYTHING)
        def law(of: Any, app: Any, scopes: Any, ttl: Any) -> None:
            for answer in runner.run(answers_to(harness, of, app, scopes, ttl)):
                assert isinstance(answer, Ready | AuthorizationRequired | Failed)
                assert not (isinstance(answer, Failed) and answer.retryable), harness.log.getvalue()
            for links in ("inline", "apart", app):
                block = runner.run(harness.broker.pending(of, links))
                assert block is None or block["type"] == "auth.pending"
            assert isinstance(runner.run(harness.broker.links(of)), list)

        try:
            law()
        finally:
            runner.run(there.__aexit__(None, None, None))
    assert "a secret of the caller" not in harness.log.getvalue()


WRONG: dict[str, Any] = {
    "nothing": None,
    "a text": "planner",
    "a number": 5,
    "a class": Turn,
    "JSON without an agent": {"instanceKey": "1"},
    "JSON with a member of its own": {"agentName": "planner", "instanceKey": "1", "subject": ALICE},
    "JSON with a member of its own in auth": {"agentName": "a", "instanceKey": "1", "auth": {"subject": ALICE}},
    "JSON with a subject of its own": {"agentName": "a", "instanceKey": "1", "auth": {"subjects": {"admin": ALICE}}},
    "an agent that is a number": Turn(5, "1", auth=turn(ALICE).auth),  # type: ignore[arg-type]
    "an instance that is a number": Turn("planner", 5, auth=turn(ALICE).auth),  # type: ignore[arg-type]
    "an origin that is a list": Turn("planner", "1", origin=[("a", "b")], auth=turn(ALICE).auth),  # type: ignore[arg-type]
    "auth that is a text": Turn("planner", "1", auth=ALICE),  # type: ignore[arg-type]
    "auth with a member of its own": Turn("planner", "1", auth={"subjects": {"user": ALICE}, "x": 1}),
    "an actor that is a number": Turn("planner", "1", auth=TurnAuth(5, {"user": ALICE})),  # type: ignore[arg-type]
    "subjects that are a list": Turn("planner", "1", auth=TurnAuth({}, [ALICE])),  # type: ignore[arg-type]
    "a swarm that is a number": Turn("planner", "1", swarm_ref=5, auth=turn(ALICE).auth),  # type: ignore[arg-type]
    "a mapping whose own code raises": Hostile(),
}


@pytest.mark.case("37")
@pytest.mark.parametrize("connected", [False, True], ids=["asked for", "connected"])
async def test_a_turn_of_the_wrong_type_is_requestInvalid_also_where_there_is_a_grant(connected: bool) -> None:
    async with harness_with(connected) as harness:
        for name, of in WRONG.items():
            answers = await answers_to(harness, of, "mail", None, None)
            codes = {answer.code for answer in answers if isinstance(answer, Failed)}
            assert ({Code.REQUEST_INVALID}, 6) == (codes, len(answers)), name
            assert await harness.broker.pending(of) is None, name
            assert [] == await harness.broker.links(of), name
            for call in (harness.broker.turns.begin(of), harness.broker.relay_code(of, "ABCD-EFGH")):
                with pytest.raises(BrokerError, match="requestInvalid"):
                    await call


SPOKEN: dict[str, TurnLike] = {
    "objects": turn(),
    "auth as JSON": Turn("planner", "thread-1", auth={"subjects": {"user": ALICE, "global": TEAM}}),
    "all of it": turn().resume_target.to_json(),
    "without what may be left out": {
        "agentName": "planner",
        "instanceKey": turn().instance_key,
        "auth": {"subjects": {"user": ALICE, "global": None}},
    },
}


@pytest.mark.rule("12.5.1-1")
@pytest.mark.parametrize("of", SPOKEN.values(), ids=SPOKEN)
async def test_a_turn_may_be_the_specifications_json(of: TurnLike) -> None:
    async with harness_with(connected=True) as harness:
        assert isinstance(await harness.broker.oauth(of).get_access_token("mail"), Ready)
        begun = await harness.broker.turns.begin(of)
        token_holder = await harness.broker.turns.admit(begun.token.reveal())
        assert ALICE == token_holder.turn.resume_target.auth.subjects["user"]


async def test_a_fault_of_the_broker_is_answered_and_the_log_says_where_and_nothing_of_its_text() -> None:
    clock = TestClock()
    store = BrokenStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    async with (
        IdentityProvider(clock=clock) as idp,
        running(idp, [user_app(idp)], clock=clock, store=store, background=False) as harness,
    ):
        store.fault = ZeroDivisionError("the text of a fault")
        answer = await harness.broker.oauth(turn()).get_access_token("mail")
        store.fault = None
    assert isinstance(answer, Failed)
    assert (Code.BROKER_UNREACHABLE, True) == (answer.code, answer.retryable)
    line = next(line for line in harness.log.getvalue().splitlines() if "a token call failed" in line)
    assert "ZeroDivisionError" in line
    assert "oauthbroker." in line
    assert "the text of a fault" not in harness.log.getvalue()


FAULTS: dict[str, tuple[Exception, str]] = {
    "a disk that cannot be read": (BrokerError(Code.STORE_UNAVAILABLE), "storeUnavailable"),
    "a bug": (ZeroDivisionError("the text of a fault"), "ZeroDivisionError"),
}


@pytest.mark.rule("12.5.8")
@pytest.mark.parametrize("fault, named", FAULTS.values(), ids=FAULTS)
async def test_a_block_that_cannot_be_made_is_none_and_one_line_in_the_log(fault: Exception, named: str) -> None:
    """Links raise: a link that is not sent leaves its person waiting."""
    clock = TestClock()
    store = BrokenStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    async with (
        IdentityProvider(clock=clock) as idp,
        running(idp, [user_app(idp)], clock=clock, store=store, background=False) as harness,
    ):
        await harness.ask_link()
        before = len(harness.log.getvalue().splitlines())
        store.fault = fault
        block = await harness.broker.pending(turn())
        [line] = harness.log.getvalue().splitlines()[before:]
        with pytest.raises(type(fault)):
            await harness.broker.links(turn())
        store.fault = None
        assert await harness.broker.pending(turn()) is not None
    assert block is None
    assert all(word in line for word in ("auth.pending", named, "oauthbroker."))
    assert "the text of a fault" not in line


@pytest.mark.slow
@MANY
@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING)
def test_no_argument_raises_out_of_the_clients_token_calls(app: Any, scopes: Any, ttl: Any, token: Any) -> None:
    """Nothing listens there: a call refused before is `requestInvalid`, the others do not reach it."""
    with SyncOAuth("http://127.0.0.1:9", "obt_1.x", Options(timeout=0)) as oauth:
        request = {"oauthAppRef": app, "scopes": scopes, "minTtlSeconds": ttl}
        for answer in (
            oauth.get_access_token(app, scopes, ttl),
            oauth.report_rejected(app, token, scopes),
            result_from_json(oauth.getAccessToken(request)),
            result_from_json(oauth.getAccessToken(token)),
        ):
            assert isinstance(answer, Failed)
        assert oauth.pending(token) is None


@pytest.mark.parametrize("of", WRONG.values(), ids=WRONG)
async def test_a_client_begins_no_turn_of_the_wrong_type(of: Any) -> None:
    async with Runtime("http://127.0.0.1:9", "obk_x", Options(timeout=0)) as runtime:
        with pytest.raises(BrokerError, match="requestInvalid"):
            await runtime.begin(of)


@pytest.mark.parametrize(
    "ref", [HostileText("mail"), {"kind": "OAuthApp", "name": HostileText("mail")}, {"kind": HostileText("OAuthApp")}]
)
async def test_a_reference_of_a_text_of_its_own_kind_raises_nothing(
    identity_provider: IdentityProvider, test_clock: TestClock, ref: Any
) -> None:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, background=False) as harness:
        oauth = harness.broker.oauth(turn())
        for answer in (await oauth.get_access_token(ref), await oauth.report_rejected(ref, "a token")):
            assert isinstance(answer, (AuthorizationRequired, Failed))
        assert "status" in await oauth.getAccessToken({"oauthAppRef": ref})
