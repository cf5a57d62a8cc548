"""The types of the TypeScript client against the OpenAPI document, member by member."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.web.api.openapi import document

SOURCE = (Path(__file__).parents[3] / "clients/typescript/src/types.ts").read_text("utf-8")
SCHEMAS: dict[str, Any] = document()["components"]["schemas"]
SAME = {
    "AgentEvent": "EventBody",
    "AppInfo": "AppBody",
    "AuthPendingBlock": "PendingBlock",
    "AuthPendingItem": "PendingItem",
    "DeviceCode": "DevicePromptBody",
    "Erased": "ErasedBody",
    "GrantSummary": "GrantBody",
    "Imported": "ImportedBody",
    "OAuthTokenAuthorizationRequired": "AuthorizationRequiredResult",
    "OAuthTokenReady": "ReadyResult",
    "PrivateLink": "PrivateLink",
    "SessionOutcome": "SessionOutcomeBody",
}
OLDER = {("OAuthTokenAuthorizationRequired", "reason")}  # optional: an older broker sends none


def members_of(interface: str) -> dict[str, tuple[bool, bool]]:
    """Return the members of an interface: whether each may be missing, and whether it may be null."""
    found = re.search(rf"^export interface {interface} {{\n(.*?)^}}", SOURCE, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines = re.findall(r"^  (\w+)(\??): (.*);$", found[1], re.MULTILINE)
    return {name: (bool(optional), said.endswith("| null")) for name, optional, said in lines}


@pytest.mark.parametrize("interface, schema", SAME.items())
def test_a_type_has_the_members_of_its_answer(interface: str, schema: str) -> None:
    said, found = SCHEMAS[schema], members_of(interface)
    assert set(found) == set(said["properties"])
    for name, (is_optional, is_nullable) in found.items():
        assert is_optional == (name not in said["required"]) or (interface, name) in OLDER, name
        assert is_nullable == ({"type": "null"} in said["properties"][name].get("anyOf", ())), name
