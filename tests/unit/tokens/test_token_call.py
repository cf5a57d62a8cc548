"""What a token call comes to before anything is looked up, and that remembering it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import Client, Endpoints, IdentityRule, OAuthApp, Owner, Redirect, ToolAuth
from oauthbroker.tokens.token_call import MOST_REMEMBERED, Caller, Calls, TokenCall
from tests.kit.running_broker import ALICE, BOB, TEAM, turn

MAIL = OAuthApp(
    name="mail",
    provider="example",
    flow="authorizationCode",
    subject_mode="user",
    client=Client("client-mail"),
    endpoints=Endpoints("https://idp.example/authorize", "https://idp.example/token"),
    scopes=("read", "write", "r", "e"),
    redirect=Redirect("/oauth/callback/mail", "https://broker.example"),
    owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")),
)
ODD_SCOPES: list[Any] = [
    None,
    [],
    (),
    ["read"],
    ("read",),
    {"read"},
    "read",
    ["r", "e"],
    "re",
    [1],
    [True],
    [None],
    ["x"],
]
ODD_TIMES: list[Any] = [None, 0, 1, True, False, 1.0, "1", -1]
ASKED = st.tuples(st.sampled_from(["mail", "chat", ""]), st.sampled_from(ODD_SCOPES), st.sampled_from(ODD_TIMES))


def judged(calls: Calls, caller: Caller, *asked: Any) -> TokenCall | Code:
    try:
        return calls.judge(caller, *asked)
    except BrokerError as error:
        return error.code


@example([("mail", None, 1), ("mail", None, True)])
@example([("mail", ["r", "e"], None), ("mail", "re", None)])
@given(st.lists(ASKED, min_size=2, max_size=8))
def test_who_has_asked_before_gets_the_answer_of_who_asks_for_the_first_time(asked: list[Any]) -> None:
    calls, caller = Calls({"mail": MAIL}, 300), Caller(turn(ALICE), "Tool/t", (ToolAuth("mail", ("read", "r", "e")),))
    for each in [*asked, *asked]:
        assert judged(calls, replace(caller), *each) == judged(calls, caller, *each)


def test_a_configuration_that_was_taken_in_meanwhile_counts() -> None:
    apps: dict[str, OAuthApp] = {"mail": MAIL}
    calls, caller = Calls(apps, 300), Caller(turn(ALICE))
    first = calls.judge(caller, "mail", ["write"], None)
    assert first is calls.judge(caller, "mail", ["write"], None)
    apps["mail"] = replace(MAIL, scopes=("read",))
    assert Code.SCOPE_NOT_ALLOWED is judged(calls, caller, "mail", ["write"], None)
    apps["mail"] = replace(MAIL, subject_mode="global")
    assert TEAM == calls.judge(caller, "mail", ["write"], None).subject
    del apps["mail"]
    assert Code.OAUTH_APP_NOT_FOUND is judged(calls, caller, "mail", ["write"], None)


@pytest.mark.case("37")
def test_a_turn_whose_subject_was_exchanged_is_not_answered_with_the_one_before() -> None:
    subjects = {"user": ALICE}
    calls, caller = Calls({"mail": MAIL}, 300), Caller(Turn("planner", "1", auth=TurnAuth(subjects=subjects)))
    assert ALICE == calls.judge(caller, "mail", None, None).subject
    subjects["user"] = BOB
    assert BOB == calls.judge(caller, "mail", None, None).subject
    del subjects["user"]
    assert Code.SUBJECT_UNAVAILABLE is judged(calls, caller, "mail", None, None)


def test_what_is_remembered_has_an_end_and_is_no_part_of_who_asks() -> None:
    calls, caller = Calls({"mail": MAIL}, 300), Caller(turn(ALICE))
    for seconds in range(3 * MOST_REMEMBERED):
        calls.judge(caller, "mail", None, seconds)
    assert len(caller._calls) <= MOST_REMEMBERED
    assert Caller(turn(ALICE)) == caller
    assert repr(Caller(turn(ALICE))) == repr(caller)
