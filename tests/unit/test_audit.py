"""Audit: a closed set of entries, written before a secret leaves; no audit, no secret."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from oauthbroker import audit
from oauthbroker.audit import AuditFile, AuditList, AuthorizationRequested, TokenIssued, line_of
from oauthbroker.errors import BrokerError, Code
from oauthbroker.manager import Caller
from oauthbroker.results import Failed, Ready
from oauthbroker.testing import Canaries, IdentityProvider
from tests.house import House, running, turn, user_app

AT = datetime(2026, 1, 31, 9, 10, 1, tzinfo=UTC)
ENTRY = TokenIssued("mail", "sha256:00", "planner", "Tool/mail")
KNOWN_FIELDS = {
    "app", "grant", "agent", "tool", "degraded", "forced", "session", "reason", "code", "revoked", "provider", "name", "action",
    "connector", "turn", "key",
    "visit", "target", "how",
}  # fmt: skip


def test_an_entry_is_one_line_of_json_with_time_and_type() -> None:
    line = line_of(ENTRY, AT)
    assert line.endswith("\n")
    assert 1 == line.count("\n")
    assert {
        "at": "2026-01-31T09:10:01Z",
        "type": "TokenIssued",
        "app": "mail",
        "grant": "sha256:00",
        "agent": "planner",
        "tool": "Tool/mail",
        "degraded": False,
    } == json.loads(line)


def test_no_entry_has_a_field_for_a_person_or_a_secret() -> None:
    entries = get_args(audit.Entry)
    assert len(entries) >= 8
    assert {field.name for entry in entries for field in fields(entry)} <= KNOWN_FIELDS


@pytest.mark.parametrize("name", ["line\nbreak", 'quo"te', "\x1b[31m", "\u2028"])
def test_a_name_from_hell_stays_in_its_line(name: str) -> None:
    line = line_of(AuthorizationRequested("mail", "sha256:00", "as-1", name, "noGrant"), AT)
    assert [line] == line.splitlines(keepends=True)
    assert name == json.loads(line)["agent"]


def test_the_file_is_ours_alone_and_grows_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    one, other = AuditFile(path), AuditFile(path)  # two brokers on one store
    for writer in (one, other, one):
        writer.write(ENTRY, AT)
    one.close()
    other.close()
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert [json.loads(line_of(ENTRY, AT))] * 3 == [json.loads(line) for line in path.read_text().splitlines()]


def test_a_symlink_in_the_files_place_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "audit.jsonl").symlink_to(target)
    with pytest.raises(BrokerError) as caught:
        AuditFile(tmp_path / "audit.jsonl")
    assert Code.STORE_UNAVAILABLE is caught.value.code
    assert not target.exists()


@pytest.mark.parametrize("written", [OSError(28, "No space left on device"), 3], ids=["disk full", "half a line"])
def test_an_entry_that_is_not_kept_is_an_error_that_can_be_tried_again(
    written: OSError | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = AuditFile(tmp_path / "audit.jsonl")

    def refuse(descriptor: int, line: bytes) -> int:
        if isinstance(written, OSError):
            raise written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(BrokerError) as caught:
            writer.write(ENTRY, AT)
    writer.close()
    assert (Code.STORE_UNAVAILABLE, None) == (caught.value.code, caught.value.__context__)


@pytest.fixture
async def house(identity_provider: IdentityProvider) -> AsyncIterator[House]:
    async with running(identity_provider, [user_app(identity_provider)]) as house:
        yield house


class Refusing(AuditList):
    """An audit log on a disk that is full."""

    def write(self, entry: audit.Entry, at: datetime) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be written")


async def test_no_audit_no_token(house: House) -> None:
    await house.connected()
    manager = replace(house.broker.manager, audit=Refusing())
    result = await manager.get_access_token(Caller(turn()), "mail")
    assert isinstance(result, Failed)
    assert Code.STORE_UNAVAILABLE is result.code


async def test_every_token_that_leaves_is_entered_with_grant_agent_and_tool(house: House, canaries: Canaries) -> None:
    ready = await house.connected()
    assert isinstance(ready, Ready)
    issued = [entry for entry in house.audit.entries if isinstance(entry, TokenIssued)]
    assert [("mail", "planner", None)] == [(entry.app, entry.agent, entry.tool) for entry in issued]
    assert issued[0].grant.startswith("sha256:")
    text = "".join(line_of(entry, at) for at, entry in house.audit.lines)
    canaries.look(text, "the audit log")
    assert "idp:user:" not in text
    assert ["AuthorizationRequested", "ConnectStarted", "Connected", "TokenIssued"] == [
        type(entry).__name__ for entry in house.audit.entries
    ]
