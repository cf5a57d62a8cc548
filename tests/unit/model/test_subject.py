"""Whose token it is: the turn says so, by the app's mode, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.identities import MAX_BYTES, is_subject
from oauthbroker.model.subject import resolve_subject
from oauthbroker.records import grant_id
from oauthbroker.store.format.entry_names import entry_names
from tests.kit.samples import app_with, turn_with

USER, GLOBAL = app_with(), app_with(subject_mode="global")
BOTH = turn_with(user="idp:user:1", **{"global": "idp:team:1"})


@pytest.mark.rule("12.5.1-1")
def test_the_mode_picks_the_subject() -> None:
    assert "idp:user:1" == resolve_subject(USER, BOTH)
    assert "idp:team:1" == resolve_subject(GLOBAL, BOTH)


@pytest.mark.case("37")
@pytest.mark.rule("12.5.1-1")
@pytest.mark.parametrize(
    "app, subjects",
    [
        (USER, {}),
        (USER, {"global": "idp:team:1"}),
        (GLOBAL, {"user": "idp:user:1"}),
        (USER, {"user": ""}),
        (USER, {"user": None}),
        (USER, {"user": 5}),
        (USER, {"user": ["idp:user:1"]}),
        (USER, {"user": "\ud800"}),
        (USER, {"user": "x" * (MAX_BYTES + 1)}),
        (USER, {"user": "가" * (MAX_BYTES // 3 + 1)}),
        (USER, {"User": "idp:user:1"}),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_without_its_subject_there_is_no_token_and_never_another_ones(app: Any, subjects: dict[str, Any]) -> None:
    with pytest.raises(BrokerError) as caught:
        resolve_subject(app, Turn("a", "i", auth=TurnAuth(subjects=subjects)))
    assert (Code.SUBJECT_UNAVAILABLE, {"mode": app.subject_mode}) == (caught.value.code, caught.value.words)


@pytest.mark.case("37")
@pytest.mark.parametrize("app", [USER, GLOBAL])
def test_a_turn_without_auth_has_no_subject_at_all(app: Any) -> None:
    with pytest.raises(BrokerError) as caught:
        resolve_subject(app, Turn("a", "i"))
    assert Code.SUBJECT_UNAVAILABLE is caught.value.code


@given(st.text(min_size=1, max_size=200))
def test_a_subject_is_taken_byte_for_byte_or_not_at_all(subject: str) -> None:
    if is_subject(subject):
        assert subject == resolve_subject(USER, turn_with(user=subject))
    else:
        assert any("\ud800" <= char <= "\udfff" for char in subject)


@pytest.mark.case("45", "78")
@given(*[st.text(alphabet="ab:/\0.\\é", max_size=6)] * 4)
def test_two_pairs_never_share_a_name(app: str, subject: str, other_app: str, other_subject: str) -> None:
    """Lengths are part of the hashed text, so no separator can be moved from one half to the other."""
    same = (app, subject) == (other_app, other_subject)
    assert same is (grant_id(app, subject) == grant_id(other_app, other_subject))
    key = b"k" * 32
    names = [entry_names(key)("grants", *pair) for pair in ((app, subject), (other_app, other_subject))]
    assert same is (names[0] == names[1])


@pytest.mark.case("78")
@pytest.mark.parametrize(
    "subject", ["../../etc/passwd", "a\0b", "\u202egnp", "🦊", "é", "e\u0301", "CON", "a.", "A", "a"]
)
def test_no_name_on_disk_contains_a_users_own_name(subject: str) -> None:
    name = entry_names(b"k" * 32)("grants", "mail", subject)
    assert name.isascii()
    assert name.isalnum()
    assert name == name.lower()
    assert len(entry_names(b"k" * 32)("grants", "mail", "another")) == len(name)


def test_spellings_that_look_alike_are_two_subjects() -> None:
    assert 2 == len({grant_id("mail", "é"), grant_id("mail", "e\u0301")})
    assert 2 == len({grant_id("mail", "A"), grant_id("mail", "a")})
