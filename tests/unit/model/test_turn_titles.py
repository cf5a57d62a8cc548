"""What a runtime calls agents and subjects: shown where it is one short line, and never more than hearsay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.model.turn import ResumeTarget, TurnAuth
from oauthbroker.model.turn_titles import agent_title, subject_title

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"


def target(titles: Any = None, **actor: str) -> ResumeTarget:
    origin = {} if titles is None else {"titles": titles}
    return ResumeTarget("planner", "1", origin=origin, auth=TurnAuth(actor))


def test_a_turn_without_titles_has_none():
    assert (None, None, None) == (
        agent_title(target()),
        subject_title(target(), "user"),
        subject_title(target(), "global"),
    )


def test_each_title_is_for_its_own():
    turn = target({"agent": "Travel planner", "user": "Kim", "global": "Acme"}, type="user", display="Min-jun")
    assert ("Travel planner", "Kim", "Acme") == (
        agent_title(turn),
        subject_title(turn, "user"),
        subject_title(turn, "global"),
    )


@pytest.mark.parametrize(
    ("actor", "title"),
    [
        ({"type": "user", "id": "slack:U1", "display": "Min-jun"}, "Min-jun"),
        ({"type": "agent", "id": "planner", "display": "Planner"}, None),
        ({"id": "slack:U1", "display": "Min-jun"}, None),
        ({"type": "user", "id": "slack:U1"}, None),
    ],
)
def test_the_user_is_called_as_the_acting_user_is_displayed_where_no_title_is_said(actor, title):
    assert title == subject_title(target(None, **actor), "user")
    assert subject_title(target(None, **actor), "global") is None


@pytest.mark.case("88")
@pytest.mark.parametrize(
    ("said", "title"),
    [
        (" Kim ", "Kim"),
        ("김민준", "김민준"),
        (FAMILY, FAMILY),
        ("<b>Kim</b>", "<b>Kim</b>"),
        ("n" * 80, "n" * 80),
        ("n" * 81, None),
        ("", None),
        ("   ", None),
        ("two\nlines", None),
        ("a\u2028b", None),
        ("\u202eevil", None),
        ("x\u2066y\u2069", None),
        ("zero\u200bwidth", None),
        ("nul\x00", None),
        ("\ud800", None),
        (None, None),
        (7, None),
        (["Kim"], None),
    ],
    ids=ascii,
)
def test_what_hides_turns_or_runs_on_is_no_title(said, title):
    assert title == agent_title(target({"agent": said}))
    assert title == subject_title(target({"user": said}), "user")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda kids: st.lists(kids) | st.dictionaries(st.text() | st.just("agent"), kids),
    )
)
def test_anything_may_be_said_and_is_a_title_or_none(said):
    found = agent_title(target(said))
    assert found is None or (found.isprintable() or "\u200d" in found or "\u200c" in found)
