"""Turns with tokens: who may ask for what, until when; and that no token ever gets another user's."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.access import turns as turns_module
from oauthbroker.access.turn_token_cache import Known, TurnTokenHolder
from oauthbroker.access.turns import Turns, token_digest
from oauthbroker.audit import AuditEntry, TurnBegun, TurnEnded
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.model.turn_token import TurnToken, narrow
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.repository import record_store
from oauthbroker.repository.repository import KINDS, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.forms import examples
from tests.kit.samples import app_with, turn_with

APPS = {
    name: app_with(name=name, scopes=("read", "write"), subject_mode=mode)
    for name, mode in (("mail", "user"), ("files", "user"), ("team", "global"))
} | {"plain": app_with(name="plain", scopes=())}
TOOLS = {
    "Tool/mail": (ToolAuth("mail", ("read",)),),
    "Tool/all": (ToolAuth("mail"), ToolAuth("files"), ToolAuth("team")),
    "Tool/plain": (ToolAuth("plain"),),
    "Tool/quiet": (ToolAuth("mail", ()),),
    "Extension/calendar": (ToolAuth("files", ("read",)),),
    "Connection/chat": (ToolAuth("team"),),
}
ALICE = turn_with(**{"user": "acme:user:alice", "global": "acme:team:1"})


def turns_on(store: MemoryStore, clock: TestClock, audit: AuditList | None = None, **limits: Any) -> Turns:
    bundle = Bundle(Settings(limits=Limits(**limits)), APPS, TOOLS)
    record_store = Repository(store).records("turns", TurnRecord.from_plaintext)
    return Turns(records=record_store, config=CurrentConfig(bundle), clock=clock, audit=audit or AuditList())


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def turns(clock: TestClock) -> Turns:
    return turns_on(MemoryStore(kinds=KINDS, clock=clock), clock)


async def code_of(turns: Turns, token: Secret | str) -> Code | None:
    try:
        await turns.admit(token.reveal() if isinstance(token, Secret) else token)
    except BrokerError as error:
        return error.code
    return None


def allowed(token_holder: TurnTokenHolder) -> dict[str, tuple[str, ...] | None] | None:
    return None if token_holder.declared is None else {auth.app: auth.scopes for auth in token_holder.declared}


async def test_a_token_brings_back_its_turn_and_nothing_else(turns: Turns) -> None:
    begun = await turns.begin(ALICE, tools={"Tool/mail": None})
    token_holder = await turns.admit(begun.token.reveal())
    assert (token_holder.turn, token_holder.tool, token_holder.declared) == (ALICE, None, None)
    of_tool = await turns.admit(begun.tool_tokens["Tool/mail"].reveal())
    assert (of_tool.turn, of_tool.tool, allowed(of_tool)) == (ALICE, "Tool/mail", {"mail": ("read",)})


@pytest.mark.parametrize(
    ("tool", "said", "apps", "may"),
    [
        ("Tool/mail", None, None, {"mail": ("read",)}),
        ("Extension/calendar", None, None, {"files": ("read",)}),
        ("Extension/calendar", None, {"files": ["write"]}, {}),
        ("Connection/chat", None, None, {"team": None}),
        ("Tool/all", None, None, {"mail": None, "files": None, "team": None}),
        ("Tool/new", (ToolAuth("files", ("write",)),), None, {"files": ("write",)}),
        ("Tool/mail", (ToolAuth("mail"), ToolAuth("files")), None, {"mail": ("read",)}),
        ("Tool/mail", (ToolAuth("mail", ("write",)),), None, {}),
        ("Tool/new", (ToolAuth("mail", ()), ToolAuth("plain", ())), None, {"plain": ()}),
        ("Tool/all", (), None, {}),
        ("Tool/all", None, {"mail": ["write"], "nothing": None}, {"mail": ("write",)}),
        ("Tool/all", None, {"mail": ["write", "admin"]}, {"mail": ("write",)}),
        ("Tool/mail", None, {"mail": ["write"]}, {}),
        ("Tool/all", None, {"mail": [], "files": ["read"]}, {"files": ("read",)}),
        ("Tool/quiet", None, None, {"mail": ()}),
        ("Tool/quiet", None, {"mail": None}, {"mail": ()}),
        ("Tool/quiet", None, {"mail": ["read"]}, {}),
        ("Tool/plain", None, {"plain": []}, {"plain": ()}),
        ("Tool/plain", None, {"plain": None}, {"plain": None}),
        ("Tool/plain", None, {"plain": ["read"]}, {}),
        (None, None, {"plain": [], "mail": []}, {"plain": ()}),
        (None, None, {"mail": None, "team": ["read"]}, {"mail": None, "team": ("read",)}),
        (None, None, {"mail": ["admin"]}, {}),
        (None, None, {}, {}),
    ],
)
async def test_a_token_may_ask_for_the_scopes_that_all_its_limits_allow(
    turns: Turns, tool: str | None, said: Any, apps: Any, may: Any
) -> None:
    begun = await turns.begin(ALICE, tools={tool: said} if tool else {})
    token = begun.tool_tokens[tool] if tool else begun.token
    if apps is not None:
        token = narrow(token, apps=apps)
    assert may == allowed(await turns.admit(token.reveal()))


async def test_an_app_whose_scopes_were_removed_leaves_the_token(clock: TestClock) -> None:
    turns = turns_on(MemoryStore(kinds=KINDS, clock=clock), clock)
    turns.config.adopt(Bundle(Settings(), APPS, {}))
    begun = await turns.begin(ALICE, tools={"Tool/new": (ToolAuth("mail", ("write",)), ToolAuth("files", ("read",)))})
    token = begun.tool_tokens["Tool/new"].reveal()
    assert {"mail": ("write",), "files": ("read",)} == allowed(await turns.admit(token))
    for left in (("read",), ()):
        turns.config.adopt(Bundle(Settings(), APPS | {"mail": app_with(name="mail", scopes=left)}, {}))
        assert {"files": ("read",)} == allowed(await turns.admit(token))


INJECTED = ToolAuth("mail", ("read",), injected=True)


@pytest.mark.parametrize("apps", [None, {"mail": None}, {"mail": ["read"]}])
@pytest.mark.parametrize(
    ("declared", "said"),
    [(INJECTED, None), (INJECTED, ToolAuth("mail")), (ToolAuth("mail"), INJECTED), (None, INJECTED)],
    ids=["declared", "declared, and said otherwise", "said", "said alone"],
)
async def test_a_tool_that_gets_no_token_gets_none_by_a_narrower_name(
    clock: TestClock, declared: ToolAuth | None, said: ToolAuth | None, apps: Any
) -> None:
    turns = turns_on(MemoryStore(kinds=KINDS, clock=clock), clock)
    turns.config.adopt(Bundle(Settings(), APPS, {"Tool/mail": (declared,)} if declared else {}))
    begun = await turns.begin(ALICE, tools={"Tool/mail": (said,) if said else None})
    token = begun.tool_tokens["Tool/mail"]
    token_holder = await turns.admit((token if apps is None else narrow(token, apps=apps)).reveal())
    assert (INJECTED,) == token_holder.declared


@pytest.mark.case("79")
async def test_a_sub_tool_may_what_both_may_and_is_the_one_that_the_runtime_named(turns: Turns) -> None:
    begun = await turns.begin(ALICE, tools={"Tool/all": None})
    sub = narrow(begun.tool_tokens["Tool/all"], tool="Tool/mail")
    token_holder = await turns.admit(sub.reveal())
    assert (token_holder.tool, allowed(token_holder)) == ("Tool/all", {"mail": ("read",)})


@pytest.mark.case("79")
@pytest.mark.parametrize("tool", ["mail", "Tool/", "/mail", "Tool/a/b", "Tool/a:b:c", "Tool/\u202eliam", "Tool/a\nb",
                                  "Tool/메일", "Tool/a b", "", "Tool/" + "x" * 252])  # fmt: skip
async def test_a_name_that_is_no_tools_never_comes_into_the_log(turns: Turns, tool: str) -> None:
    begun = await turns.begin(ALICE)
    with pytest.raises(BrokerError) as caught:
        await turns.begin(ALICE, tools={tool: (ToolAuth("mail"),)})
    assert Code.REQUEST_INVALID is caught.value.code
    assert Code.UNAUTHENTICATED is await code_of(turns, narrow(begun.token, tool=tool))


@pytest.mark.parametrize("tool", ["Tool/a", "Tool/a:b", "Connector/slack-main", "Tool/" + "x" * 251])
async def test_a_tools_name_is_a_reference(turns: Turns, tool: str) -> None:
    begun = await turns.begin(ALICE, tools={tool: (ToolAuth("mail"),)})
    assert tool == (await turns.admit(begun.tool_tokens[tool].reveal())).tool


@pytest.mark.case("79")
async def test_a_token_dies_with_its_turn_and_with_time_in_every_worker(clock: TestClock) -> None:
    store, audit = MemoryStore(kinds=KINDS, clock=clock), AuditList()
    one, other = turns_on(store, clock, audit), turns_on(store, clock, audit)
    ended, late = await one.begin(ALICE), await one.begin(ALICE, ttl_seconds=60)
    assert [None, None] == [await code_of(other, ended.token), await code_of(other, late.token)]
    assert await other.end(ended.turn_id)
    assert not await one.end(ended.turn_id)
    assert Code.TURN_ENDED is await code_of(one, ended.token)
    assert Code.TURN_ENDED is await code_of(one, narrow(ended.token, tool="Tool/mail"))
    clock.advance(60)
    assert Code.TURN_ENDED is await code_of(one, late.token)
    assert [TurnBegun, TurnBegun, TurnEnded] == [type(entry) for entry in audit.entries]


async def test_a_caveat_can_only_bring_the_end_nearer(turns: Turns, clock: TestClock) -> None:
    begun = await turns.begin(ALICE, ttl_seconds=600)
    sooner = narrow(begun.token, expires_at=clock.now() + timedelta(seconds=30))
    later = narrow(sooner, expires_at=clock.now() + timedelta(days=30))
    clock.advance(31)
    assert [None, Code.TURN_ENDED, Code.TURN_ENDED] == [
        await code_of(turns, each) for each in (begun.token, sooner, later)
    ]


@pytest.mark.case("79")
async def test_a_token_signed_with_another_key_is_unauthenticated_for_any_turn(turns: Turns, clock: TestClock) -> None:
    begun = await turns.begin(ALICE)
    locator = TurnToken.parse(begun.token.reveal()).locator
    elsewhere = turns_on(MemoryStore(kinds=KINDS, clock=clock), clock)
    foreign = (await elsewhere.begin(ALICE)).token
    forged = TurnToken.first(locator, bytes(32)).to_text()
    own_of_ended = (await turns.begin(ALICE)).token
    for token in (foreign, forged, "oabt.nonsense", begun.turn_id, narrow(forged, tool="Tool/mail")):
        assert Code.UNAUTHENTICATED is await code_of(turns, token)
    assert None is await code_of(turns, own_of_ended)


async def test_an_entry_of_tools_that_is_not_named_as_a_tool_is_counted_and_never_quoted(turns: Turns) -> None:
    with pytest.raises(BrokerError, match="Entry 2 of `tools`") as caught:
        await turns.begin(ALICE, tools={"Tool/mail": None, "a secret": None})
    assert "secret" not in str(caught.value)


async def test_a_runtime_is_told_which_tools_are_not_declared(turns: Turns) -> None:
    with pytest.raises(BrokerError, match="Tool/nope, Tool/no~pe") as caught:
        await turns.begin(ALICE, tools={"Tool/mail": None, "Tool/nope": None, "Tool/no~pe": None})
    assert ["/tools/Tool~1nope", "/tools/Tool~1no~0pe"] == [each["pointer"] for each in caught.value.errors]
    with pytest.raises(BrokerError) as caught:
        await turns.begin(ALICE, tools={f"Tool/no{number}": None for number in range(200)})
    assert 16 == len(caught.value.errors)


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("Tool/mial", "The bundle declares no Tool/mial. Did you mean Tool/mail?"),
        ("Tool/x", "The bundle declares no Tool/x. Check the name"),
        ("Agent/mail", "The bundle declares no Agent/mail. Check the name"),
    ],
)
async def test_a_runtime_is_told_the_nearest_tool_of_a_typo(turns: Turns, tool: str, says: str) -> None:
    with pytest.raises(BrokerError) as caught:
        await turns.begin(ALICE, tools={tool: None})
    assert caught.value.message().startswith(says)


@pytest.mark.parametrize(
    ("turn", "ttl", "tools", "code"),
    [
        (ALICE, 0, {}, Code.REQUEST_INVALID),
        (ALICE, 3601, {}, Code.REQUEST_INVALID),
        (ALICE, True, {}, Code.REQUEST_INVALID),
        (ALICE, None, {"Tool/x": (ToolAuth("nothing"),)}, Code.OAUTH_APP_NOT_FOUND),
        (ALICE, None, {"Tool/x": (ToolAuth("mail", ("admin",)),)}, Code.SCOPE_NOT_ALLOWED),
        (ALICE, None, {"Tool/x": (ToolAuth("mail"), ToolAuth("mail"))}, Code.REQUEST_INVALID),
        (ALICE, None, {f"Tool/{number}": (ToolAuth("mail"),) for number in range(201)}, Code.REQUEST_INVALID),
        (ALICE, None, {"": None}, Code.REQUEST_INVALID),
        (ALICE, None, {"Tool/nope": None}, Code.REQUEST_INVALID),
        (ALICE, None, {"Tool/mail": None, "Tool/x": (ToolAuth("mail"),), "Tool/nope": None}, Code.REQUEST_INVALID),
        (Turn("", "1"), None, {}, Code.REQUEST_INVALID),
        (Turn("planner", "1", origin={"big": "x" * 70_000}), None, {}, Code.REQUEST_INVALID),
        (Turn("planner", "1", auth=TurnAuth({}, {"admin": "x"})), None, {}, Code.REQUEST_INVALID),
        (Turn("planner", "1", auth=TurnAuth({}, {"user": ""})), None, {}, Code.REQUEST_INVALID),
        (Turn("planner", "1", auth=TurnAuth({}, {"user": "x" * 2000})), None, {}, Code.REQUEST_INVALID),
    ],
)
async def test_a_turn_that_cannot_be_kept_is_refused(
    turns: Turns, turn: Turn, ttl: Any, tools: Any, code: Code
) -> None:
    with pytest.raises(BrokerError) as caught:
        await turns.begin(turn, ttl_seconds=ttl, tools=tools)
    assert code is caught.value.code
    assert [] == [record async for record in turns.records.all()]


@pytest.mark.parametrize(
    ("asked", "en", "ko"),
    [
        ("mial", "No app is called mial. Did you mean mail?", "mail"),
        ("OAuthApp/qqqq", "No app is called qqqq. Check the name against the bundle.", "qqqq"),
    ],
)
async def test_an_unknown_app_of_a_tool_is_named_with_the_nearest_one(
    turns: Turns, asked: str, en: str, ko: str
) -> None:
    with pytest.raises(BrokerError) as caught:
        await turns.begin(ALICE, tools={"Tool/x": (ToolAuth("files"), ToolAuth(asked))})
    assert (Code.OAUTH_APP_NOT_FOUND, en) == (caught.value.code, caught.value.message())
    assert ko in caught.value.message("ko")


async def test_turns_whose_time_is_over_are_forgotten(turns: Turns, clock: TestClock) -> None:
    for seconds in (60, 60, 3600):
        await turns.begin(ALICE, ttl_seconds=seconds)
    clock.advance(61)
    assert 2 == await turns.sweep()
    assert 0 == await turns.sweep()
    assert 1 == len([record async for record in turns.records.all()])


async def test_a_token_has_one_holder_until_the_turn_or_the_configuration_changes(clock: TestClock) -> None:
    store = MemoryStore(kinds=KINDS, clock=clock)
    turns, others = turns_on(store, clock), turns_on(store, clock)
    begun = await turns.begin(ALICE, ttl_seconds=60)
    token = begun.token.reveal()
    digest = token_digest(token.encode())
    assert turns.holder(digest) is None
    token_holder = await turns.admit(token)
    assert token_holder is await turns.admit(token) is turns.holder(digest)
    turns.config.adopt(replace(turns.config.bundle))
    assert turns.holder(digest) is None
    newer = await turns.admit(token)
    assert newer is not token_holder
    assert newer is turns.holder(digest)
    clock.advance(61)
    assert turns.holder(digest) is None
    lasting = (await turns.begin(ALICE)).token.reveal()
    assert await turns.admit(lasting) is turns.holder(token_digest(lasting.encode()))
    assert await others.end((await turns.admit(lasting)).turn_id)
    assert turns.holder(token_digest(lasting.encode())) is None


def kept(turns: Turns) -> tuple[int, int, int]:
    """(tokens, turns, bytes) that are remembered."""
    return len(turns._known), len(turns.records._cache), turns.records._cache.bytes


LARGE = replace(ALICE, origin={"thread": [f"{number} hello there" for number in range(2200)]})  # about 40 KB


async def test_large_turns_that_were_ended_leave_nothing_behind(turns: Turns) -> None:
    for _ in range(600):
        begun = await turns.begin(LARGE)
        assert LARGE.origin == (await turns.admit(begun.token.reveal())).turn.origin
        assert await turns.end(begun.turn_id)
    assert (0, 0, 0) == kept(turns)


async def test_long_lived_large_turns_stay_within_their_bytes(
    clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_store, "CACHED_BYTES", 200_000)
    turns = turns_on(MemoryStore(kinds=KINDS, clock=clock), clock)
    begun = [await turns.begin(LARGE) for _ in range(20)]
    for _ in range(2):
        for each in begun:
            assert each.turn_id == (await turns.admit(each.token.reveal())).turn_id
    tokens, there, size = kept(turns)
    assert (20, True) == (tokens, 0 < there < 6)
    assert 150_000 < size <= 200_000
    assert {b""} == {cached.version.body for _, cached in turns.records._cache.items()}


async def test_turns_whose_time_is_over_or_that_others_ended_are_not_remembered(clock: TestClock) -> None:
    store = MemoryStore(kinds=KINDS, clock=clock)
    ours, others = turns_on(store, clock), turns_on(store, clock)
    short, ended, lasting = [await ours.begin(LARGE, ttl_seconds=seconds) for seconds in (60, 3600, 3600)]
    tokens = [narrow(each.token, tool=f"Tool/{tool}") for each in (short, ended, lasting) for tool in ("mail", "all")]
    for token in tokens:
        await ours.admit(token.reveal())
    assert (6, 3) == kept(ours)[:2]
    clock.advance(61)
    assert Code.TURN_ENDED is await code_of(ours, tokens[0])
    assert 5 == kept(ours)[0]
    assert await others.end(ended.turn_id)
    assert 1 == await ours.sweep()
    assert (2, 1) == kept(ours)[:2]
    assert lasting.turn_id == (await ours.admit(tokens[-1].reveal())).turn_id


async def test_the_end_of_a_turn_looks_at_its_own_tokens_alone(
    turns: Turns, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    class Watched(Known):
        def __getattribute__(self, name: str) -> Any:
            if name == "locator":
                looked.append(name)
            return super().__getattribute__(name)

    monkeypatch.setattr(turns_module, "Known", Watched)
    begun = [await turns.begin(ALICE) for _ in range(40)]
    for each in begun:
        for tool in ("mail", "all"):
            await turns.admit(narrow(each.token, tool=f"Tool/{tool}").reveal())
    assert 80 == kept(turns)[0]
    looked.clear()
    assert await turns.end(begun[17].turn_id)
    assert 78 == kept(turns)[0]
    assert await turns.sweep() == 0
    assert (78, True) == (kept(turns)[0], len(looked) <= 2)
    for each in begun:
        await turns.end(each.turn_id)
    assert (0, 0, 0) == kept(turns)


async def test_a_reload_leaves_no_older_configuration_in_memory(clock: TestClock) -> None:
    turns = turns_on(MemoryStore(kinds=KINDS, clock=clock), clock)
    tokens = [(await turns.begin(ALICE)).token.reveal() for _ in range(10)]
    for token in tokens:
        await turns.admit(token)
    turns.config.adopt(Bundle(Settings(), APPS, {}))
    await turns.admit(tokens[0])
    assert 1 == kept(turns)[0]
    for token in tokens:
        await turns.admit(token)
    assert 10 == kept(turns)[0]


PEOPLE = ("alice", "bob", "bob ", "alicebob", "")
narrowings = st.lists(
    st.one_of(
        st.sampled_from([*TOOLS, "Tool/none"]).map(lambda tool: {"tool": tool}),
        st.dictionaries(
            st.sampled_from([*APPS, "nothing"]),
            st.none() | st.lists(st.sampled_from(["read", "write", "admin"]), unique=True),
        ).map(lambda apps: {"apps": apps}),
        st.integers(1, 7200).map(lambda seconds: {"seconds": seconds}),
    ),
    max_size=5,
)


@pytest.mark.case("79", "81")
@settings(max_examples=examples(200), deadline=None)
@given(
    people=st.lists(st.sampled_from(PEOPLE[:4]), min_size=2, max_size=5),
    steps=st.lists(narrowings, min_size=2, max_size=5),
)
async def test_a_token_of_one_persons_turn_never_becomes_anothers_nor_grows(
    people: list[str], steps: list[list[dict[str, Any]]]
) -> None:
    """The law: narrowed in any way and order, a token's subjects are those of its own turn, and the scopes it may
    ask for shrinks from step to step."""
    clock = TestClock()
    turns = turns_on(MemoryStore(kinds=KINDS, clock=clock), clock)
    begun = [
        (person, await turns.begin(turn_with(user=f"acme:user:{person}"), tools={"Tool/all": None}))
        for person in people
    ]
    for (person, each), narrowing in zip(begun, steps, strict=False):
        token, before = each.token, await turns.admit(each.token.reveal())
        for step in narrowing:
            token = narrow(token, **_arguments(step, clock.now()))
            after = await turns.admit(token.reveal())
            assert {"user": f"acme:user:{person}"} == (after.turn.auth or TurnAuth()).subjects
            assert after.turn_id == each.turn_id
            assert _no_more(before, after, APPS)
            before = after


def _arguments(step: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {"expires_at": now + timedelta(seconds=step["seconds"])} if "seconds" in step else step


def _no_more(before: TurnTokenHolder, after: TurnTokenHolder, apps: dict[str, App]) -> bool:
    def reach(token_holder: TurnTokenHolder) -> set[tuple[str, str]]:
        declared = token_holder.declared if token_holder.declared is not None else tuple(ToolAuth(app) for app in apps)
        return {
            (auth.app, scope)
            for auth in declared
            for scope in (apps[auth.app].scopes if auth.scopes is None else auth.scopes)
        } | {(auth.app, "") for auth in declared}

    return reach(after) <= reach(before) and after.expires_at <= before.expires_at


async def test_a_token_is_checked_anew_under_another_configuration(clock: TestClock) -> None:
    """An app that the older configuration had must not be allowed under the newer one."""
    store, config = MemoryStore(kinds=KINDS, clock=clock), CurrentConfig(Bundle(Settings(), APPS, TOOLS))
    record_store = Repository(store).records("turns", TurnRecord.from_plaintext)
    turns = Turns(records=record_store, config=config, clock=clock, audit=AuditList())
    begun = await turns.begin(ALICE, tools={"Tool/all": None})
    text = begun.tool_tokens["Tool/all"].reveal()
    before = (await turns.admit(text)).declared
    assert before is not None
    assert before != (ToolAuth("mail"),)
    config.adopt(Bundle(Settings(), {"mail": APPS["mail"]}, TOOLS))
    assert (ToolAuth("mail"),) == (await turns.admit(text)).declared


class Full(AuditList):
    """An audit log that takes no entry while its disk is full."""

    full = False

    def write(self, entry: AuditEntry, at: datetime) -> None:
        if self.full:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        super().write(entry, at)


async def test_a_turn_does_not_end_without_its_entry_and_gets_it_when_it_is_ended_again(clock: TestClock) -> None:
    audit = Full()
    turns = turns_on(MemoryStore(kinds=KINDS, clock=clock), clock, audit)
    begun = await turns.begin(ALICE)
    audit.full = True
    with pytest.raises(BrokerError):
        await turns.end(begun.turn_id)
    assert await code_of(turns, begun.token) is None
    audit.full = False
    assert await turns.end(begun.turn_id)
    assert Code.TURN_ENDED is await code_of(turns, begun.token)
    assert [TurnBegun, TurnEnded] == [type(entry) for entry in audit.entries]
