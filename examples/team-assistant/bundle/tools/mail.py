"""The tool `mail`. The broker adds the token to its request: the tool never holds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oauthbroker.tools import ToolFailure

APP = "OAuthApp/demo-mail"
PLACES = Path(__file__).parents[1] / "places.json"  # the provider listens on another port each time


async def newest(ctx: Any, _args: dict[str, Any]) -> Any:
    """List the messages, or return the request for consent."""
    answer = await ctx.oauth.fetch(APP, "GET", json.loads(PLACES.read_text("utf-8"))["mail"])
    if not hasattr(answer, "body"):
        return answer
    if answer.status != 200:
        raise ToolFailure(f"The mail answered with status {answer.status}.")
    return [each["text"] for each in json.loads(answer.body)["messages"]]


handlers = {"list": newest}
