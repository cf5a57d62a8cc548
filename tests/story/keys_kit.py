"""A scripted API that takes keys, and apps whose users type them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from oauthbroker import Turn
from oauthbroker.model.apps import ANYONE, App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.static_credential import CredentialField, Placement, StaticCredential, Verification
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing.browser import Browser, Page
from tests.kit.running_broker import ALICE, Harness, turn

GOOD, NEWER, DEAD, OF_BOB = "key-of-alice-0001", "key-of-alice-0002", "key-of-alice-dead", "key-of-bob-000001"
HEADER = Placement(kind="headers", texts={"X-Api-Key": "{apiKey}"})


@dataclass
class Seen:
    """A request as the API saw it."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class KeyApi:
    """Answers `/me` and `/data` to a known key, and 401 to others. `status` overrides every answer, `statuses` those of a path. `/echo` repeats the
    request in its headers and its body, `/locked` refuses every key."""

    keys: dict[str, str] = field(default_factory=lambda: {GOOD: "U234567", NEWER: "U234567", OF_BOB: "U345678"})
    seen: list[Seen] = field(default_factory=list)
    status: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def host(self) -> ApiHost:
        return ApiHost("127.0.0.1", self.port, "http")

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qs(scope["query_string"].decode(), keep_blank_values=True)
        seen = Seen(scope["method"], scope["path"], query, headers, body)
        self.seen.append(seen)
        said = json.dumps([seen.path, seen.query, seen.headers])
        account = next((account for key, account in self.keys.items() if key in said), None)
        status = (
            self.status
            or self.statuses.get(seen.path)
            or (200 if account is not None and seen.path != "/locked" else 401)
        )
        answer: bytes = json.dumps({"id": account}).encode()
        more: list[tuple[bytes, bytes]] = []
        if seen.path == "/echo" and status == 200:
            answer, more = said.encode() + seen.body, [(b"x-said", said.encode("latin-1", "replace"))]
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"application/json"), *more, *self.headers],
            }
        )
        await send({"type": "http.response.body", "body": answer})


@asynccontextmanager
async def key_api() -> AsyncIterator[KeyApi]:
    api = KeyApi()
    server = uvicorn.Server(uvicorn.Config(api, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(30):
        while not server.started:
            await asyncio.sleep(0.005)
    api.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield api
    finally:
        server.should_exit = True
        await running


def key_app(api: KeyApi, name: str = "meter", **changes: Any) -> App:
    """User mode: whose key it is comes from `/me`."""
    credential = StaticCredential(
        fields=(CredentialField(name="apiKey", title="API key"),),
        placement=changes.pop("placement", HEADER),
        verification=changes.pop("verification", Verification(path="/me")),
        life_days=changes.pop("life_days", None),
        team_fallback=changes.pop("team_fallback", False),
    )
    app = App(
        name=name,
        provider="meter",
        flow="staticCredential",
        subject_mode="user",
        client=Client("", None, "none"),
        endpoints=Endpoints(),
        scopes=(),
        redirect=Redirect("", ""),
        owner=Owner(user_identity=IdentityRule("userInfo", "idp:user:{id}"), authorizers=ANYONE),
        title="Meter",
        revocation=Revocation(kind="none", reach="none"),
        api=ApiAccess((api.host,), injected=True),
        credential=credential,
    )
    return replace(app, **changes)


async def type_key(
    harness: Harness, asked: AuthorizationRequired, key: str = "", browser: Browser | None = None, **fields: str
) -> Page:
    """Open the link and send the form; the page that follows."""
    browser = browser or harness.browser()
    await browser.open(asked.authorization_url)
    fields = fields or {"credential.apiKey": key}
    page = await browser.submit({"decision": "continue", **fields}, form=browser.page.form("decision"))
    while page.location is not None:
        page = await browser.follow()
    return page


async def asked_for(harness: Harness, api: KeyApi, of: Turn | None = None, app: str = "meter") -> AuthorizationRequired:
    """Send a request without a key; the request for one."""
    result = await sent(harness, api, of=of, app=app)
    assert isinstance(result, AuthorizationRequired), result
    return result


async def sent(
    harness: Harness, api: KeyApi, path: str = "/data", of: Turn | None = None, app: str = "meter", **more: Any
) -> Any:
    """Send a request of a turn with the key injected: the answer, or the result that the exception carries."""
    from oauthbroker.injection.errors import InjectionError

    async with harness.broker.oauth(of or turn()).client(app) as client:
        try:
            return await client.request(more.pop("method", "GET"), api.url(path), **more)
        except InjectionError as error:
            return error.result


async def with_key(harness: Harness, api: KeyApi, key: str = GOOD, user: str = ALICE, app: str = "meter") -> None:
    """Type a key that passes."""
    page = await type_key(harness, await asked_for(harness, api, turn(user=user), app), key)
    assert 200 == page.status, page.text
    assert "is connected" in page.text
