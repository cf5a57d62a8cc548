"""The tool `http-fetch`: `get` and `post` (specification 002, section 14.2), with answers of ours. With `app`, the
request goes to the API of that app and carries the user's token or key, which this tool does not see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from oauthbroker import BrokerError, Code
from oauthbroker.plugins import PublicWeb
from oauthbroker.tools.base.texts import cut_to_output, decoded, needed
from oauthbroker.tools.calling.context import Json, ToolContext
from oauthbroker.tools.types.failures import ToolFailure

MOST_BYTES: Final = 100_000
SECONDS: Final = 30.0


class HttpFetch:
    """Sends requests. `web` has the options of `PublicWeb`."""

    def __init__(self, **web: Any) -> None:
        self._web = web

    async def get(self, ctx: ToolContext, given: dict[str, Json]) -> Json:
        """Answer `{status, contentType, body, truncated}`, and `location` for a redirect, which is not followed."""
        return await self._answer(ctx, "GET", given, given.get("headers", {}), b"")

    async def post(self, ctx: ToolContext, given: dict[str, Json]) -> Json:
        """Send `body` as JSON. Answer as `get`."""
        content = json.dumps(given.get("body", {})).encode("ascii")
        headers = given.get("headers", {})
        if all(name.lower() != "content-type" for name in headers):
            headers = {"Content-Type": "application/json"} | headers
        return await self._answer(ctx, "POST", given, headers, content)

    async def _answer(
        self, ctx: ToolContext, method: str, given: Mapping[str, Json], headers: Mapping[str, str], content: bytes
    ) -> Json:
        url = needed(given, "url")
        if not all(isinstance(value, str) for value in headers.values()):  # a Tool of one's own may allow others
            raise _refused(BrokerError(Code.REQUEST_INVALID))
        if "app" in given:
            return await _with_token(ctx, given["app"], method, url, headers, content)
        try:
            async with PublicWeb(**self._web) as web:
                found = await web.send(
                    method, url, headers=headers, content=content, seconds=SECONDS, most_bytes=MOST_BYTES
                )
        except BrokerError as error:
            raise _refused(error) from None
        return _to_json(found.status, found.headers, found.body, truncated=found.truncated)


async def _with_token(
    ctx: ToolContext, app: str, method: str, url: str, headers: Mapping[str, str], content: bytes
) -> Json:
    """Send the request with a token, by the broker or its client. A request for consent comes as it is."""
    oauth: Any = getattr(ctx, "oauth", None)
    if oauth is None:
        raise ToolFailure("This tool has no app.", name="AppRefused", suggestion="Leave out `app`.")
    if hasattr(oauth, "fetch"):
        found = await oauth.fetch(app, method, url, headers=headers, content=content or None)
        if not hasattr(found, "body"):
            return found
        return _to_json(found.status, found.headers, found.body[:MOST_BYTES], truncated=len(found.body) > MOST_BYTES)
    body = bytearray()
    async with oauth.client(app) as client, client.stream(method, url, headers=headers, content=content) as answer:
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > MOST_BYTES:
                break
    return _to_json(answer.status_code, answer.headers, bytes(body[:MOST_BYTES]), truncated=len(body) > MOST_BYTES)


def _to_json(status: int, headers: Mapping[str, str], body: bytes, *, truncated: bool) -> Json:
    members = {"status": status, "contentType": headers.get("content-type", ""), "truncated": True}
    members |= {"location": headers["location"]} if "location" in headers else {}
    members["body"] = decoded(body, is_cut=truncated)
    return members | {"truncated": cut_to_output(members, "body") or truncated}


def _refused(error: BrokerError) -> ToolFailure:
    if error.code == Code.REQUEST_INVALID:
        text = "The request is refused: it needs an https URL of a public host, without a user name, and plain headers."
        return ToolFailure(text, name="RequestRefusedError")
    text = "No answer: the host is not reachable, late, or its certificate is not valid."
    return ToolFailure(text, name="Unreachable")


_FETCH: Final = HttpFetch()
handlers = {"get": _FETCH.get, "post": _FETCH.post}
