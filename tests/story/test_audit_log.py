"""The audit log of a whole broker on a disk: who got which token, the secrets that are not in it, and calls while it cannot be written."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from oauthbroker.audit import AuditEntry, AuditGap, TokenIssued
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.formatting import rest_of
from oauthbroker.audit.lines import AuditLine
from oauthbroker.audit.memory import AuditList
from oauthbroker.audit.trail import FileTrail
from oauthbroker.broker import Broker
from oauthbroker.core.clock import to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metric
from oauthbroker.records import grant_id
from oauthbroker.testing import Browser, Canaries, IdentityProvider, TestClock, connect_through
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running
from tests.kit.audit import KEYS, active
from tests.kit.running_broker import ALICE, BASE, file_store, running, turn, user_app
from tests.unit.web.kit import ask

TOOLS = {"Tool/mail": (ToolAuth("mail", ("read",)),)}
Setting = Literal["refuse", "continue"]
UNWELL = [errno.ENOSPC, errno.EIO, errno.EROFS]


class Desk:
    """A broker with its own audit log, and the lines of its own log."""

    def __init__(self, idp: IdentityProvider, folder: Path, clock: TestClock) -> None:
        self.idp, self.folder, self.clock, self.log = idp, folder, clock, io.StringIO()
        self.running: Running

    @property
    def broker(self) -> Broker:
        return self.running.broker

    @asynccontextmanager
    async def open(self, on_failure: Setting = "refuse", audit: AuditList | None = None) -> AsyncIterator[Broker]:
        settings = Settings(
            public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), store_root=str(self.folder / "store"),
            audit_on_failure=on_failure,
        )  # fmt: skip
        bundle = Bundle(settings, {"mail": user_app(self.idp)}, TOOLS)
        store, log = file_store(self.folder, self.clock), json_log(self.log, self.clock)
        async with open_running(bundle, env={}, clock=self.clock, store=store, audit=audit, log=log) as self.running:
            yield self.broker

    async def connected(self) -> Ready:
        asked: Any = await self.broker.oauth(turn()).get_access_token("mail")
        browser = Browser(apps={BASE: self.broker.asgi.app})
        assert 200 == (await connect_through(browser, self.idp, asked.authorization_url, "alice")).status
        ready = await self.broker.oauth(turn()).get_access_token("mail")
        assert isinstance(ready, Ready)
        return ready

    @contextmanager
    def disk_without_plugin_for_the_log(self, number: int = errno.ENOSPC) -> Iterator[None]:
        """Every write to the audit log fails; the store's go on."""
        kept = self.running.parts.audit_log
        assert isinstance(kept, AuditFile)
        real = os.write

        def refuse(descriptor: int, data: Any) -> int:
            if kept._slot is not None and descriptor == kept._slot.descriptor:
                raise OSError(number, os.strerror(number))
            return real(descriptor, data)

        os.write = refuse
        try:
            yield
        finally:
            os.write = real

    async def lines(self, **which: Any) -> list[AuditLine]:
        return await self.broker.audit_trail.tail(1000, **which)

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def desk(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> Desk:
    return Desk(identity_provider, tmp_path, test_clock)


async def test_the_log_says_who_got_which_token_for_which_tool_and_turn(desk: Desk) -> None:
    async with desk.open() as broker:
        await desk.connected()
        begun = await broker.turns.begin(turn(), tools={"Tool/mail": None})
        token_holder = await broker.turns.admit(begun.tool_tokens["Tool/mail"].reveal())
        assert isinstance(await broker.oauth_for(token_holder).get_access_token("mail", ["read"]), Ready)
        await broker.turns.end(begun.turn_id)
        embedded, remote = await desk.lines(app="mail", type="TokenIssued")
        grant = broker.audit_trail.name("grant", grant_id("mail", ALICE))
        instance = broker.audit_trail.name("instance", turn().instance_key)
    assert [(grant, "planner", None, None, instance), (grant, "planner", "Tool/mail", begun.turn_id, instance)] == [
        tuple(it.fields[name] for name in ("grant", "agent", "tool", "turn", "instance")) for it in (embedded, remote)
    ]


async def test_connected_refreshed_rejected_revoked_and_refused_are_all_told(desk: Desk) -> None:
    async with desk.open() as broker:
        ready = await desk.connected()
        tool = broker.oauth(turn(), tool="Tool/mail")
        assert isinstance(await tool.report_rejected("mail", ready.access_token), Ready)
        assert await broker.revoke("mail", subject=ALICE)
        asked: Any = await tool.get_access_token("mail")
        page = await connect_through(
            Browser(apps={BASE: broker.asgi.app}), desk.idp, asked.authorization_url, "mallory"
        )
        assert 200 != page.status
        reported = [line.type for line in await desk.lines()]
    assert [
        "LogBegan", "AuthorizationRequested", "ConnectStarted", "Connected", "TokenIssued", "TokenRejected", "TokenRefreshed",
        "TokenIssued", "GrantEnded", "GrantRevoked", "AuthorizationRequested", "ConnectStarted", "ConnectFailed", "TokensDropped",
    ] == reported  # fmt: skip


@pytest.mark.case("89", "92")
async def test_neither_a_secret_nor_a_person_is_in_the_log_on_disk(desk: Desk, canaries: Canaries) -> None:
    async with desk.open() as broker:
        ready = await desk.connected()
        await broker.oauth(turn(), tool="Tool/mail").report_rejected("mail", ready.access_token)
        begun = await broker.turns.begin(turn())
        canaries.add(begun.token.reveal(), "turn token")
        key, secret = await broker.api_keys.create("runtime", ["runtime"])
        canaries.add(secret.reveal(), "API key")
        await broker.api_keys.remove(key.id)
        await broker.revoke("mail", subject=ALICE)
    text = (desk.folder / "store" / "data" / "audit.jsonl").read_text()
    canaries.look(text, "the audit log on disk")
    assert text.count("\n") > 10
    for word in ("idp:", "U234567", "alice", "sha256:", turn().instance_key, "C123", "T111"):
        assert word not in text, word


@pytest.mark.parametrize("number", UNWELL, ids=errno.errorcode.get)
async def test_no_entry_no_token_unless_the_operator_wants_it_otherwise(desk: Desk, number: int) -> None:
    async with desk.open("refuse") as broker:
        await desk.connected()
        with desk.disk_without_plugin_for_the_log(number):
            refused = await broker.oauth(turn()).get_access_token("mail")
            assert isinstance(refused, Failed)
            assert (Code.STORE_UNAVAILABLE, True) == (refused.code, refused.retryable)
            assert ("red", ("auditUnavailable",)) == (broker.health().status, broker.health().problems)
        assert isinstance(await broker.oauth(turn()).get_access_token("mail"), Ready)
        assert "ok" == broker.health().status
        assert 2 == len(await desk.lines(type="TokenIssued"))
        assert [] == await desk.lines(type="AuditGap")


@pytest.mark.parametrize("number", UNWELL, ids=errno.errorcode.get)
async def test_with_continue_tokens_leave_and_the_log_reports_its_gap_afterwards(desk: Desk, number: int) -> None:
    async with desk.open("continue") as broker:
        await desk.connected()
        since = to_iso(desk.clock.now())
        with desk.disk_without_plugin_for_the_log(number):
            for _ in range(5):
                assert isinstance(await broker.oauth(turn()).get_access_token("mail"), Ready)
            assert ("red", ("auditUnavailable",)) == (broker.health().status, broker.health().problems)
            assert 5 == broker.metrics.value(Metric.AUDIT_ENTRIES_MISSING)
            assert [1] == [line["missing"] for line in desk.said("the audit log takes no entries")]
            desk.clock.advance(61)
            assert isinstance(await broker.oauth(turn()).get_access_token("mail"), Ready)
            assert [1, 6] == [line["missing"] for line in desk.said("the audit log takes no entries")]
        assert isinstance(await broker.oauth(turn()).get_access_token("mail"), Ready)
        assert "ok" == broker.health().status
        gap, issued = (await desk.lines())[-2:]
        assert (("AuditGap", {"missing": 6, "since": since}), "TokenIssued") == ((gap.type, gap.fields), issued.type)
        trail = broker.audit_trail
        assert isinstance(trail, FileTrail)
        found = await trail.verify()
    assert (True, 6) == (found.sound, found.gaps)


async def test_a_gap_at_the_end_is_told_of_when_the_broker_is_left(desk: Desk) -> None:
    async with desk.open("continue") as broker:
        await desk.connected()
        with desk.disk_without_plugin_for_the_log():
            assert isinstance(await broker.oauth(turn()).get_access_token("mail"), Ready)
    async with desk.open():
        assert [1] == [line.fields["missing"] for line in await desk.lines(type="AuditGap")]


class Unwell(AuditList):
    """A log of the embedding runtime's own, which takes nothing."""

    def write(self, entry: AuditEntry, at: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)


async def test_continue_holds_for_a_log_of_the_runtimes_own_and_a_gap_that_stays_is_told_of(desk: Desk) -> None:
    async with desk.open("continue", Unwell()):
        await desk.connected()
    assert [4] == [line["missing"] for line in desk.said("the audit log lacks entries for ever")]


async def test_the_log_that_is_full_is_continued_in_the_next_file_while_tokens_leave(desk: Desk) -> None:
    async with desk.open() as broker:
        await desk.connected()
        kept: Any = desk.running.parts.audit
        kept._slot._most = 3000
        for _ in range(40):
            assert isinstance(await broker.oauth(turn()).get_access_token("mail"), Ready)
        assert 41 == len(await desk.lines(type="TokenIssued"))
        trail: Any = broker.audit_trail
        assert (await trail.verify()).sound
    assert (desk.folder / "store" / "data" / "audit-000003.jsonl").exists()


async def test_a_broker_without_a_disk_has_a_trail_too(identity_provider: IdentityProvider) -> None:
    async with running(identity_provider, [user_app(identity_provider)]) as harness:
        await harness.connected()
        trail = harness.broker.audit_trail
        assert [] == await trail.tail(5, app="other")
        [line] = await trail.tail(5, app="mail", type="TokenIssued")
        assert (trail.name("grant", grant_id("mail", ALICE)), "planner", True) == (
            line.fields["grant"], line.fields["agent"], line.genuine,
        )  # fmt: skip
        assert ["Connected", "TokenIssued"] == [line.type for line in await trail.tail(2)]


def test_a_gap_says_nothing_but_how_many_and_since_when() -> None:
    keys = AuditKeys(lambda *_: b"k" * 32)
    entry = AuditGap(missing=3, since="2026-01-31T09:10:01Z")
    assert '"type":"AuditGap","missing":3,"since":"2026-01-31T09:10:01Z"' == rest_of(entry, keys.name)
    issued = replace(TokenIssued(app="mail", grant="sha256:00", agent="planner", tool=None), instance=None)
    assert '"instance":null' in rest_of(issued, keys.name)


AUDITED = TokenIssued(app="mail", grant="sha256:00", agent="planner", tool=None)


def test_an_audit_log_that_was_closed_writes_nowhere(tmp_path: Path, test_clock: TestClock):
    """Not even into the file that got its number since."""
    log, victim = AuditFile(tmp_path, KEYS), tmp_path / "victim"
    log.write(AUDITED, test_clock.now())
    before = active(tmp_path).read_bytes()
    assert log._slot is not None
    number = log._slot.descriptor
    log.close()
    descriptor = os.open(victim, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        assert number == descriptor
        with pytest.raises(BrokerError) as reported:
            log.write(AUDITED, test_clock.now())
        log.close()
        os.write(descriptor, b"its own")
    finally:
        os.close(descriptor)
    assert Code.STORE_UNAVAILABLE is reported.value.code
    assert (before, b"its own") == (active(tmp_path).read_bytes(), victim.read_bytes())


def cut(desk: Desk, lines: int) -> None:
    log = active(desk.folder / "store" / "data")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-lines]))


@pytest.mark.parametrize("on_failure", ["refuse", "continue"])
async def test_a_log_that_was_cut_is_a_problem_of_health_and_metrics_until_the_broker_ends(
    desk: Desk, on_failure: Setting
) -> None:
    async with desk.open(on_failure) as broker:
        await desk.connected()
        assert "ok" == broker.health().status
        cut(desk, 2)
        for _ in range(2):
            assert isinstance(await broker.oauth(turn()).get_access_token("mail"), Ready)
            assert ("red", ("auditChanged",)) == (broker.health().status, broker.health().problems)
        with desk.disk_without_plugin_for_the_log():
            await broker.oauth(turn()).get_access_token("mail")
            assert ("auditUnavailable",) == broker.health().problems
        await broker.oauth(turn()).get_access_token("mail")
        assert ("auditChanged",) == broker.health().problems
        _, key = await broker.api_keys.create("ops", ["operator"])
        bearer = [("authorization", f"Bearer {key.reveal()}")]
        metrics = await ask(broker.asgi.app, "/metrics", host=BASE.removeprefix("http://"), headers=bearer)
        assert 'oauthbroker_health_problems{code="auditChanged"} 1' in metrics.text
    async with desk.open(on_failure) as broker:
        assert "ok" == broker.health().status


@pytest.mark.parametrize("lines", [3, 1000], ids=["its last lines", "all lines"])
async def test_a_start_enters_that_the_log_was_cut_while_no_broker_ran(desk: Desk, lines: int) -> None:
    async with desk.open():
        await desk.connected()
    cut(desk, lines)
    async with desk.open() as broker:
        assert ("auditChanged",) == broker.health().problems
    assert ["cut"] == [line["kind"] for line in desk.said("the audit log was changed")]
    assert b'"type":"LogBroken"' in active(desk.folder / "store" / "data").read_bytes().splitlines()[-1]


async def test_a_start_writes_nothing_to_a_log_that_is_as_it_was_left(desk: Desk) -> None:
    log = active(desk.folder / "store" / "data")
    async with desk.open():
        assert b"" == log.read_bytes()
        await desk.connected()
    before = log.read_bytes()
    async with desk.open() as broker:
        assert "ok" == broker.health().status
    assert before == log.read_bytes()
