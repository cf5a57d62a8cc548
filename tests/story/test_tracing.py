"""Spans: their names, attributes and parents, and that none names a person."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.static_credential import Placement
from oauthbroker.observability.tracing import _NOTHING, ERROR_TYPE, KEYS, Span, span
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.web.app import plain
from tests.kit.running_broker import ALICE, BASE, BOB, Harness, running, turn
from tests.story.every_outcome import every_outcome
from tests.story.keys_kit import GOOD, KeyApi, key_app, sent, with_key
from tests.unit.web.kit import ask

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """OpenTelemetry as a host program sets it up; for one test, which its own way does not allow."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def named(exporter: InMemorySpanExporter, name: Span) -> list[ReadableSpan]:
    return [each for each in exporter.get_finished_spans() if each.name == name]


def said(found: ReadableSpan) -> dict[str, Any]:
    return dict(found.attributes or {})


def above(found: ReadableSpan, all_: Sequence[ReadableSpan]) -> list[str]:
    """The names of the spans it lies in, from the nearest."""
    by_id = {each.context.span_id: each for each in all_}
    names = list[str]()
    while found.parent is not None and found.parent.span_id in by_id:
        found = by_id[found.parent.span_id]
        names.append(found.name)
    return names


@pytest.mark.case("92")
async def test_the_main_story_is_told_in_a_closed_set_of_words(
    harness: Harness, spans: InMemorySpanExporter, canaries: Canaries
) -> None:
    """Every way an authorization can go, a refresh and a revocation; then every span is swept."""
    await every_outcome(harness)
    harness.clock.advance(3600)
    await harness.ask("team", of=turn())
    found = spans.get_finished_spans()
    assert set(Span) == {each.name for each in found}
    assert {key for each in found for key in said(each)} <= {*KEYS.values(), ERROR_TYPE}
    words = {value for each in found for value in said(each).values()}
    known = {code.value for code in Code} | {"mail", "files", "team", "ready", "authorization_required", "error"}
    known |= {"code", "refresh", "revoke", "userinfo", "metadata", "keys", "GET", "POST", "done", "none", "degraded"}
    known |= {"/connect/{ticket}", "/connected/{app}", *(f"/oauth/callback/{app}" for app in ("mail", "files", "team"))}
    assert {word for word in words if not isinstance(word, int)} <= known
    text = "".join(each.to_json() for each in found)
    assert [] == canaries.search(text, "the spans")
    for word in (ALICE, BOB, "U234567", "mallory", "planner", "Swarm", "chat-main", "U345678"):
        assert word not in text
    assert not re.search(r"(as|evt|grant|key|turn)-[A-Za-z0-9]|sha256|\?", text)
    assert all(not each.events and not each.links for each in found), "an exception's text would be an event"
    assert all(each.status.description is None for each in found)


async def test_what_lies_in_what(harness: Harness, spans: InMemorySpanExporter) -> None:
    await harness.connected("mail")
    harness.clock.advance(3600)
    await harness.ask("mail")
    await harness.broker.revoke("mail", subject=ALICE)
    found = spans.get_finished_spans()
    whole = {each: above(each, found) for each in found}

    def around(name: Span, **attributes: str | int) -> list[str]:
        wanted = {KEYS[key]: value for key, value in attributes.items()}
        (one,) = (each for each in found if each.name == name and wanted.items() <= said(each).items())
        return whole[one]

    assert [Span.CALLBACK, Span.HTTP] == around(Span.PROVIDER, kind="code")
    assert [Span.CALLBACK, Span.HTTP] == around(Span.COMMIT)
    assert [Span.REFRESH, Span.TOKEN] == around(Span.PROVIDER, kind="refresh")
    assert [Span.TOKEN] == around(Span.REFRESH, app="mail")
    assert {Span.REVOKE} == {
        whole[each][0] for each in named(spans, Span.PROVIDER) if said(each)[KEYS["kind"]] == "revoke"
    }
    assert {"ready"} == {said(each)[KEYS["outcome"]] for each in named(spans, Span.TOKEN)[1:]}


async def test_a_caller_of_the_api_sees_our_spans_in_its_own_trace(
    harness: Harness, spans: InMemorySpanExporter
) -> None:
    """Only callers of the API; other headers about a trace are ignored."""
    headers = [("traceparent", CALLER), ("tracestate", "vendor=canary"), ("baggage", "user=canary")]
    listeners = harness.broker.asgi
    await ask(listeners.app, "/v1/apps", host=BASE.removeprefix("http://"), headers=headers)
    (found,) = named(spans, Span.HTTP)
    assert found.parent is not None
    assert CALLER.split("-")[1:3] == [f"{found.context.trace_id:032x}", f"{found.parent.span_id:016x}"]
    assert "canary" not in found.to_json() + repr(found.context)
    spans.clear()
    await ask(listeners.app, "/readyz", headers=headers)
    await ask(listeners.app, "/v1/apps", headers=[*headers, ("traceparent", CALLER)])
    await ask(listeners.app, "/v1/apps", headers=[("traceparent", "00-" + "0" * 32 + "-nonsense")])
    assert [None] * 3 == [each.parent for each in named(spans, Span.HTTP)]


async def test_nothing_of_a_trace_is_sent_to_a_provider(harness: Harness, spans: InMemorySpanExporter) -> None:
    """Neither by us, nor by an instrumented HTTP library: its spans are suppressed."""
    quiet = list[tuple[object, object]]()
    transport = harness.parts.pages.service.callback.exchange.asker.transport
    send = transport._exchange

    async def exchange(*args: Any) -> Any:
        quiet.append(
            (context.get_value("suppress_instrumentation"), context.get_value("suppress_http_instrumentation"))
        )
        return await send(*args)

    transport._exchange = exchange  # type: ignore[method-assign, assignment]
    await harness.connected("mail")
    assert quiet
    assert {(True, True)} == set(quiet)
    headers = {name.lower() for request in harness.idp.requests for name in request.headers}
    assert headers
    assert not headers & {"traceparent", "tracestate", "baggage", "b3", "uber-trace-id"}


async def test_a_refusal_leaves_its_code_and_anything_else_its_class(spans: InMemorySpanExporter) -> None:
    with pytest.raises(BrokerError), span(Span.CALLBACK, app="mail"):
        raise BrokerError(Code.SUBJECT_MISMATCH, note="a note")
    with pytest.raises(ValueError, match="canary"), span(Span.COMMIT):
        raise ValueError("canary")
    with pytest.raises(asyncio.CancelledError), span(Span.RELAY):
        raise asyncio.CancelledError
    refused, broken, left = spans.get_finished_spans()
    assert {KEYS["app"]: "mail", KEYS["code"]: "subjectMismatch"} == said(refused)
    assert {ERROR_TYPE: "ValueError"} == said(broken)
    assert ["ERROR", "ERROR", "UNSET"] == [each.status.status_code.name for each in (refused, broken, left)]
    assert not re.search("canary|a note", "".join(each.to_json() for each in (refused, broken, left)))


async def test_tools_that_wait_for_one_refresh_do_not_lose_their_own_spans(
    harness: Harness, spans: InMemorySpanExporter
) -> None:
    await harness.connected("mail")
    harness.clock.advance(3600)
    spans.clear()
    await asyncio.gather(*(harness.ask("mail") for _ in range(10)))
    assert (10, 1) == (len(named(spans, Span.TOKEN)), len(named(spans, Span.REFRESH)))
    assert 10 == len({each.context.trace_id for each in named(spans, Span.TOKEN)})


def test_without_a_host_program_that_collects_there_is_no_span() -> None:
    """The API is installed here, and imported; it is not set up."""
    assert span(Span.TOKEN, app="mail") is _NOTHING
    with span(Span.TOKEN) as spanned:
        spanned.set(outcome="ready")
        assert not trace.get_current_span().is_recording()


def test_a_host_that_traces_nothing_gets_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    assert span(Span.TOKEN) is _NOTHING


ALONE = """
import asyncio, json, sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.model.bundle import Bundle
from oauthbroker.core.clock import SystemClock
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.model.settings import Settings
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Browser

async def main():
    clock = SystemClock()
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    turn = Turn("planner", "1", "Swarm/default", auth=TurnAuth({"type": "user", "id": "u"}, {"user": "u"}))
    async with open_broker(Bundle(Settings(), {}), env={}, store=store) as broker:
        answer = await broker.oauth(turn).get_access_token("no-such-app")
        page = await Browser(apps={"http://127.0.0.1:8420": broker.asgi.app}).open("http://127.0.0.1:8420/healthz")
        left = [name for name in sys.modules if name.startswith("opentelemetry") and sys.modules[name] is not None]
        print(json.dumps([answer.status, page.status, left]))

asyncio.run(main())
"""


@pytest.mark.slow
def test_everything_works_where_the_package_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, check=True, timeout=60)
    assert ["error", 200, []] == json.loads(done.stdout)


async def test_what_others_did_to_starlette_does_not_reach_our_pages(test_clock: TestClock) -> None:
    """As opentelemetry-instrumentation-starlette does it: a subclass in the place of the class."""

    class Instrumented(Starlette):
        pass

    class Again(Instrumented):
        pass

    assert Starlette is plain(Again) is plain(Instrumented) is plain(Starlette)


@pytest.mark.case("156")
async def test_a_key_in_an_address_is_in_no_span(
    api: KeyApi, spans: InMemorySpanExporter, test_clock: TestClock
) -> None:
    """Neither while it is checked, nor while it is used or refused."""
    places = {"asked": ("query", {"key": "{apiKey}"}), "walked": ("path", {"path": "/bot{apiKey}"})}
    apps = [key_app(api, name, placement=Placement(kind=kind, texts=texts)) for name, (kind, texts) in places.items()]  # type: ignore[arg-type]
    async with IdentityProvider(clock=test_clock) as idp, running(idp, apps, clock=test_clock) as harness:
        for name in places:
            await with_key(harness, api, app=name)
            assert 200 == (await sent(harness, api, app=name)).status_code
        del api.keys[GOOD]
        for name in places:
            await sent(harness, api, app=name)
    text = "".join(each.to_json() for each in spans.get_finished_spans())
    assert "walked" in text, "requests are traced"
    assert GOOD not in text
    assert "/bot" not in text
