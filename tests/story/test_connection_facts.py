"""Facts of a connection that the token answer lacks: QuickBooks' company, Zoho's data centre, Atlassian's sites, Xero's
organisations. Played by users with browsers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker import AuthorizationRequiredError, RequestRefusedError
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints, IdentityRule, Owner
from oauthbroker.model.connection_facts import CallbackFact, ConnectionFacts, FactRequest, TokenClaim
from oauthbroker.model.provider_api import ApiAccess, written_host
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.running_broker import ALICE, Harness, register, running, to_the_end, turn, user_app
from tests.story.sites_kit import ONE, TWO, lists, sites

COMPANY = ConnectionFacts(callback={"realmId": CallbackFact(pattern="[0-9]{1,20}")})
FIRST = {"cloudid": "11111111-aaaa", "site": "https://one.atlassian.net"}
SECOND = {"cloudid": "22222222-bbbb", "site": "https://two.atlassian.net"}


class Stage:
    """A broker with the app `mail` of these facts. The clock stands; nothing runs in the background."""

    def __init__(self, idp: IdentityProvider, clock: TestClock, stack: AsyncExitStack) -> None:
        self.idp, self.clock, self.stack = idp, clock, stack

    async def play(self, facts: ConnectionFacts, store: Any = None, **changes: Any) -> Harness:
        app = user_app(self.idp, facts=facts, **changes)
        made = running(self.idp, [app], clock=self.clock, store=store, background=False)
        return await self.stack.enter_async_context(made)


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(identity_provider, test_clock, stack)


async def relayed(harness: Harness) -> list[str]:
    """Return the types of the events that can leave now."""
    await harness.running.parts.relay.once()
    return [event["type"] for event in await harness.events()]


async def consent(harness: Harness, browser: Browser | None = None, **more: Any) -> Page:
    page = await harness.connect(await harness.ask_link(**more), browser=browser)
    assert 200 == page.status, page.text
    return page


async def ready(harness: Harness) -> dict[str, Any]:
    result = await harness.ask(scopes=["read"])
    assert isinstance(result, Ready), result
    return dict(result.provider_data)


async def test_the_company_of_quickbooks_comes_with_the_callback_and_stays(stage: Stage) -> None:
    harness = await stage.play(COMPANY)
    stage.idp.script.authorize.fields(realmId="9130000000000001")
    await consent(harness, scopes=["read"])
    assert {"realmId": "9130000000000001"} == await ready(harness)
    stage.clock.advance(3600)
    assert {"realmId": "9130000000000001"} == await ready(harness), "after a refresh"
    assert 1 == stage.idp.count("refresh_token")
    stage.idp.script.authorize.fields(realmId="42")
    await consent(harness, scopes=["admin"])
    assert {"realmId": "42"} == await ready(harness), "a step-up names the company again"
    listed = [grant async for grant in harness.broker.grants.list()]
    assert [{"realmId": "42"}] == [grant.providerData for grant in listed]


async def test_a_consent_without_the_company_fails_with_its_name_and_no_token_is_issued(stage: Stage) -> None:
    harness = await stage.play(COMPANY)
    page = await harness.connect(await harness.ask_link())
    assert Code.CALLBACK_FACT_INVALID.status == page.status
    assert "realmId" in page.text
    assert 0 == stage.idp.count("token"), "the code was not redeemed"
    await harness.running.parts.relay.once()
    event = (await harness.events())[0]
    assert ("auth.failed", "callbackFactInvalid", "realmId") == (
        event["type"],
        event["payload"]["code"],
        event["payload"]["fact"],
    )
    assert isinstance(await harness.ask(), AuthorizationRequired)


class Centres:
    """Two data centres of one provider, which know the same client, and what each host was sent."""

    def __init__(self, com: IdentityProvider, eu: IdentityProvider, sent: list[str]) -> None:
        self.com, self.eu, self.sent = com, eu, sent

    def app(self, default: str = "") -> App:
        hosts = tuple(each.base_url.removeprefix("http://") for each in (self.com, self.eu))
        fact = CallbackFact(one_of=hosts, default=default)
        client = register(self.com, "mail")
        self.eu.register(client)
        return user_app(
            self.com,
            endpoints=Endpoints(
                authorization_url=self.com.url("/authorize"),
                token_url="http://{accounts-server}/token",
                user_info_url="http://{accounts-server}/userinfo",
                revoke_url="http://{accounts-server}/revoke",
            ),
            habits=Habits(always_scopes=("openid",)),
            owner=Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}")),
            facts=ConnectionFacts(callback={"accounts-server": fact}),
            revocation=Revocation(reach="token"),
        )


@pytest.fixture
async def centres(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Centres]:
    sent, send = list[str](), Transport.send

    async def watched(self: Transport, request: ProviderRequest, **more: Any) -> Any:
        sent.append(request.url)
        return await send(self, request, **more)

    monkeypatch.setattr(Transport, "send", watched)
    async with IdentityProvider(clock=test_clock) as eu:
        yield Centres(identity_provider, eu, sent)


async def at_centre(harness: Harness, centre: IdentityProvider, named: object = None) -> Page:
    """Let a user consent at a data centre, which names itself or another host."""
    said = centre.base_url.removeprefix("http://") if named is None else named
    more: dict[str, Any] = {"iss": None, "accounts-server": said}
    centre.script.authorize.fields(**more)
    browser = harness.browser()
    url = await harness.to_provider(await harness.ask_link(), browser)
    callback = await centre.agree(url.replace(harness.idp.base_url, centre.base_url), browser=browser)
    page = await browser.follow(callback)
    while page.location is not None:
        page = await browser.follow()
    return page


@pytest.mark.parametrize("name", ["com", "eu"])
async def test_exchange_refresh_and_revocation_go_to_the_data_centre_of_the_account(
    centres: Centres, test_clock: TestClock, name: str
) -> None:
    centre: IdentityProvider = getattr(centres, name)
    async with running(centres.com, [centres.app()], clock=test_clock, background=False) as harness:
        assert 200 == (await at_centre(harness, centre)).status, harness.log.getvalue()
        first = await harness.ask()
        assert isinstance(first, Ready)
        test_clock.advance(3600)
        second = await harness.ask()
        assert isinstance(second, Ready)
        assert first.access_token != second.access_token
        assert await harness.broker.revoke("mail", subject=ALICE)
        assert not centre.is_alive(second.access_token)
    assert {f"{centre.base_url}/{path}" for path in ("token", "userinfo", "revoke")} == set(centres.sent)


EVIL = "evil.example"
HOSTILE_CENTRES: list[Any] = [
    EVIL,
    "EVIL.example",
    f"{EVIL}:443",
    f"https://{EVIL}",
    f"//{EVIL}",
    "{eu}@evil.example",
    "evil.example@{eu}",
    "user:pass@{eu}",
    "{eu}.evil.example",
    "{eu}/..@evil.example",
    "{eu}#evil.example",
    "{eu}?evil.example",
    "{eu}/",
    "{eu}\\evil.example",
    "{eu} ",
    " {eu}",
    "{eu}%00",
    "{eu}%0d%0aHost: evil.example",
    "{eu}%23",
    "{eu}\t",
    "http://{eu}",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.1:{port}",
    "0x7f.0.0.1:{port}",
    "2130706433:{port}",
    "[::ffff:127.0.0.1]:{port}",
    "localhost:{port}",
    "127.0.0.1.:{port}",
    "127.0.0.1:0{port}",
    "\uff11\uff12\uff17.0.0.1:{port}",
    "127\u30020.0.1:{port}",
    "xn--e1afmkfd.example",
    "\u0440rovider.example",
    "169.254.169.254",
    "",
    "x" * 600,
    ["{eu}", "{eu}"],
    ["{eu}", EVIL],
    ["", "{eu}"],
]


@pytest.mark.parametrize("named", HOSTILE_CENTRES, ids=lambda value: repr(value)[:40])
async def test_nothing_leaves_to_a_host_that_only_the_callback_names(
    centres: Centres, test_clock: TestClock, named: Any
) -> None:
    eu = centres.eu.base_url.removeprefix("http://")

    def fill(text: str) -> str:
        return text.replace("{eu}", eu).replace("{port}", eu.partition(":")[2])

    said = fill(named) if isinstance(named, str) else [fill(each) for each in named]
    async with running(centres.com, [centres.app()], clock=test_clock, background=False) as harness:
        page = await at_centre(harness, centres.eu, said)
        assert Code.CALLBACK_FACT_INVALID.status == page.status, page.text
        assert "accounts-server" in page.text
        assert isinstance(await harness.ask(), AuthorizationRequired)
    assert [] == centres.sent


async def test_a_callback_without_the_data_centre_means_the_default_one(
    centres: Centres, test_clock: TestClock
) -> None:
    app = centres.app(default=centres.com.base_url.removeprefix("http://"))
    centres.com.script.authorize.fields(iss=None)
    async with running(centres.com, [app], clock=test_clock, background=False) as harness:
        await consent(harness)
        assert isinstance(await harness.ask(), Ready)


async def test_a_person_with_two_sites_chooses_one_and_the_agent_goes_on_then(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    browser = harness.browser()
    lists(stage.idp, ONE, {**ONE, "scopes": ["another product"]}, TWO)
    page = await consent(harness, browser)
    assert ["11111111-aaaa", "22222222-bbbb"] == [
        each for each in ("11111111-aaaa", "22222222-bbbb") if each in page.text
    ]
    assert "<b>two" not in page.source
    assert [] == await waiting_events(harness), "no event before the choice"
    asked = await harness.ask()
    assert isinstance(asked, AuthorizationRequired)
    assert "choiceNeeded" == asked.reason
    done = await choose(browser, "1")
    assert "22222222-bbbb" not in done.text
    assert "<b>two</b>" in done.text, "the label, escaped"
    await harness.running.parts.relay.once()
    events = await harness.events(count=2)
    assert ["auth.granted"] * 2 == [event["type"] for event in events], "the second link's session ended with it"
    assert SECOND == await ready(harness)
    stage.clock.advance(3600)
    assert SECOND == await ready(harness), "after a refresh"


async def waiting_events(harness: Harness) -> list[str]:
    await harness.running.parts.relay.once()
    event = await harness.event(wait=0)
    return [] if event is None else [event["type"]]


async def choose(browser: Browser, number: str) -> Page:
    page = await browser.submit({"choice": number})
    while page.location is not None:
        page = await browser.follow()
    return page


async def test_one_site_needs_no_choice(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    lists(stage.idp, ONE, ONE)
    await consent(harness)
    assert FIRST == await ready(harness)
    assert ["auth.granted"] == await relayed(harness)


async def test_a_later_consent_of_the_same_account_keeps_the_choice_and_another_account_chooses_anew(
    stage: Stage,
) -> None:
    harness = await stage.play(sites(stage.idp))
    browser = harness.browser()
    lists(stage.idp, ONE, TWO)
    await consent(harness, browser, scopes=["read"])
    await choose(browser, "1")
    lists(stage.idp, TWO, ONE)
    await consent(harness, scopes=["admin"])
    assert SECOND == await ready(harness), "in another order"
    stage.idp.script.resource.answer(503)
    assert isinstance(await harness.ask("mail", of=turn(), switch_account=True), AuthorizationRequired)
    result = await harness.ask("mail", switch_account=True)
    await harness.connect(result)
    assert SECOND == await ready(harness), "the provider could not tell it this time"
    grant = await harness.grant()
    assert grant is not None
    await harness.broker.revoke("mail", subject=ALICE)
    lists(stage.idp, ONE, TWO)
    await consent(harness)
    asked = await harness.ask()
    assert isinstance(asked, AuthorizationRequired)
    assert "choiceNeeded" == asked.reason, "a new connection"


async def test_a_site_that_is_gone_at_the_next_consent_is_chosen_anew(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    browser = harness.browser()
    lists(stage.idp, ONE, TWO)
    await consent(harness, browser, scopes=["read"])
    await choose(browser, "1")
    lists(stage.idp, ONE, {**TWO, "id": "33333333-cccc"})
    await consent(harness, browser, scopes=["admin"])
    asked = await harness.ask(scopes=["read"])
    assert isinstance(asked, AuthorizationRequired)
    assert "choiceNeeded" == asked.reason
    await choose(browser, "0")
    assert FIRST == await ready(harness)


async def test_only_the_browser_that_was_at_the_provider_can_choose(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    browser = harness.browser()
    lists(stage.idp, ONE, TWO)
    page = await consent(harness, browser)
    form, stranger = page.form("choice"), harness.browser()
    for fields in ([("choice", "1")], [*form.fields, ("choice", "1")]):
        assert 403 == (await stranger.post(form.action, fields, initiator=page)).status
    for wrong in ("2", "-1", "x", "", "1 ", "\uff11", "1" * 400):
        assert 400 == (await browser.submit({"choice": wrong})).status, wrong
        await browser.open(page.url)
    assert [] == await waiting_events(harness)
    await choose(browser, "0")
    await browser.open(page.url)
    late = await browser.post(form.action, [*form.fields, ("choice", "1")], initiator=page)
    assert 303 == late.status, "the first choice counts"
    assert FIRST == await ready(harness)


async def test_the_page_of_a_consent_that_another_one_replaced_chooses_nothing(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    first, second = harness.browser(), harness.browser()
    lists(stage.idp, ONE, TWO)
    await consent(harness, first)
    lists(stage.idp, TWO, ONE)
    await consent(harness, second)
    await choose(first, "0")
    asked = await harness.ask()
    assert isinstance(asked, AuthorizationRequired)
    assert "choiceNeeded" == asked.reason
    await choose(second, "0")
    assert SECOND == await ready(harness), "as its own page lists them"


async def test_a_broker_that_stops_between_the_grant_and_the_choice_keeps_both(stage: Stage) -> None:
    """The page that the first broker showed is sent to its successor, as another host would get it."""
    harness = await stage.play(sites(stage.idp))
    browser = harness.browser()
    lists(stage.idp, ONE, TWO)
    page = await consent(harness, browser)
    successor = await stage.play(sites(stage.idp), store=harness.store)
    browser.serve(harness.origin, successor.broker.asgi.app)
    assert "choice" in (await browser.open(page.url)).source
    await choose(browser, "0")
    assert ["auth.granted"] == await relayed(successor)
    assert FIRST == await ready(successor)
    assert FIRST == await ready(harness), "and the first broker sees it"


async def test_two_hosts_that_get_two_choices_keep_one(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    browser = harness.browser()
    lists(stage.idp, ONE, TWO)
    page = await consent(harness, browser)
    other = await stage.play(sites(stage.idp), store=harness.store)
    form = page.form("choice")
    assert 303 == (await browser.post(form.action, [*form.fields, ("choice", "1")], initiator=page)).status
    browser.serve(harness.origin, other.broker.asgi.app)
    assert 303 == (await browser.post(form.action, [*form.fields, ("choice", "0")], initiator=page)).status
    assert SECOND == await ready(other)
    assert ["auth.granted"] == await relayed(other)


async def test_sessions_that_wait_for_the_same_grant_end_with_the_choice(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    browser, first = harness.browser(), await harness.ask_link()
    other = await harness.ask_link(of=turn(instance="t2"))
    lists(stage.idp, ONE, TWO)
    await harness.connect(first, browser=browser)
    assert ("completed", "pending") == ((await harness.session(first)).status, (await harness.session(other)).status)
    await choose(browser, "0")
    assert "completed" == (await harness.session(other)).status
    await harness.running.parts.relay.once()
    assert {"auth.granted"} == {event["type"] for event in await harness.events(count=2)}


async def test_a_choice_whose_write_fails_can_be_made_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = await stage.play(sites(stage.idp))
    browser = harness.browser()
    lists(stage.idp, ONE, TWO)
    page = await consent(harness, browser)

    async def full(*_: Any, **__: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "save_grant", full)
        assert Code.STORE_UNAVAILABLE.status == (await browser.submit({"choice": "0"})).status
    await browser.open(page.url)
    await choose(browser, "0")
    assert FIRST == await ready(harness)


async def test_a_revocation_before_the_choice_lets_the_events_go(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    lists(stage.idp, ONE, TWO)
    await consent(harness)
    await harness.broker.revoke("mail", subject=ALICE)
    await harness.running.parts.relay.once()
    assert ["auth.granted", "auth.revoked"] == [event["type"] for event in await harness.events(count=2)]


def jwt(**claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{body}.c2ln"


TENANTS = [
    {"authEventId": "e-1", "tenantId": "t-1", "tenantName": "Demo"},
    {"authEventId": "e-2", "tenantId": "t-2", "tenantName": "Real"},
]


@pytest.mark.parametrize("event, expected", [("e-1", "t-1"), ("e-2", "t-2")])
async def test_the_organisation_of_xero_is_that_of_the_consents_own_event(
    stage: Stage, event: str, expected: str
) -> None:
    request = FactRequest(
        url=stage.idp.url("/api/me"),
        each={"tenantId": "tenantId"},
        where={"authEventId": TokenClaim("authentication_event_id")},
    )
    harness = await stage.play(ConnectionFacts(requests=(request,)))
    stage.idp.script.token.fields(access_token=jwt(authentication_event_id=event))
    stage.idp.script.token.alter_id_token(claims=lambda claims: {k: v for k, v in claims.items() if k != "at_hash"})
    lists(stage.idp, *TENANTS)
    await consent(harness)
    grant = await harness.grant()
    assert grant is not None
    assert {"tenantId": expected} == grant.provider_data
    assert grant.open_facts is None


async def test_a_fact_that_cannot_be_had_keeps_the_tokens_and_is_asked_for_again(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    stage.idp.script.resource.answer(503)
    page = await consent(harness)
    assert "is connected" in page.text
    assert ["auth.granted"] == await relayed(harness), "the agent asks again by itself"
    refused = await harness.ask()
    assert isinstance(refused, Failed)
    assert (Code.FACT_MISSING, True) == (refused.code, refused.retryable)
    assert "cloudid" in refused.message
    assert refused.retry_after_seconds is not None
    asked = stage.idp.count("resource")
    assert isinstance(await harness.ask(), Failed)
    assert asked == stage.idp.count("resource"), "not within the pause"
    lists(stage.idp, ONE)
    stage.clock.advance(refused.retry_after_seconds)
    assert FIRST == await ready(harness)
    assert isinstance(await harness.ask(), Ready)
    assert asked + 1 == stage.idp.count("resource")


async def test_background_work_asks_for_missing_facts_with_longer_and_longer_pauses(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    stage.idp.script.resource.answer(500, times=3)
    await consent(harness)
    late, begun = harness.running.parts.late_facts, stage.clock.now()
    for seconds in (1, 1, 2, 2, 4):
        stage.clock.advance(seconds)
        await late.run_pass()
    grant = await harness.grant()
    assert grant is not None
    assert grant.open_facts is not None
    assert 3 == grant.open_facts.tries, (stage.clock.now() - begun, grant.open_facts)
    lists(stage.idp, ONE)
    stage.clock.advance(8)
    assert 1 == await late.run_pass()
    assert 0 == await late.run_pass()
    assert FIRST == await ready(harness)


async def test_facts_that_come_late_and_leave_a_choice_ask_the_user_by_a_new_link(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    stage.idp.script.resource.answer(503)
    await consent(harness)
    stage.clock.advance(60)
    lists(stage.idp, ONE, TWO)
    asked = await harness.ask()
    assert isinstance(asked, AuthorizationRequired)
    assert "choiceNeeded" == asked.reason
    lists(stage.idp, ONE, TWO)
    browser = harness.browser()
    await harness.connect(asked, browser=browser)
    await choose(browser, "1")
    assert SECOND == await ready(harness)


async def test_several_elements_without_a_choice_are_never_the_first(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp, choose=False))
    lists(stage.idp, ONE, TWO, times=None)
    await consent(harness)
    refused = await harness.ask()
    assert isinstance(refused, Failed)
    assert Code.FACT_MISSING is refused.code


HOSTILE_ANSWERS: list[Any] = [
    [],
    {},
    "text",
    [{"id": None, "url": "x"}],
    [{"id": "a\nb", "url": "x"}],
    [{"id": "x" * 513, "url": "x"}],
    [{"id": {"a": 1}, "url": "x"}],
    [{"id": ["a"], "url": "x"}],
    [{"id": "", "url": "x"}],
    [{"id": str(number), "url": "x"} for number in range(101)],
]


@pytest.mark.parametrize("answer", HOSTILE_ANSWERS, ids=lambda value: repr(value)[:40])
async def test_an_answer_that_does_not_say_it_leaves_the_fact_missing(stage: Stage, answer: Any) -> None:
    harness = await stage.play(sites(stage.idp))
    stage.idp.script.resource.answer(200, json.dumps(answer))
    await consent(harness)
    grant = await harness.grant()
    assert grant is not None
    assert ("cloudid", "site") == grant.facts_missing


async def test_a_redirect_is_not_followed_and_an_endless_answer_ends(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    stage.idp.script.resource.redirect(stage.idp.url("/userinfo"))
    await consent(harness)
    seen = stage.idp.count("userinfo")
    stage.clock.advance(10)
    stage.idp.script.resource.endless()
    assert isinstance(await harness.ask(), Failed)
    assert 0 == seen == stage.idp.count("userinfo")


async def test_facts_of_userinfo_are_read_from_the_answer_that_named_the_account(stage: Stage) -> None:
    facts = ConnectionFacts(user_info={"dc": "metadata.dc"})
    owner = Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}"))
    harness = await stage.play(facts, owner=owner)
    stage.idp.script.userinfo.fields(metadata={"dc": "us6"})
    await consent(harness)
    assert {"dc": "us6"} == await ready(harness)
    assert 1 == stage.idp.count("userinfo")


async def test_the_choice_is_in_the_readers_language(stage: Stage) -> None:
    harness = await stage.play(sites(stage.idp))
    browser = harness.browser()
    lists(stage.idp, ONE, TWO)
    page = await consent(harness, browser)
    page = await browser.open(page.url, headers={"accept-language": "ko"})
    assert "하나를 선택하십시오" in page.text


async def test_requests_that_carry_the_token_go_below_the_path_of_the_chosen_site(stage: Stage) -> None:
    host = written_host(stage.idp.base_url)
    assert host is not None
    api = ApiAccess((host,), base_path="/{cloudid}/")
    harness = await stage.play(sites(stage.idp), api=api)
    browser = harness.browser()
    lists(stage.idp, {**ONE, "id": "api"}, TWO)
    await consent(harness, browser)
    async with harness.broker.oauth(turn()).client("mail") as client:
        with pytest.raises(AuthorizationRequiredError) as asked:
            await client.get(stage.idp.url("/me"))
        assert "choiceNeeded" == asked.value.result.reason
        await choose(browser, "0")
        assert "alice" == (await client.get(stage.idp.url("/me"))).json()["login"]
        with pytest.raises(RequestRefusedError) as refused:
            await client.get(stage.idp.url("/%2e%2e/userinfo"))
    assert Code.REQUEST_INVALID is refused.value.result.code
    assert 0 == stage.idp.count("userinfo")


async def test_the_code_of_a_confirmed_browser_keeps_the_facts_of_its_callback(stage: Stage) -> None:
    owner = Owner(binding="channelCode")
    harness = await stage.play(COMPANY, owner=owner)
    stage.idp.script.authorize.fields(realmId="42")
    asked = await harness.ask_link()
    browser = harness.browser()
    page = await to_the_end(browser, await harness.way_back(asked, browser))
    code = re.search(r"[2-9A-Z]{4}-[2-9A-Z]{4}", page.text)
    assert code is not None
    assert "completed" == (await harness.broker.relay_code(turn(), code[0])).status
    assert {"realmId": "42"} == await ready(harness)


async def test_a_pending_code_without_its_facts_is_not_kept(stage: Stage) -> None:
    harness = await stage.play(COMPANY, owner=Owner(binding="channelCode"))
    asked = await harness.ask_link()
    browser = harness.browser()
    page = await to_the_end(browser, await harness.way_back(asked, browser))
    assert "realmId" in page.text
    assert Code.CALLBACK_FACT_INVALID is (await harness.session(asked)).failure


async def test_a_wrong_signature_changes_nothing_and_the_right_one_connects(stage: Stage) -> None:
    harness = await stage.play(ConnectionFacts(hmac=True))
    asked, browser = await harness.ask_link(), harness.browser()
    callback = await harness.way_back(asked, browser)
    for query in ("", "&hmac=" + "0" * 64):
        assert Code.CALLBACK_MALFORMED.status == (await browser.follow(callback + query)).status
    assert "pending" == (await harness.session(asked)).status
    pairs = sorted(parse_qsl(urlsplit(callback).query))
    secret = harness.broker.bundle.apps["mail"].client.client_secret
    assert secret is not None
    text = "&".join(f"{name}={value}" for name, value in pairs)
    proof = hmac.new(secret.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()
    assert 303 == (await browser.follow(f"{callback}&hmac={proof}")).status
    assert "completed" == (await harness.session(asked)).status
