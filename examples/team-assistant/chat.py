"""The chat page: one conversation, as HTML without scripts. Texts are escaped; a link to the broker can be followed."""

from __future__ import annotations

import re
from html import escape
from urllib.parse import parse_qs

from conversation import Conversation, Line
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

MOST_CHARACTERS = 2000
MOST_BYTES = 32 * 1024
LINK = re.compile(r"http://127\.0\.0\.1:\d+/connect/[A-Za-z0-9_-]+")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Team assistant</title>
<style>
body {{ font: 1.1rem/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; }}
li {{ margin: 0 0 1rem; overflow-wrap: anywhere; }}
label, input, button {{ font: inherit; }}
input {{ width: 100%; box-sizing: border-box; margin: .25rem 0 .75rem; padding: .5rem; }}
</style>
</head>
<body>
<main>
<h1>Team assistant</h1>
<h2 id="said">Conversation</h2>
<ol aria-labelledby="said">
{lines}</ol>
<form method="post" action="/chat">
<label for="text">Your message</label>
<input id="text" name="text" maxlength="{most}" required autocomplete="off">
<button>Send</button>
</form>
<p><a href="/chat">Look for new answers</a></p>
</main>
</body>
</html>
"""


def chat_page(chat: Conversation) -> Starlette:
    """Return the application: the chat below `/chat`, and all else of the broker."""

    async def show(_request: Request) -> Response:
        lines = "".join(_line(each) for each in await chat.lines())
        return HTMLResponse(PAGE.format(lines=lines, most=MOST_CHARACTERS), headers=HEADERS)

    async def say(request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return Response("Send messages from the chat page.", 403, HEADERS)
        if (text := await _written(request)) is None:
            return Response("The message is too long.", 413, HEADERS)
        if text:
            await chat.say(text)
        return RedirectResponse("/chat", 303, HEADERS)

    return Starlette(
        routes=[
            Route("/chat", show, methods=["GET"]),
            Route("/chat", say, methods=["POST"]),
            Mount("", app=chat.broker.asgi.app),
        ]
    )


async def _written(request: Request) -> str | None:
    """Return the text of the form; None if the body is too long."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            return None
    fields = parse_qs(body.decode("utf-8", "replace"))
    return fields.get("text", [""])[0].strip()[:MOST_CHARACTERS]


def _line(line: Line) -> str:
    """Return a line as HTML. Links to the connect page open beside the chat."""
    text = LINK.sub(
        r'<a href="\g<0>" target="_blank" rel="noopener noreferrer">Connect your account</a>', escape(line.text)
    )
    return f"<li><strong>{escape(line.who)}:</strong> {text}</li>\n"
