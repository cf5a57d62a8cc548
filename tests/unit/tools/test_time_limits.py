"""A handler that takes too long is given up: the model is told, and its context gives and takes nothing more."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.tools.bundle.loading import register_tools
from oauthbroker.tools.bundle.spec import ToolResourceSpec
from oauthbroker.tools.calling.call_life import MOST_SECONDS, SECONDS, CallLife
from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.registry import RegistrationRefused, Registry
from oauthbroker.tools.extensions.pipeline import Pipeline
from oauthbroker.tools.turns.extension_api import ExtensionHost
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import GoesOn, ToolCall, ToolCallResult
from tests.unit.tools.kit import gives, scope_of, scrub

LIMIT = 0.05
CALL = ToolCall("call-1", "weather__get")


async def given_up(handler: Any, seconds: float = LIMIT, **more: Any) -> ToolCallResult:
    registry = Registry()
    registry.register(ToolCatalogItem(name=CALL.name), handler, owner="Tool/weather", seconds=seconds)
    return await ToolCalls(registry, scrub).perform(CALL, scope_of(registry, "weather", **more))


class Late:
    """A handler that goes on after its time, in each way that Python has, and what became of it."""

    def __init__(self, then: Callable[[Any], Any] = lambda ctx: None) -> None:
        self.then = then
        self.go_on, self.ended = threading.Event(), threading.Event()
        self.outcome: Any = None

    def _finish(self, ctx: Any) -> Any:
        try:
            self.outcome = self.then(ctx)
        except BaseException as error:  # noqa: BLE001
            self.outcome = error
        self.ended.set()
        return "late"

    def in_a_thread(self, ctx: Any, args: Any) -> Any:
        self.go_on.wait(60)
        return self._finish(ctx)

    async def cancelled(self, ctx: Any, args: Any) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            self._finish(ctx)

    async def that_swallows_its_cancellation(self, ctx: Any, args: Any) -> Any:
        for _ in range(2):
            try:
                while not self.go_on.is_set():
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return self._finish(ctx)

    async def after(self) -> Any:
        self.go_on.set()
        await asyncio.to_thread(self.ended.wait, 60)
        return self.outcome


FORMS = ["in_a_thread", "cancelled", "that_swallows_its_cancellation"]


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oauthbroker.tools.calling.call_life.CLEAN_UP_SECONDS", 0.05)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.rule("tools.ours-8")
async def test_the_model_is_told_that_a_tool_took_too_long(form: str):
    late = Late()
    result = await given_up(getattr(late, form))
    assert {
        "toolCallId": "call-1",
        "toolName": "weather__get",
        "status": "error",
        "error": {
            "message": "The tool gave no result in 0.05 seconds. It may have taken effect.",
            "name": "ToolTimeout",
            "code": "E_TOOL_TIMEOUT",
            "suggestion": "Find out whether the call took effect, and ask for less at once if you repeat it.",
        },
    } == result.to_json()
    await late.after()


async def test_a_handler_within_its_time_is_not_ended_and_its_own_timeout_is_its_own():
    async def own(ctx: Any, args: Any) -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(60)

    assert "done" == (await given_up(lambda ctx, args: "done", 60)).output
    result = await given_up(own, 60)
    assert result.error is not None
    assert ("E_TOOL", "TimeoutError") == (result.error.code, result.error.name)


class OAuth:
    """A capability of both kinds, which notes who asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.turn_token = "turn-token"
        self.sent_before, self.answers = threading.Event(), threading.Event()

    def get_access_token(self, app: str) -> str:
        self.asked.append(app)
        return "token"

    def slow_token(self) -> str:
        self.sent_before.set()
        self.answers.wait(60)
        return "token"

    def narrow(self) -> OAuth:
        return self


class Runtime:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request(self, target: str, text: str, *, instance_key: str | None, timeout: float) -> Any:
        self.asked.append(target)


def _request(ctx: Any) -> Any:
    asyncio.run(ctx.runtime.request("writer", "x", instance_key=None, timeout=1))


USES: dict[str, Callable[[Any], Any]] = {
    "a token": lambda ctx: ctx.oauth.get_access_token("mail"),
    "the turn token": lambda ctx: ctx.oauth.turn_token,
    "a narrower capability": lambda ctx: ctx.oauth.narrow(),
    "a request of another agent": _request,
}


@pytest.mark.rule("tools.ours-8")
@pytest.mark.parametrize(
    ("form", "use"),
    [(form, use) for form in FORMS for use in USES if form == "in_a_thread" or USES[use] is not _request],
)
async def test_a_handler_that_was_given_up_gets_nothing_of_its_context(form: str, use: str):
    late, oauth, runtime = Late(USES[use]), OAuth(), Runtime()
    await given_up(getattr(late, form), oauth_of=gives(oauth), runtime=runtime)
    outcome = await late.after()
    assert isinstance(outcome, ToolFailure), outcome
    assert "This call is over" in str(outcome)
    assert [] == oauth.asked == runtime.asked


async def test_a_method_taken_from_the_context_before_refuses_too_and_an_answer_under_way_is_kept_back():
    oauth, taken, ends = OAuth(), list[Any](), list[Any]()

    def handler(ctx: Any, args: Any) -> None:
        taken.extend([ctx.oauth.get_access_token, ctx.oauth.narrow(), ctx.runtime.request])
        try:
            ends.append(ctx.oauth.slow_token())
        except ToolFailure as failure:
            ends.append(failure)

    await given_up(handler, oauth_of=gives(oauth), runtime=Runtime())
    assert oauth.sent_before.is_set()
    oauth.answers.set()
    while not ends:
        await asyncio.sleep(0.01)
    assert isinstance(ends[0], ToolFailure), "the token came after the end of the call"
    with pytest.raises(ToolFailure):
        taken[0]("mail")
    with pytest.raises(ToolFailure):
        taken[1].get_access_token("mail")
    with pytest.raises(ToolFailure):
        taken[2]("writer", "x", instance_key=None, timeout=1)
    assert [] == oauth.asked


async def test_http_clients_that_carry_tokens_are_closed_with_the_call():
    waiting, blocking = asyncio.Event(), threading.Event()

    class Waiting:
        async def aclose(self) -> None:
            waiting.set()

    class Blocking:
        def request(self) -> None: ...

        def close(self) -> None:
            blocking.set()

    clients: list[Any] = []

    def make(kind: type[Any]) -> Any:
        clients.append(kind())
        return clients[-1]

    def handler(ctx: Any, args: Any) -> None:
        ctx.oauth.client(Waiting)
        ctx.oauth.client(Blocking)
        threading.Event().wait(1)

    await given_up(handler, oauth_of=gives(SimpleNamespace(client=make)))
    await asyncio.wait_for(waiting.wait(), 60)
    assert await asyncio.to_thread(blocking.wait, 60)


@pytest.mark.parametrize("form", FORMS)
async def test_a_handler_that_was_given_up_writes_no_log_line_as_if_its_call_went_on(form: str, caplog: Any):
    late = Late(lambda ctx: ctx.logger.info("all is sent"))
    with caplog.at_level(logging.INFO):
        await given_up(getattr(late, form), logger=logging.getLogger("tools.of.this.test"))
        await late.after()
        assert [] == [line for line in caplog.messages if "all is sent" in line]
        early = await given_up(lambda ctx, args: ctx.logger.info("begun"), 60, logger=logging.getLogger("tools.x"))
    assert "ok" == early.status
    assert [("tools.x", "begun")] == [(each.name, each.message) for each in caplog.records if "begun" in each.message]


async def test_the_filters_and_the_level_of_the_logger_hold_for_the_logger_of_a_call(caplog: Any):
    logger = logging.getLogger("tools.filtered")
    logger.setLevel(logging.WARNING)
    drop = lambda record: "secret" not in record.getMessage()  # noqa: E731
    logger.addFilter(drop)
    life = CallLife("weather__get").logger(logger)
    life.warning("a secret")
    life.info("too low")
    life.warning("shown")
    assert ["shown"] == caplog.messages
    logger.removeFilter(drop)


@pytest.mark.parametrize("form", ["in_a_thread", "that_swallows_its_cancellation"])
async def test_a_handler_that_was_given_up_changes_no_value_of_its_extension(form: str):
    kept: list[Any] = []

    class Values:
        async def get(self, key: str) -> Any: ...

        async def put(self, key: str, value: Any) -> None:
            kept.append(value)

    api = ExtensionHost(pipeline=Pipeline(), register_tool=Registry().register, values=Values()).api_of("x", {})

    def keep(ctx: Any) -> Any:
        setting = api.state.set("late")
        try:
            setting.send(None)
        except StopIteration:
            return None

    late = Late(keep)
    await given_up(getattr(late, form))
    assert isinstance(await late.after(), ToolFailure)
    assert [] == kept
    await api.state.set("early")
    assert ["early"] == kept


async def test_a_cancelled_caller_closes_the_context_of_the_handler_too():
    late = Late(lambda ctx: ctx.oauth.get_access_token("mail"))
    oauth = OAuth()
    performing = asyncio.create_task(given_up(late.in_a_thread, 60, oauth_of=gives(oauth)))
    await asyncio.sleep(0.05)
    performing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await performing
    assert isinstance(await late.after(), ToolFailure)


class Journal:
    def __init__(self) -> None:
        self.ended: dict[str, Any] = {}
        self.completed = asyncio.Event()

    async def begin(self, call_id: str) -> None: ...

    async def end(self, call_id: str, result: Any) -> None:
        self.ended[call_id] = result

    async def submit(self, handle: str, call: Any) -> None: ...

    async def complete(self, handle: str, result: Any) -> None:
        self.ended[f"work of {handle}"] = result
        self.completed.set()


async def test_work_that_goes_on_has_no_time_limit_and_keeps_its_context():
    oauth, journal = OAuth(), Journal()

    async def handler(ctx: Any, args: Any) -> Any:
        async def work() -> Any:
            await asyncio.sleep(LIMIT * 3)
            return ctx.oauth.get_access_token("mail")

        return GoesOn(work())

    result = await given_up(handler, oauth_of=gives(oauth), journal=journal)
    assert "call-1" == result.handle
    await asyncio.wait_for(journal.completed.wait(), 60)
    assert "token" == journal.ended["work of call-1"]["output"]


@pytest.mark.parametrize("form", FORMS)
async def test_the_journal_has_the_error_and_no_later_result(form: str):
    late, journal = Late(), Journal()
    await given_up(getattr(late, form), journal=journal)
    await late.after()
    await asyncio.sleep(0.05)
    assert {"call-1"} == set(journal.ended)
    assert "E_TOOL_TIMEOUT" == journal.ended["call-1"]["error"]["code"]


@pytest.mark.rule("tools.ours-8")
def test_an_export_has_its_own_time_or_its_tools_or_the_usual(tmp_path: Path):
    tmp_path.joinpath("t.py").write_text("handlers = dict.fromkeys('abc', print)\n")
    exports = [{"name": "a", "timeoutSeconds": 5}, {"name": "b"}]
    tools = {
        "own": {"entry": "t.py", "timeoutSeconds": 300, "exports": exports},
        "usual": {"entry": "t.py", "exports": exports},
        "bash": {"entry": "base:bash", "exports": [{"name": "exec"}]},
        "agents": {"entry": "base:agents", "exports": [{"name": "request"}]},
        "short": {"entry": "base:bash", "timeoutSeconds": 10, "exports": [{"name": "exec"}]},
    }
    registry = Registry()
    specs = {name: ToolResourceSpec.model_validate(spec) for name, spec in tools.items()}
    register_tools(registry, specs, tmp_path)
    assert {
        "own__a": 5, "own__b": 300, "usual__a": 5, "usual__b": SECONDS,
        "bash__exec": 130, "agents__request": MOST_SECONDS, "short__exec": 10,
    } == {each.name: each.seconds for each in registry}  # fmt: skip


@pytest.mark.parametrize("seconds", [0, -1, 3601, "soon", float("nan"), float("inf")])
def test_a_time_that_no_call_can_have_is_refused(seconds: Any):
    with pytest.raises(RegistrationRefused, match="the time of a call is more than 0 and at most 3600 seconds"):
        Registry().register(ToolCatalogItem(name=CALL.name), print, owner="Extension/x", seconds=seconds)
    for spec in ({"timeoutSeconds": seconds}, {"exports": [{"name": "a", "timeoutSeconds": seconds}]}):
        with pytest.raises(ValueError, match=r"timeoutSeconds"):
            ToolResourceSpec.model_validate(spec)
