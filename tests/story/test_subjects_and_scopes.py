"""A grant's subject and scopes (cases 37-45), from the turn's subjects to the account that came back."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.audit import TokensDropped
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.records import grant_id
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.entry_names import entry_names
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider.types import Account
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, BOB, MALLORY, TEAM, Harness, global_app, running, turn, user_app


def code_of(result: Any) -> Code:
    assert isinstance(result, Failed), result
    return result.code


@pytest.mark.case("37")
@pytest.mark.rule("12.5.1-1")
@pytest.mark.parametrize(
    "app, of, mode",
    [
        ("mail", turn(user=None), "user"),
        ("mail", turn(user=""), "user"),
        ("mail", Turn("planner", "1"), "user"),
        ("team", turn(team=None), "global"),
        ("team", Turn("planner", "1"), "global"),
    ],
)
async def test_without_its_subject_there_is_no_token_and_no_other_subject_stands_in(
    harness: Harness, app: str, of: Turn, mode: str
) -> None:
    await harness.connected("team")
    await harness.connected("mail")
    sessions = await harness.store.count("sessions")
    result = await harness.ask(app, of=of)
    assert Code.SUBJECT_UNAVAILABLE is code_of(result)
    assert f"turn.auth.subjects.{mode}" in result.message
    assert sessions == await harness.store.count("sessions"), "no session was opened either"


@pytest.mark.case("37")
async def test_a_subject_is_read_from_the_turn_and_cannot_be_named_in_a_request(harness: Harness) -> None:
    await harness.connected()
    oauth = harness.broker.oauth(turn(user=BOB))
    request = {"oauthAppRef": {"kind": "OAuthApp", "name": "mail"}, "subject": ALICE}
    assert "requestInvalid" == (await oauth.getAccessToken(request))["error"]["code"]
    assert isinstance(await harness.ask(of=turn(user=BOB)), AuthorizationRequired)


@pytest.mark.case("38")
@pytest.mark.rule("12.5.6-5")
@pytest.mark.parametrize("reach, revoked", [("token", 2), ("grant", 0), ("none", 0)])
async def test_another_owner_than_the_subject_is_refused_and_no_person_is_named(
    identity_provider: IdentityProvider, test_clock: TestClock, reach: Any, revoked: int
) -> None:
    app = user_app(identity_provider, revocation=Revocation(reach=reach))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        asked = await harness.ask_link()
        page = await harness.connect(asked, "bob")
        assert_error_page(page, Code.SUBJECT_MISMATCH)
        (event,) = await harness.events()
        assert ("auth.failed", "subjectMismatch") == (event["type"], event["payload"]["code"])
        said = page.source + harness.log.getvalue() + str(event["payload"]["code"])
        assert [] == [name for name in ("U345678", "U234567", "bob", "Bob", "alice") if name in said]
        assert [None, None] == [await harness.grant(subject=subject) for subject in (ALICE, BOB)]
        assert revoked == harness.idp.count("revoke")
        assert (0 if revoked else 1) == harness.idp.living_tokens("client-mail", "bob")
        dropped = [entry for entry in harness.audit.entries if isinstance(entry, TokensDropped)]
        assert [
            TokensDropped(app="mail", session=asked.auth_session_id, code="subjectMismatch", revoked=bool(revoked))
        ] == dropped


NEAR_MISSES = [
    ("U234567", "u234567"),
    ("U234567", "U234567 "),
    ("U234567", " U234567"),
    ("U234567", "U23456"),
    ("U234567", "U2345678"),
    ("U234567", "\uff35234567"),
    ("Ren\u00e9", "Rene\u0301"),
    ("stra\u00dfe", "strasse"),
    ("\u0130", "i\u0307"),
    ("a", "\u0430"),
]


@pytest.mark.case("39")
@pytest.mark.parametrize("wanted, came", [*NEAR_MISSES, *((came, wanted) for wanted, came in NEAR_MISSES)])
async def test_a_near_miss_is_a_mismatch_in_spite_of_name_and_address(harness: Harness, wanted: str, came: str) -> None:
    harness.idp.add_account(Account("near", sub=came, name="Alice Arden", email="alice@people.example"))
    of = turn(user=f"idp:user:{wanted}")
    assert_error_page(await harness.connect(await harness.ask_link(of=of), "near"), Code.SUBJECT_MISMATCH)
    assert await harness.grant(subject=f"idp:user:{wanted}") is None


@pytest.mark.case("39")
async def test_the_same_sub_of_another_issuer_is_another_account(harness: Harness) -> None:
    harness.idp.script.token.alter_id_token(claims={"iss": "https://other.example"})
    assert_error_page(await harness.connect(await harness.ask_link()), Code.ID_TOKEN_INVALID)


async def test_a_clock_that_is_off_is_a_warning_with_the_seconds(harness: Harness) -> None:
    issued = harness.clock.now().timestamp() - 3600
    harness.idp.script.token.alter_id_token(claims={"iat": issued, "exp": issued + 7200})
    assert_error_page(await harness.connect(await harness.ask_link()), Code.ID_TOKEN_INVALID)
    [line] = [line for line in harness.log.getvalue().splitlines() if "an ID token was refused" in line]
    assert re.search(r"iat is 36\d\d s before the request, by this host's clock", line), line
    assert "warning" in line


@pytest.fixture
async def local(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """An app that only knows accounts, not subjects: the first account is pinned."""
    app = user_app(identity_provider, owner=Owner(binding="localOperator"))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        yield harness


LOCAL = turn(user="local:me", team=None)


async def subject_account(harness: Harness) -> str:
    grant = await harness.grant(subject="local:me")
    assert grant is not None
    assert grant.pinned is not None
    issuer, sub = grant.pinned
    assert harness.idp.issuer == issuer
    return sub


@pytest.mark.case("41")
async def test_the_first_account_is_pinned_and_another_one_does_not_slip_in(local: Harness) -> None:
    first = await local.connected(of=LOCAL, scopes=["read"])
    assert "U234567" == await subject_account(local)
    step_up = await local.ask_link(of=LOCAL, scopes=["write"])
    assert_error_page(await local.connect(step_up, "bob"), Code.SUBJECT_MISMATCH)
    again = await local.ask(of=LOCAL, scopes=["read"])
    assert isinstance(again, Ready)
    assert first.access_token.reveal() == again.access_token.reveal()
    assert "U234567" == await subject_account(local)
    assert ["auth.granted", "auth.failed"] == [event["type"] for event in await local.events(count=2)]


@pytest.mark.case("41")
async def test_switching_accounts_takes_a_call_that_says_so(local: Harness) -> None:
    await local.connected(of=LOCAL, scopes=["read"])
    asked = await local.ask(of=LOCAL, scopes=["read"], switch_account=True)
    assert isinstance(asked, AuthorizationRequired)
    assert isinstance(await local.ask(of=LOCAL, scopes=["read"]), Ready), "the old one serves until then"
    assert 200 == (await local.connect(asked, "bob")).status
    assert "U345678" == await subject_account(local)
    ready = await local.ask(of=LOCAL, scopes=["read"])
    assert isinstance(ready, Ready)
    assert 1 == local.idp.living_tokens("client-mail", "bob")
    assert 1 == local.idp.living_tokens("client-mail", "alice"), "reconnecting revokes nothing of the other account"


@pytest.mark.case("41")
@pytest.mark.parametrize("account, kept", [("alice", True), ("bob", False)])
async def test_a_login_without_a_refresh_token_keeps_the_old_one_of_the_same_account_only(
    local: Harness, account: str, kept: bool
) -> None:
    await local.connected(of=LOCAL, scopes=["read"])
    before = await local.grant(subject="local:me")
    local.idp.change("client-mail", issue_refresh=False)
    await local.connect(await local.ask(of=LOCAL, scopes=["read"], switch_account=True), account)
    after = await local.grant(subject="local:me")
    assert before is not None
    assert after is not None
    assert before.token != after.token
    assert (before.refresh_tokens if kept else ()) == after.refresh_tokens


@pytest.mark.case("41")
async def test_of_two_tabs_with_two_accounts_the_first_to_come_back_is_pinned(local: Harness) -> None:
    """Two agents asked, two tabs are under way: the first commit wins, the second finds the pin."""
    one = await local.ask_link(of=LOCAL, scopes=["read"])
    two = await local.ask_link(of=LOCAL, scopes=["write"])
    tab_one, tab_two = local.browser(), local.browser()
    back_one = await local.way_back(one, tab_one, "alice")
    back_two = await local.way_back(two, tab_two, "bob")
    assert 303 == (await tab_one.follow(back_one)).status
    assert_error_page(await tab_two.follow(back_two), Code.SUBJECT_MISMATCH)
    assert "U234567" == await subject_account(local)


@pytest.mark.case("41")
async def test_the_pin_ends_with_a_revocation(local: Harness) -> None:
    await local.connected(of=LOCAL)
    assert await local.broker.revoke("mail", subject="local:me")
    await local.connected(of=LOCAL, account="bob")
    assert "U345678" == await subject_account(local)


@pytest.mark.case("42")
@pytest.mark.parametrize("reach, revoked", [("token", 2), ("grant", 0)])
@pytest.mark.parametrize("account, code", [("bob", Code.SUBJECT_FORBIDDEN), ("mallory", Code.SUBJECT_MISMATCH)])
async def test_only_an_authorizer_of_that_team_connects_it_for_the_team(
    identity_provider: IdentityProvider, test_clock: TestClock, account: str, code: Code, reach: Any, revoked: int
) -> None:
    app = global_app(identity_provider, revocation=Revocation(reach=reach))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        asked = await harness.ask_link("team", of=turn(user=MALLORY))
        page = await harness.connect(asked, account)
        assert_error_page(page, code)
        assert [] == [name for name in (TEAM, "T666", "U345678", "U234567") if name in page.source]
        assert await harness.grant("team", TEAM) is None
        assert revoked == harness.idp.count("revoke")
        assert [code.value] == [event["payload"]["code"] for event in await harness.events()]
        await harness.connected("team")
        grant = await harness.grant("team", TEAM)
        assert grant is not None
        assert ALICE == grant.authorized_by


@pytest.mark.case("42")
async def test_an_authorizer_who_moved_to_another_team_authorizes_nothing_here(harness: Harness) -> None:
    harness.idp.add_account(Account("alice", sub="U234567", team="T666"))
    assert_error_page(await harness.connect(await harness.ask_link("team")), Code.SUBJECT_MISMATCH)


@pytest.mark.case("42")
async def test_every_member_of_the_team_may_connect_where_the_app_admits_all(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    rule = IdentityRule("userInfo", "idp:team:{team}")
    app = global_app(identity_provider, owner=Owner(global_identity=rule, authorizers="anyone"))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        assert_error_page(await harness.connect(await harness.ask_link("team"), "mallory"), Code.SUBJECT_MISMATCH)
        await harness.connected("team", account="bob")


@pytest.mark.case("43")
@pytest.mark.rule("12.5.1-2")
@pytest.mark.parametrize(
    "scopes",
    [
        ["delete"],
        ["rea"],
        ["read "],
        ["READ"],
        ["read*"],
        ["*"],
        [""],
        ["read", "read"],
        ["read", "delete"],
        ["read write"],
        ["read,write"],
        ["r\u0435ad"],
        [f"s{n}" for n in range(10_000)],
        ["x" * 100_000],
        [7],
        [None],
        [["read"]],
    ],
)
async def test_a_scope_outside_the_app_is_refused_before_anything_happens(harness: Harness, scopes: list[Any]) -> None:
    await harness.connected()
    found = len(harness.idp.requests), await harness.store.count("sessions"), len(harness.audit.entries)
    assert Code.SCOPE_NOT_ALLOWED is code_of(await harness.ask(scopes=scopes))
    assert found == (len(harness.idp.requests), await harness.store.count("sessions"), len(harness.audit.entries))


@pytest.mark.case("43")
@pytest.mark.rule("12.5.1-2")
@pytest.mark.parametrize(
    "tool, app, scopes, code",
    [
        ("Tool/reader", "mail", ["write"], Code.SCOPE_NOT_ALLOWED),
        ("Tool/reader", "files", None, Code.APP_FORBIDDEN),
        ("Tool/reader", "nowhere", None, Code.OAUTH_APP_NOT_FOUND),
        ("Tool/stranger", "mail", None, Code.APP_FORBIDDEN),
        ("Extension/calendar", "mail", ["write"], Code.SCOPE_NOT_ALLOWED),
        ("Connection/chat", "mail", ["read"], Code.SCOPE_NOT_ALLOWED),
        ("Connection/chat", "files", None, Code.APP_FORBIDDEN),
    ],
)
async def test_a_tool_gets_only_its_declared_scopes(
    identity_provider: IdentityProvider, test_clock: TestClock, tool: str, app: str, scopes: Any, code: Code
) -> None:
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]
    declared = {"Tool/reader": "read", "Extension/calendar": "read", "Connection/chat": "write"}
    tools = {name: (ToolAuth("mail", (scope,)),) for name, scope in declared.items()}
    async with running(identity_provider, apps, clock=test_clock, tools=tools) as harness:
        await harness.connected()
        assert code is code_of(await harness.broker.oauth(turn(), tool=tool).get_access_token(app, scopes))


@pytest.mark.case("44")
async def test_a_grant_that_covers_less_asks_for_the_union_and_serves_its_own_scopes(harness: Harness) -> None:
    small = await harness.connected(scopes=["admin"])
    asked = await harness.ask_link(scopes=["write"])
    assert "scopes" == asked.reason
    assert ("write", "admin") == (await harness.session(asked)).scopes, "in the app's order"
    still = await harness.ask(scopes=["admin"])
    assert isinstance(still, Ready)
    assert small.access_token.reveal() == still.access_token.reveal()
    await harness.connect(asked)
    ready = await harness.ask(scopes=["write"])
    assert isinstance(ready, Ready)
    assert {"write", "admin"} == set(ready.scopes)
    assert isinstance(await harness.ask(), AuthorizationRequired), "the app's other scopes were never granted"


PARTS = st.text(st.sampled_from("ab:/|,\0\x1f e\u0301\u00e9"), max_size=6) | st.text(max_size=12)


@pytest.mark.case("45")
@given(PARTS, PARTS, PARTS, PARTS)
def test_two_pairs_never_share_a_grant_id_or_a_place(
    app: str, subject: str, other_app: str, other_subject: str
) -> None:
    pairs = [
        tuple(part.encode("utf-8", "replace").decode() for part in pair)
        for pair in ((app, subject), (other_app, other_subject))
    ]
    same = pairs[0] == pairs[1]
    assert same == (grant_id(*pairs[0]) == grant_id(*pairs[1]))
    key = b"k" * 32
    assert same == (entry_names(key)("grants", *pairs[0]) == entry_names(key)("grants", *pairs[1]))


@pytest.mark.case("45")
@given(st.text("ab:", min_size=2, max_size=12), st.data())
def test_moving_the_separator_moves_the_place(text: str, data: st.DataObject) -> None:
    """`a:b` + `c` is not `a` + `b:c`, wherever it is cut."""
    cuts = data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2, unique=True))
    one, two = [(text[:cut], text[cut:]) for cut in cuts]
    assert grant_id(*one) != grant_id(*two)
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    for kind in ("grants", "waiting", "pair", "provider"):
        assert store.key(kind, *one) != store.key(kind, *two)
    assert store.key("grants", *one).name != store.key("waiting", *one).name, "nor do two kinds share a name"


@pytest.mark.case("45")
async def test_subjects_that_only_look_alike_have_grants_of_their_own(harness: Harness) -> None:
    await harness.connected()
    for look_alike in (ALICE.upper(), ALICE + " ", ALICE.replace(":", "::"), "mail:" + ALICE, ALICE + "\u200b"):
        assert isinstance(await harness.ask(of=turn(user=look_alike)), AuthorizationRequired)
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.case("37")
@pytest.mark.parametrize("subjects", [None, 5, "idp:user:U234567", ["user"], ()], ids=repr)
async def test_a_turn_whose_subjects_are_no_mapping_is_refused(harness: Harness, subjects: Any):
    of = Turn("planner", "1", "Swarm/default", origin={}, auth=TurnAuth(subjects=subjects))
    answer = await harness.ask(of=of)
    assert isinstance(answer, Failed)
    assert Code.REQUEST_INVALID is answer.code
    assert await harness.broker.pending(of) is None
