"""Scopes: app >= tool >= call, exact strings, and granted scopes against requested ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.scope_ceiling import ScopeNeed, granted_scopes, resolve_scopes, union_in_app_order
from tests.kit.samples import app_with

APP = app_with(scopes=("chat:write", "channels:read", "files"))

scopes = st.lists(st.sampled_from(["a", "b", "c", "d", "A", "a b", "a,b", "", "*", "a:*", "á"]), unique=True)


@pytest.mark.rule("12.5.1-2", "Tool.spec.auth")
@pytest.mark.parametrize(
    "declared, wanted, needed, asked",
    [
        (None, None, ("chat:write", "channels:read", "files"), ("chat:write", "channels:read", "files")),
        (None, ["files"], ("files",), ("files",)),
        (None, ["files", "chat:write"], ("chat:write", "files"), ("files", "chat:write")),
        (None, [], (), ("chat:write", "channels:read", "files")),
        (("files",), None, ("files",), ("files",)),
        (("files", "chat:write"), ["chat:write"], ("chat:write",), ("chat:write",)),
        (("files",), [], (), ("files",)),
        ((), None, (), ()),
        ((), [], (), ()),
    ],
)
def test_what_a_call_needs_and_what_a_person_would_be_asked(
    declared: tuple[str, ...] | None, wanted: list[str] | None, needed: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    assert ScopeNeed(frozenset(needed), asked) == resolve_scopes(APP, declared, wanted)


@pytest.mark.case("43")
@pytest.mark.rule("12.5.1-2")
@pytest.mark.parametrize(
    "wanted",
    [
        ["admin"],
        ["chat"],
        ["chat:write:all"],
        ["chat:*"],
        ["*"],
        [""],
        [" files"],
        ["files "],
        ["FILES"],
        ["chat:write channels:read"],
        ["chat:write,channels:read"],
        ["files", "files"],
        ["files"] * 10_000,
        [str(number) for number in range(10_000)],
        ["ﬁles"],
        ["files\u200b"],
        ["files\x00"],
        [None],
        [["files"]],
        [{"files": 1}],
        [b"files"],
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_scope_outside_the_app_is_refused_in_every_disguise(wanted: Any) -> None:
    with pytest.raises(BrokerError) as caught:
        resolve_scopes(APP, None, wanted)
    assert Code.SCOPE_NOT_ALLOWED is caught.value.code
    assert "" == caught.value.note


@pytest.mark.parametrize(
    "wanted", ["files", "", b"files", 5, iter(["files"])], ids=["text", "empty", "bytes", "number", "iterator"]
)
def test_scopes_that_are_no_list_are_a_wrong_argument(wanted: Any) -> None:
    with pytest.raises(BrokerError, match="requestInvalid: The scopes of a call are a list") as caught:
        resolve_scopes(APP, None, wanted)
    assert ({"pointer": "/scopes", "problem": "type"},) == caught.value.errors


@pytest.mark.parametrize(
    ("declared", "wanted", "said"),
    [
        (None, ["admin"], "The scope admin is not allowed here. Allowed are: files, chat:write, profile."),
        (("files", "gone"), ["chat:write"], "The scope chat:write is not allowed here. Allowed are: files."),
        (None, ["files", "admin", *"abcdefg"], "The scope admin is not allowed here. Allowed are: files, "),
        (None, ["a secret\u200bscope"], "The scope ? is not allowed here."),
        (None, ["files", "files"], "A scope is named twice."),
        (None, "files", "The scopes of a call are a list of texts"),
    ],
)
def test_a_refusal_names_the_scope_that_is_too_much_and_those_that_are_allowed(
    declared: Any, wanted: Any, said: str
) -> None:
    app = app_with(scopes=("files", "chat:write", "profile"))
    with pytest.raises(BrokerError) as caught:
        resolve_scopes(app, declared, wanted)
    assert caught.value.message().startswith(said), caught.value.message()


def test_a_refusal_lists_thirty_scopes_at_most_and_says_so_of_an_app_without_any() -> None:
    for count, end in ((31, "s29, .... Ask"), (0, "the app has none. Ask")):
        with pytest.raises(BrokerError) as caught:
            resolve_scopes(app_with(scopes=tuple(f"s{n}" for n in range(count))), None, ["admin"])
        assert end in caught.value.message()


@pytest.mark.rule("Tool.spec.auth")
def test_a_tool_can_not_reach_past_its_own_declaration_nor_past_the_app() -> None:
    for declared, wanted in [(("files",), ["chat:write"]), (("files", "admin"), ["admin"])]:
        with pytest.raises(BrokerError) as caught:
            resolve_scopes(APP, declared, wanted)
        assert Code.SCOPE_NOT_ALLOWED is caught.value.code


@given(scopes, scopes, scopes)
def test_a_call_never_gets_more_than_tool_and_app_have(app: list[str], declared: list[str], wanted: list[str]) -> None:
    small = app_with(scopes=tuple(app))
    if declared and not set(app) & set(declared):
        with pytest.raises(BrokerError) as caught:
            resolve_scopes(small, declared, wanted)
        assert Code.APP_FORBIDDEN is caught.value.code
        return
    if not set(wanted) <= set(app) & set(declared):
        with pytest.raises(BrokerError) as caught:
            resolve_scopes(small, declared, wanted)
        assert Code.SCOPE_NOT_ALLOWED is caught.value.code
        return
    need = resolve_scopes(small, declared, wanted)
    assert need.needed == frozenset(wanted) <= set(app) & set(declared)


@given(scopes, scopes, scopes)
def test_a_step_up_asks_for_all_of_both_that_the_app_has_once_in_its_order(
    app: list[str], granted: list[str], wanted: list[str]
) -> None:
    union = union_in_app_order(app_with(scopes=tuple(app)), granted, wanted)
    assert union == tuple(scope for scope in app if scope in {*granted, *wanted})


def habits(**changes: Any) -> App:
    return replace(APP, habits=Habits(**changes))


@pytest.mark.case("29", "30")
@pytest.mark.parametrize(
    "app, asked, answered, granted, missing",
    [
        (APP, ("files", "chat:write"), None, ("files", "chat:write"), ()),
        (APP, ("files",), ("files",), ("files",), ()),
        (APP, ("files", "chat:write"), ("chat:write",), ("chat:write",), ("files",)),
        (APP, ("files",), (), (), ("files",)),
        (APP, ("files",), ("chat:write", "files"), ("chat:write", "files"), ()),
        (habits(extra_scopes="ignore"), ("files",), ("files", "admin"), ("files",), ()),
        (habits(always_scopes=("openid",)), ("files",), ("openid", "files"), ("files",), ()),
        (habits(scope_aliases={"long/files": "files"}), ("files",), ("long/files",), ("files",), ()),
        (habits(unlisted_scopes=("files",)), ("files", "chat:write"), ("chat:write",), ("chat:write", "files"), ()),
        (habits(unlisted_scopes=("files",)), ("chat:write",), ("chat:write",), ("chat:write",), ()),
        (habits(scopeless=True), ("files",), ("whatever",), ("files",), ()),
    ],
)
def test_granted_scopes_are_the_providers_within_the_apps(
    app: App,
    asked: tuple[str, ...],
    answered: tuple[str, ...] | None,
    granted: tuple[str, ...],
    missing: tuple[str, ...],
) -> None:
    assert (granted, missing) == granted_scopes(app, asked, answered)


@pytest.mark.case("30")
@pytest.mark.parametrize("extra", ["admin", "FILES", "files*", "chat"])
def test_more_than_the_app_has_is_refused_unless_it_says_otherwise(extra: str) -> None:
    with pytest.raises(BrokerError) as caught:
        granted_scopes(APP, ("files",), ("files", extra))
    assert Code.SCOPE_EXCEEDED is caught.value.code


@given(scopes, scopes, st.none() | scopes, st.sampled_from(["ignore", "reject"]))
def test_a_grant_never_lists_a_scope_that_the_app_has_not(
    app: list[str], asked: list[str], answered: list[str] | None, extra: Any
) -> None:
    small = replace(app_with(scopes=tuple(app)), habits=Habits(extra_scopes=extra))
    asked = [scope for scope in asked if scope in app]
    if extra == "reject" and not set(answered or ()) <= set(app):
        with pytest.raises(BrokerError) as caught:
            granted_scopes(small, asked, answered)
        assert Code.SCOPE_EXCEEDED is caught.value.code
        return
    granted, missing = granted_scopes(small, asked, answered)
    assert set(granted) <= set(app)
    assert set(missing) == set(asked) - set(granted)
