"""Injected requests have the token where the provider wants it, and in no other place."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import httpx2
import pytest

from oauthbroker.model.provider_habits import Habits
from oauthbroker.providers import presets
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import turn
from tests.story.api.proxy_kit import Stage, stage
from tests.unit.protocol.kit import RawServer, raw_answer

OPENID = ("openid",)


@dataclass(frozen=True)
class Form:
    """A provider's way, and the line of the request's head that carries `TOKEN`."""

    habits: Habits
    line: str


FORMS = {
    "standard": Form(Habits(always_scopes=OPENID), "authorization: Bearer TOKEN"),
    "shopify": Form(
        Habits(always_scopes=OPENID, token_header=presets()["shopify"].habits().token_header),
        "x-shopify-access-token: TOKEN",
    ),
    "zoho": Form(
        Habits(always_scopes=OPENID, token_scheme=presets()["zoho"].habits().token_scheme),
        "authorization: Zoho-oauthtoken TOKEN",
    ),
    "token": Form(Habits(always_scopes=OPENID, token_scheme="token"), "authorization: token TOKEN"),
    "bare": Form(Habits(always_scopes=OPENID, token_scheme=""), "authorization: TOKEN"),
    "both": Form(Habits(always_scopes=OPENID, token_header="X-Auth", token_scheme="Key"), "x-auth: Key TOKEN"),
    "with the client's id": Form(
        Habits(always_scopes=OPENID, api_headers={"X-Client": "id {client_id}"}), "authorization: Bearer TOKEN"
    ),
}
OWN = {"X-Shopify-Access-Token": "mine-1", "X_Shopify_Access_Token": "mine-2", "x-shopify.access.token": "mine-3",
       "X-Auth": "mine-4", "Authorization": "mine-5"}  # fmt: skip


class Echo:
    """An API that repeats the head of a request: in its own head, under the header's own name, and in its body."""

    server: RawServer

    async def handle(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = self.server.requests[-1].partition(b"\r\n\r\n")[0].decode()
        lines = [line.partition(": ") for line in head.split("\r\n")[1:]]
        back = {name.replace("-", "_"): value for name, _, value in lines if name.lower().startswith("x-")}
        writer.write(
            raw_answer(200, head.encode(), content_type="text/plain", x_echo=head.replace("\r\n", " "), **back)
        )
        await writer.drain()


def carried(request: bytes, token: str) -> list[str]:
    """Every line of a head that has the token, with its name in lower case."""
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    named = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]
    return [f"{name}: {value.replace(token, 'TOKEN')}" for name, value in named if token in value]


def client_of(here: Stage) -> httpx2.AsyncClient:
    """The client of the same tool in the process of the broker."""
    return here.harness.broker.oauth(turn(), "Tool/carried").client("mail")


def url_of(here: Stage) -> str:
    return f"http://127.0.0.1:{here.api.port}/a"


def left(request: bytes, form: Form) -> list[str]:
    """What the provider got of the tool's own headers by these names."""
    text = request.decode().lower()
    dropped = {"mine-5"} | ({"mine-4"} if form.habits.token_header == "X-Auth" else set())
    dropped |= {"mine-1", "mine-2", "mine-3"} if form.habits.token_header == "X-Shopify-Access-Token" else set()
    return [value for value in sorted(dropped) if value in text]


def client_id_of(here: Stage, form: Form) -> list[str]:
    return [here.harness.broker.bundle.apps["mail"].client.client_id] if form.habits.api_headers else []


def client_id_in(request: bytes) -> list[str]:
    return re.findall(r"\r\nX-Client: id (.*)\r\n", request.decode())


@pytest.mark.parametrize("name", FORMS)
async def test_the_client_of_a_tool_carries_the_token_as_the_provider_wants_it(
    name: str, identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    form, echo = FORMS[name], Echo()
    async with stage(identity_provider, test_clock, echo.handle, habits=form.habits) as here:
        echo.server = here.api
        async with client_of(here) as client:
            answer = await client.get(url_of(here), headers=OWN)
        assert [form.line] == carried(here.api.requests[-1], here.token)
        assert [] == left(here.api.requests[-1], form)
        assert client_id_of(here, form) == client_id_in(here.api.requests[-1])
        assert here.token not in f"{answer.text} {answer.headers!r} {answer.request.headers!r}"
        assert "*" * len(here.token) in answer.text


@pytest.mark.parametrize("name", FORMS)
async def test_the_proxy_carries_the_token_as_the_provider_wants_it(
    name: str, identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    form, echo = FORMS[name], Echo()
    async with stage(identity_provider, test_clock, echo.handle, habits=form.habits) as here:
        echo.server = here.api
        sent = {key: value for key, value in OWN.items() if key != "Authorization"}
        answer = await here.send("GET", "a", headers=sent)
        assert 200 == answer.status
        assert [form.line] == carried(here.sent[-1], here.token)
        assert [] == left(here.sent[-1], form)
        assert client_id_of(here, form) == client_id_in(here.sent[-1])
        assert here.tool.bearer is not None
        assert here.tool.bearer not in here.sent[-1].decode()
        assert here.token not in f"{answer.body!r} {answer.headers!r} {here.harness.log.getvalue()}"


async def test_a_token_that_the_provider_refuses_is_replaced_in_the_same_header(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async def once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw_answer(401 if len(here.api.requests) == 1 else 200, b"{}"))
        await writer.drain()

    form = FORMS["shopify"]
    async with stage(identity_provider, test_clock, once, habits=form.habits) as here, client_of(here) as client:
        assert 200 == (await client.get(url_of(here))).status_code
        first, second = here.api.requests
        assert [form.line] == carried(first, here.token)
        assert [] == carried(second, here.token)
        assert b"x-shopify-access-token: " in second.lower()
        assert b"authorization" not in second.lower()
