"""A claims challenge on each way: who notices it, what leads to the provider with it, and when it is forgotten."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from oauthbroker import Turn
from oauthbroker.core.claims_challenge import LONGEST_CLAIMS
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import Browser, Canaries, IdentityProvider, TestClock
from tests.kit import postgres
from tests.kit.callback_pages import assert_error_page, assert_leads_to_connected
from tests.kit.claims import CLAIMS, OTHER, challenge, challenged, claims_asked_for, encoded, refusing, reported
from tests.kit.running_broker import (
    BASE,
    Harness,
    device_app,
    endpoints_of,
    file_store,
    global_app,
    running,
    turn,
    user_app,
)
from tests.story.api import proxy_kit
from tests.story.api.clients import TOOLS, WAYS, Way, listening, reached
from tests.story.api.kit import Callers
from tests.story.binding_kit import (
    broker_login,
    code_on,
    confirming_app,
    corp_turn,
    login_app,
    login_callback,
    of_alice,
    settings_for,
)
from tests.story.client_credentials_kit import MACHINE, machine_app, machine_ready, team_turn
from tests.story.hosts_kit import hosts
from tests.unit.protocol.kit import raw_answer

MAY_SHOW = ["access token", "ticket"]


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, tools=TOOLS) as harness:
        yield harness


async def press(harness: Harness, person: Browser, account: str = "alice") -> Any:
    """From the connect page that is open through the provider to the broker's next page."""
    await person.submit({"decision": "continue"})
    assert person.page.next_url is not None, person.page.text
    return await person.follow(await harness.idp.agree(person.page.next_url, account, browser=person))


async def try_again(person: Browser) -> None:
    assert 303 == (await person.submit()).status, person.page.text
    await person.follow()


# who notices it


@pytest.mark.parametrize("body", [b"", b"text", [b"one", b"two"]])
async def test_the_proxy_notices_it_and_answers_with_the_link(
    identity_provider: IdentityProvider, test_clock: TestClock, body: Any
) -> None:
    """Also where the body was a stream, which could not be sent again."""
    left = [refusing(), raw_answer(200, b'{"a": 1}')]

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0))
        await writer.drain()

    async with proxy_kit.stage(identity_provider, test_clock, handle) as here:
        answer = await here.send("POST", "me", body=body, allow=["ticket"])
        said = answer.json()
        assert (403, "authorization_required") == (answer.status, answer.headers[proxy_kit.STATUS])
        assert ("authorization_required", "expired") == (said["status"], said["reason"])
        assert "www-authenticate" not in answer.headers
        assert (1, 0) == (len(here.sent), identity_provider.count("refresh_token"))
        person = here.harness.browser()
        await person.open(said["authorizationUrl"])
        await press(here.harness, person)
        assert (200, {"a": 1}) == ((again := await here.send("POST", "me", body=body)).status, again.json())
    assert [None, CLAIMS] == claims_asked_for(identity_provider)


@pytest.mark.parametrize(
    "said",
    [
        challenge(encoded({"id_token": {"sub": {"value": "U345678"}}})),
        challenge(encoded({**CLAIMS, "prompt": "none", "scope": "admin", "login_hint": "bob"})),
        challenge("e" * (LONGEST_CLAIMS + 4)),
        challenge("%00"),
        challenge(encoded() + "\t"),
    ],
)
async def test_other_claims_on_the_way_are_a_401_as_any_other(
    identity_provider: IdentityProvider, test_clock: TestClock, said: str
) -> None:
    """A token is refreshed for it, and the second answer is the tool's."""

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw_answer(401, b"{}", www_authenticate=said))
        await writer.drain()

    async with proxy_kit.stage(identity_provider, test_clock, handle) as here:
        answer = await here.send("GET", "me")
        assert (401, "forwarded") == (answer.status, answer.headers[proxy_kit.STATUS])
        assert (2, 1) == (len(here.sent), identity_provider.count("refresh_token"))
    assert [None] == claims_asked_for(identity_provider)


HOSTILE: dict[str, Any] = {
    "ten million characters": "e" * 10_000_000,
    "one character too many": "e" * (LONGEST_CLAIMS + 1),
    "empty": "",
    "not base64": '{"access_token":{"a":null}}',
    "a control character": "\x00" + encoded(),
    "a line's end": encoded() + "\r\n",
    "another alphabet": "\u0435" + encoded()[1:],
    "nested": encoded({"access_token": {"a": json.loads("[" * 60 + "]" * 60)}}),
    "another member": encoded({**CLAIMS, "id_token": None}),
    "a parameter": encoded({**CLAIMS, "prompt": "none"}),
    "an array": [encoded()],
    "an object": CLAIMS,
    "a number": 7,
    "true": True,
}


async def test_hostile_claims_over_http_are_refused_and_nothing_happens(
    harness: Harness, identity_provider: IdentityProvider
) -> None:
    ready = await harness.connected()
    callers = await Callers.of(harness)
    tool = await callers.tool(tools={"Tool/mail": None})
    body = {"oauthAppRef": "mail", "accessToken": ready.access_token.reveal()}
    for name, claims in HOSTILE.items():
        answer = await tool.post("/v1/tokens/rejected", {**body, "claims": claims})
        assert answer.status in {200, 400, 413}, name
        assert answer.code in {"requestInvalid", "requestTooLarge"}, name
        assert len(answer.body) < 1000, name
    asked = (await tool.post("/v1/tokens/rejected", {**body, "claims": encoded()}, allow=MAY_SHOW)).json()
    assert "authorization_required" == asked["status"]
    again = (await tool.post("/v1/tokens/rejected", {**body, "claims": None}, allow=MAY_SHOW)).json()
    assert "ready" == again["status"], "without claims it is an ordinary report"
    assert 1 == identity_provider.count("refresh_token")


@pytest.mark.parametrize("way", WAYS)
async def test_each_client_reports_it(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries, way: Way
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=(host,))
        app = user_app(identity_provider)
        async with (
            running(identity_provider, [app], clock=test_clock, tools=TOOLS, settings=settings) as harness,
            listening(harness.broker.asgi.api, listener) as url,
        ):
            _, key = await harness.broker.api_keys.create("runtime", ["runtime"])
            canaries.add(key, "API key")
            token = (await harness.connected()).access_token
            async with reached(way, harness.broker, url, key, turn()) as face:
                refused = await face.reject("mail", token, ["read"], encoded({"id_token": {}}))
                assert isinstance(refused, Failed)
                assert Code.REQUEST_INVALID is refused.code
                asked = await face.reject("mail", token, ["read"], encoded())
                assert isinstance(asked, AuthorizationRequired)
                await harness.connect(asked)
                assert isinstance(await face.reject("mail", token, ["read"], encoded()), Ready), "it was replaced"
    assert [None, CLAIMS] == claims_asked_for(identity_provider)


# what leads to the provider with it


async def test_a_pushed_request_has_it_and_the_browser_does_not(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    identity_provider.par = "required"
    pushed = replace(endpoints_of(identity_provider), pushed_authorization_url=identity_provider.url("/par"))
    app = user_app(identity_provider, endpoints=pushed)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        await harness.connected()
        person = harness.browser()
        url = await harness.to_provider(asked := await challenged(harness), person)
        assert {"client_id", "request_uri"} == set(parse_qs(urlsplit(url).query))
        assert_leads_to_connected(await person.follow(await identity_provider.agree(url, "alice", browser=person)))
        assert "" == (await harness.session(asked)).claims
        await harness.connect(await harness.ask(switch_account=True))
    assert [None, CLAIMS, None] == claims_asked_for(identity_provider, "par")


async def test_a_direct_link_has_it(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    app = user_app(identity_provider)
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        await harness.connected()
        asked = await challenged(harness)
        assert asked.authorization_url.startswith(identity_provider.url("/authorize?"))
        assert 200 == (await harness.connect(asked)).status
    assert [None, CLAIMS] == claims_asked_for(identity_provider)


async def test_the_request_after_the_brokers_login_has_it_and_the_login_does_not(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Also on the same link after another person's login."""
    with IdentityProvider(clock=test_clock) as corp:
        more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
        async with running(identity_provider, [login_app(identity_provider)], clock=test_clock, **more) as harness:
            assert 200 == (await harness.connect(await harness.ask_link(of=corp_turn()))).status
            asked, person = await challenged(harness, of=corp_turn()), harness.browser()
            await person.follow(await login_callback(harness, asked, person, "mallory"))
            await try_again(person)
            await person.submit({"decision": "continue"})
            assert person.page.next_url is not None
            page = await person.follow(await harness.logged_in(asked, person))
            while page.location is not None:
                page = await person.follow()
            assert page.next_url is not None
            page = await person.follow(await identity_provider.agree(page.next_url, "alice", browser=person))
            assert_leads_to_connected(page)
        assert not [seen for seen in corp.seen("authorize") if "claims" in seen.form]
    assert [None, CLAIMS] == claims_asked_for(identity_provider)


async def test_a_flow_without_a_browser_leaves_it_out(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The report is one of an ordinary 401: a token comes from a refresh, or from a new request of the client."""
    apps = [device_app(identity_provider), machine_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, background=False) as harness:
        asked = await harness.ask_link("tv")
        assert asked.device_code is not None
        identity_provider.device_approve(asked.device_code.user_code)
        test_clock.advance(10)
        await harness.parts.polling.once()
        assert isinstance(await reported(harness, encoded(), "tv"), Ready)
        assert 1 == identity_provider.count("refresh_token")
        first = await machine_ready(harness)
        second = await reported(harness, encoded(), MACHINE, team_turn())
        assert isinstance(second, Ready)
        assert first.access_token.reveal() != second.access_token.reveal()
    assert not [seen for seen in identity_provider.requests if "claims" in seen.form]


# how long it is kept


async def test_two_tools_at_once_get_one_link_for_one_claim_and_two_for_two(harness: Harness) -> None:
    await harness.connected()
    same = await asyncio.gather(*(challenged(harness) for _ in range(4)))
    other = await challenged(harness, OTHER)
    assert 1 == len({asked.auth_session_id for asked in same})
    assert other.auth_session_id != same[0].auth_session_id
    assert isinstance(await harness.ask(), Ready), "the others go on with the token that there is"
    for asked in (same[0], other):
        assert 200 == (await harness.connect(asked)).status
        assert "" == (await harness.session(asked)).claims
    assert [None, CLAIMS, OTHER] == claims_asked_for(harness.idp)


@pytest.mark.parametrize("first", ["with", "without"])
async def test_a_consent_with_claims_serves_a_link_without_and_not_the_other_way(harness: Harness, first: str) -> None:
    """Its agent would be told that it may go on, and its API would refuse it again."""
    ready = await harness.connected(scopes=["read"])
    tool, wanted = harness.broker.oauth(turn()), ["write"]
    links: dict[str, Any] = {
        "without": await harness.ask_link(scopes=wanted),
        "with": await tool.report_rejected("mail", ready.access_token, wanted, encoded()),
    }
    last = links["without" if first == "with" else "with"]
    assert 200 == (await harness.connect(links[first])).status
    is_left = (await harness.session(last)).open
    if is_left:
        assert 200 == (await harness.connect(last)).status
    expected = [CLAIMS] if first == "with" else [None, CLAIMS]
    assert (first == "without", [None, *expected]) == (is_left, claims_asked_for(harness.idp))


async def test_a_tool_that_varies_its_claims_gets_a_few_links(harness: Harness) -> None:
    await harness.connected()
    limit = harness.broker.bundle.settings.limits.sessions_per_conversation
    for number in range(limit):
        await challenged(harness, {"access_token": {"a": number}})
    refused = await reported(harness, encoded({"access_token": {"a": limit}}))
    assert isinstance(refused, Failed)
    assert Code.RATE_LIMITED is refused.code


def with_accounts(*names: str) -> Turn:
    said = turn()
    assert said.auth is not None
    return replace(said, auth=replace(said.auth, accounts={"OAuthApp/mail": {"allowed": list(names)}}))


async def test_of_two_accounts_the_one_that_was_challenged_signs_in_again(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
    app, of = user_app(identity_provider, owner=owner, several_accounts=True), with_accounts("work", "private")
    async with running(identity_provider, [app], clock=test_clock) as harness:
        for account, person in (("work", "alice"), ("private", "bob")):
            assert 200 == (await harness.connect(await harness.ask_link(f"mail@{account}", of=of), person)).status
        private = await harness.ask("mail@private", of=of)
        asked = await challenged(harness, app="mail@work", of=of)
        assert "work" == (await harness.session(asked)).account
        assert await harness.ask("mail@private", of=of) == private
        assert_error_page(await harness.connect(asked, "bob"), Code.SUBJECT_MISMATCH)
        assert 200 == (await harness.connect(await challenged(harness, app="mail@work", of=of))).status
        assert await harness.ask("mail@private", of=of) == private
    assert [None, None, CLAIMS, CLAIMS] == claims_asked_for(identity_provider)


async def test_it_is_kept_through_a_restart_before_the_click(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    def started() -> AbstractAsyncContextManager[Harness]:
        store = file_store(tmp_path, test_clock)
        return running(identity_provider, [user_app(identity_provider)], clock=test_clock, store=store)

    async with started() as harness:
        await harness.connected()
        asked = await challenged(harness)
    async with started() as harness:
        assert (await challenged(harness)).auth_session_id == asked.auth_session_id
        assert 200 == (await harness.connect(asked)).status
    assert [None, CLAIMS] == claims_asked_for(identity_provider)


async def test_it_is_kept_for_a_click_at_another_host(
    postgres_server: postgres.Server, tmp_path: Path, identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    postgres_server.new_database("claims")
    async with hosts(2, postgres_server.url("claims"), tmp_path, identity_provider, test_clock) as (one, two):
        await one.connected()
        asked, also = await asyncio.gather(challenged(one), challenged(two))
        assert asked.auth_session_id == also.auth_session_id
        old = await one.ask()
        assert 200 == (await two.connect(asked)).status
        for host in (one, two):
            again = await host.broker.oauth(turn()).report_rejected("mail", old.access_token, claims=encoded())
            assert isinstance(again, Ready), "the new token is there"
    assert [None, CLAIMS] == claims_asked_for(identity_provider)


@pytest.mark.parametrize("mode", ["user", "global"])
async def test_another_try_after_a_wrong_account_has_it_again(
    identity_provider: IdentityProvider, test_clock: TestClock, mode: str
) -> None:
    app = user_app(identity_provider) if mode == "user" else global_app(identity_provider, "mail")
    async with running(identity_provider, [app], clock=test_clock) as harness:
        await harness.connected()
        asked, person = await challenged(harness), harness.browser()
        assert 403 == (await harness.connect(asked, "bob", person)).status
        await try_again(person)
        assert 403 == (await press(harness, person, "bob")).status
        await try_again(person)
        assert_leads_to_connected(await press(harness, person))
        await harness.connect(await harness.ask(switch_account=True))
    assert [None, CLAIMS, CLAIMS, CLAIMS, None] == claims_asked_for(identity_provider)


@pytest.mark.parametrize("is_swept", [False, True])
async def test_another_try_for_another_code_has_it_again(
    identity_provider: IdentityProvider, test_clock: TestClock, is_swept: bool
) -> None:
    app = confirming_app(identity_provider, "channelCode")
    async with running(identity_provider, [app], clock=test_clock, settings=settings_for()) as harness:
        page = await harness.connect(await harness.ask_link(of=of_alice()))
        await harness.broker.relay_code(of_alice(), code_on(page))
        asked, person = await challenged(harness, of=of_alice()), harness.browser()
        page = await harness.connect(asked, browser=person)
        test_clock.advance(61)
        if is_swept:
            await harness.parts.sweep.once()
        await person.open(page.url)
        await try_again(person)
        await press(harness, person)
        assert "completed" == (await harness.broker.relay_code(of_alice(), code_on(await person.follow()))).status
    assert [None, CLAIMS, CLAIMS] == claims_asked_for(identity_provider)


@pytest.mark.parametrize("end", ["declined", "denied", "cancelled", "expired"])
async def test_an_end_that_cannot_be_tried_again_forgets_it(harness: Harness, end: str) -> None:
    await harness.connected()
    asked, person = await challenged(harness), harness.browser()
    if end == "declined":
        await person.open(asked.authorization_url)
        await person.submit({"decision": "cancel"})
    elif end == "denied":
        harness.idp.script.authorize.error()
        await harness.connect(asked, browser=person)
    elif end == "cancelled":
        assert await harness.broker.cancel(asked.auth_session_id)
    else:
        harness.clock.advance(harness.broker.bundle.settings.limits.session_seconds + 1)
        await harness.parts.sweep.once()
    session = await harness.session(asked)
    assert (False, "") == (session.open, session.claims)
