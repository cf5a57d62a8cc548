"""How `oauthbroker serve` ends: waiting calls are let go, running ones are answered, and nothing that a provider has
given is lost."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from oauthbroker.serving.server import GRACE_SECONDS
from oauthbroker.testing import Browser, IdentityProvider, leave
from tests.kit.cli import MAIN, Desk, environment, log_lines, serving
from tests.kit.processes import children_of
from tests.kit.served_api import Service, is_there, make_key, until, user_of

pytestmark = pytest.mark.slow
SLOWLY = 1.5


@pytest.fixture
def service(desk: Desk, idp: IdentityProvider) -> Service:
    """Alice has connected; a runtime has a key."""
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    return Service(desk.port, make_key(desk))


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def writeback(
    service: Service, idp: IdentityProvider, aside: ThreadPoolExecutor, seconds: float = SLOWLY
) -> tuple[str, Future[Any]]:
    """A turn token, and a refresh that the provider has answered in its books and not yet over the wire."""
    token = service.begin(user_of(idp))["turnToken"]
    status, ready = service.token(token)
    assert (200, "ready") == (status, ready["status"])
    idp.script.refresh.delay(seconds)
    asked = idp.count("refresh_token")
    answer = aside.submit(service.reject, token, ready["accessToken"])
    asyncio.run(idp.wait_for("refresh_token", asked + 1))
    return token, answer


def after(desk: Desk, service: Service, idp: IdentityProvider, token: str) -> None:
    """A new process of the same store has the new token without asking for it, and can refresh it again."""
    asked = idp.count("refresh_token")
    with serving(desk):
        _, ready = service.token(token)
        assert "ready" == ready["status"]
        assert idp.is_alive(ready["accessToken"])
        assert asked == idp.count("refresh_token")
        _, again = service.reject(token, ready["accessToken"])
        assert "ready" == again["status"]
        assert idp.is_alive(again["accessToken"])
    assert [] == idp.refusals("refresh_token")


@pytest.mark.case("46")
def test_a_refresh_that_is_under_way_is_answered_and_stored(
    desk: Desk, idp: IdentityProvider, service: Service, aside: ThreadPoolExecutor
):
    with serving(desk) as process:
        token, answer = writeback(service, idp, aside)
        process.send_signal(signal.SIGTERM)
        status, ready = answer.result(60)
        assert (200, "ready") == (status, ready["status"])
        assert idp.is_alive(ready["accessToken"])
        assert 0 == process.wait(60)
    assert ["stopping", "stopped"] == [line["event"] for line in log_lines(desk) if line["event"].startswith("stop")]
    after(desk, service, idp, token)


@pytest.mark.case("46")
def test_a_second_signal_waits_for_no_caller_and_still_stores_what_the_provider_gave(
    desk: Desk, idp: IdentityProvider, service: Service, aside: ThreadPoolExecutor
):
    with serving(desk) as process:
        token, answer = writeback(service, idp, aside, seconds=3)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        status, _ = answer.result(60)
        assert 0 == process.wait(60)
        assert time.monotonic() - began < 12
    assert 0 == status
    after(desk, service, idp, token)


@pytest.mark.case("46")
def test_workers_whose_parent_was_killed_answer_calls_under_way(
    desk: Desk, idp: IdentityProvider, service: Service, aside: ThreadPoolExecutor
):
    """The kernel may tell them of that death more than once: that is not a second signal."""
    with serving(desk, "--workers", "2") as process:
        token, answer = writeback(service, idp, aside)
        workers = children_of(process.pid)
        process.kill()
        process.wait(60)
        assert (200, "ready") == (answer.result(60)[0], answer.result()[1]["status"])
        until(lambda: not any(is_there(worker) for worker in workers))
    after(desk, service, idp, token)


def test_a_person_on_the_way_back_is_answered(
    desk: Desk, idp: IdentityProvider, service: Service, aside: ThreadPoolExecutor
):
    bob = user_of(idp, "bob")
    with serving(desk) as process:
        token = service.begin(bob)["turnToken"]
        _, asked = service.token(token)
        idp.script.token.delay(SLOWLY)
        exchanged = idp.count("authorization_code")

        def person() -> int:
            browser = Browser(canaries=desk.canaries)
            return asyncio.run(_come_back(browser, idp, asked["authorizationUrl"]))

        page = aside.submit(person)
        asyncio.run(idp.wait_for("authorization_code", exchanged + 1, timeout=10))
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(60)
        assert 303 == page.result(60)
    with serving(desk):
        assert "ready" == service.token(token)[1]["status"]


async def _come_back(browser: Browser, idp: IdentityProvider, url: str) -> int:
    """To the answer of the callback: the page after it would be asked of a server that is gone."""
    page = await leave(browser, url)
    assert page.next_url is not None, page.text
    callback = await idp.agree(page.next_url, "bob", browser=browser)
    return (await browser.open(callback)).status


def test_callers_that_wait_for_events_are_let_go_at_once(desk: Desk, service: Service, aside: ThreadPoolExecutor):
    with serving(desk) as process:
        service.call("GET", "/v1/agents/planner/events?wait=0")
        polls = [aside.submit(service.call, "GET", "/v1/agents/nobody/events?wait=60") for _ in range(3)]
        stream = aside.submit(_stream, service)
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert [(204, None)] * 3 == [poll.result(60) for poll in polls]
        assert stream.result(60).endswith(b"0\r\n\r\n"), "the stream has its proper end"
        assert 0 == process.wait(60)
        assert time.monotonic() - began < GRACE_SECONDS


def _stream(service: Service) -> bytes:
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as line:
        line.sendall(
            f"GET /v1/agents/idle/events HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n"
            f"Authorization: Bearer {service.key}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        return b"".join(iter(lambda: line.recv(65536), b""))


def test_no_new_connection_is_accepted_and_an_idle_one_holds_nothing_up(
    desk: Desk, idp: IdentityProvider, service: Service, aside: ThreadPoolExecutor
):
    with serving(desk) as process, socket.create_connection(("127.0.0.1", desk.port)) as idle:
        _, answer = writeback(service, idp, aside)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.7)
        assert process.poll() is None
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", desk.port))
        assert b"" == idle.recv(1)
        assert 200 == answer.result(60)[0]
        assert 0 == process.wait(60)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_callers_with_open_connections_are_answered_a_last_time_and_none_is_reset(
    desk: Desk, idp: IdentityProvider, service: Service, aside: ThreadPoolExecutor, sent: signal.Signals
):
    with serving(desk) as process:
        tokens = [service.begin(user_of(idp))["turnToken"] for _ in range(8)]
        callers = [aside.submit(_last_answer, service.port, token) for token in tokens]
        time.sleep(1)
        process.send_signal(sent)
        assert [(200, "close")] * 8 == [caller.result(60) for caller in callers]
        assert 0 == process.wait(60)


def _last_answer(port: int, token: str) -> tuple[int, str | None]:
    """Ask for a token until the broker closes the connection. Return how it answered then."""
    body, head = json.dumps({"oauthAppRef": "OAuthApp/mail"}), {"Authorization": f"Bearer {token}"}
    with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        while True:
            connection.request("POST", "/v1/tokens", body, {**head, "Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.will_close:
                return answer.status, answer.headers["connection"]
            time.sleep(0.02)


def test_a_signal_during_the_start_ends_it_too(desk: Desk, idp: IdentityProvider):
    """From the first moment on: either it has not begun, or it ends in order."""
    desk.ready_to_serve(idp)
    for pause in (0.0, 0.3, 0.6, 0.9):
        process = _start(desk)
        time.sleep(pause)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in {0, -signal.SIGTERM}


def _start(desk: Desk) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, "serve"], env=environment(), cwd=desk.folder, stderr=subprocess.DEVNULL
    )
