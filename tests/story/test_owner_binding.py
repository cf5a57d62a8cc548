"""Who may finish whose session (cases 14-17, 101): an attacker and a victim, each with a browser of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oauthbroker import Turn
from oauthbroker.audit import TokensDropped
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, IdentityRule, Owner
from oauthbroker.model.owner_check import OwnerFacts, check_owner, check_pin
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import Browser, IdentityProvider, TestClock, leave
from oauthbroker.web.gate.csrf import browser_cookie_name
from tests.kit.callback_pages import HOST, UNKNOWN_STATE, assert_error_page, assert_leads_to_connected
from tests.kit.running_broker import (
    ALICE,
    BASE,
    MALLORY,
    TEAM,
    Harness,
    at,
    public,
    running,
    stored_grant,
    tree,
    turn,
    user_app,
)
from tests.kit.samples import app_with
from tests.story.binding_kit import HTTPS_BASE, raw_callback
from tests.story.http_server import served_over_http
from tests.unit.web import kit

NAMES = (ALICE, MALLORY, TEAM, "U234567", "U666666", "alice", "Alice", "mallory", "people.example")


def of_mallory() -> Turn:
    return turn(user=MALLORY, team=None, agent="minion", instance="mallorys.1")


@pytest.mark.case("14a", "101")
@pytest.mark.parametrize("reach", ["token", "grant"])
async def test_a_victim_who_opens_the_attackers_link_gives_nothing_away_and_loses_nothing(
    identity_provider: IdentityProvider, test_clock: TestClock, reach: str
) -> None:
    """The victim even agrees at the provider. Her account is not the attacker's: the end, for that link only."""
    app = user_app(identity_provider, revocation=Revocation(reach=reach))  # type: ignore[arg-type]
    identity_provider.change("client-mail", revoke_reach=reach)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        hers = await harness.connected(scopes=["read"])
        mallorys = await harness.connected(account="mallory", of=of_mallory(), scopes=["read"])
        await harness.events()
        await harness.events("minion")
        victim = harness.browser()
        asked = await harness.ask_link(of=of_mallory())
        page = await harness.connect(asked, "alice", victim)
        assert_error_page(page, Code.SUBJECT_MISMATCH)
        assert [] == [name for name in NAMES if name in page.source], "neither learns who the other is"
        assert page.location is None
        assert [] == [cookie for cookie in page.headers if cookie[0].lower() == "set-cookie"]
        for ready, subject in ((hers, turn()), (mallorys, of_mallory())):
            assert harness.idp.is_alive(ready.access_token)
            again = await harness.ask(scopes=["read"], of=subject)
            assert isinstance(again, Ready)
            assert again.access_token.reveal() == ready.access_token.reveal()
        session = await harness.session(asked)
        assert ("failed", Code.SUBJECT_MISMATCH) == (session.status, session.failure)
        (event,) = await harness.events("minion")
        assert ("auth.failed", "subjectMismatch") == (event["type"], event["payload"]["code"])
        assert await harness.event(wait=0) is None
        dropped = [entry for entry in harness.audit.entries if isinstance(entry, TokensDropped)]
        assert [(reach == "token")] == [entry.revoked for entry in dropped]
        assert (2 if reach == "token" else 0) == harness.idp.count("revoke"), (
            "elsewhere it would kill her own live grant"
        )


@pytest.mark.case("15")
async def test_a_victim_who_opens_the_attackers_provider_url_never_gets_her_code_exchanged(harness: Harness) -> None:
    """Mallory presses the button and passes the provider's URL on; the provider does not even ask Alice."""
    asked = await harness.ask_link(of=of_mallory())
    attacker, victim = harness.browser(), harness.browser()
    provider_url = await harness.to_provider(asked, attacker)
    harness.idp.auto_consent = "alice"
    page = await victim.open(provider_url)
    assert page.location is not None
    assert "code=" in page.location
    page = await victim.follow()
    assert_error_page(page, Code.OWNER_BINDING_FAILED)
    assert [] == [name for name in NAMES if name in page.source]
    assert 0 == harness.idp.count("token")
    assert Code.OWNER_BINDING_FAILED is (await harness.session(asked)).failure
    assert [None, None] == [await harness.grant(subject=subject) for subject in (ALICE, MALLORY)]


@pytest.mark.case("15")
async def test_a_victim_who_opened_a_link_of_her_own_is_no_better_a_victim(harness: Harness) -> None:
    """A cookie for her own session is not one for Mallory's."""
    mallorys, hers = await harness.ask_link(of=of_mallory()), await harness.ask_link()
    attacker, victim = harness.browser(), harness.browser()
    provider_url = await harness.to_provider(mallorys, attacker)
    her_way_back = await harness.way_back(hers, victim)
    harness.idp.auto_consent = "alice"
    await victim.open(provider_url)
    assert_error_page(await victim.follow(), Code.OWNER_BINDING_FAILED)
    assert 0 == harness.idp.count("token")
    assert_leads_to_connected(await victim.follow(her_way_back))


@pytest.mark.case("15")
async def test_the_attackers_own_browser_with_the_victims_callback_gets_nowhere(harness: Harness) -> None:
    """The reverse: her code, carried off from her browser, in Mallory's own session."""
    mallorys, hers = await harness.ask_link(of=of_mallory()), await harness.ask_link()
    attacker, victim = harness.browser(), harness.browser()
    his_way_back = await harness.way_back(mallorys, attacker, "mallory")
    her_way_back = await harness.way_back(hers, victim)
    his, her = (
        dict(part.split("=", 1) for part in urlsplit(url).query.split("&")) for url in (his_way_back, her_way_back)
    )
    assert_error_page(await attacker.follow(his_way_back.replace(his["code"], her["code"])), Code.EXCHANGE_FAILED)
    assert await harness.grant(subject=MALLORY) is None
    assert_leads_to_connected(await victim.follow(her_way_back))


@pytest.fixture
async def https(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    app = at(identity_provider, HTTPS_BASE, user_app(identity_provider))
    async with running(identity_provider, [app], clock=test_clock, settings=public(HTTPS_BASE)) as harness:
        yield harness


@pytest.mark.case("16")
@pytest.mark.parametrize(
    "cookies",
    [
        ["oab-{locator}={value}"],  # without its prefix any sibling domain could have set it
        ["__Secure-oab-{locator}={value}"],
        ["__host-oab-{locator}={value}"],
        ["\u00a0__Host-oab-{locator}={value}"],
        ["__Host-oab-{locator}={other}"],
        ["__Host-oab-{other_locator}={value}"],
        ["__Host-oab-{locator}={value}; __Host-oab-{locator}={other}"],
        ["__Host-oab-{locator}={other}; __Host-oab-{locator}={value}"],
        ["__Host-oab-{locator}={value}; __Host-oab-{locator}={value}"],
        ["__Host-oab-{locator}={value}", "__Host-oab-{locator}={other}"],
        ['__Host-oab-{locator}="{value}"'],
        ["__Host-oab-{locator}=" + "x" * 5000],
        ["__Host-oab-{locator}="],
        ["__Host-oab-{locator}"],
        ["__Host-oab={value}"],
    ],
)
async def test_a_tossed_unprefixed_or_foreign_cookie_is_no_cookie(https: Harness, cookies: list[str]) -> None:
    asked, other = await https.ask_link(scopes=["read"]), await https.ask_link(scopes=["write"])
    person = https.browser()
    url = await https.way_back(asked, person)
    await https.to_provider(other, person)
    locator, other_locator = (each.auth_session_id.removeprefix("as-") for each in (asked, other))
    given = {
        "locator": locator,
        "other_locator": other_locator,
        "value": person.cookies[f"__Host-oab-{locator}"].value,
        "other": person.cookies[f"__Host-oab-{other_locator}"].value,
    }
    answer = await raw_callback(https, url, *(cookie.format(**given) for cookie in cookies))
    assert (403, "ownerBindingFailed") == (answer.status, answer.json["code"])
    assert 0 == https.idp.count("token")
    assert Code.OWNER_BINDING_FAILED is (await https.session(asked)).failure


@pytest.mark.case("16")
async def test_the_cookie_itself_among_others_is_the_cookie(https: Harness) -> None:
    asked = await https.ask_link()
    person = https.browser()
    url = await https.way_back(asked, person)
    locator = asked.auth_session_id.removeprefix("as-")
    value = person.cookies[f"__Host-oab-{locator}"].value
    answer = await raw_callback(https, url, f"a=b; oab-{locator}=tossed", f"__Host-oab-{locator}={value}; c=d")
    assert 303 == answer.status


@pytest.mark.case("16")
async def test_a_sibling_domain_cannot_make_a_browser_send_a_cookie_of_ours(https: Harness) -> None:
    """The browser's own rules for `__Host-`: a Domain attribute, or http, and it is not kept."""
    victim = https.browser()
    sibling = urlsplit("https://evil.broker.test/")
    assert (
        victim.cookies.take(f"__Host-oab-{UNKNOWN_STATE[:22]}=x; Secure; Path=/; Domain=broker.test", sibling) is None
    )
    assert 0 == len(victim.cookies)


@pytest.mark.case("17")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_link_previews_change_nothing_and_the_person_can_still_connect(
    filed: Harness, tmp_path: Path, method: str
) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    before = tree(tmp_path)
    for number in range(25):
        bot = filed.browser()
        await bot.open(asked.authorization_url, method=method, headers={"user-agent": f"LinkPreview/{number}"})
        await bot.open(asked.authorization_url, method=method, headers={"sec-purpose": "prefetch"})
        await person.open(asked.authorization_url, method=method)
    assert before == tree(tmp_path)
    assert [] == filed.idp.requests
    assert 200 == (await filed.connect(asked, browser=person)).status


@pytest.mark.case("17")
@pytest.mark.parametrize("path", ["the link", "/connect"])
async def test_a_head_of_a_connect_page_answers_as_a_get_without_the_page_and_starts_nothing(
    filed: Harness, tmp_path: Path, path: str
) -> None:
    """Chat applications ask whether a link leads somewhere before they show it."""
    asked, person = await filed.ask_link(), filed.browser()
    path = urlsplit(asked.authorization_url).path if path == "the link" else path
    await person.open(asked.authorization_url)
    before = tree(tmp_path)
    got = await kit.ask(filed.broker.asgi.app, path, host=HOST)
    head = await kit.ask(filed.broker.asgi.app, path, host=HOST, method="HEAD")
    assert (200, 200) == (got.status, head.status)
    assert [name for name, _ in got.raw_headers] == [name for name, _ in head.raw_headers]
    assert got.headers["content-length"] == head.headers["content-length"]
    given = [value.decode().partition("=")[0] for name, value in head.raw_headers if name == b"set-cookie"]
    assert set(given) <= {browser_cookie_name(secure=False)}, (
        "the key of forms, which opens nothing without the page that HEAD does not get"
    )
    async with served_over_http(filed) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"HEAD {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        said = await reader.read()
        writer.close()
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.endswith(b"\r\n\r\n"), "the head alone"
    assert (before, []) == (tree(tmp_path), filed.idp.requests)
    assert 200 == (await filed.connect(asked, browser=person)).status


@pytest.mark.case("17")
async def test_a_head_with_an_unknown_ticket_is_told_what_a_get_is_told(harness: Harness) -> None:
    for ticket in ("x" * 65, UNKNOWN_STATE):
        answers = [
            await kit.ask(harness.broker.asgi.app, f"/connect/{ticket}", host=HOST, method=method)
            for method in ("GET", "HEAD")
        ]
        assert [400, 400] == [answer.status for answer in answers]


@pytest.mark.case("15", "17")
async def test_the_last_browser_to_press_the_button_wins_and_an_older_one_harms_it_not(harness: Harness) -> None:
    asked = await harness.ask_link()
    first, second = harness.browser(), harness.browser()
    first_back = await harness.way_back(asked, first)
    second_back = await harness.way_back(asked, second)
    assert_error_page(await first.follow(first_back), Code.STATE_UNKNOWN)
    assert 0 == harness.idp.count("token")
    assert_leads_to_connected(await second.follow(second_back))


async def test_unknown_and_wrong_tickets_look_the_same_and_touch_nothing(filed: Harness, tmp_path: Path) -> None:
    asked = await filed.ask_link()
    ticket = asked.authorization_url.rpartition("/")[2]
    flipped = ticket[:-1] + ("A" if ticket[-1] != "A" else "B")
    before = tree(tmp_path)
    tried = (flipped, "x" * 65, ticket[:22], ticket + "A", asked.auth_session_id)
    answers = [await kit.ask(filed.broker.asgi.app, f"/connect/{each}", host=HOST) for each in tried]
    assert {(400, "stateUnknown")} == {(answer.status, answer.json["code"]) for answer in answers}
    sentences = [answer.body for answer in answers]  # the link itself tells whether it was cut
    assert (1, 1) == (len({*sentences[:2]}), len({*sentences[2:]}))
    for each, status in (("\0" * 65, 400), ("../../kek", 404), ("", 404)):
        assert status == (await kit.ask(filed.broker.asgi.app, f"/connect/{each}", host=HOST)).status
    assert before == tree(tmp_path)


@pytest.fixture
async def direct(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    app = user_app(identity_provider)
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        yield harness


async def test_a_direct_link_is_the_providers_and_its_callback_needs_no_cookie(direct: Harness) -> None:
    asked = await direct.ask_link()
    assert asked.authorization_url.startswith(direct.idp.url("/authorize?"))
    assert 200 == (await direct.connect(asked)).status
    assert isinstance(await direct.ask(), Ready)


async def test_the_block_of_a_direct_session_carries_the_connect_link_even_then(direct: Harness) -> None:
    await direct.ask_link()
    block = await direct.broker.pending(turn())
    assert block is not None
    (item,) = block["items"]
    assert item["authorizationUrl"].startswith(f"{BASE}/connect/")
    assert "state" not in item["authorizationUrl"]


@pytest.mark.case("14a")
async def test_another_account_behind_a_direct_link_is_still_a_mismatch(direct: Harness) -> None:
    asked = await direct.ask_link(of=of_mallory())
    assert_error_page(await direct.connect(asked, "alice"), Code.SUBJECT_MISMATCH)
    assert await direct.grant(subject=MALLORY) is None


@pytest.mark.case("15")
async def test_a_direct_session_that_went_through_the_connect_page_needs_the_cookie_again(direct: Harness) -> None:
    asked = await direct.ask_link()
    block = await direct.broker.pending(turn())
    assert block is not None
    shown = AuthorizationRequired(
        auth_session_id=asked.auth_session_id,
        authorization_url=block["items"][0]["authorizationUrl"],
        expires_at=asked.expires_at,
        message=asked.message,
        reason=asked.reason,
    )
    person = direct.browser()
    url = await direct.way_back(shown, person)
    stale = await direct.idp.agree(asked.authorization_url, "alice", browser=Browser())
    assert_error_page(await direct.browser().open(stale), Code.STATE_UNKNOWN)
    assert_error_page(await direct.browser().open(url), Code.OWNER_BINDING_FAILED)
    assert 0 == direct.idp.count("token")
    assert_error_page(await person.follow(url), Code.STATE_USED)


@pytest.mark.case("40")
@pytest.mark.parametrize("binding", ["runtimeConfirm", "brokerLogin"])
async def test_a_binding_that_is_not_carried_out_verifies_no_owner(identity_provider, test_clock, binding):
    """The loader refuses such an app; one that was built in code must fare no better."""
    app = user_app(identity_provider, owner=Owner(binding=binding))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        asked = await harness.ask_link(of=turn(user="idp:user:ANYBODY"))
        assert_error_page(await leave(harness.browser(), asked.authorization_url), Code.APP_MISCONFIGURED)
        assert 0 == harness.idp.count("authorize")
        assert await harness.grant(subject="idp:user:ANYBODY") is None
        assert 0 == await harness.store.count("grants")


def of_user_info(idp: IdentityProvider) -> App:
    """Whose account it is comes from userinfo, and an ID token only if a tool wants the scope `openid`."""
    owner = Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}"))
    return user_app(idp, scopes=("read", "openid"), owner=owner, habits=Habits())


@pytest.mark.case("41")
@pytest.mark.parametrize("first, then", [("read", "openid"), ("openid", "read")])
async def test_the_pinned_account_does_not_depend_on_the_scopes_of_one_login(
    identity_provider, test_clock, first, then
):
    async with running(identity_provider, [of_user_info(identity_provider)], clock=test_clock) as harness:
        await harness.connected(scopes=[first])
        pinned = (await stored_grant(harness)).account
        assert pinned is not None
        stepping = await harness.ask_link(scopes=[then])
        assert_error_page(await harness.connect(stepping, "bob"), Code.SUBJECT_MISMATCH)
        assert (first,) == (await stored_grant(harness)).scopes
        assert 200 == (await harness.connect(await harness.ask_link(scopes=[then]))).status
        grant = await stored_grant(harness)
        assert (("read", "openid"), pinned) == (grant.scopes, grant.account)


@pytest.mark.case("41")
def test_with_and_without_an_id_token_the_same_person_is_the_same_and_another_is_not():
    app = app_with(owner=Owner(user_identity=IdentityRule("userInfo", "{sub}")))
    plain = check_owner(app, "1", OwnerFacts(user_identity="1")).account
    verified = check_owner(app, "1", OwnerFacts(user_identity="1", account=("https://acme.example", "1"))).account
    other = check_owner(app, "2", OwnerFacts(user_identity="2", account=("https://acme.example", "2"))).account
    for pinned, came in ((plain, verified), (verified, plain)):
        check_pin(pinned, came, switch_account=False)
    for pinned in (plain, verified):
        with pytest.raises(BrokerError) as reported:
            check_pin(pinned, other, switch_account=False)
        assert Code.SUBJECT_MISMATCH is reported.value.code
