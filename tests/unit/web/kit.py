"""What the page tests share: a view, an HTML reader that complains, and a client that sends raw ASGI requests."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message

from oauthbroker.authorization.page_results import Invitation
from oauthbroker.core.clock import Clock
from oauthbroker.model.turn import SubjectMode
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metrics
from oauthbroker.testing.clock import TestClock
from oauthbroker.web.gate.request_limits import Gate, allowed_hosts
from oauthbroker.web.html.consent_html import ConnectView
from oauthbroker.web.html.rendering import Page
from oauthbroker.web.middleware.access_log import RequestLog
from oauthbroker.web.middleware.forwarded import Proxies
from tests.kit.samples import app_with

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
VOID = {"meta", "input", "br", "hr", "img", "link", "path", "circle", "wbr"}
PUBLIC = "http://broker.example"
HOSTILE_TEXTS = [
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% include 'base.html' %}",
    "{text.__class__} {0} {app!r}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<!-- <body onload=alert(1)> -->",
    "\u202e<a href=//evil.example>\u2066",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "a\x00b\x1b[31m\r\nSet-Cookie: x=y",
    "\ud800 lone surrogate",
    "<bdi></bdi></dd></dl>" * 500,
]  # fmt: skip


def a_view(
    *,
    app_name: str = "Team chat",
    provider: str = "slack",
    provider_host: str = "slack.com",
    subject_mode: SubjectMode = "user",
    csrf_token: str = "c" * 43,
    **changes: Any,
) -> ConnectView:
    asked: dict[str, Any] = {
        "app": app_with(title=app_name, provider=provider, subject_mode=subject_mode),
        "agent_name": "planner",
        "subject": "slack:user:T111:U1",
        "scopes": ("chat:write", "channels:read"),
        "expires_at": NOW + timedelta(minutes=10),
        "authorization_endpoint": f"https://{provider_host}/authorize",
    }
    return ConnectView(Invitation(**{**asked, **changes}), NOW, csrf_token)


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""


class Document(HTMLParser):
    """Reads a page strictly: every element closed in its order, every attribute once. `text` is what people read."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self._open == [], "an element stays open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in <{tag}>"
        element = Element(tag, dict(attrs))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data
        if not any(element.tag in {"style", "head"} for element in self._open):
            self.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def one(self, tag: str) -> Element:
        (element,) = self.all(tag)
        return element


@dataclass
class Answer:
    status: int = 0
    raw_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    finished: bool = False

    @property
    def headers(self) -> dict[str, str]:
        named = {name.decode(): value.decode() for name, value in self.raw_headers}
        assert len(named) == len([name for name, _ in self.raw_headers if name != b"set-cookie"]) + (
            "set-cookie" in named
        ), "a header twice"
        return named

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: ASGIApp,
    path: str = "/",
    *,
    method: str = "GET",
    query: bytes = b"",
    headers: Iterable[tuple[str, str]] = (),
    host: str | None = "broker.example",
    chunks: Iterable[bytes] = (b"",),
    root_path: str = "",
    client: str = "192.0.2.1",
) -> Answer:
    """One request exactly as given, duplicates and nonsense included; what a lenient client would never send."""
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    if host is not None:
        raw.append((b"host", host.encode("latin-1")))
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": root_path + path, "raw_path": path.encode("utf-8"), "query_string": query, "root_path": root_path,
        "headers": raw, "client": (client, 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    waiting = list(chunks)
    answer = Answer()

    async def receive() -> Message:
        if not waiting:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.raw_headers = message["status"], list(message["headers"])
        else:
            answer.body += message.get("body", b"")
            answer.finished = not message.get("more_body", False)

    await app(scope, receive, send)
    return answer


@dataclass
class Site:
    """An application of a few routes behind our gate, and the lines it logged."""

    app: ASGIApp
    stream: io.StringIO

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def a_site(
    routes: Sequence[BaseRoute], *, clock: Clock | None = None, public: str = PUBLIC, locale: Any = "en"
) -> Site:
    app = Starlette(routes=routes)
    app.middleware_stack, stream = gated(app.router, clock=clock, public=public, locale=locale)
    return Site(app, stream)


def gated(
    app: ASGIApp, *, clock: Clock | None = None, public: str = PUBLIC, locale: Any = "en", seconds: float = 60
) -> tuple[Gate, io.StringIO]:
    """Return an application behind our gate, and where it logs."""
    clock, stream = clock or TestClock(NOW), io.StringIO()
    log = json_log(stream, clock)
    requests, hosts = RequestLog(clock, log, Metrics()), allowed_hosts(public)
    gate = Gate(app, hosts=hosts, locale=locale, log=log, requests=requests, proxies=Proxies(), seconds=seconds)
    return gate, stream


def tags_and_attributes(page: Page) -> list[tuple[str, tuple[str, ...]]]:
    return [(e.tag, tuple(e.attributes)) for e in Document(page.html).elements]
