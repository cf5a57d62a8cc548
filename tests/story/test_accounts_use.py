"""Two accounts, two tenants and two sites of one user, in each way in which a tool uses them: nothing crosses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from oauthbroker import BrokerError, InjectionError, RequestRefusedError
from oauthbroker.client import OAuth, Options, SyncOAuth
from oauthbroker.client.forwarding import ApiAnswer
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.token_results import Ready
from oauthbroker.model.turn_token import narrow
from oauthbroker.testing import Authority, IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BOB, turn
from tests.story.accounts_kit import Connection, Stage, cold, stage_of
from tests.story.api.kit import Caller
from tests.story.tenants_kit import Tenants


@pytest.fixture
async def stage(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    async with stage_of(identity_provider, test_clock, Authority(tmp_path), monkeypatch) as made:
        yield made


async def turn_token(stage: Stage, *, tool: bool = False) -> Secret:
    begun = await stage.harness.broker.turns.begin(stage.turn(), tools={"Tool/use": None})
    return begun.tool_tokens["Tool/use"] if tool else begun.token


# --- ways to a token


async def embedded(stage: Stage, of: Connection) -> Any:
    return await stage.harness.broker.oauth(stage.turn()).get_access_token(of.app, ["read"], account=of.account)


async def embedded_tool(stage: Stage, of: Connection) -> Any:
    return await stage.harness.broker.oauth(stage.turn(), "Tool/use").get_access_token(
        {"kind": "OAuthApp", "name": of.ref}
    )


async def embedded_sync(stage: Stage, of: Connection) -> Any:
    sync = stage.harness.broker.oauth(stage.turn()).sync
    return await asyncio.to_thread(sync.get_access_token, f"OAuthApp/{of.app}", ["read"], account=of.account)


async def by_default(stage: Stage, of: Connection) -> Any:
    return await stage.harness.broker.oauth(stage.turn({of.app: of.account}), "Tool/use").get_access_token(of.app)


async def client(stage: Stage, of: Connection) -> Any:
    async with OAuth(stage.url, await turn_token(stage, tool=True)) as oauth:
        return await oauth.get_access_token(of.app, account=of.account)


async def narrowed_client(stage: Stage, of: Connection) -> Any:
    async with OAuth(stage.url, await turn_token(stage)) as oauth:
        return await oauth.narrow(apps={of.app: ["read"]}).get_access_token(of.ref)


async def sync_client(stage: Stage, of: Connection) -> Any:
    token = await turn_token(stage, tool=True)

    def ask() -> Any:
        with SyncOAuth(stage.url, token) as oauth:
            return oauth.get_access_token(of.ref)

    return await asyncio.to_thread(ask)


async def reported(stage: Stage, of: Connection) -> Any:
    """The API refused the token of this connection: the newer one is its own."""
    oauth = stage.harness.broker.oauth(stage.turn())
    return await oauth.report_rejected(of.ref, await stage.token(of), ["read"])


async def reported_by_client(stage: Stage, of: Connection) -> Any:
    async with OAuth(stage.url, await turn_token(stage, tool=True)) as oauth:
        return await oauth.report_rejected(of.ref, await stage.token(of))


TOKENS = [
    embedded, embedded_tool, embedded_sync, by_default, client, narrowed_client, sync_client, reported, reported_by_client,
]  # fmt: skip


@pytest.mark.parametrize("way", TOKENS)
async def test_a_token_is_that_of_the_connection_that_was_named(
    stage: Stage, way: Callable[[Stage, Connection], Awaitable[Any]]
) -> None:
    for _ in range(2):  # by the general way, and by the warm one
        for each in stage.all:
            result = await way(stage, each)
            assert isinstance(result, Ready), (each.ref, result)
            owners = [other.ref for other in stage.pairs[each.app] if await other.owns(result.access_token)]
            assert [each.ref] == owners


# --- ways to an API


async def injected(stage: Stage, of: Connection, url: str) -> str:
    async with stage.harness.broker.oauth(stage.turn(), "Tool/use").client(of.ref) as http:
        return (await http.get(url)).text


async def injected_by_httpx(stage: Stage, of: Connection, url: str) -> str:
    async with stage.harness.broker.oauth(stage.turn(), "Tool/use").client(f"OAuthApp/{of.ref}", library=httpx) as http:
        return (await http.get(url)).text


async def injected_sync(stage: Stage, of: Connection, url: str) -> str:
    def send() -> str:
        with stage.harness.broker.oauth(stage.turn(), "Tool/use").sync.client(of.ref) as http:
            return str(http.get(url).text)

    return await asyncio.to_thread(send)


async def injected_by_default(stage: Stage, of: Connection, url: str) -> str:
    async with stage.harness.broker.oauth(stage.turn({of.app: of.account}), "Tool/use").client(of.app) as http:
        return (await http.get(url)).text


async def _proxied(stage: Stage, app: str, url: str, **headers: str) -> str:
    caller = Caller(stage.harness, (await turn_token(stage, tool=True)).reveal())
    answer = await caller.get(f"/v1/proxy/{app}/{url.removeprefix('https://')}", headers=headers)
    return answer.text if answer.status == 200 else str(answer.code)


async def proxy_path(stage: Stage, of: Connection, url: str) -> str:
    return await _proxied(stage, of.ref, url)


async def proxy_header(stage: Stage, of: Connection, url: str) -> str:
    return await _proxied(stage, of.app, url, **{"OAuthBroker-Account": of.account})


async def fetched(stage: Stage, of: Connection, url: str) -> str:
    async with OAuth(stage.url, await turn_token(stage, tool=True), Options(timeout=60)) as oauth:
        return _text(await oauth.fetch(of.ref, "GET", url))


async def fetched_sync(stage: Stage, of: Connection, url: str) -> str:
    token = await turn_token(stage, tool=True)

    def send() -> Any:
        with SyncOAuth(stage.url, token, Options(timeout=60)) as oauth:
            return oauth.fetch(f"OAuthApp/{of.ref}", "GET", url)

    return _text(await asyncio.to_thread(send))


def _text(answer: Any) -> str:
    return answer.body.decode() if isinstance(answer, ApiAnswer) else str(answer.code.value)


APIS = [
    injected, injected_by_httpx, injected_sync, injected_by_default, proxy_path, proxy_header, fetched, fetched_sync,
]  # fmt: skip
Sends = Callable[[Stage, Connection, str], Awaitable[str]]


async def said(way: Sends, stage: Stage, of: Connection, url: str) -> str:
    try:
        return await way(stage, of, url)
    except RequestRefusedError as refused:
        return refused.result.code.value


@pytest.mark.parametrize("way", APIS)
async def test_a_request_carries_the_token_of_its_connection_to_its_own_place(stage: Stage, way: Sends) -> None:
    for each in stage.all:
        assert "data" == await said(way, stage, each, each.place), each.ref
        [(host, path, token)] = stage.sent()
        assert (each.host, each.path) == (host, path)
        assert await each.owns(Secret(token))


@pytest.mark.parametrize("way", APIS)
async def test_no_request_reaches_the_host_of_the_other_tenant(stage: Stage, way: Sends) -> None:
    for own, other in (stage.pairs["shop"], stage.pairs["shop"][::-1]):
        assert "apiHostForbidden" == await said(way, stage, own, other.place)
    assert [] == stage.sent()


@pytest.mark.parametrize("way", APIS)
async def test_a_path_that_names_the_other_site_stays_below_the_own_one(stage: Stage, way: Sends) -> None:
    for own, other in (stage.pairs["wiki"], stage.pairs["wiki"][::-1]):
        site = own.path.removesuffix("v1")
        assert "data" == await said(way, stage, own, own.place.replace("/v1", other.path))
        [(_, path, token)] = stage.sent()
        assert path == f"{site.rstrip('/')}{other.path}"
        assert await own.owns(Secret(token))


@pytest.mark.parametrize("way", APIS)
async def test_without_a_name_or_with_an_unlisted_one_nothing_is_sent(stage: Stage, way: Sends) -> None:
    if way is not injected_by_default:
        for each in stage.all:
            stranger = Connection(each.app, "other", each.place, each.path, each.provider, each.person)
            assert "accountForbidden" == await said(way, stage, stranger, each.place)
    async with stage.harness.broker.oauth(stage.turn(), "Tool/use").client("mail") as http:
        with pytest.raises(InjectionError):
            await http.get(stage.all[0].place)
    assert [] == stage.sent()


# --- states


async def test_a_process_that_only_has_the_store_sends_nothing_to_the_other_place(stage: Stage) -> None:
    async with cold(stage) as other:
        here = Stage(other, stage.api, stage.url, stage.pairs, stage.apps)
        for own, foreign in (stage.pairs["shop"], stage.pairs["shop"][::-1]):
            assert "apiHostForbidden" == await said(injected, here, own, foreign.place), "its first call"
        assert [] == stage.sent()
        for each in stage.all:
            assert "data" == await said(injected, here, each, each.place)
            [(host, path, token)] = stage.sent()
            assert (each.host, each.path) == (host, path)
            assert await each.owns(Secret(token))


async def test_a_tenant_that_the_user_typed_is_the_only_one_a_new_process_sends_to(stage: Stage) -> None:
    """The turn names no tenant: the grant alone says which host is the connection's."""
    foreign, typed = stage.pairs["shop"]
    tenants = Tenants(stage.harness, {each.account: each.provider for each in (foreign, typed)})
    await tenants.connect("", typed=typed.account, user=BOB)
    async with cold(stage) as other, other.broker.oauth(turn(user=BOB), "Tool/use").client("shop") as http:
        with pytest.raises(RequestRefusedError) as refused:
            await http.get(foreign.place)
        assert Code.API_HOST_FORBIDDEN is refused.value.result.code
        assert [] == stage.sent()
        assert "data" == (await http.get(typed.place)).text
    [(host, _, token)] = stage.sent()
    assert typed.host == host
    assert typed.provider.is_alive(token)


async def test_all_connections_are_refreshed_at_once_each_one_time(stage: Stage) -> None:
    before = {each.ref: await stage.token(each) for each in stage.all}
    stage.harness.clock.advance(3 * 3600)
    asked = [each for each in stage.all for _ in range(5)]
    results = await asyncio.gather(*(embedded(stage, each) for each in asked))
    for each, result in zip(asked, results, strict=True):
        assert isinstance(result, Ready), (each.ref, result)
        assert result.access_token != before[each.ref]
        assert await each.owns(result.access_token)
    assert 6 == len({result.access_token.reveal() for result in results})
    one, two = (each.provider for each in stage.pairs["shop"])
    assert (5, 1) == (one.count("refresh_token"), two.count("refresh_token"))


async def test_a_provider_that_is_down_leaves_each_connection_its_own_token(stage: Stage) -> None:
    before = {each.ref: await stage.token(each) for each in stage.all}
    stage.harness.clock.advance((timedelta(hours=1) - timedelta(seconds=200)).total_seconds())
    for provider in {each.provider for each in stage.all}:
        provider.script.refresh.answer(500, times=None)
    for each in stage.all:
        result = await embedded(stage, each)
        assert isinstance(result, Ready), (each.ref, result)
        assert (True, before[each.ref]) == (result.degraded, result.access_token), each.ref


@pytest.mark.parametrize("end", ["revoke", "forbid"])
async def test_an_ended_connection_ends_alone(stage: Stage, end: str) -> None:
    """Its user revoked it, or its provider ended it: the warm answers of the others go on."""
    for app, (gone, kept) in stage.pairs.items():
        for each in (gone, kept):
            assert isinstance(await embedded(stage, each), Ready)
        if end == "revoke":
            assert await stage.harness.broker.revoke(app, subject=ALICE, account=gone.account)
        else:
            gone.provider.revoke_all(f"client-{app}", gone.person)
            await reported(stage, gone)
        assert "authorization_required" == (await embedded(stage, gone)).status
        result = await embedded(stage, kept)
        assert isinstance(result, Ready), (kept.ref, result)
        assert await kept.owns(result.access_token)


async def _begin(stage: Stage, ref: str) -> Any:
    return await stage.harness.broker.turns.begin(stage.turn(), tools={"Tool/use": [ToolAuth(ref)]})


async def _narrow(stage: Stage, ref: str) -> Any:
    return narrow(await turn_token(stage), apps={ref: None})


APP_ALONE: dict[str, Callable[[Stage, str], Awaitable[Any]]] = {
    "a tool of a turn": _begin,
    "a narrowing": _narrow,
    "a revocation": lambda stage, ref: stage.harness.broker.revoke(ref, subject=ALICE),
    "a client to forget": lambda stage, ref: stage.harness.broker.forget_client(ref),
    "apps of a code": lambda stage, ref: stage.harness.broker.relay_code(stage.turn(), "code", apps=[ref]),
}


@pytest.mark.parametrize("does", APP_ALONE.values(), ids=APP_ALONE)
async def test_an_account_beside_an_app_is_refused_where_only_an_app_can_be_named(
    stage: Stage, does: Callable[[Stage, str], Awaitable[Any]]
) -> None:
    """A revocation that finds no grant, or a token for nothing, would hide the mistake."""
    for ref in ("mail@work", "OAuthApp/mail@work", "mail@"):
        with pytest.raises(BrokerError) as refused:
            await does(stage, ref)
        assert Code.REQUEST_INVALID is refused.value.code
