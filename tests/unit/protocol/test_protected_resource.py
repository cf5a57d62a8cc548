"""The scopes with which a session with an MCP server begins."""

from __future__ import annotations

import dataclasses

import pytest

from oauthbroker.protocol.protected_resource import ProtectedResource
from tests.unit.protocol.kit import APP

OURS = ("read", "write", "offline_access")


@pytest.mark.case("115")
@pytest.mark.parametrize(
    ("challenged", "scopes", "listed", "first"),
    [
        (("read",), ("write",), None, ("read",)),
        ((), ("write", "read"), None, ("read", "write")),
        ((), None, None, ()),
        ((), (), None, ()),
        (("root", "read"), None, None, ("read",)),
        (("root",), ("read",), ("offline_access",), ()),
        (("read",), None, ("offline_access", "write"), ("read", "offline_access")),
        (("read", "offline_access"), None, ("read",), ("read",)),
        ((), None, ("read", "offline_access"), ()),
    ],
)
def test_a_session_begins_with_the_challenges_scopes_or_the_listed_ones_within_the_ceiling(
    challenged: tuple[str, ...], scopes: tuple[str, ...] | None, listed: tuple[str, ...] | None, first: tuple[str, ...]
) -> None:
    """`offline_access` follows what the authorization server lists. An empty answer leaves it to the ceiling."""
    server = ProtectedResource(resource="https://m.example", issuers=("i",), scopes=scopes, challenged=challenged)
    assert first == server.first_scopes(dataclasses.replace(APP, scopes=OURS), listed)
