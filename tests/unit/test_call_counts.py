"""What the warm paths cost, in calls: a layer that slips in is a red test with a name."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit import TokenIssued
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.lifecycle import on_thread
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.provider_networks import is_loopback
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.observability import tracing
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import Repository
from oauthbroker.store.format.entry_names import label_macs
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.stores import open_file_store
from oauthbroker.tokens.context import OAuthContext
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running
from tests.kit.call_counts import TABLE, StepCounter, Steps, complaint, counts_of, watching
from tests.kit.running_broker import ALICE, SUBS, Harness, file_store, turn, user_app
from tests.kit.running_broker import running as running_broker
from tests.kit.samples import app_with, grant_with, token_with, turn_with
from tests.kit.wire import Line

SECONDS = 30.0
LOOK = "cache_stamp.Stamp.holds"  # one stat, where nothing is read
BODY = b'{"oauthAppRef":"OAuthApp/mail","scopes":["read"]}'


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count as in a process without OpenTelemetry, also where another test has imported it."""
    monkeypatch.delitem(sys.modules, tracing._API, raising=False)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    store, app = open_file_store(tmp_path), app_with()
    grant = grant_with(registration=app.registration, scopes=app.scopes, token=token_with(None, None))
    await Repository(store).save_grant(grant, expect=0)
    bundle = Bundle(Settings(store_root=str(tmp_path / "store")), {"mail": app})
    log = json_log(io.StringIO(), SystemClock())  # as `serve` has it
    async with open_running(bundle, env={}, clock=SystemClock(), store=store, log=log, background=False) as running:
        yield running


@pytest.fixture
async def steps(identity_provider: IdentityProvider, caplog: pytest.LogCaptureFixture) -> AsyncIterator[StepCounter]:
    caplog.set_level(logging.INFO)  # a library's lines for developers are not written, as in a broker
    with watching() as counter:
        yield counter


@pytest.fixture
async def harness(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    tmp_path: Path,
    steps: StepCounter,
) -> AsyncIterator[Harness]:
    """A broker on files at a provider that answers, without background work."""
    apps, store = [user_app(identity_provider)], file_store(tmp_path, test_clock)
    async with running_broker(identity_provider, apps, clock=test_clock, store=store, background=False) as harness:
        yield harness


def assert_steps(name: str, measured: list[Steps]) -> None:
    """The least count is compared: the first run fills caches, and a file that has just changed is looked at twice."""
    least = min(measured, key=lambda steps: steps.calls.total())
    said = complaint(name, least.calls) + complaint(f"{name}-moves", least.moves)
    assert not said, said


async def settled(oauth: OAuthContext) -> None:
    """Ask until the grant's file is old enough to be known by its times alone."""
    async with asyncio.timeout(SECONDS):
        while "read" in counts_of(oauth.get_access_token("mail")):
            await asyncio.sleep(0.05)


async def test_a_warm_token_call(running: Running) -> None:
    oauth = running.broker.oauth(turn_with(user="acme:user:1"))
    assert isinstance(await oauth.get_access_token("mail"), Ready)
    await settled(oauth)
    calls = counts_of(oauth.get_access_token("mail"))
    assert "" == complaint("token-call-warm", calls)
    assert (1, 0, 1) == (calls[LOOK], calls["read"], calls["write"]), "one look at the grant, one audit entry"


async def test_a_warm_token_call_that_names_scopes_and_a_lifetime(running: Running) -> None:
    oauth = running.broker.oauth(turn_with(user="acme:user:1"))
    for _ in range(2):  # the second time, the answer is prepared
        assert isinstance(await oauth.get_access_token("OAuthApp/mail", ["read"], 60), Ready)
    await settled(oauth)
    assert "" == complaint("token-call-words", counts_of(oauth.get_access_token("OAuthApp/mail", ["read"], 60)))


async def test_a_token_call_that_reads_and_decides(running: Running) -> None:
    oauth = running.broker.oauth(turn_with(user="acme:user:1"))
    assert isinstance(await oauth.get_access_token("mail"), Ready)
    running.parts.repository._cache.clear()
    oauth = running.broker.oauth(turn_with(user="acme:user:1"))
    assert "" == complaint("token-call-cold", counts_of(oauth.get_access_token("mail")))


async def test_a_warm_request_for_a_token_on_a_connection(running: Running) -> None:
    token = (await running.broker.turns.begin(turn_with(user="acme:user:1"))).token.reveal()
    head = f"POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1:8420\r\nAuthorization: Bearer {token}\r\n"
    data = f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    line = Line(running.broker.asgi.app)

    async def once() -> None:
        line.connection.data_received(data)

    for _ in range(3):
        assert (await line.say(data)).startswith(b"HTTP/1.1 200 OK\r\n")
    async with asyncio.timeout(SECONDS):
        while "read" in counts_of(once()):
            await asyncio.sleep(0.05)
    calls = counts_of(once())
    await line.close()
    assert "" == complaint("http-token-warm", calls)
    assert (2, 0, 1) == (calls[LOOK], calls["read"], calls["write"]), (
        "one look at the turn, one at the grant, one audit entry"
    )


async def test_a_request_for_a_token_by_the_general_way(running: Running) -> None:
    token = (await running.broker.turns.begin(turn_with(user="acme:user:1"))).token.reveal()
    headers = {"host": "127.0.0.1:8420", "authorization": f"Bearer {token}", "content-type": "application/json"}
    asked: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/v1/tokens", "raw_path": b"/v1/tokens", "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "client": ("127.0.0.1", 1),
    }  # fmt: skip
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    def once() -> Coroutine[Any, Any, None]:
        return running.broker.asgi.app({**asked, "state": {}}, receive, send)  # type: ignore[return-value]

    await once()
    async with asyncio.timeout(SECONDS):
        while "read" in counts_of(once()):
            await asyncio.sleep(0.05)
    calls = counts_of(once())
    assert {200} == {message["status"] for message in said if "status" in message}
    assert "" == complaint("http-token-general", calls)


async def test_the_start_of_an_authorization(harness: Harness, steps: StepCounter) -> None:
    measured = []
    for user in (ALICE, "idp:user:U1", "idp:user:U2"):
        oauth = harness.broker.oauth(turn(user=user, instance=user))
        with steps.counting() as counted:
            assert isinstance(await oauth.get_access_token("mail"), AuthorizationRequired)
        measured.append(counted)
    assert_steps("link", measured)


async def test_the_page_of_a_link(harness: Harness, steps: StepCounter) -> None:
    measured = []
    for user in (ALICE, "idp:user:U1", "idp:user:U2"):
        asked, browser = await harness.ask_link(of=turn(user=user, instance=user)), harness.browser()
        with steps.counting() as counted:
            assert 200 == (await browser.open(asked.authorization_url)).status
        measured.append(counted)
    assert_steps("connect-page", measured)


async def test_a_callback_up_to_the_grant(harness: Harness, steps: StepCounter) -> None:
    measured = []
    for account, sub in SUBS.items():
        asked, browser = await harness.ask_link(of=turn(user=f"idp:user:{sub}")), harness.browser()
        back = await harness.way_back(asked, browser, account)
        with steps.counting() as counted:
            page = await browser.follow(back)
        assert page.status < 400
        assert await harness.grant(subject=f"idp:user:{sub}") is not None
        measured.append(counted)
    assert_steps("callback", measured)


async def test_a_refresh(harness: Harness, steps: StepCounter) -> None:
    await harness.connected()
    oauth, measured = harness.broker.oauth(turn()), []
    for _ in range(3):
        harness.clock.advance(3600)
        with steps.counting() as counted:
            assert isinstance(await oauth.get_access_token("mail"), Ready)
        measured.append(counted)
    assert 3 == harness.idp.count("refresh_token")
    assert_steps("refresh", measured)


async def test_an_event_from_its_queue_to_its_end(harness: Harness, steps: StepCounter) -> None:
    events, measured = harness.broker.events, []
    for number in range(4):
        with steps.counting() as counted:
            await events.enqueue("planner", "tool.done", {"number": number}, turn=turn())
            delivery = await events.lease("planner")
            assert delivery is not None
            assert await delivery.ack()
        measured.append(counted)
    assert_steps("event", measured)


async def test_an_audit_entry(tmp_path: Path) -> None:
    log = AuditFile(tmp_path, AuditKeys(label_macs(b"k" * 32)))
    at = datetime(2026, 11, 21, tzinfo=UTC)
    write = log.repeated(TokenIssued(app="mail", grant="sha256:" + "0" * 64, agent="planner", tool="Tool/mail"))

    async def once() -> None:
        write(at)

    await once()
    calls = counts_of(once())
    log.close()
    assert "" == complaint("audit-entry", calls)
    assert 1 == calls["write"]


def test_a_count_that_grew_or_fell_far_is_named() -> None:
    known = json.loads(TABLE.read_text("utf-8"))["token-call-warm"]
    assert "" == complaint("token-call-warm", Counter({"stat": known}))
    for now in (2 * known, known // 3):
        said = complaint("token-call-warm", Counter({"a_new_layer": now}))
        assert "token-call-warm" in said
        assert "a_new_layer" in said


async def test_steps_are_counted_over_waits_and_threads_and_only_while_the_block_runs() -> None:
    with watching() as counter:
        with counter.counting() as steps:
            assert await on_thread(lambda: is_loopback("localhost"))
        assert is_loopback("localhost")
    once = {"on_thread", "to_its_end"}  # it waits for the thread, and going on is no call
    assert dict.fromkeys(once, 1) == {name: steps.calls[f"core/lifecycle.py: {name}"] for name in once}
    assert 1 == steps.calls["model/provider_networks.py: is_loopback"]
    assert {"core/lifecycle.py", "model/provider_networks.py"} == {each.partition(" -> ")[2] for each in steps.moves}
