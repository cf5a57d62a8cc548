"""What a token call comes to before anything is looked up, and the key under which its answer is cached."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import Turn, TurnAuth
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.tokens.issuance import words_of
from oauthbroker.tokens.token_call import Caller, Calls, TokenCall
from tests.kit.running_broker import ALICE, BOB, TEAM, turn

MAIL = App(
    name="mail",
    provider="example",
    flow="authorizationCode",
    subject_mode="user",
    client=Client("client-mail"),
    endpoints=Endpoints(authorization_url="https://idp.example/authorize", token_url="https://idp.example/token"),
    scopes=("read", "write", "r", "e"),
    redirect=Redirect("/oauth/callback/mail", "https://broker.example"),
    owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")),
)


def validated(calls: Calls, caller: Caller, *asked: Any) -> TokenCall | Code:
    try:
        return calls.validate(caller, *asked)
    except BrokerError as error:
        return error.code


def test_a_configuration_that_was_taken_in_meanwhile_counts() -> None:
    apps: dict[str, App] = {"mail": MAIL}
    calls, caller = Calls(apps, 300), Caller(turn(ALICE))
    assert calls.validate(caller, "mail", ["write"], None) == calls.validate(caller, "mail", ["write"], None)
    apps["mail"] = replace(MAIL, scopes=("read",))
    assert Code.SCOPE_NOT_ALLOWED is validated(calls, caller, "mail", ["write"], None)
    apps["mail"] = replace(MAIL, subject_mode="global")
    assert TEAM == calls.validate(caller, "mail", ["write"], None).key.subject
    del apps["mail"]
    assert Code.OAUTH_APP_NOT_FOUND is validated(calls, caller, "mail", ["write"], None)


@pytest.mark.case("37")
def test_a_turn_whose_subject_was_exchanged_is_not_answered_with_the_one_before() -> None:
    subjects = {"user": ALICE}
    calls, caller = Calls({"mail": MAIL}, 300), Caller(Turn("planner", "1", auth=TurnAuth(subjects=subjects)))
    assert ALICE == calls.validate(caller, "mail", None, None).key.subject
    subjects["user"] = BOB
    assert BOB == calls.validate(caller, "mail", None, None).key.subject
    del subjects["user"]
    assert Code.SUBJECT_UNAVAILABLE is validated(calls, caller, "mail", None, None)


@pytest.mark.parametrize("auth", [7, TurnAuth(subjects=7)])  # type: ignore[arg-type]
def test_the_connection_of_an_odd_turn_is_refused_as_its_token_call_is(auth: Any) -> None:
    calls, caller = Calls({"mail": MAIL}, 300), Caller(Turn("planner", "1", auth=auth))
    assert Code.REQUEST_INVALID is validated(calls, caller, "mail", None, None)
    with pytest.raises(BrokerError) as refused:
        calls.connection(caller, "mail")
    assert Code.REQUEST_INVALID is refused.value.code


class Lying(str):
    """A text that equals every other one."""

    __slots__ = ()

    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("read")


@pytest.mark.parametrize(
    "scopes, ttl",
    [
        (None, True),
        (None, 1.0),
        (None, "1"),
        ("read", None),
        ({"read"}, None),
        ([1], None),
        ([True], None),
        ((Lying("x"),), None),
        ([Lying("x")], None),
    ],
)
def test_arguments_that_equal_others_and_are_not_the_same_have_no_key(scopes: Any, ttl: Any) -> None:
    assert None is words_of("mail", scopes, ttl)
    assert None is words_of(Lying("mail"), None, None)
    assert ("mail", ("read",), 1, None) == words_of("mail", ["read"], 1) == words_of("mail", ("read",), 1)
    assert ("mail", (), None, None) == words_of("mail", [], None)
    assert ("mail", None, 0, None) == words_of("mail", None, 0)
