"""Routes of a plug-in are served as the broker's own: callers, rights, limits, models, errors, audit, headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit import AuditEntry, CallMade, CallRefused
from oauthbroker.core.errors import Code
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.model.settings import ApiSocket, Limits, Settings
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.web.middleware.security_headers import security_headers
from tests.kit.plugin_package import install
from tests.kit.running_broker import BASE, Harness, running, user_app
from tests.story.api.kit import TOOLS, Answer, Callers

HURRIED = 2.0  # the limit of a request where a test runs into it
GARDEN = """
class Bed(RequestModel):
    bed: str


class Seed(RequestModel):
    seed: str
    count: int = 1


class Row(RequestModel):
    rest: str


class Weather(RequestModel):
    wind: str


class Dug(PluginAuditEntry, plugin="garden"):
    row: str


class Garden:
    def __init__(self, broker):
        self.broker = broker
        self.leaving = asyncio.Event()

    async def dig(self, call):
        await call.made("bed-1")
        return {"caller": call.caller, "tool": call.tool, "agent": call.turn and call.turn.agent_name, "seed": call.body.seed}

    async def look(self, call):
        return {"bed": call.path.bed}

    async def row(self, call):
        return {"method": call.request.method, "rest": call.path.rest}

    async def knows(self, request):
        said = request.headers.get("authorization", "")
        if said == "Badge 6":
            raise BrokerError(Code.NOT_ALLOWED)
        if said.startswith("Code "):
            raise BrokerError(Code(said.removeprefix("Code ")))
        if said not in {"", "Badge 7", "Badge 8"}:
            raise BrokerError(Code.UNAUTHENTICATED)
        request.state.badge = said
        return said or None

    async def badge(self, call):
        return {"badge": call.request.state.badge, "caller": call.caller}

    async def weather(self, call):
        return {"wind": call.query.wind}

    async def clear(self, call):
        return None

    async def token(self, call):
        found = await call.oauth.get_access_token("mail")
        return {"status": found.to_json()["status"]}

    async def refuse(self, call):
        raise BrokerError(Code.LEASE_LOST)

    async def note_refusal(self, call):
        await call.refused(Code.SCOPE_NOT_ALLOWED)
        raise BrokerError(Code.SCOPE_NOT_ALLOWED)

    async def crash(self, call):
        raise ValueError("s3cret of a crash")

    async def leave(self, call):
        raise SystemExit(1)

    async def no_answer(self, call):
        return 17

    async def no_json(self, call):
        return {"bytes": b""}

    async def too_large(self, call):
        await self.broker.plugin_state("garden").change("bed", lambda _: "x" * (2 << 20))

    async def foreign_entry(self, call):
        self.broker.audit(Dug(row="1"))

    async def leave_late(self, call):
        from starlette.responses import StreamingResponse

        async def parts():
            yield b"one"
            raise SystemExit(11)

        return StreamingResponse(parts(), media_type="text/plain")

    async def leave_afterwards(self, call):
        from starlette.background import BackgroundTask
        from starlette.responses import Response

        return Response(b"one", background=BackgroundTask(self.leave, call))

    async def leave_at_once(self, request):
        raise SystemExit(12)

    async def slow(self, call):
        await asyncio.sleep(60)

    async def long(self, call):
        await asyncio.sleep(SECONDS)
        await call.still()
        return {"done": True}

    async def raw(self, call):
        return {"bytes": len(await call.request.body())}

    async def stream(self, call):
        from starlette.responses import StreamingResponse

        async def parts():
            yield b"one"
            await asyncio.sleep(SECONDS)
            yield b"two"

        return StreamingResponse(parts(), media_type="text/plain", headers={"referrer-policy": "same-origin"})

    async def document(self, call):
        return {"resource": "garden"}


ANY = ("runtime", "operator", "turn")


@asynccontextmanager
async def open_plugin(broker, resources):
    here = Garden(broker)

    def route(path, handler, method="POST", who=ANY, **more):
        return PluginRoute(method=method, path=path, handler=handler, who=who, **more)

    yield RunningPlugin(routes=[
        route("/v1/garden/dig", here.dig, body=Seed, who=("turn", "runtime")),
        route("/v1/garden/beds/{bed}", here.look, "GET", parameters=Bed),
        route("/v1/garden/beds/first", here.clear, "GET"),
        route("/v1/garden/beds/first", here.clear, "DELETE"),
        route("/v1/garden/rows/{rest:path}", here.row, "PUT", parameters=Row),
        route("/v1/garden/rows/{rest:path}", here.row, "GET", parameters=Row),
        route("/v1/garden/rows/first/{bed}", here.look, "GET", parameters=Bed),
        route("/v1/garden/badge", here.badge, "GET", who=(), authenticate=here.knows),
        route("/v1/garden/weather", here.weather, "GET", query=Weather),
        route("/v1/garden/token", here.token, who=("turn", "operator")),
        route("/v1/garden/whole", here.clear, who=("wholeTurn",)),
        route("/v1/garden/operators", here.clear, who=("operator",)),
        route("/v1/garden/open", here.document, "GET", who=()),
        route("/v1/garden/refuse", here.refuse),
        route("/v1/garden/noteRefusal", here.note_refusal),
        route("/v1/garden/crash", here.crash),
        route("/v1/garden/leave", here.leave),
        route("/v1/garden/no-answer", here.no_answer),
        route("/v1/garden/no-json", here.no_json),
        route("/v1/garden/too-large", here.too_large),
        route("/v1/garden/foreign-entry", here.foreign_entry),
        route("/v1/garden/leave-late", here.leave_late),
        route("/v1/garden/leave-afterwards", here.leave_afterwards),
        route("/v1/garden/leave-at-once", here.clear, "GET", who=(), authenticate=here.leave_at_once),
        route("/v1/garden/slow", here.slow),
        route("/v1/garden/long", here.long, takes_long=True),
        route("/v1/garden/raw", here.raw, takes_long=True),
        route("/v1/garden/stream", here.stream),
        route("/.well-known/garden-resource", here.document, "GET", who=()),
    ])
"""


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The plug-in is installed."""
    monkeypatch.syspath_prepend(tmp_path)
    return install(tmp_path, "garden", GARDEN.replace("SECONDS", str(HURRIED + 0.5)))


@pytest.fixture
async def harness(
    garden: str, identity_provider: IdentityProvider, test_clock: TestClock, request: pytest.FixtureRequest
) -> AsyncIterator[Harness]:
    limits = Limits(request_seconds=HURRIED) if request.node.get_closest_marker("slow") else Limits()
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), limits=limits)
    apps, plugins = [user_app(identity_provider)], {"garden": PluginResources()}
    async with running(
        identity_provider, apps, clock=test_clock, tools=TOOLS, settings=settings, plugins=plugins
    ) as harness:
        yield harness


def entries(harness: Harness, kind: type[AuditEntry]) -> list[Any]:
    return [entry for entry in harness.audit.entries if isinstance(entry, kind)]


def requests(harness: Harness) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, harness.log.getvalue().splitlines()) if line["event"] == "request"]


def faults(harness: Harness) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, harness.log.getvalue().splitlines()) if line["event"] == "fault"]


def said(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


async def test_a_handler_learns_who_calls_and_gets_the_models(api: Callers) -> None:
    tool = await api.tool()
    answer = await tool.post("/v1/garden/dig", {"seed": "bean"})
    turn_id = entries(api.harness, CallMade)[-1].caller
    assert {"caller": turn_id, "tool": "Tool/mail", "agent": "planner", "seed": "bean"} == answer.json()
    by_runtime = (await api.runtime.post("/v1/garden/dig", {"seed": "bean"})).json()
    assert (None, None) == (by_runtime["tool"], by_runtime["agent"])
    assert by_runtime["caller"] not in {None, turn_id}
    assert {"bed": "seven"} == (await tool.get("/v1/garden/beds/seven")).json()
    assert {"wind": "west"} == (await tool.get("/v1/garden/weather?wind=west")).json()


async def test_a_fixed_path_comes_before_a_variable_one_and_has_its_own_methods(api: Callers) -> None:
    for method in ("GET", "DELETE"):
        assert (204, b"") == ((answer := await api.runtime.send(method, "/v1/garden/beds/first")).status, answer.body)
    refused = await api.runtime.post("/v1/garden/beds/first")
    assert 405 == refused.status
    assert {"GET", "DELETE"} == {*refused.headers["allow"].split(", ")}
    assert 405 == (await api.runtime.send("HEAD", "/v1/garden/beds/first")).status
    assert 404 == (await api.runtime.get("/v1/garden/nothing")).status


async def test_a_path_with_a_rest_takes_all_below_it_that_no_other_path_has(api: Callers) -> None:
    for method, path in (("PUT", "a/b/c"), ("GET", "a"), ("GET", "first/b/c")):
        answer = await api.runtime.send(method, f"/v1/garden/rows/{path}")
        assert {"method": method, "rest": path} == answer.json()
    assert {"bed": "b"} == (await api.runtime.get("/v1/garden/rows/first/b")).json()
    assert 405 == (await api.runtime.post("/v1/garden/rows/a")).status
    assert 404 == (await api.runtime.get("/v1/garden/rows")).status


async def test_a_plugin_that_authenticates_callers_itself_has_the_limits_of_callers_and_strangers(api: Callers) -> None:
    async def call(badge: str = "") -> Answer:
        return await api.stranger.get("/v1/garden/badge", headers={"authorization": badge} if badge else {})

    assert {"badge": "Badge 7", "caller": None} == (await call("Badge 7")).json()
    assert {"badge": "", "caller": None} == (await call()).json()
    assert {(401, "unauthenticated"), (429, "rateLimited")} == {said(await call("Badge 9")) for _ in range(20)}
    assert (429, "rateLimited") == said(await call()), "a stranger of the same address"
    assert 200 == (await call("Badge 8")).status, "a known caller is not kept out by strangers"


@pytest.mark.parametrize(
    "code", [Code.NOT_FOUND, Code.CONFIG_INVALID, Code.PROVIDER_UNREACHABLE, Code.STORE_UNAVAILABLE]
)
async def test_each_refusal_of_a_plugin_counts_against_the_limit_of_strangers(api: Callers, code: Code) -> None:
    """A webhook without a tool or a secret, a JWT whose keys are away: strangers could ask without end."""
    badge = {"authorization": f"Code {code.value}"}
    answers = [said(await api.stranger.get("/v1/garden/badge", headers=badge))[1] for _ in range(20)]
    assert [code.value, "rateLimited"] == list(dict.fromkeys(answers))
    assert 200 == (await api.stranger.get("/v1/garden/badge", headers={"authorization": "Badge 8"})).status


async def test_a_caller_whom_a_plugin_knows_and_does_not_let_in_has_a_limit(api: Callers) -> None:
    badge = {"authorization": "Badge 6"}
    answers = [said(await api.stranger.get("/v1/garden/badge", headers=badge)) for _ in range(20)]
    assert [(403, "notAllowed"), (429, "rateLimited")] == list(dict.fromkeys(answers))
    refusals = len(entries(api.harness, CallRefused))
    assert (429, "rateLimited") == said(await api.stranger.get("/v1/garden/badge", headers=badge))
    assert refusals == len(entries(api.harness, CallRefused)), "each costs a durable write"


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/v1/garden/dig", {"seed": 3}, {"pointer": "/seed", "problem": "type"}),
        ("/v1/garden/dig", {}, {"pointer": "/seed", "problem": "missing"}),
        ("/v1/garden/dig", {"seed": "x", "subject": "slack:user:T1:U1"}, {"pointer": "", "problem": "unknown"}),
    ],
    ids=["another type", "missing", "unknown"],
)
async def test_a_body_that_does_not_fit_is_refused_with_the_place(
    api: Callers, path: str, body: Any, problem: dict[str, str]
) -> None:
    answer = await (await api.tool()).post(path, body)
    assert (400, "requestInvalid") == said(answer)
    assert [problem] == answer.json()["errors"]


async def test_a_query_that_lacks_a_parameter_is_refused_and_is_no_fault(api: Callers) -> None:
    for query in ("", "?rain=1"):
        answer = await api.runtime.get(f"/v1/garden/weather{query}")
        assert (400, "requestInvalid") == said(answer)


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_of_another_media_type_is_refused(api: Callers, media: str) -> None:
    assert (415, "unsupportedMediaType") == said(await api.runtime.post("/v1/garden/dig", {"seed": "x"}, kind=media))


async def test_a_body_that_is_too_large_is_refused(api: Callers) -> None:
    for path in ("/v1/garden/dig", "/v1/garden/raw"):
        assert (413, "requestTooLarge") == said(await api.runtime.post(path, {"seed": "x" * 70_000}))


async def test_only_callers_of_the_route_may_call_it(api: Callers) -> None:
    tool, whole = await api.tool(), await api.turn()
    assert (401, "unauthenticated") == said(await api.stranger.post("/v1/garden/dig", {"seed": "x"}))
    assert (403, "notAllowed") == said(await api.operator.post("/v1/garden/dig", {"seed": "x"}))
    assert (403, "notAllowed") == said(await tool.post("/v1/garden/operators"))
    assert (403, "notAllowed") == said(await tool.post("/v1/garden/whole"))
    assert 204 == (await whole.post("/v1/garden/whole")).status
    assert 204 == (await api.operator.post("/v1/garden/operators")).status
    refused = entries(api.harness, CallRefused)
    assert "POST /v1/garden/operators" in {entry.route for entry in refused}


async def test_a_turn_that_has_ended_calls_no_plugin(api: Callers) -> None:
    begun = await api.begin()
    tool = api.holding(begun["toolTokens"]["Tool/mail"])
    assert 200 == (await tool.get("/v1/garden/beds/1")).status
    await api.harness.broker.turns.end(begun["turnId"])
    assert (401, "turnEnded") == said(await tool.get("/v1/garden/beds/1"))


async def test_a_turn_token_has_its_oauth_and_another_caller_has_none(api: Callers) -> None:
    assert {"status": "authorization_required"} == (await (await api.tool()).post("/v1/garden/token")).json()
    idle = await (await api.tool("Tool/idle")).post("/v1/garden/token")
    assert {"status": "error"} == idle.json()
    assert (403, "notAllowed") == said(await api.operator.post("/v1/garden/token"))


async def test_what_a_handler_does_and_refuses_stands_in_the_audit_log_by_its_route(api: Callers) -> None:
    tool = await api.tool()
    await tool.post("/v1/garden/dig", {"seed": "x"})
    made = entries(api.harness, CallMade)[-1]
    assert ("POST /v1/garden/dig", "bed-1") == (made.route, made.target)
    assert (403, "scopeNotAllowed") == said(await tool.post("/v1/garden/noteRefusal"))
    refused = entries(api.harness, CallRefused)[-1]
    assert ("POST /v1/garden/noteRefusal", "scopeNotAllowed", "Tool/mail") == (
        refused.route, refused.code, refused.tool,
    )  # fmt: skip


async def test_an_error_of_the_handler_is_answered_as_ours(api: Callers) -> None:
    answer = await api.runtime.post("/v1/garden/refuse", headers={"accept-language": "ko"})
    assert (409, "leaseLost") == said(answer)
    assert "application/problem+json" == answer.headers["content-type"]
    assert "ko" == answer.headers["content-language"]


BREAKING = {
    "crash": "ValueError at ",
    "leave": "SystemExit at ",
    "no-answer": "it returned an object of the type int",
    "no-json": "TypeError at ",
    "too-large": "a value of a plug-in is refused: it has more than 1048576 bytes",
    "foreign-entry": "the audit entry garden.Dug at ",
}


@pytest.mark.parametrize(("path", "why"), BREAKING.items())
async def test_a_handler_that_breaks_is_a_500_that_says_nothing_and_a_line_that_says_where(
    api: Callers, path: str, why: str
) -> None:
    answer = await api.runtime.post(f"/v1/garden/{path}")
    assert 500 == answer.status
    assert "s3cret" not in answer.text + api.harness.log.getvalue()
    assert 204 == (await api.operator.post("/v1/garden/operators")).status
    (fault,) = faults(api.harness)
    assert fault["place"].startswith(f"the plug-in garden, POST /v1/garden/{path}: ")
    assert why in fault["place"]


@pytest.mark.parametrize("path", ["leave-late", "leave-afterwards"])
async def test_an_answer_that_ends_the_process_ends_alone(api: Callers, path: str) -> None:
    with suppress(Exception):  # the answer has begun
        await api.runtime.post(f"/v1/garden/{path}")
    (fault,) = faults(api.harness)
    assert f"the plug-in garden, POST /v1/garden/{path}: SystemExit at " in fault["place"]
    assert 204 == (await api.operator.post("/v1/garden/operators")).status


async def test_an_authentication_that_ends_the_process_is_a_500_that_is_named(api: Callers) -> None:
    assert 500 == (await api.stranger.get("/v1/garden/leave-at-once")).status
    (fault,) = faults(api.harness)
    assert "GET /v1/garden/leave-at-once, authenticate: SystemExit at " in fault["place"]


@pytest.mark.slow
async def test_an_answer_that_does_not_begin_in_time_is_given_up_unless_the_route_takes_long(api: Callers) -> None:
    assert (503, "requestTimeout") == said(await api.runtime.post("/v1/garden/slow"))
    assert {"done": True} == (await api.runtime.post("/v1/garden/long")).json()


@pytest.mark.slow
async def test_a_body_that_does_not_come_is_given_up_also_where_the_answer_may_take_long(api: Callers) -> None:
    never = asyncio.Event()

    async def rest() -> bytes:
        await never.wait()
        return b""

    assert 408 == (await api.runtime.send("POST", "/v1/garden/raw", body=[b"begin", rest])).status
    assert {"bytes": 9} == (await api.runtime.send("POST", "/v1/garden/raw", body=b"anything!")).json()


@pytest.mark.slow
async def test_the_call_of_an_ended_turn_is_given_up_when_the_handler_looks(api: Callers) -> None:
    begun = await api.begin()
    tool = api.holding(begun["turnToken"])
    async with tool.open("POST", "/v1/garden/long", body=b"") as exchange:
        await asyncio.sleep(0)
        await api.harness.broker.turns.end(begun["turnId"])
        await asyncio.wait_for(exchange.started.wait(), 30)
    assert 401 == exchange.status


@pytest.mark.slow
async def test_an_answer_may_be_streamed_for_longer_than_a_request_may_take(api: Callers) -> None:
    answer = await api.runtime.post("/v1/garden/stream")
    assert (200, "onetwo") == (answer.status, answer.text)
    assert "same-origin" == answer.headers["referrer-policy"]


async def test_every_answer_has_the_security_headers(api: Callers) -> None:
    for path in ("/v1/garden/raw", "/v1/garden/crash", "/v1/garden/refuse"):
        answer = await api.runtime.post(path)
        assert security_headers().items() <= answer.headers.items()


async def test_a_request_stands_in_log_and_metrics_with_the_path_as_declared(api: Callers) -> None:
    await api.runtime.get("/v1/garden/beds/s3cret-bed")
    line = requests(api.harness)[-1]
    assert ("/v1/garden/beds/{bed}", "GET", 200) == (line["route"], line["method"], line["status"])
    assert "s3cret-bed" not in api.harness.log.getvalue()
    assert "/v1/garden/beds/{bed}" in repr(api.harness.broker.metrics.to_json())


async def test_calls_of_plugins_and_calls_of_ours_count_against_one_limit(
    garden: str, identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    limits = Limits(requests_per_minute=60)  # ten at once
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), limits=limits)
    plugins = {"garden": PluginResources()}
    async with running(identity_provider, [], clock=test_clock, settings=settings, plugins=plugins) as harness:
        callers = await Callers.of(harness)
        for _ in range(5):
            assert 200 == (await callers.runtime.get("/v1/apps")).status
            assert 200 == (await callers.runtime.get("/v1/garden/beds/1")).status
        assert 429 == (await callers.runtime.get("/v1/garden/beds/1")).status
        assert 429 == (await callers.runtime.get("/v1/apps")).status
        assert 200 == (await callers.operator.get("/v1/garden/beds/1")).status


async def test_a_public_document_is_served_without_authentication_on_every_listener(
    garden: str, identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    settings = Settings(
        public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), api_socket=ApiSocket(str(tmp_path / "socket"))
    )
    plugins = {"garden": PluginResources()}
    async with running(identity_provider, [], clock=test_clock, settings=settings, plugins=plugins) as harness:
        statuses = {}
        for name, app in (("pages", harness.broker.asgi.pages), ("api", harness.broker.asgi.api)):
            browser = Browser(apps={BASE: app})
            for path in ("/.well-known/garden-resource", "/v1/garden/open"):
                statuses[name, path] = (await browser.open(BASE + path)).status
        assert {
            ("pages", "/.well-known/garden-resource"): 200,
            ("api", "/.well-known/garden-resource"): 200,
            ("pages", "/v1/garden/open"): 404,
            ("api", "/v1/garden/open"): 200,
        } == statuses


async def test_without_the_plugin_in_the_configuration_none_of_its_paths_is_there(
    garden: str, identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [], clock=test_clock) as harness:
        callers = await Callers.of(harness)
        for path in ("/v1/garden/open", "/.well-known/garden-resource"):
            assert 404 == (await callers.runtime.get(path)).status


async def test_the_document_of_the_api_has_no_route_of_a_plugin(api: Callers) -> None:
    assert [] == [path for path in (await api.runtime.get("/v1/openapi.json")).json()["paths"] if "garden" in path]


async def test_a_reload_keeps_the_routes(api: Callers) -> None:
    await api.harness.broker.reload(api.harness.broker.bundle)
    assert 204 == (await api.operator.post("/v1/garden/operators")).status
