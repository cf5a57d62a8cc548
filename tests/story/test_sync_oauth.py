"""The sync face of an embedded tool: the same answers from a thread of its own, and no way to wait for oneself."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.sync_bridge import wait_on
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.tokens.context import OAuthContext, SyncOAuthContext
from tests.kit.running_broker import Harness, turn


async def in_a_thread(call: Any, *args: Any, **more: Any) -> Any:
    return await asyncio.to_thread(call, *args, **more)


async def test_a_tool_in_a_thread_gets_the_same_answers_as_one_that_awaits(harness: Harness) -> None:
    sync = harness.broker.oauth(turn()).sync
    asked = await in_a_thread(sync.get_access_token, "mail", ["read"])
    assert isinstance(asked, AuthorizationRequired)
    await harness.connect(asked)
    ready = await in_a_thread(sync.get_access_token, "OAuthApp/mail", ["read"], 60)
    assert isinstance(ready, Ready)
    assert harness.idp.is_alive(ready.access_token)
    ref = {"oauthAppRef": {"kind": "OAuthApp", "name": "mail"}, "scopes": ["read"]}
    assert ready.access_token.matches((await in_a_thread(sync.getAccessToken, ref))["accessToken"])
    newer = await in_a_thread(sync.report_rejected, "mail", ready.access_token, ["read"])
    assert isinstance(newer, Ready)
    assert ready.access_token != newer.access_token


async def test_a_tool_in_a_thread_is_narrowed_like_any_other(harness: Harness) -> None:
    refused = await in_a_thread(harness.broker.oauth(turn(), "Tool/nobody").sync.get_access_token, "mail")
    assert isinstance(refused, Failed)
    assert Code.APP_FORBIDDEN is refused.code
    nonsense = await in_a_thread(harness.broker.oauth(turn()).sync.getAccessToken, {"subject": "idp:user:U1"})
    assert "requestInvalid" == nonsense["error"]["code"]


async def test_on_the_loops_own_thread_it_refuses_instead_of_waiting_for_itself(harness: Harness) -> None:
    sync = harness.broker.oauth(turn()).sync
    with pytest.raises(RuntimeError, match="await the async one"):
        sync.get_access_token("mail")
    with pytest.raises(RuntimeError, match="await the async one"):
        sync.getAccessToken({"oauthAppRef": "OAuthApp/mail"})


async def test_what_takes_too_long_is_answered_in_time_and_goes_on(harness: Harness) -> None:
    """The loop is held up, as by a program that computes on it: the thread has its answer all the same."""
    sync, held_up = harness.broker.oauth(turn()).sync, threading.Event()

    def ask() -> Any:
        assert held_up.wait(60)
        return sync.get_access_token("mail", timeout=0.05)

    waiting = asyncio.create_task(in_a_thread(ask))
    await asyncio.sleep(0.01)
    held_up.set()
    time.sleep(0.3)  # noqa: ASYNC251  (that is the misdeed)
    late = await waiting
    assert isinstance(late, Failed)
    assert (Code.BROKER_UNREACHABLE, True) == (late.code, late.retryable)
    assert isinstance(await in_a_thread(sync.get_access_token, "mail"), AuthorizationRequired)


def test_after_the_loop_has_ended_it_says_so() -> None:
    class Never(OAuthContext):
        def __init__(self) -> None:
            pass

    loop = asyncio.new_event_loop()
    loop.close()
    sync = SyncOAuthContext(context=Never(), loop=loop, locale="en", injector=None)  # type: ignore[arg-type]
    late = sync.get_access_token("mail")
    assert isinstance(late, Failed)
    assert Code.BROKER_UNREACHABLE is late.code


def test_a_loop_that_stands_still_for_a_moment_does_the_work_when_it_goes_on() -> None:
    async def work() -> str:
        return "done"

    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as pool, closing(loop):
        waiting = pool.submit(wait_on, loop, work(), 30)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        while not waiting.done():
            loop.run_until_complete(asyncio.sleep(0.01))
        assert "done" == waiting.result()


async def test_what_the_call_itself_raises_arrives(harness: Harness) -> None:
    async def refuse(error: Exception) -> None:
        raise error

    loop = asyncio.get_running_loop()
    for error in (BrokerError(Code.STORE_LOCKED), TimeoutError("its own"), ValueError("x")):
        with pytest.raises(type(error), match=str(error.args[0])):
            await in_a_thread(wait_on, loop, refuse(error), 5)


def test_an_answer_of_the_moment_in_which_the_time_ends_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    class LastMoment(Future[str]):
        def result(self, timeout: float | None = None) -> str:
            if not self.done():
                self.set_result("done")
                raise TimeoutError
            return super().result(timeout)

    async def work() -> str:
        return "done"

    coroutine = work()
    with closing(asyncio.new_event_loop()) as loop, closing(coroutine):
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", lambda *_: LastMoment())
        assert "done" == wait_on(loop, coroutine, 0.1)
