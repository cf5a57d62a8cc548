"""Public addresses, foreign sites and hostile texts for tests of the web pages."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from oauthbroker.testing import Browser
from oauthbroker.testing.browser import Page

PREFIXED_BASE = "https://runtime.example/tools/oauth"
EVIL = "https://evil.example"
FOREIGN_TARGETS = [
    "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "https:evil.example",
    "/%09/evil.example", "\t//evil.example", "https://127.0.0.1:8420@evil.example", "javascript:alert(1)", "data:text/html,x",
    "%2f%2fevil.example", "/%5cevil.example", "http://127.0.0.1:8420.evil.example/", "//evil.example/%2e%2e",
]  # fmt: skip
REDIRECT_PARAMETERS = (
    "next",
    "return_to",
    "returnUrl",
    "redirect",
    "redirect_uri",
    "url",
    "continue",
    "RelayState",
    "goto",
)
HOSTILE_TEXTS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</title><script>alert(1)</script>",
    "</style><style>*{display:none}</style>",
    "<meta http-equiv=refresh content='0; url=//evil.example'>",
    "<base href=//evil.example>",
    "<form action=//evil.example><input name=csrf>",
    "{{ 7*7 }}{% raw %}{0.__class__}",
    "javascript:alert(1)//",
    "&lt;b&gt;&#60;script&#62;",
    "<!-- <![CDATA[ -->",
    "\u202eexe.live\u202c\u2066x\u2069",
    "a\u200bb\u00adc\ufeffd",
    "l\u0336o\u0336\u0336\u0336\u0336\u0336\u0336\u0336ng" * 40,
    "line one\r\nSet-Cookie: a=b\r\n\r\n<script>",
    "\0nul",
    "W" * 50_000,
]


def mounted(web: ASGIApp, path: str) -> ASGIApp:
    """Inside another application, as an embedding runtime does it."""
    return Starlette(routes=[Mount(path, app=web)])


async def evil_page(_scope: object, _receive: object, send: object) -> None:
    """The attacker's own site: an empty page is enough."""
    assert callable(send)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"<p>free tokens</p>"})


async def open_evil_site(browser: Browser) -> Page:
    browser.serve(EVIL, evil_page)
    return await browser.open(f"{EVIL}/")


def as_agent(text: str) -> str:
    """Return the hostile text as a name that an agent can have: others are refused."""
    return "".join(filter(str.isprintable, text)).replace("/", "|")[:256] or "x"
