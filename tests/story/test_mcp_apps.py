"""MCP servers as apps: the issuer and the client are learnt from the server, once for all processes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import generate_key

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.diagnostics.probing import probing
from oauthbroker.model.apps import Client, Owner
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock, connect_through, leave
from oauthbroker.testing.provider.types import Client as Registration
from tests.kit.default_store import default_store
from tests.kit.running_broker import (
    ALICE,
    BOB,
    Harness,
    file_store,
    public,
    register,
    running,
    to_the_end,
    turn,
    user_app,
)
from tests.story.binding_kit import CORP_ALICE, RUNTIME, broker_login, code_on, handle_on, settings_for
from tests.story.mcp_apps_kit import NESTED, ROOT, McpSite, mcp_app, mcp_site
from tests.unit.protocol.kit import raw_answer


@pytest.fixture
async def site(identity_provider: IdentityProvider) -> AsyncIterator[McpSite]:
    identity_provider.takes_clients = True
    async with mcp_site(identity_provider) as made:
        yield made


def world(site: McpSite, clock: TestClock, **more: Any) -> Any:
    return running(site.idp, [mcp_app(site)], clock=clock, background=False, **more)


async def test_a_client_is_registered_and_each_request_names_the_resource(site: McpSite, test_clock: TestClock) -> None:
    async with world(site, test_clock) as harness:
        await harness.connected()
        test_clock.advance(3600)
        assert isinstance(await harness.ask(), Ready)
        (asked,) = site.idp.seen("register")
        assert "native" == asked.form["application_type"]
        for request in (*site.idp.seen("authorize")[:1], *site.idp.seen("token")):
            assert site.url == request.form["resource"]
            assert "dynamic-1" == request.client_id
        assert ["authorization_code", "refresh_token"] == [each.grant_type for each in site.idp.seen("token")]
        assert [NESTED] == site.paths


async def test_a_broker_that_starts_again_refreshes_with_the_same_client_and_asks_the_server_nothing(
    site: McpSite, test_clock: TestClock, tmp_path: Path
) -> None:
    async with world(site, test_clock, store=file_store(tmp_path, test_clock)) as harness:
        await harness.connected()
    site.documents.clear()
    test_clock.advance(7200)
    async with world(site, test_clock, store=file_store(tmp_path, test_clock)) as harness:
        assert isinstance(await harness.ask(), Ready)
    assert 1 == site.idp.count("register")
    assert 1 == len(site.paths)
    assert "dynamic-1" == site.idp.seen("token")[-1].client_id


@pytest.mark.case("124")
async def test_processes_at_once_register_one_client(site: McpSite, test_clock: TestClock) -> None:
    store = default_store(test_clock)
    async with world(site, test_clock, store=store) as one, world(site, test_clock, store=store) as other:
        answers = await asyncio.gather(*(each.ask() for each in [one, other] * 5))
    assert all(isinstance(each, AuthorizationRequired) for each in answers)
    assert 1 == len({each.auth_session_id for each in answers})
    assert 1 == site.idp.count("register")


async def test_a_link_of_one_process_is_served_and_finished_by_another(site: McpSite, test_clock: TestClock) -> None:
    store = default_store(test_clock)
    async with world(site, test_clock, store=store) as one, world(site, test_clock, store=store) as other:
        result = await one.ask_link()
        await connect_through(other.browser(), site.idp, result.authorization_url)
        assert isinstance(await other.ask(), Ready)
        assert isinstance(await one.ask(), Ready)
    assert 1 == site.idp.count("register")


async def test_a_process_that_asked_no_server_ends_tokens_and_links_with_the_client_of_another(
    site: McpSite, test_clock: TestClock
) -> None:
    store = default_store(test_clock)
    async with world(site, test_clock, store=store) as one, world(site, test_clock, store=store) as other:
        waiting = await one.ask_link(of=turn(BOB))
        assert frozenset({"mail"}) >= await other.broker.reload(other.broker.bundle)
        assert 200 == (await one.connect(waiting, "bob")).status
        await one.connected()
        async with world(site, test_clock, store=store) as third:
            assert await third.broker.revoke("mail", subject=ALICE)
            await third.running.parts.bulk_revocation.run_pass()
            assert site.idp.revocations


async def test_the_rounds_of_the_background_learn_of_other_processes(site: McpSite, test_clock: TestClock) -> None:
    store = default_store(test_clock)
    async with world(site, test_clock, store=store) as one, world(site, test_clock, store=store) as other:
        await one.connected()
        await other.running._tend()
        assert other.running.parts.apps == one.running.parts.apps


@pytest.mark.parametrize("binding", ["runtimeConfirm", "channelCode"])
async def test_a_code_that_one_process_keeps_is_redeemed_by_another(
    binding: Any, site: McpSite, test_clock: TestClock
) -> None:
    store = default_store(test_clock)
    apps, settings = [mcp_app(site, owner=Owner(binding=binding, confirm_url=RUNTIME))], settings_for()

    def process() -> Any:
        return running(site.idp, apps, clock=test_clock, background=False, store=store, settings=settings)

    async with process() as one, process() as other:
        result = await one.ask_link()
        browser = one.browser()
        await browser.follow(await one.way_back(result, browser))
        while browser.page.location is not None:
            await browser.follow()
        if binding == "runtimeConfirm":
            outcome = await other.broker.confirm(handle_on(browser.page), ALICE)
        else:
            outcome = await other.broker.relay_code(turn(), code_on(browser.page))
        assert "completed" == outcome.status


@pytest.mark.parametrize("way", ["the provider", "the login before it"])
async def test_a_browser_may_come_back_to_a_process_that_has_not_seen_it(
    way: str, site: McpSite, test_clock: TestClock
) -> None:
    store = default_store(test_clock)
    async with IdentityProvider(clock=test_clock) as corp:
        first = way == "the login before it"
        apps = [mcp_app(site, owner=Owner(binding="brokerLogin"))] if first else [mcp_app(site)]
        people: dict[str, Any] = {"login": broker_login(corp), "corp": corp} if first else {}

        def process() -> Any:
            return running(site.idp, apps, clock=test_clock, background=False, store=store, **people)

        async with process() as one, process() as other:
            user = turn(CORP_ALICE) if first else turn()
            result, browser = await one.ask_link(of=user), one.browser()
            if first:
                page = await leave(browser, result.authorization_url)
                assert 200 == page.status
                back = await one.logged_in(result, browser, "alice")
            else:
                back = await one.way_back(result, browser)
            browser.serve(one.origin, other.broker.asgi.app)
            page = await to_the_end(browser, back)
            if first:
                assert page.next_url is not None
                page = await to_the_end(browser, await site.idp.agree(page.next_url, "alice", browser=browser))
            assert 200 == page.status, page.text
            assert isinstance(await one.ask(of=user), Ready)


async def test_a_client_of_the_operator_is_used_at_its_issuer_alone(site: McpSite, test_clock: TestClock) -> None:
    known = register(site.idp, "mail")
    client = Client(known.client_id, known.client_secret)

    def app(issuer: str) -> Any:
        return mcp_app(site, client=client, mcp=McpServer(site.url, issuer, has_client=True))

    async with running(site.idp, [app(site.idp.issuer)], clock=test_clock, background=False) as harness:
        await harness.connected()
        assert {known.client_id} == {each.client_id for each in site.idp.seen("token")}
    async with running(site.idp, [app("https://elsewhere.example")], clock=test_clock, background=False) as harness:
        assert Code.APP_MISCONFIGURED == (await harness.ask()).code
    assert not site.idp.count("register")


async def test_the_broker_serves_its_client_where_the_server_fetches_documents(
    site: McpSite, test_clock: TestClock
) -> None:
    base = "https://broker.example"
    app = mcp_app(site)
    app = mcp_app(site, redirect=type(app.redirect)(app.redirect.callback_path, base))
    site.idp.script.discovery.fields(client_id_metadata_document_supported=True, times=None)
    async with running(site.idp, [app], clock=test_clock, background=False, settings=public(base)) as harness:
        await harness.ask_link()
        where = f"{base}/clients/mail.json"
        page = await harness.browser().open(where)
        document = json.loads(page.body)
        assert (where, "none") == (document["client_id"], document["token_endpoint_auth_method"])
        site.idp.register(Registration(where, redirect_uris=tuple(document["redirect_uris"]), auth_method="none"))
        await harness.connected()
        assert {where} == {each.client_id for each in site.idp.seen("token")}
        assert 404 == (await harness.browser().open(f"{base}/clients/other.json")).status
    assert not site.idp.count("register")


async def test_the_document_of_an_app_with_a_key_has_its_public_half_and_the_broker_signs(
    site: McpSite, test_clock: TestClock
) -> None:
    base, key = "https://broker.example", generate_key("EC", "P-256")
    private = Secret(json.dumps({**key.as_dict(private=True), "kid": "one"}))
    client, redirect = Client("", private, "private_key_jwt"), mcp_app(site).redirect
    app = mcp_app(site, client=client, redirect=replace(redirect, base_url=base))
    site.idp.script.discovery.fields(client_id_metadata_document_supported=True, times=None)
    async with running(site.idp, [app], clock=test_clock, background=False, settings=public(base)) as harness:
        await harness.ask_link()
        where = f"{base}/clients/mail.json"
        document = json.loads((await harness.browser().open(where)).body)
        assert (where, "private_key_jwt") == (document["client_id"], document["token_endpoint_auth_method"])
        (public_key,) = document["jwks"]["keys"]
        assert {"kty", "crv", "x", "y", "kid", "use", "alg"} == set(public_key)
        site.idp.register(
            Registration(
                where,
                redirect_uris=tuple(document["redirect_uris"]),
                auth_method="private_key_jwt",
                public_keys=(public_key,),
            )
        )
        await harness.connected()
        test_clock.advance(3600)
        assert isinstance(await harness.ask(), Ready)
        asked = site.idp.seen("token")
        assert ["authorization_code", "refresh_token"] == [each.grant_type for each in asked]
        assert all("client_assertion" in each.form for each in asked)
        public_app = mcp_app(site, redirect=app.redirect)
        await harness.broker.reload(replace(harness.broker.bundle, apps={"mail": public_app}))
        again = json.loads((await harness.browser().open(where)).body)
        assert "none" == again["token_endpoint_auth_method"]
    assert not site.idp.count("register")


async def test_a_client_that_signs_is_never_replaced_by_a_registered_one(site: McpSite, test_clock: TestClock) -> None:
    key = Secret(json.dumps(generate_key("EC", "P-256").as_dict(private=True)))
    app = mcp_app(site, client=Client("", key, "private_key_jwt"))
    async with running(site.idp, [app], clock=test_clock, background=False) as harness:
        assert Code.MCP_REGISTRATION_NEEDED == (await harness.ask()).code
    assert not site.idp.count("register")


@pytest.mark.parametrize("published", [NESTED, ROOT, "/elsewhere"])
async def test_metadata_is_looked_for_in_the_specified_order(
    published: str, site: McpSite, test_clock: TestClock
) -> None:
    site.documents.clear()
    site.publish(published)
    if published == "/elsewhere":
        site.challenge = f'Bearer resource_metadata="{site.server.url}{published}"'
    async with world(site, test_clock) as harness:
        await harness.ask_link()
    assert site.paths == {NESTED: [NESTED], ROOT: [NESTED, ROOT], "/elsewhere": ["/elsewhere"]}[published]


@pytest.mark.case("122")
@pytest.mark.parametrize(
    "changes, code",
    [
        ({"code_challenge_methods_supported": None}, Code.MCP_PKCE_MISSING),
        ({"code_challenge_methods_supported": ["plain"]}, Code.MCP_PKCE_MISSING),
        ({"registration_endpoint": None}, Code.MCP_REGISTRATION_NEEDED),
        ({"token_endpoint_auth_methods_supported": ["tls_client_auth"]}, Code.MCP_REGISTRATION_NEEDED),
        ({"issuer": "https://other.example"}, Code.APP_MISCONFIGURED),
        ({"require_signed_request_object": True}, Code.MCP_UNSUPPORTED),
    ],
)
async def test_an_authorization_server_that_lacks_something_gets_no_user(
    changes: dict[str, Any], code: Code, site: McpSite, test_clock: TestClock
) -> None:
    site.idp.script.discovery.fields(**changes, times=None)
    async with world(site, test_clock) as harness:
        refused = await harness.ask()
        assert isinstance(refused, Failed)
        assert code == refused.code
    assert not site.idp.count("register")
    assert not site.idp.count("authorize")


@pytest.mark.parametrize(
    ("server", "client", "lack"),
    [
        ({"dpop_bound_access_tokens_required": True}, {}, "DPoP"),
        ({"bearer_methods_supported": ["body"]}, {}, "in a header"),
        ({"bearer_methods_supported": []}, {}, "in a header"),
        ({}, {"dpop_bound_access_tokens": True}, "DPoP"),
        ({}, {"tls_client_certificate_bound_access_tokens": True}, "mutual TLS"),
        ({"dpop_signing_alg_values_supported": ["ES256"], "bearer_methods_supported": ["header"]}, {}, ""),
        ({"dpop_bound_access_tokens_required": False}, {"dpop_bound_access_tokens": False}, ""),
    ],
)
async def test_a_server_that_demands_what_the_broker_does_not_do_gets_no_user_and_the_log_names_it(
    server: dict[str, Any], client: dict[str, Any], lack: str, site: McpSite, test_clock: TestClock
) -> None:
    site.publish(**server)
    site.idp.script.register.fields(**client)
    async with world(site, test_clock) as harness:
        answer = await harness.ask()
        if not lack:
            assert isinstance(answer, AuthorizationRequired)
            return
        assert Code.MCP_UNSUPPORTED == answer.code
        assert lack in harness.log.getvalue()
    assert not site.idp.count("authorize")


async def test_the_log_names_the_proofs_of_a_server_that_takes_none_of_ours(
    site: McpSite, test_clock: TestClock
) -> None:
    """As far as they have a name of the registry: a word of the server's own is not passed on."""
    methods = ["hostile words", "private_key_jwt", "tls_client_auth"]
    site.idp.script.discovery.fields(token_endpoint_auth_methods_supported=methods, times=None)
    async with world(site, test_clock) as harness:
        assert Code.MCP_REGISTRATION_NEEDED == (await harness.ask()).code
        assert "only: private_key_jwt, tls_client_auth" in harness.log.getvalue()
        assert "hostile" not in harness.log.getvalue()


async def test_a_failure_is_repeated_for_half_a_minute_and_then_asked_for_again(
    site: McpSite, test_clock: TestClock
) -> None:
    site.documents.clear()
    async with world(site, test_clock) as harness:
        refused = await asyncio.gather(*(harness.ask() for _ in range(3)))
        assert {Code.MCP_METADATA_MISSING} == {each.code for each in (*refused, await harness.ask())}
        assert 2 == len(site.paths)
        site.publish()
        test_clock.advance(31)
        assert isinstance(await harness.ask(), AuthorizationRequired)


@pytest.mark.case("59")
@pytest.mark.parametrize("seconds", [25 * 3600, -48 * 3600])
async def test_the_server_is_asked_again_after_a_day_and_after_the_clock_was_set_back(
    seconds: int, site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.ask_link()
        await harness.ask_link(scopes=["read"])
        assert 1 == len(site.paths)
        test_clock.set(test_clock.now() + timedelta(seconds=seconds))
        for _ in range(2):
            await harness.ask_link()
            assert 2 == len(site.paths)
    assert 1 == site.idp.count("register")


@pytest.mark.case("123")
async def test_a_server_that_moves_gets_neither_tokens_nor_the_client_of_before(
    site: McpSite, test_clock: TestClock
) -> None:
    async with IdentityProvider(clock=test_clock) as other, world(site, test_clock) as harness:
        other.takes_clients = True
        ready = await harness.connected(scopes=["read"])
        site.publish(authorization_servers=[other.issuer])
        test_clock.advance(25 * 3600)
        assert isinstance(await harness.ask(scopes=["read"]), Ready)  # the grant is refreshed where it was made
        assert not other.requests
        result = await harness.ask_link(scopes=["admin"])
        session = await harness.session(result)
        assert other.count("register") == 1
        await connect_through(harness.browser(), other, result.authorization_url)
        assert not any(each.form.get("refresh_token") for each in other.requests)
        grant = await harness.grant()
        assert grant is not None
        assert grant.token is not None
        assert (session.id, False) == (grant.auth_session_id, ready.access_token == grant.token.access_token)


@pytest.mark.parametrize("old_is_first", [True, False])
async def test_an_issuer_is_kept_as_long_as_the_server_names_it_in_any_order(
    old_is_first: bool, site: McpSite, test_clock: TestClock
) -> None:
    async with IdentityProvider(clock=test_clock) as other, world(site, test_clock) as harness:
        other.takes_clients = True
        old, new = site.idp.issuer, other.issuer
        site.publish(authorization_servers=[old, new])
        await harness.connected(scopes=["read"])
        site.publish(authorization_servers=[old, new] if old_is_first else [new, old])
        test_clock.advance(25 * 3600)
        await harness.ask_link(scopes=["admin"])
        assert 2 == len(site.paths)
        assert isinstance(await harness.ask(scopes=["read"]), Ready)
        assert (1, []) == (site.idp.count("register"), other.requests)
        site.publish(authorization_servers=[new])
        test_clock.advance(25 * 3600)
        await harness.ask_link(scopes=["admin"])
    assert 1 == other.count("register")


@pytest.mark.case("123")
async def test_a_direct_link_leads_to_the_server_that_gets_the_code(site: McpSite, test_clock: TestClock) -> None:
    redirect = replace(mcp_app(site).redirect, link="direct")
    owner = Owner(binding="localOperator")
    async with IdentityProvider(clock=test_clock) as other:
        other.takes_clients = True
        apps = [mcp_app(site, redirect=redirect, owner=owner)]
        async with running(site.idp, apps, clock=test_clock, background=False) as harness:
            first = await harness.ask_link()
            assert first.authorization_url.startswith(site.idp.issuer)
            site.publish(authorization_servers=[other.issuer])
            test_clock.advance(25 * 3600)
            moved = await harness.ask_link()
            assert moved.authorization_url.startswith(other.issuer)
            assert 1 == other.count("register")


@pytest.mark.case("124")
async def test_a_secret_that_has_ended_makes_a_new_client(site: McpSite, test_clock: TestClock) -> None:
    site.idp.secrets_end = int((test_clock.now() + timedelta(days=2)).timestamp())
    async with world(site, test_clock) as harness:
        await harness.connected()
        test_clock.advance(3 * 24 * 3600)
        site.idp.secrets_end = 0
        await harness.connected()
    assert 2 == site.idp.count("register")
    assert ["authorization_code"] * 2 == [each.grant_type for each in site.idp.seen("token")]  # no refresh by the other


@pytest.mark.case("124")
@pytest.mark.parametrize(
    "changes",
    [
        {"redirect_uris": ["https://elsewhere.example/callback"]},
        {"client_id": "two words"},
        {"client_id": None},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"client_secret": None},
        {"client_secret_expires_at": "soon"},
    ],
)
async def test_another_client_than_the_requested_one_is_not_used(
    changes: dict[str, Any], site: McpSite, test_clock: TestClock
) -> None:
    site.idp.script.register.fields(**changes)
    async with world(site, test_clock) as harness:
        assert Code.MCP_REGISTRATION_NEEDED == (await harness.ask()).code
        assert not [each async for each in harness.repository.clients.all()]


@pytest.mark.parametrize("scopes, clients", [(("read",), 1), (("read", "more"), 2)])
async def test_a_wider_ceiling_needs_another_client(
    scopes: tuple[str, ...], clients: int, site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.ask_link()
        bundle = harness.broker.bundle
        await harness.broker.reload(replace(bundle, apps={"mail": mcp_app(site, scopes=scopes)}))
        await harness.ask_link()
    assert clients == site.idp.count("register")


@pytest.mark.case("124")
async def test_a_client_that_the_server_has_forgotten_is_replaced_but_not_for_a_fault_that_passes(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.connected()
        refresh = site.idp.script.refresh
        for works in (False, True, False):
            test_clock.advance(3600)
            if not works:
                refresh.refuse("invalid_client", 401)
                assert Code.APP_MISCONFIGURED == (await harness.ask()).code
                test_clock.advance(700)
                continue
            assert isinstance(await harness.ask(), Ready)
        assert 1 == site.idp.count("register")
        refresh.refuse("invalid_client", 401)
        assert Code.APP_MISCONFIGURED == (await harness.ask()).code
        await harness.connected()
        assert 2 == site.idp.count("register")


def forget(site: McpSite, client: str = "dynamic-1") -> None:
    """Let the authorization server forget a client that it registered."""
    known = site.idp._state.clients
    known[f"forgotten-{client}"] = known.pop(client)


def probes(site: McpSite) -> list[str]:
    """Return the clients whose codes were worth nothing."""
    return [each.client_id for each in site.idp.seen("token") if each.grant_type == "authorization_code"]


async def link_expires(harness: Harness) -> None:
    harness.clock.advance(660)
    await harness.running.parts.sweep.once()


@pytest.mark.case("124")
@pytest.mark.parametrize("unused", [True, False], ids=["after a link that expired unused", "after a day"])
async def test_a_client_that_the_server_has_forgotten_is_replaced_before_the_next_link(
    unused: bool, site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.ask_link()
        forget(site)
        await harness.ask_link(of=turn(BOB))
        assert 1 == site.idp.count("register")
        if unused:
            await link_expires(harness)
        else:
            test_clock.advance(25 * 3600)
        result = await harness.ask_link()
        assert 2 == site.idp.count("register")
        assert "is replaced by a new one" in harness.log.getvalue()
        assert ["dynamic-1", "dynamic-2"] == probes(site)
        assert 200 == (await harness.connect(result)).status
        await link_expires(harness)
        await harness.ask_link(of=turn(BOB))
        assert 2 == site.idp.count("register")
        (found,) = [each async for each in harness.repository.clients.all()]
        assert found.replaced_at is not None


@pytest.mark.case("124")
async def test_a_link_that_led_to_an_error_page_of_the_server_is_not_given_again(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        first = await harness.ask_link()
        test_clock.advance(5)
        assert first.authorization_url == (await harness.ask_link()).authorization_url
        assert (1, []) == (len(site.paths), probes(site)), "no browser has followed it"
        await leave(harness.browser(), first.authorization_url)
        assert first.authorization_url == (await harness.ask_link()).authorization_url
        await harness.ask_link()
        assert ["dynamic-1"] == probes(site), "asked once for a link that was followed"
        await link_expires(harness)
        link = await harness.ask_link()
        forget(site)
        await leave(harness.browser(), link.authorization_url)
        test_clock.advance(5)
        result = await harness.ask_link()
        assert (2, False) == (site.idp.count("register"), link.authorization_url == result.authorization_url)
        assert 200 == (await harness.connect(result)).status


async def test_a_link_that_was_followed_stays_while_the_server_does_not_answer(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        first = await harness.ask_link()
        await leave(harness.browser(), first.authorization_url)
        site.documents[NESTED] = raw_answer(503, b"{}")
        for _ in range(3):
            test_clock.advance(40)
            assert first.authorization_url == (await harness.ask_link()).authorization_url
        (found,) = [each async for each in harness.repository.clients.all()]
    assert test_clock.now() - found.looked_at < timedelta(days=2), "marked once as one to ask about"
    assert 1 == site.idp.count("register")


@pytest.mark.case("124")
async def test_processes_at_once_replace_a_forgotten_client_once(site: McpSite, test_clock: TestClock) -> None:
    store = default_store(test_clock)
    async with world(site, test_clock, store=store) as one, world(site, test_clock, store=store) as other:
        await one.ask_link()
        forget(site)
        await link_expires(one)
        answers = await asyncio.gather(*(each.ask() for each in [one, other] * 5))
    assert {AuthorizationRequired} == {type(each) for each in answers}
    assert 2 == site.idp.count("register")


@pytest.mark.case("123")
async def test_grants_of_a_forgotten_client_are_never_used_with_the_new_one(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.connected()
        forget(site)
        test_clock.advance(25 * 3600)
        await harness.ask_link(of=turn(BOB))
        assert isinstance(await harness.ask(), AuthorizationRequired)
    assert 2 == site.idp.count("register")
    assert not [each for each in site.idp.seen("token") if each.grant_type == "refresh_token"]


@pytest.mark.case("124")
async def test_a_server_that_refuses_new_clients_too_keeps_the_old_one_and_is_asked_for_another_once_a_day(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.ask_link()
        site.idp.script.token.refuse("invalid_client", 401, times=None)
        for registered in (2, 2, 2):
            await link_expires(harness)
            await harness.ask_link()
            assert registered == site.idp.count("register")
        (found,) = [each async for each in harness.repository.clients.all()]
        assert ("dynamic-1", True) == (found.client_id, found.refused_at is not None)
        test_clock.advance(25 * 3600)
        await harness.ask_link()
        assert 3 == site.idp.count("register")


async def test_a_server_that_forgot_the_client_and_takes_no_other_gets_no_user(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.ask_link()
        forget(site)
        site.idp.script.register.answer(403, {"error": "invalid_client_metadata"})
        await link_expires(harness)
        for _ in range(2):
            assert Code.MCP_REGISTRATION_NEEDED == (await harness.ask()).code
            assert 2 == site.idp.count("register")
            test_clock.advance(400)
        await harness.ask_link()
    assert 3 == site.idp.count("register")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_token_endpoint_that_is_busy_refuses_no_client(
    status: int, site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.ask_link()
        site.idp.script.token.answer(status)
        await link_expires(harness)
        await harness.ask_link()
    assert 1 == site.idp.count("register")
    assert 1 == len(probes(site))


async def test_a_client_that_was_not_registered_here_is_never_asked_about(site: McpSite, test_clock: TestClock) -> None:
    known = register(site.idp, "mail")
    client = Client(known.client_id, known.client_secret)
    app = mcp_app(site, client=client, mcp=McpServer(site.url, site.idp.issuer, has_client=True))
    async with running(site.idp, [app], clock=test_clock, background=False) as harness:
        await harness.ask_link()
        test_clock.advance(25 * 3600)
        await harness.ask_link()
        assert 2 == len(site.paths)
    assert [] == probes(site)


async def test_a_client_is_forgotten_on_request(site: McpSite, test_clock: TestClock) -> None:
    async with world(site, test_clock) as harness:
        await harness.connected()
        assert await harness.broker.forget_client("OAuthApp/mail")
        assert not await harness.broker.forget_client("mail")
        await harness.connected()
    assert 2 == site.idp.count("register")


@pytest.mark.case("120")
@pytest.mark.parametrize(
    "changes",
    [
        {"resource": "https://other.example/mcp"},
        {"resource": None},
        {"authorization_servers": []},
        {"authorization_servers": None},
        {"authorization_servers": [7]},
    ],
)
async def test_metadata_that_is_not_the_servers_own_is_not_used(
    changes: dict[str, Any], site: McpSite, test_clock: TestClock
) -> None:
    site.publish(**changes)
    async with world(site, test_clock) as harness:
        assert Code.MCP_METADATA_MISSING == (await harness.ask()).code
    assert not site.idp.requests


@pytest.mark.case("120")
async def test_metadata_of_a_parent_is_not_that_of_the_server(site: McpSite, test_clock: TestClock) -> None:
    site.publish(resource=site.server.url)
    async with world(site, test_clock) as harness:
        assert Code.MCP_METADATA_MISSING == (await harness.ask()).code
    parent = mcp_app(site, resource=(site.server.url,))
    async with running(site.idp, [parent], clock=test_clock, background=False) as harness:
        await harness.ask_link()


@pytest.mark.case("120")
async def test_a_huge_document_and_a_redirect_lead_nowhere(site: McpSite, test_clock: TestClock) -> None:
    good = site.documents.pop(NESTED)
    async with world(site, test_clock) as harness:
        for bad in (
            b"HTTP/1.1 302 X\r\nlocation: /good\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\n\r\n" + b" " * 3_000_000 + b"{}",
            b"HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n[]",
        ):
            site.documents |= {NESTED: bad, "/good": good}
            assert isinstance(await harness.ask(), Failed)
            test_clock.advance(31)
    assert "/good" not in site.paths
    assert not site.idp.requests


@pytest.mark.case("121")
@pytest.mark.parametrize(
    "address",
    [
        "https://169.254.169.254/latest",
        "https://10.0.0.1/x",
        "http://intranet/x",
        "file:///etc/passwd",
        "https://user@h.example/",
    ],
)
async def test_an_address_inside_the_network_is_not_asked(address: str, site: McpSite, test_clock: TestClock) -> None:
    site.challenge = f'Bearer resource_metadata="{address}"'
    async with world(site, test_clock) as harness:
        assert Code.MCP_METADATA_MISSING == (await harness.ask()).code
        site.challenge = "Bearer"
        site.publish(authorization_servers=[address])
        test_clock.advance(31)
        assert isinstance(await harness.ask(), Failed)
    assert not site.idp.requests


@pytest.mark.case("122")
async def test_an_answer_with_another_issuer_is_refused_before_the_code_is_sent(
    site: McpSite, test_clock: TestClock
) -> None:
    site.idp.script.authorize.fields(iss="https://other.example")
    async with world(site, test_clock) as harness:
        page = await harness.connect(await harness.ask_link())
        assert 400 == page.status
    assert not site.idp.count("token")


async def test_a_reload_keeps_issuer_and_client(site: McpSite, test_clock: TestClock) -> None:
    async with world(site, test_clock) as harness:
        await harness.connected(scopes=["read"])
        result = await harness.ask_link(scopes=["admin"])
        assert frozenset() == await harness.broker.reload(harness.broker.bundle)
        assert 200 == (await harness.connect(result)).status
    assert 1 == site.idp.count("register")


@pytest.mark.parametrize(
    "documents, metadata, severity, text",
    [
        ({}, {}, "ok", "addresses answer"),
        ({"authorization_servers": []}, {}, "failure", "names no authorization server"),
        ({}, {"code_challenge_methods_supported": None}, "failure", "PKCE"),
    ],
)
async def test_the_doctor_asks_the_server_as_the_broker_does(
    documents: dict[str, Any], metadata: dict[str, Any], severity: str, text: str, site: McpSite, test_clock: TestClock
) -> None:
    site.publish(**documents)
    site.idp.script.discovery.fields(**metadata, times=None)
    plain = Settings(weaken=frozenset({"plainHttpProvider"}))
    async with probing(plain, test_clock) as probe:
        (finding,) = await probe.providers([mcp_app(site)])
        assert severity == finding.severity
        assert text in finding.text
        other = [each.text for each in await probe.providers([user_app(site.idp, "other")])]
        assert not any("PKCE" in each for each in other)  # elsewhere no list is no refusal


@pytest.mark.case("124")
async def test_after_a_consent_that_ended_with_a_forgotten_client_the_next_link_has_another(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        for number in (1, 2):
            result, browser = await harness.ask_link(), harness.browser()
            back = await harness.way_back(result, browser)
            forget(site, f"dynamic-{number}")
            assert 500 == (await browser.follow(back)).status
            assert "`oauthbroker mcp forget mail` registers another one" in harness.log.getvalue()
            assert "dynamic-1" not in harness.log.getvalue()
            (found,) = [each async for each in harness.repository.clients.all()]
            assert found.is_to_check(test_clock.now())
        assert 200 == (await harness.connect(await harness.ask_link())).status
    assert (3, "dynamic-3") == (site.idp.count("register"), probes(site)[-1])


@pytest.mark.case("124")
async def test_a_code_that_was_kept_for_a_forgotten_client_asks_about_it_too(
    site: McpSite, test_clock: TestClock
) -> None:
    apps, settings = [mcp_app(site, owner=Owner(binding="runtimeConfirm", confirm_url=RUNTIME))], settings_for()
    async with running(site.idp, apps, clock=test_clock, background=False, settings=settings) as harness:
        result, browser = await harness.ask_link(), harness.browser()
        await browser.follow(await harness.way_back(result, browser))
        while browser.page.location is not None:
            await browser.follow()
        forget(site)
        assert "failed" == (await harness.broker.confirm(handle_on(browser.page), ALICE)).status
        await harness.ask_link()
    assert 2 == site.idp.count("register")


@pytest.mark.case("124")
async def test_a_refusal_of_the_client_in_the_callback_asks_about_it_and_alone_replaces_nothing(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        for replaced in (False, True):
            result, browser = await harness.ask_link(), harness.browser()
            back = await harness.way_back(result, browser)
            if replaced:
                forget(site)
            page = await browser.follow(re.sub("code=[^&]*", "error=unauthorized_client", back))
            assert 500 == page.status
            await harness.ask_link()
            assert 1 + replaced == site.idp.count("register")


@pytest.mark.case("124")
async def test_a_refresh_that_refuses_the_client_asks_about_it_before_the_next_link(
    site: McpSite, test_clock: TestClock
) -> None:
    async with world(site, test_clock) as harness:
        await harness.connected()
        test_clock.advance(3600)
        forget(site)
        assert Code.APP_MISCONFIGURED == (await harness.ask()).code
        await harness.ask_link(of=turn(BOB))
    assert 2 == site.idp.count("register")
