"""Audit: a closed set of entries, written before a secret leaves; no audit, no secret."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import fields, replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker import audit
from oauthbroker.audit import AuthorizationRequested, TokenIssued, TokensDropped
from oauthbroker.audit.formatting import line_of, rest_of
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.testing import Canaries, IdentityProvider
from oauthbroker.tokens.token_call import Caller
from tests.kit.audit import AT, ENTRY, FOREIGN_KEYS, KEYS
from tests.kit.running_broker import Harness, running, turn, user_app

KNOWN_FIELDS = {
    "app", "grant", "agent", "tool", "degraded", "forced", "session", "reason", "code", "revoked", "provider", "name", "action",
    "connector", "turn", "key", "instance", "missing", "since", "epoch",
    "browser", "operator", "target", "event", "how", "route", "caller", "replaced",
    "method", "host", "status", "sent", "received", "unusual", "team", "slots",
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
        "turn": None,
        "instance": "1700000000.000100",
    } == json.loads(line)


def test_no_entry_has_a_field_for_a_user_or_a_secret() -> None:
    entries = audit.AuditEntry.types()
    assert len(entries) >= 8
    assert {field.name for entry in entries for field in fields(entry)} <= KNOWN_FIELDS


@pytest.mark.parametrize("name", ["line\nbreak", 'quo"te', "\x1b[31m", "\u2028"])
def test_a_name_from_hell_stays_in_its_line(name: str) -> None:
    line = line_of(
        AuthorizationRequested(app="mail", grant="sha256:00", session="as-1", agent=name, reason="noGrant"), AT
    )
    assert [line] == line.splitlines(keepends=True)
    assert name == json.loads(line)["agent"]


def test_on_disk_a_grant_and_a_conversation_go_by_names_that_only_this_store_can_make() -> None:
    words = json.loads("{" + rest_of(ENTRY, KEYS.name) + "}")
    assert [KEYS.name("grant", "sha256:00"), KEYS.name("instance", "1700000000.000100")] == [
        words["grant"],
        words["instance"],
    ]
    assert not {"sha256:00", "1700000000.000100"} & set(words.values())
    other = json.loads("{" + rest_of(ENTRY, FOREIGN_KEYS.name) + "}")
    assert words["grant"] != other["grant"]
    assert KEYS.name("grant", "same") != KEYS.name("instance", "same").replace("instance", "grant")


@pytest.fixture
async def harness(identity_provider: IdentityProvider) -> AsyncIterator[Harness]:
    async with running(identity_provider, [user_app(identity_provider)]) as harness:
        yield harness


class Refusing(AuditList):
    """An audit log on a disk that is full."""

    def write(self, entry: audit.AuditEntry, at: datetime) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be written")


async def test_no_audit_no_token(harness: Harness) -> None:
    await harness.connected()
    refusing = replace(harness.parts.token_issuer, audit=Refusing())
    manager = replace(harness.parts.manager, issuer=refusing)
    result = await manager.get_access_token(Caller(turn()), "mail")
    assert isinstance(result, Failed)
    assert Code.STORE_UNAVAILABLE is result.code


async def test_a_link_that_is_asked_for_again_has_its_entry_too(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer was refused with its entry; the second one must not find a session that has none."""
    with monkeypatch.context() as full:
        full.setattr(harness.audit, "write", Refusing().write)
        for _ in range(2):
            refused = await harness.ask()
            assert isinstance(refused, Failed)
            assert Code.STORE_UNAVAILABLE is refused.code
    asked = await harness.ask_link()
    again = await harness.ask_link()
    entries = [entry for entry in harness.audit.entries if isinstance(entry, audit.AuthorizationRequested)]
    assert [asked.auth_session_id] == [entry.session for entry in entries]
    assert asked.auth_session_id == again.auth_session_id


@pytest.mark.parametrize("what", ["a key is removed", "a key is rotated", "a secret is set", "a secret is removed"])
async def test_what_operators_change_is_entered_first(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """With a log that takes nothing, nothing changes; asked for again, it has its entry."""
    keys, secrets = harness.broker.api_keys, harness.broker.secrets
    made, _ = await keys.create("runtime", ["runtime"])
    await secrets.put("mail", "old", Secret("a value"))
    change: dict[str, Callable[[], Awaitable[object]]] = {
        "a key is removed": lambda: keys.remove(made.id),
        "a key is rotated": lambda: keys.rotate("runtime", overlap_seconds=0),
        "a secret is set": lambda: secrets.put("mail", "new", Secret("another value")),
        "a secret is removed": lambda: secrets.remove("mail"),
    }

    async def there() -> object:
        return sorted((key.id, key.expires_at) for key in await keys.list()), await secrets.names()

    before, entries = await there(), len(harness.audit.entries)
    with monkeypatch.context() as full:
        full.setattr(harness.audit, "write", Refusing().write)
        with pytest.raises(BrokerError):
            await change[what]()
    assert before == await there()
    await change[what]()
    assert before != await there()
    assert entries < len(harness.audit.entries)


async def test_every_token_that_leaves_is_entered_with_grant_agent_and_tool(
    harness: Harness, canaries: Canaries
) -> None:
    ready = await harness.connected()
    assert isinstance(ready, Ready)
    issued = [entry for entry in harness.audit.entries if isinstance(entry, TokenIssued)]
    assert [("mail", "planner", None, turn().instance_key)] == [
        (entry.app, entry.agent, entry.tool, entry.instance) for entry in issued
    ]
    assert issued[0].grant.startswith("sha256:")
    text = "".join(line_of(entry, at) for at, entry in harness.audit.lines)
    canaries.look(text, "the audit log")
    assert "idp:user:" not in text
    assert ["AuthorizationRequested", "ConnectStarted", "Connected", "TokenIssued"] == [
        type(entry).__name__ for entry in harness.audit.entries
    ]


@given(st.text(), st.none() | st.text(), st.booleans(), st.sampled_from(["a\ud800b", 'a"b\\c', "\n\x00\x7f\u2028", ""]))
def test_an_entry_is_written_as_json_writes_it(agent: str, tool: str | None, degraded: bool, odd: str) -> None:
    for entry in (
        TokenIssued(app=odd, grant="sha256:0", agent=agent, tool=tool, degraded=degraded, turn=None, instance=odd),
        TokensDropped(app="mail", session=odd, code=agent, revoked=degraded),
    ):
        words = {"type": type(entry).__name__, **vars(entry)}
        assert json.dumps(words, separators=(",", ":"))[1:-1] == rest_of(entry)
