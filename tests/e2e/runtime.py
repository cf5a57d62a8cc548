"""A runtime's own little site, as docs/embedding.md asks for it: a login for each browser, and the page that confirms."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import escape
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from oauthbroker import Broker, BrokerError
from tests.e2e import served

LOGIN = "runtime_login"


@dataclass
class Runtime:
    """Who is logged in where, and what its page said to the broker. `base` is its address."""

    base: str
    home: str
    app: str
    broker: Broker | None = None
    logins: dict[str, str] = field(default_factory=dict)
    said: list[tuple[str, str]] = field(default_factory=list)

    @property
    def confirm_url(self) -> str:
        return f"{self.base}/oauth/confirm"

    def login_of(self, subject: str) -> str:
        """The page after signing in as this subject."""
        return f"{self.base}/login?as={subject}"

    async def log_in(self, request: Request) -> Response:
        token = secrets.token_urlsafe(16)
        self.logins[token] = request.query_params["as"]
        answer = HTMLResponse("<h1>Signed in</h1>")
        answer.set_cookie(LOGIN, token, httponly=True, samesite="lax")
        return answer

    async def ask(self, request: Request) -> Response:
        """Changes nothing: a button of its own says yes, with the login's own token against other sites' forms."""
        token = request.cookies.get(LOGIN, "")
        if token not in self.logins:
            return HTMLResponse("<h1>Please sign in</h1>", 401)
        handle = escape(request.query_params["handle"], quote=True)
        return HTMLResponse(
            f"<h1>Connect it?</h1><p>You are {escape(self.logins[token])}.</p>"
            f'<form method="post"><input type="hidden" name="handle" value="{handle}">'
            f'<input type="hidden" name="token" value="{token}"><button>Yes, it was me</button></form>',
            headers={"referrer-policy": "same-origin"},
        )

    async def confirm(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        token = request.cookies.get(LOGIN, "")
        if token not in self.logins or not secrets.compare_digest(form.get("token", ""), token):
            return HTMLResponse("<h1>Not from our page</h1>", 403)
        assert self.broker is not None
        try:
            outcome = await self.broker.confirm(form["handle"], self.logins[token])
        except BrokerError as refused:
            self.said.append((self.logins[token], refused.code.value))
            return HTMLResponse(f"<h1>Nothing was connected</h1><p>{refused.code.value}</p>", 403)
        self.said.append((self.logins[token], outcome.status))
        return RedirectResponse(f"{self.home}/connected/{self.app}", 303)


@asynccontextmanager
async def running(listener: socket.socket, home: str, app: str) -> AsyncIterator[Runtime]:
    """The site behind `listener`, until the block ends."""
    runtime = Runtime(f"http://127.0.0.1:{listener.getsockname()[1]}", home, app)
    routes = [
        Route("/login", runtime.log_in),
        Route("/oauth/confirm", runtime.ask),
        Route("/oauth/confirm", runtime.confirm, methods=["POST"]),
    ]
    async with served.listening(Starlette(routes=routes), listener):
        yield runtime
