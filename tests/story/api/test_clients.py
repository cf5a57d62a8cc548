"""One story, run by an embedded tool, by the async client and by the sync client: the results are equal."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.client import (
    AuthorizationRequired,
    BrokerError,
    Code,
    Delivery,
    Failed,
    OAuth,
    Options,
    Ready,
    Runtime,
    SessionOutcome,
    SyncOAuth,
    SyncRuntime,
)
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.settings import Settings
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit import planted_records
from tests.kit.queues import until_queued, until_relayed
from tests.kit.running_broker import ALICE, BASE, Harness, global_app, running, turn, user_app
from tests.story.api.clients import TOOLS, WAYS, Face, Way, listening, reached


class Stage:
    """A harness whose API is served over TCP, and a key for it."""

    def __init__(self, harness: Harness, url: str, key: Secret) -> None:
        self.harness = harness
        self.url = url
        self.key = key


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries) -> AsyncIterator[Stage]:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=(host,))
        async with (
            running(identity_provider, apps, clock=test_clock, tools=TOOLS, settings=settings) as harness,
            listening(harness.broker.asgi.api, listener) as url,
        ):
            _, key = await harness.broker.api_keys.create("runtime", ["runtime", "operator"])
            canaries.add(key, "API key")
            yield Stage(harness, url, key)


@pytest.fixture(params=WAYS)
async def face(request: pytest.FixtureRequest, stage: Stage) -> AsyncIterator[Face]:
    way: Way = request.param
    async with reached(way, stage.harness.broker, stage.url, stage.key, turn()) as face:
        yield face


@pytest.mark.rule("12.5.1-5", "12.5.2", "12.5.6-7", "12.5.8")
async def test_the_whole_story_from_a_link_to_a_token_that_was_refused(stage: Stage, face: Face) -> None:
    assert await face.pending() is None
    asked = await face.ask("OAuthApp/mail", ["read"])
    assert isinstance(asked, AuthorizationRequired)
    assert ("noGrant", None) == (asked.reason, asked.device_code)
    block = await face.pending()
    assert block is not None
    assert "auth.pending" == block["type"]
    [item] = block["items"]
    assert (asked.auth_session_id, asked.authorization_url) == (item["authSessionId"], item["authorizationUrl"])
    assert {"kind": "OAuthApp", "name": "mail"} == item["oauthAppRef"]
    assert SessionOutcome("pending") == await face.wait(asked.auth_session_id, 0)
    page = await stage.harness.connect(asked)
    assert 200 == page.status
    assert SessionOutcome("completed") == await face.wait(asked.auth_session_id, 5)
    await until_queued(stage.harness.parts.queues)
    delivery = await face.lease()
    assert (f"evt-{asked.auth_session_id}-auth.granted", "auth.granted", 1) == (
        delivery.id,
        delivery.type,
        delivery.attempt,
    )
    event = delivery.to_json()
    assert (["read"], ALICE) == (event["payload"]["scopesGranted"], event["payload"]["subject"])
    assert turn().resume_target == delivery.event.target
    assert await face.ack(delivery)
    assert await face.ack(delivery), "who did not hear the answer hears it again"
    assert not await face.nack(delivery)
    assert await face.lease() is None
    assert await face.pending() is None
    ready = await face.ask("mail", ["read"])
    assert isinstance(ready, Ready)
    assert stage.harness.idp.is_alive(ready.access_token)
    assert (("read",), "bearer", False) == (ready.scopes, ready.token_type.lower(), ready.degraded)
    assert ready.expires_at is not None
    newer = await face.reject("mail", ready.access_token, ["read"])
    assert isinstance(newer, Ready)
    assert ready.access_token != newer.access_token
    printed = await face.ask_as_specified({"oauthAppRef": {"kind": "OAuthApp", "name": "mail"}, "scopes": ["read"]})
    assert "ready" == printed["status"]
    assert {"status", "accessToken", "tokenType", "expiresAt", "scopes"} == printed.keys()


REFUSED: dict[str, tuple[dict[str, Any], Code]] = {
    "no such app": ({"app": "nothing", "tool": None}, Code.OAUTH_APP_NOT_FOUND),
    "not this tool's app": ({"app": "files"}, Code.APP_FORBIDDEN),
    "beyond the tool's scopes": ({"app": "mail", "scopes": ["admin"]}, Code.SCOPE_NOT_ALLOWED),
    "beyond the app's scopes": ({"app": "mail", "scopes": ["root"], "tool": None}, Code.SCOPE_NOT_ALLOWED),
    "not the name of an app": ({"app": "Tool/mail"}, Code.REQUEST_INVALID),
    "scopes that are a text": ({"app": "mail", "scopes": "read"}, Code.REQUEST_INVALID),
}


@pytest.mark.parametrize("request_, code", REFUSED.values(), ids=REFUSED)
async def test_a_refusal_has_the_same_code_in_every_client(face: Face, request_: dict[str, Any], code: Code) -> None:
    failed = await face.ask(**request_)
    assert isinstance(failed, Failed), failed
    assert (code, False) == (failed.code, failed.retryable)
    assert failed.message


WORDS: dict[str, tuple[dict[str, Any], str]] = {
    "beyond the tool's scopes": (
        {"app": "mail", "scopes": ["admin"]},
        "The scope admin is not allowed here. Allowed are: read",
    ),
    "beyond the app's scopes": (
        {"app": "mail", "scopes": ["root"], "tool": None},
        "The scope root is not allowed here. Allowed are: ",
    ),
    "scopes that are a text": ({"app": "mail", "scopes": "read"}, "The scopes of a call are a list of texts"),
}


@pytest.mark.parametrize("request_, words", WORDS.values(), ids=WORDS)
async def test_every_client_names_the_scope_that_is_too_much_and_those_that_are_allowed(
    face: Face, request_: dict[str, Any], words: str
) -> None:
    failed = await face.ask(**request_)
    assert isinstance(failed, Failed), failed
    assert failed.message.startswith(words), failed.message


@pytest.mark.case("81")
async def test_a_request_of_another_form_is_refused_alike(face: Face) -> None:
    for request in ({}, {"oauthAppRef": "OAuthApp/mail", "subject": ALICE}, {"oauthAppRef": 1}):
        assert "requestInvalid" == (await face.ask_as_specified(request))["error"]["code"]


async def test_taking_a_request_back_ends_it_everywhere(face: Face) -> None:
    asked = await face.ask("mail")
    assert isinstance(asked, AuthorizationRequired)
    assert await face.cancel(asked.auth_session_id)
    assert not await face.cancel(asked.auth_session_id)
    assert (await face.wait(asked.auth_session_id, 1)).status in {"expired", "failed"}


async def test_an_event_that_is_given_back_comes_again(stage: Stage, face: Face) -> None:
    asked = await face.ask("mail")
    assert isinstance(asked, AuthorizationRequired)
    await stage.harness.connect(asked)
    assert (await face.wait(asked.auth_session_id, 5)).status == "completed"
    await until_queued(stage.harness.parts.queues)
    first = await face.lease()
    assert await face.nack(first)
    stage.harness.clock.advance(60)
    second = await face.lease()
    assert (first.id, 2) == (second.id, second.attempt)
    assert await face.ack(second)


@pytest.mark.case("79")
async def test_a_token_of_a_turn_that_is_over_is_told_so_and_nothing_more(stage: Stage) -> None:
    async with Runtime(stage.url, stage.key) as runtime:
        async with runtime.turn(turn(), tools=["Tool/mail"]) as begun:
            oauth = begun.oauth("Tool/mail")
            assert isinstance(await oauth.get_access_token("mail"), AuthorizationRequired)
        failed = await oauth.get_access_token("mail")
        assert isinstance(failed, Failed)
        assert (Code.TURN_ENDED, False) == (failed.code, failed.retryable)
        assert await oauth.pending() is None
        with pytest.raises(BrokerError, match="turnEnded"):
            await oauth.apps()


@pytest.mark.rule("12.5.6-7")
async def test_the_reference_of_a_leased_event_fits_every_call_of_the_clients(stage: Stage) -> None:
    await stage.harness.connected("mail")
    async with Runtime(stage.url, stage.key) as runtime:
        delivery = await runtime.lease("planner", 0)
        assert delivery is not None
        ref = delivery.to_json()["payload"]["oauthAppRef"]
        assert {"kind": "OAuthApp", "name": "mail"} == ref
        assert ["mail"] == [grant.app async for grant in runtime.grants(app=ref)]
        async with runtime.turn(turn(), tools={"Tool/mail": [ToolAuth(ref)]}) as begun:
            oauth = begun.oauth("Tool/mail")
            assert isinstance(await oauth.get_access_token(ref), Ready)
            assert "ready" == (await oauth.getAccessToken({"oauthAppRef": ref}))["status"]
            assert isinstance(await oauth.report_rejected(ref, "another token"), Ready)
            reader = oauth.narrow(apps={f"{ref['kind']}/{ref['name']}": ["read"]})
            assert isinstance(await reader.get_access_token(ref, ["read"]), Ready)


async def test_a_sub_tool_gets_fewer_scopes_without_a_consent(stage: Stage) -> None:
    async with Runtime(stage.url, stage.key) as runtime, runtime.turn(turn(), tools=TOOLS) as begun:
        tool = begun.oauth("Tool/mail")
        reader = tool.narrow(apps={"mail": ["read"]}, expires_at=stage.harness.clock.now() + timedelta(seconds=30))
        assert isinstance(await reader.get_access_token("mail", ["read"]), AuthorizationRequired)
        refused = await reader.get_access_token("mail", ["write"])
        assert isinstance(refused, Failed)
        assert Code.SCOPE_NOT_ALLOWED is refused.code
        other = await tool.narrow(apps={"files": None}).get_access_token("files")
        assert isinstance(other, Failed)
        assert Code.APP_FORBIDDEN is other.code
        assert [["read"]] == [list(app.scopes) for app in await reader.apps()]
        stage.harness.clock.advance(31)
        late = await reader.get_access_token("mail", ["read"])
        assert isinstance(late, Failed)
        assert Code.TURN_ENDED is late.code
        assert isinstance(await tool.get_access_token("mail", ["write"]), AuthorizationRequired)


async def test_links_that_leave_the_transcript_are_for_the_runtime_alone(stage: Stage) -> None:
    async with Runtime(stage.url, stage.key) as runtime, runtime.turn(turn(), tools=TOOLS, private_links=True) as begun:
        asked = await begun.oauth().get_access_token("mail")
        assert isinstance(asked, AuthorizationRequired)
        block = await begun.pending()
        assert block is not None
        assert "authorizationUrl" not in block["items"][0]
        [link] = await begun.links()
        assert asked.authorization_url != link["authorizationUrl"]
        assert (asked.auth_session_id, ALICE) == (link["authSessionId"], link["subject"])
        assert (await stage.harness.connect(replace(asked, authorization_url=link["authorizationUrl"]))).status == 200


async def test_what_operators_do_is_the_same_over_the_api(stage: Stage) -> None:
    await stage.harness.connected()
    await until_relayed(stage.harness.store)
    async with Runtime(stage.url, stage.key) as runtime:
        assert {"mail", "files", "team"} == {app.name for app in await runtime.apps()}
        [grant] = [grant async for grant in runtime.grants(app="mail")]
        [same] = [grant async for grant in stage.harness.broker.grants.list(app="mail")]
        assert same == grant
        assert "done" == await runtime.revoke(grant.grantId)
        assert await runtime.revoke(grant.grantId) is None
        assert [] == [grant async for grant in runtime.grants(state="live")]
        record = await runtime.grant_record(grant.grantId)
        assert record is not None
        assert (True, {}) == (record["spec"]["revoked"], record["spec"]["token"])
        assert await runtime.grant_record(f"sha256:{'0' * 64}") is None
        [session] = [session async for session in runtime.sessions(app="mail", status="completed")]
        assert session == await runtime.session_record(session["metadata"]["name"])
        assert await runtime.session_record(f"as-{'A' * 22}") is None
        url, until = await runtime.connections_link({"user": ALICE})
        assert url.startswith(BASE)
        assert until > stage.harness.clock.now()


async def test_both_clients_import_grants(stage: Stage, canaries: Canaries) -> None:
    token = canaries.mint("access token")
    line: dict[str, Any] = {"app": "mail", "subject": ALICE, "accessToken": token, "expiresAt": "2099-01-01T00:00:00Z"}
    lines = [line, {"app": "mail"}]
    async with Runtime(stage.url, stage.key) as runtime:
        found = await runtime.import_grants(lines, key="key-1")
        assert (1, 1, [2]) == (found["imported"], found["refused"], [each["line"] for each in found["problems"]])
        with pytest.raises(BrokerError) as refused:
            await runtime.import_grants([line], key="key-1")
        assert Code.IDEMPOTENCY_CONFLICT is refused.value.code
        [grant] = [grant async for grant in runtime.grants(app="mail")]
        assert grant.unverified
    blocking = await asyncio.to_thread(SyncRuntime, stage.url, stage.key)
    assert found == await asyncio.to_thread(blocking.import_grants, iter(lines), key="key-1")
    await asyncio.to_thread(blocking.close)


async def test_an_operators_client_settles_dead_letters(stage: Stage) -> None:
    first, second = [await planted_records.dead_letter(stage.harness, number) for number in (1, 2)]
    async with Runtime(stage.url, stage.key) as runtime:
        [queue] = await runtime.queues()
        assert ("planner", 0, 2) == (queue["agentName"], queue["waiting"], queue["dead"])
        assert [second.id, first.id] == [letter["eventId"] for letter in await runtime.dead_letters("planner")]
        assert await runtime.retry_dead_letter("planner", first.id)
        assert await runtime.drop_dead_letter("planner", second.id)
        assert not await runtime.retry_dead_letter("planner", first.id)
        assert not await runtime.drop_dead_letter("planner", second.id)
        delivery = await runtime.lease("planner", wait=1)
        assert delivery is not None
        assert first.id == delivery.id
    blocking = await asyncio.to_thread(SyncRuntime, stage.url, stage.key)
    assert [] == await asyncio.to_thread(blocking.dead_letters, "planner")
    assert 1 == (await asyncio.to_thread(blocking.queues))[0]["leased"]
    assert not await asyncio.to_thread(blocking.retry_dead_letter, "planner", first.id)
    assert not await asyncio.to_thread(blocking.drop_dead_letter, "planner", first.id)
    assert [] == await asyncio.to_thread(blocking.sessions)
    assert await asyncio.to_thread(blocking.session_record, f"as-{'A' * 22}") is None
    assert await asyncio.to_thread(blocking.grant_record, f"sha256:{'0' * 64}") is None
    await asyncio.to_thread(blocking.close)


@pytest.mark.case("79")
async def test_a_key_is_no_turn_and_a_turn_no_key(stage: Stage) -> None:
    async with OAuth(stage.url, stage.key) as oauth:
        failed = await oauth.get_access_token("mail")
        assert isinstance(failed, Failed)
        assert Code.NOT_ALLOWED is failed.code
    async with (
        Runtime(stage.url, stage.key) as runtime,
        runtime.turn(turn()) as begun,
        Runtime(stage.url, begun.token) as pretender,
    ):
        with pytest.raises(BrokerError, match="notAllowed"):
            await pretender.begin(turn())


async def test_events_are_iterated_until_the_caller_stops(stage: Stage) -> None:
    async with Runtime(stage.url, stage.key) as runtime:

        async def first() -> Delivery:
            async for delivery in runtime.events("planner", wait=1):
                return delivery
            raise AssertionError("events have no end")

        waiting = asyncio.create_task(first())
        await stage.harness.connected()
        delivery = await asyncio.wait_for(waiting, 60)
        assert "auth.granted" == delivery.type
        assert await delivery.ack()


async def test_a_server_that_restarts_between_two_calls_is_no_trouble(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Same port, same store, another server; the sync client, as a blocking tool has it."""
    apps = [user_app(identity_provider)]
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=(f"127.0.0.1:{address[1]}",))
    async with running(identity_provider, apps, clock=test_clock, settings=settings) as harness:
        begun = await harness.broker.turns.begin(turn())
        oauth: SyncOAuth
        async with listening(harness.broker.asgi.api, listener) as url:
            oauth = SyncOAuth(url, begun.token, Options(timeout=60))
            assert isinstance(await asyncio.to_thread(oauth.get_access_token, "mail"), AuthorizationRequired)
        gone = asyncio.create_task(asyncio.to_thread(oauth.get_access_token, "mail"))
        await asyncio.sleep(0.05)
        async with listening(harness.broker.asgi.api, socket.create_server(address)):
            assert isinstance(await gone, AuthorizationRequired)
        await asyncio.to_thread(oauth.close)
