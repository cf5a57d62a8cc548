"""One callback in many tasks and processes (case 12), browsers that leave and brokers that die in mid exchange (36)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oauthbroker.core.clock import printed
from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from tests.kit.callback_pages import HOST, assert_error_page
from tests.kit.running_broker import Harness, file_store, running, user_app
from tests.story.http_server import cookie_header, served_over_http
from tests.unit.web import kit

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "story" / "callback_worker.py"
Process = asyncio.subprocess.Process
Start = Callable[..., Awaitable[Process]]


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().strip()


def go(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")


@pytest.fixture
async def start(filed: Harness, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a broker process that will receive a callback `times` times; returns once it is ready."""
    started: list[Process] = []
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}

    async def run(url: str, browser: Browser, *, times: int = 1, die: str = "never") -> Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(WORKER), stdin=pipe, stdout=pipe, cwd=ROOT, env=environment
        )
        started.append(process)
        orders = {
            "folder": str(tmp_path),
            "endpoints": filed.idp.endpoints,
            "secret": filed.idp.client("client-mail").reveal_secret(),
            "query": urlsplit(url).query,
            "cookies": cookie_header(browser),
            "times": times,
            "die": die,
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        assert "ready" == await line_of(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.case("12")
async def test_the_same_callback_sixty_times_at_once_is_exchanged_once(harness: Harness) -> None:
    asked = await harness.ask_link()
    person = harness.browser()
    url = await harness.way_back(asked, person)
    hold = harness.idp.script.token.hang()
    tabs = [
        asyncio.create_task(
            kit.ask(
                harness.broker.asgi.app,
                "/oauth/callback/mail",
                query=urlsplit(url).query.encode(),
                host=HOST,
                headers=[("cookie", cookie_header(person))],
            )
        )
        for _ in range(60)
    ]
    await hold.arrived()
    hold.release()
    answers = await asyncio.gather(*tabs)
    assert Counter({303: 1, 409: 59}) == Counter(answer.status for answer in answers)
    assert {"stateUsed"} == {answer.json["code"] for answer in answers if answer.status == 409}
    assert 1 == harness.idp.count("token")
    assert ["auth.granted"] == [event["type"] for event in await harness.events()]
    ready = await harness.ask()
    assert isinstance(ready, Ready)
    assert harness.idp.is_alive(ready.access_token)


@pytest.mark.slow
@pytest.mark.case("12")
async def test_four_processes_receive_the_same_callback_and_one_exchanges_it(filed: Harness, start: Start) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    processes = [await start(url, person, times=15) for _ in range(4)]
    for process in processes:
        go(process)
    statuses = [status for process in processes for status in json.loads(await line_of(process))]
    assert Counter({303: 1, 409: 59}) == Counter(statuses)
    assert 1 == filed.idp.count("token")
    assert ["auth.granted"] == [event["type"] for event in await filed.events()]
    ready = await filed.ask()
    assert isinstance(ready, Ready)
    assert filed.idp.is_alive(ready.access_token)


@pytest.mark.case("36")
async def test_a_browser_that_leaves_in_mid_exchange_changes_nothing(harness: Harness) -> None:
    """The tab is closed while the provider thinks: grant, session and event come all the same."""
    asked = await harness.ask_link()
    person = harness.browser()
    url = await harness.way_back(asked, person)
    hold = harness.idp.script.token.hang(after_work=True)
    tab = asyncio.create_task(person.follow(url))
    await hold.arrived()
    tab.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tab
    assert await harness.grant() is None
    hold.release()
    (event,) = await harness.events()
    assert ("auth.granted", asked.auth_session_id) == (event["type"], event["payload"]["authSessionId"])
    assert "completed" == (await harness.session(asked)).status
    assert isinstance(await harness.ask(), Ready)
    assert 1 == harness.idp.count("token")


@pytest.mark.case("36")
async def test_a_connection_that_breaks_in_mid_exchange_changes_nothing(harness: Harness) -> None:
    """The same on the wire, behind the server that people run."""
    asked = await harness.ask_link()
    person = harness.browser()
    target = urlsplit(await harness.way_back(asked, person))
    hold = harness.idp.script.token.hang(after_work=True)
    async with served_over_http(harness) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET {target.path}?{target.query} HTTP/1.1\r\nHost: {HOST}\r\nCookie: {cookie_header(person)}\r\n\r\n"
        writer.write(head.encode())
        await hold.arrived()
        writer.transport.abort()
        hold.release()
        (event,) = await harness.events()
    assert ("auth.granted", asked.auth_session_id) == (event["type"], event["payload"]["authSessionId"])
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.case("36")
async def test_a_broker_that_stops_in_mid_exchange_commits_first(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, store=file_store(tmp_path, test_clock)
    ) as harness:
        asked = await harness.ask_link()
        person = harness.browser()
        url = await harness.way_back(asked, person)
        hold = harness.idp.script.token.hang(after_work=True)
        tab = asyncio.create_task(person.follow(url))
        await hold.arrived()
        asyncio.get_running_loop().call_later(0.05, hold.release)
    assert 303 == (await tab).status
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, store=file_store(tmp_path, test_clock)
    ) as harness:
        assert isinstance(await harness.ask(), Ready)
        assert ["auth.granted"] == [event["type"] for event in await harness.events()]


async def claimed_until(harness: Harness, asked: AuthorizationRequired) -> datetime:
    claim = (await harness.session(asked)).claim
    assert claim is not None
    return claim.until


async def killed_in_mid_exchange(harness: Harness, start: Start) -> AuthorizationRequired:
    asked = await harness.ask_link()
    person = harness.browser()
    url = await harness.way_back(asked, person)
    hold = harness.idp.script.token.hang(after_work=True)
    process = await start(url, person)
    go(process)
    await hold.arrived(30)
    process.kill()
    assert -signal.SIGKILL == await process.wait()
    hold.release()
    return asked


@pytest.mark.slow
@pytest.mark.case("36")
async def test_a_broker_killed_after_the_providers_answer_leaves_no_half_grant(
    filed: Harness, start: Start, tmp_path: Path
) -> None:
    """The code is burnt and the answer lost: no process touches the session until the claim runs out, then it fails."""
    asked = await killed_in_mid_exchange(filed, start)
    session = await filed.session(asked)
    assert session.claim is not None
    assert ("pending", None) == ((await filed.broker.wait(asked.auth_session_id, 0)).status, await filed.grant())
    assert session.id != (await filed.ask_link()).auth_session_id, "a new link at once"
    filed.clock.set(session.claim.until)
    async with running(
        filed.idp, [user_app(filed.idp)], clock=filed.clock, store=file_store(tmp_path, filed.clock)
    ) as successor:
        ended = await successor.session(asked)
        assert ("failed", Code.EXCHANGE_UNCERTAIN, None) == (ended.status, ended.failure, await successor.grant())
        (event,) = await successor.events()
        expected = ("auth.failed", "exchangeUncertain", asked.auth_session_id, printed(successor.clock.now()))
        payload = event["payload"]
        assert expected == (event["type"], payload["code"], payload["authSessionId"], event["createdAt"])
        await successor.connected()


@pytest.mark.slow
@pytest.mark.case("36")
async def test_a_claim_of_the_living_is_left_alone_by_the_sweeper(filed: Harness, tmp_path: Path) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    hold = filed.idp.script.token.hang(after_work=True)
    tab = asyncio.create_task(person.follow(url))
    await hold.arrived()
    filed.clock.set(await claimed_until(filed, asked) - timedelta(seconds=1))
    async with running(filed.idp, [user_app(filed.idp)], clock=filed.clock, store=file_store(tmp_path, filed.clock)):
        assert "pending" == (await filed.session(asked)).status
        hold.release()
        assert 303 == (await tab).status
    assert "completed" == (await filed.session(asked)).status


@pytest.mark.case("36")
async def test_a_commit_that_comes_after_its_claim_ran_out_stores_nothing(filed: Harness, tmp_path: Path) -> None:
    """The session was ended meanwhile; two ends would be worse than one lost login."""
    asked = await filed.ask_link()
    person = filed.browser()
    url = await filed.way_back(asked, person)
    hold = filed.idp.script.token.hang(after_work=True)
    tab = asyncio.create_task(person.follow(url))
    await hold.arrived()
    filed.clock.set(await claimed_until(filed, asked))
    async with running(filed.idp, [user_app(filed.idp)], clock=filed.clock, store=file_store(tmp_path, filed.clock)):
        hold.release()
        assert_error_page(await tab, Code.EXCHANGE_UNCERTAIN)
    assert await filed.grant() is None
    assert 0 == filed.idp.living_tokens("client-mail"), "revoked, since they will never be used"
    assert ["exchangeUncertain"] == [event["payload"]["code"] for event in await filed.events()]


@pytest.mark.slow
@pytest.mark.case("36")
async def test_a_broker_killed_between_grant_and_session_is_finished_by_the_next_one(
    filed: Harness, start: Start, tmp_path: Path
) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    process = await start(await filed.way_back(asked, person), person, die="beforeTheSessionEnds")
    go(process)
    assert -signal.SIGKILL == await process.wait()
    session = await filed.session(asked)
    assert session.claim is not None
    assert isinstance(await filed.ask(), Ready), "the grant is durable, so it serves"
    filed.clock.set(session.claim.until)
    async with running(
        filed.idp, [user_app(filed.idp)], clock=filed.clock, store=file_store(tmp_path, filed.clock)
    ) as successor:
        assert "completed" == (await successor.session(asked)).status
        (event,) = await successor.events()
        assert ("auth.granted", asked.auth_session_id) == (event["type"], event["payload"]["authSessionId"])
