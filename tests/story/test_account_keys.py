"""What plug-ins keep for a caller is kept for its subjects and its accounts, with any characters in them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from oauthbroker import Turn, TurnAuth
from oauthbroker.flowtools.running.checks import own_key
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.mcp.server import ToolCaller

AUTHS = [
    TurnAuth(subjects={"user": "a b"}),
    TurnAuth(subjects={"user": "a", "global": "b"}),
    TurnAuth(subjects={"global": "a", "user": "b"}),
    TurnAuth(subjects={"global": "a b"}),
    TurnAuth(subjects={"user": "a b"}, accounts={"OAuthApp/mail": ["work"]}),
    TurnAuth(subjects={"user": "a b"}, accounts={"OAuthApp/mail": ["private"]}),
    TurnAuth(subjects={"user": "a b"}, accounts={"OAuthApp/mail": {"allowed": ["work", "private"], "default": "work"}}),
]


def keys(auth: TurnAuth) -> tuple[str, str]:
    """Return the keys of a caller's lists at MCP servers, and of its calls of flow tools."""
    turn = Turn("planner", "1", auth=auth)
    nothing: Any = None
    return ToolCaller(turn=turn, oauth=nothing).key, own_key("call", Actor(id="caller", turn=turn), "1")


@pytest.mark.parametrize(("one", "other"), [*combinations(AUTHS, 2)])
def test_two_callers_share_nothing(one: TurnAuth, other: TurnAuth) -> None:
    for mine, theirs in zip(keys(one), keys(other), strict=True):
        assert mine != theirs


@pytest.mark.parametrize("auth", AUTHS)
def test_one_caller_finds_its_own_again(auth: TurnAuth) -> None:
    assert keys(auth) == keys(auth)
