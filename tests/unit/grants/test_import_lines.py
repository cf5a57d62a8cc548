"""Lines of another system: all of a file is checked, every problem is told by its line, and no value with it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import MOST_LINES, MOST_PROBLEMS, CheckedLines, Incoming, validate
from oauthbroker.grants.line_cutter import BOM, MOST_BYTES, LineCutter
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.provider_habits import Habits
from oauthbroker.protocol.identity import render
from oauthbroker.testing import Canaries

NOW = datetime(2026, 2, 1, 9, tzinfo=UTC)
MAIL = App(
    name="mail",
    provider="oidc",
    flow="authorizationCode",
    subject_mode="user",
    client=Client("client"),
    endpoints=Endpoints(token_url="https://idp.example/token", issuer="https://idp.example"),
    scopes=("read", "write"),
    redirect=Redirect("/oauth/callback/mail", "https://broker.example"),
    owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")),
)
TEAM = replace(
    MAIL,
    name="team",
    subject_mode="global",
    owner=Owner(global_identity=IdentityRule("tokenResponse", "slack:team:{team.id}:{*path}"), authorizers="anyone"),
)
ROBOT = replace(MAIL, name="robot", flow="clientCredentials", owner=Owner())
LOCAL = replace(
    MAIL, name="local", owner=Owner(binding="localOperator"), endpoints=Endpoints(token_url="https://x.example")
)
APPS = {app.name: app for app in (MAIL, TEAM, ROBOT, LOCAL)}
GOOD = {"app": "mail", "subject": "idp:user:U1", "refreshToken": "r-1"}
ALONE = {"app": "mail", "subject": "idp:user:U1", "accessToken": "a-1"}


def validated(*lines: Any, app: str | None = None, apps: dict[str, App] = APPS, end: bytes = b"\n") -> CheckedLines:
    data = end.join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return validate(io.BytesIO(data), apps, NOW, app=app)


def one(line: Any, **more: Any) -> Incoming:
    found = validated(line, **more)
    assert [] == found.problems
    [incoming] = found.incoming
    return incoming


def problems(line: Any, **more: Any) -> list[str]:
    found = validated(line, **more)
    assert [] == found.incoming
    return [problem.what for problem in found.problems]


REFS: dict[str, Any] = {
    "kind/name": "OAuthApp/mail",
    "kind and name": {"kind": "OAuthApp", "name": "mail"},
    "all of it": {"kind": "OAuthApp", "name": "mail", "apiVersion": "agents.example.io/v1alpha1"},
}


@pytest.mark.parametrize("ref", REFS.values(), ids=REFS)
@pytest.mark.parametrize("of_all", [None, "mail"], ids=["by the line", "by --app too"])
def test_a_line_names_its_app_in_any_form_and_is_the_same_line(ref: Any, of_all: str | None):
    incoming = one(GOOD | {"app": ref}, app=of_all)
    assert ("mail", one(GOOD).mark) == (incoming.app, incoming.mark)


@pytest.mark.parametrize("ref", ["Tool/mail", "", {"kind": "Tool", "name": "mail"}, {"name": "mail", "x": 1}, 5, None])
def test_what_names_no_app_is_a_problem(ref: Any):
    assert ["app names no OAuthApp or CredentialApp"] == problems(GOOD | {"app": ref})


def test_the_least_that_a_line_may_say():
    incoming = one(GOOD)
    assert ("mail", "idp:user:U1", Secret("r-1"), None, ("read", "write")) == (
        incoming.app, incoming.subject, incoming.refresh_token, incoming.access_token, incoming.scopes,
    )  # fmt: skip


@pytest.mark.parametrize("ends", [None, "2026-02-01T09:00:01Z", "2030-01-01T00:00:00+09:00"])
def test_an_access_token_alone_is_enough(ends: str | None):
    incoming = one(ALONE | ({} if ends is None else {"expiresAt": ends}))
    assert (None, Secret("a-1")) == (incoming.refresh_token, incoming.access_token)
    assert ends is None or datetime.fromisoformat(ends) == incoming.expires_at


def test_an_ended_access_token_beside_a_refresh_token_is_no_problem():
    assert one(GOOD | {"accessToken": "a-1", "expiresAt": "2020-01-01T00:00:00Z"}).refresh_token == Secret("r-1")


@given(st.lists(st.binary(max_size=40).map(lambda it: it.replace(b"\n", b"")), max_size=8), st.data())
def test_a_stream_that_is_cut_anywhere_has_the_same_lines(lines: list[bytes], data: st.DataObject):
    body, cutter = b"\n".join(lines), LineCutter()
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
    found = [each for piece in pieces for each in cutter.cut(piece)] + [*cutter.end()]
    bare = [line.removeprefix(BOM) if number == 0 else line for number, line in enumerate(lines)]
    assert [(number, line.rstrip(b"\r")) for number, line in enumerate(bare, 1) if line.strip()] == found


def test_all_that_a_line_may_say():
    more = {
        "accessToken": "a-1", "expiresAt": "2026-02-01T11:00:00+01:00", "scopes": ["write"], "account": "U1",
        "grantedAt": "2025-01-01T00:00:00Z",
    }  # fmt: skip
    incoming = one(GOOD | more)
    assert incoming.access_token is not None
    assert ("a-1", datetime(2026, 2, 1, 10, tzinfo=UTC), ("write",), "U1", datetime(2025, 1, 1, tzinfo=UTC)) == (
        incoming.access_token.reveal(), incoming.expires_at, incoming.scopes, incoming.account, incoming.granted_at,
    )  # fmt: skip


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "not one JSON object"),
    "a list": ([GOOD], "not one JSON object"),
    "a name twice": (b'{"app": "mail", "app": "mail"}', "each name once"),
    "not UTF-8": (b'{"app": "\xff"}', "in UTF-8"),
    "a NUL": (GOOD | {"subject": "idp:user:\x00"}, "unprintable"),
    "an unknown field": (GOOD | {"refresh_token": "r"}, "a field that is not known"),
    "no subject": ({"app": "mail", "refreshToken": "r"}, "subject is missing"),
    "no token": ({"app": "mail", "subject": "idp:user:U1"}, "refreshToken and accessToken are missing"),
    "an ended token alone": (ALONE | {"expiresAt": "2026-02-01T09:00:00Z"}, "the access token has ended"),
    "an end alone": ({"app": "mail", "subject": "idp:user:U1", "expiresAt": "2026-02-01T11:00:00Z"}, "are missing"),
    "no app": ({"subject": "idp:user:U1", "refreshToken": "r"}, "app is missing"),
    "a number": (GOOD | {"subject": 1}, "subject is not text"),
    "a subject as a turn has it": (GOOD | {"subject": {"user": "idp:user:U1"}}, "write the account alone"),
    "null": (GOOD | {"accessToken": None}, "accessToken is not text"),
    "an unknown app": (GOOD | {"app": "other"}, "No app is called other. Check the name"),
    "an app without people": (GOOD | {"app": "robot"}, "the app asks for itself"),
    "another spelling": (GOOD | {"subject": "slack:user:U1"}, "not spelt as the app's owner.identity.user"),
    "a fact too many": (GOOD | {"subject": "idp:user:U1:x"}, "not spelt as"),
    "an empty fact": (GOOD | {"subject": "idp:user:"}, "not spelt as"),
    "an empty subject": (GOOD | {"subject": ""}, "subject is empty"),
    "a foreign scope": (GOOD | {"scopes": ["read", "admin"]}, "1 scopes that the app does not have"),
    "a scope twice": (GOOD | {"scopes": ["read", "read"]}, "1 scopes"),
    "scopes as text": (GOOD | {"scopes": "read write"}, "scopes is not a list of texts"),
    "a token with a space": (GOOD | {"refreshToken": "r 1"}, "refreshToken is empty, too long"),
    "an empty token": (GOOD | {"refreshToken": ""}, "refreshToken is empty"),
    "a token in Korean": (GOOD | {"accessToken": "토큰"}, "accessToken is empty, too long"),
    "an end without a token": (GOOD | {"expiresAt": "2026-02-01T11:00:00Z"}, "expiresAt without accessToken"),
    "a time without zone": (GOOD | {"accessToken": "a", "expiresAt": "2026-02-01T11:00:00"}, "expiresAt is not a time"),
    "a time in words": (GOOD | {"grantedAt": "yesterday"}, "grantedAt is not a time"),
    "before all time": (GOOD | {"grantedAt": "0001-01-01T00:00:00+14:00"}, "grantedAt is not a time"),
    "the future": (GOOD | {"grantedAt": "2026-02-01T09:06:00Z"}, "grantedAt is in the future"),
    "an empty account": (GOOD | {"account": ""}, "account is empty"),
    "an account that says nothing": (
        {"app": "local", "subject": "me", "refreshToken": "r", "account": "x"}, "account is of no use",
    ),
    "too long": (GOOD | {"subject": "x" * MOST_BYTES}, "longer than 64 KiB"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "says"), BAD.values(), ids=BAD)
def test_each_fault_is_reported(line: Any, says: str):
    found = problems(line)
    assert [True] == [says in what for what in found], found


@pytest.mark.case("90")
def test_every_problem_of_every_line_is_reported_at_once_and_no_value(canaries: Canaries):
    secret = canaries.mint("refresh token").reveal()
    bad = {"app": "mail", "subject": secret, "refreshToken": f"{secret} ", "scopes": [secret], secret: secret}
    found = validated(bad, GOOD, b"", {"app": secret}, {**bad, "extra": 1, "subject": 1})
    assert {1, 4, 5} == {problem.line for problem in found.problems}
    assert secret not in repr(found.problems)
    known = {name: value for name, value in bad.items() if name != secret}
    assert 3 == len(problems(known)), "subject, token and scopes"


def test_the_same_grant_twice_is_a_problem_that_names_both_lines():
    found = validated(GOOD, GOOD | {"refreshToken": "r-2"})
    assert [(2, "the same app, subject and connection as line 1. Keep one.")] == [
        (it.line, it.what) for it in found.problems
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_files_of_other_systems_are_read(end: bytes, bom: bytes):
    other = GOOD | {"subject": "idp:user:U2"}
    found = validated(bom + json.dumps(GOOD).encode(), other, b"", end=end)
    assert ([], 2) == (found.problems, len(found.incoming))


def test_a_line_without_an_end_is_let_go_piece_by_piece():
    huge = b'{"app": "' + b"x" * (5 * MOST_BYTES)
    found = validated(huge, GOOD)
    assert [(1, "longer than 64 KiB")] == [(it.line, it.what) for it in found.problems]
    assert [2] == [it.line for it in found.incoming]


def test_too_many_lines_or_bytes_are_refused():
    found = validate(io.BytesIO(b"\n" * MOST_LINES + json.dumps(GOOD).encode()), APPS, NOW)
    assert [f"more than {MOST_LINES} lines. Cut the file into several."] == [it.what for it in found.problems]
    found = validate(io.BytesIO(b"{\n" * (2 * MOST_PROBLEMS)), APPS, NOW)
    assert MOST_PROBLEMS + 1 == len(found.problems)


def test_the_app_may_be_said_once_for_all():
    bare = {name: value for name, value in GOOD.items() if name != "app"}
    assert "mail" == one(bare, app="mail").app
    assert "mail" == one(GOOD, app="mail").app
    assert ["another app than team, which --app names"] == problems(GOOD, app="team")


def test_scopes_are_the_apps_own_words_in_its_order():
    habits = Habits(scope_aliases={"short": "write"}, always_scopes=("openid",))
    apps = {"mail": replace(MAIL, habits=habits)}
    assert ("read", "write") == one(GOOD | {"scopes": ["short", "openid", "read"]}, apps=apps).scopes
    assert () == one(GOOD | {"scopes": []}).scopes


def test_an_account_is_of_use_where_one_issuer_names_it():
    assert "U1" == one(GOOD | {"account": "U1"}).account
    many = replace(MAIL, habits=Habits(issuer_template="https://idp.example/{tenant}"))
    assert "no use" in problems(GOOD | {"account": "U1"}, apps={"mail": many})[0]


def test_the_mark_is_the_same_for_the_same_line_however_it_is_written():
    line = GOOD | {"scopes": ["read", "write"]}
    backwards = dict(reversed(line.items()))
    assert one(line).mark == one(backwards).mark == one(json.dumps(line, indent=1).replace("\n", " ").encode()).mark
    marks = {one(GOOD | change).mark for change in (
        {}, {"refreshToken": "r-2"}, {"scopes": ["read"]}, {"scopes": ["write"]}, {"account": "U1"},
    )}  # fmt: skip
    assert 5 == len(marks)


FACT = st.text(st.characters(blacklist_characters=":", blacklist_categories=["C", "Z"]), min_size=1, max_size=40)


@given(st.lists(FACT, min_size=2, max_size=2), FACT)
def test_every_subject_that_a_login_renders_is_accepted(facts: list[str], path: str):
    """What the owner rule renders out of a provider's facts fits the shape that lines are held to."""
    subject = render("slack:user:{team.id}:{who}", {"team": {"id": facts[0]}, "who": facts[1]})
    app = replace(MAIL, owner=Owner(user_identity=IdentityRule("tokenResponse", "slack:user:{team.id}:{who}")))
    if len(subject.encode()) <= 1024:
        assert subject == one(GOOD | {"subject": subject}, apps={"mail": app}).subject
    starred = replace(MAIL, owner=Owner(user_identity=IdentityRule("tokenResponse", "aws:{*arn}")))
    subject = render("aws:{*arn}", {"arn": f"{facts[0]}:{path}"})
    assert subject == one(GOOD | {"subject": subject}, apps={"mail": starred}).subject


DESK = replace(
    MAIL,
    name="desk",
    connect_params=(ConnectParam(name="shop"), ConnectParam(name="region", one_of=("eu", "us"))),
    owner=Owner(binding="localOperator"),
)
DESK_LINE = {"app": "desk", "subject": "web:42", "refreshToken": "r-1"}


@pytest.mark.parametrize(
    "more, account",
    [
        ({"connection": "acme,eu"}, "acme,eu"),
        ({"connectParams": {"shop": "acme", "region": "eu"}}, ""),
        ({"connection": "", "connectParams": {"region": "eu", "shop": "acme"}}, ""),
    ],
)
def test_the_values_of_connect_params_come_as_the_account_or_as_a_user_typed_them(more: Any, account: str) -> None:
    incoming = one(DESK_LINE | more, apps={"desk": DESK})
    assert (account, {"shop": "acme", "region": "eu"}) == (incoming.key.account, dict(incoming.params))


@pytest.mark.parametrize(
    "more",
    [
        {}, {"connection": ""}, {"connectParams": {}}, {"connection": "acme"}, {"connection": "acme,asia"},
        {"connectParams": {"shop": "acme"}}, {"connectParams": {"shop": "acme", "region": "asia"}},
        {"connectParams": {"shop": "a/b", "region": "eu"}}, {"connectParams": {"shop": "acme", "region": "eu", "x": "y"}},
        {"connection": "acme,eu", "connectParams": {"shop": "acme", "region": "eu"}},
        {"connectParams": {"shop": "acme", "region": 7}}, {"connectParams": "acme,eu"}, {"connectParams": ["acme", "eu"]},
    ],
)  # fmt: skip
def test_a_line_without_the_values_of_connect_params_is_refused(more: Any) -> None:
    [problem] = problems(DESK_LINE | more, apps={"desk": DESK})
    assert "onnectParams" in problem
    assert "asia" not in problem


def test_an_app_without_parameters_takes_none() -> None:
    [problem] = problems(GOOD | {"connectParams": {"shop": "acme"}})
    assert problem == "connectParams is of no use for this app, which has none. Leave it out."


def test_each_connection_of_a_subject_has_a_line_and_the_same_line_again_is_the_same_grant() -> None:
    typed = {"connectParams": {"shop": "acme", "region": "eu"}}
    turned = {"connectParams": {"region": "eu", "shop": "acme"}}
    other = {"connectParams": {"shop": "acme", "region": "us"}}
    marks = [one(DESK_LINE | each, apps={"desk": DESK}).mark for each in (typed, turned, other)]
    assert marks[0] == marks[1] != marks[2]
    assert [] == validated(DESK_LINE | typed, DESK_LINE | {"connection": "acme,eu"}, apps={"desk": DESK}).problems
