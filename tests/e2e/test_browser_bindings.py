"""`runtimeConfirm` and `channelCode` in real browsers: an attacker's profile and a victim's, at a provider we did not write."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route

from oauthbroker import AuthorizationRequired, BrokerError, Code
from oauthbroker.testing import Canaries
from tests.e2e import authority, bundle, pictures, runtime, served
from tests.e2e.person import Person
from tests.e2e.runtime import Runtime
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

APPS = {"runtimeConfirm": "confirmed", "channelCode": "spoken"}
CODE = re.compile(r"\b([2-9A-HJ-NP-Z]{4}-[2-9A-HJ-NP-Z]{4})\b")
NEIGHBOUR = "http://127.0.0.1:4321/"
TOSSED: dict[str, tuple[list[str], int]] = {  # and how many of them the browser takes
    "prefixed, from where that may not be set": (
        ["__Host-{name}={value}; Path=/", "__Secure-{name}={value}; Path=/",
         "__Host-{name}={value}; Path=/oauth; Secure"], 0
    ),
    "under the name of another session": (["{another}={value}; Path=/"], 1),
    "in other letters": (["{upper}={value}; Path=/"], 1),
    "a wrong one": (["{name}={wrong}; Path=/"], 1),
    "the right one beside another": (["{name}={wrong}; Path=/", "{name}={value}; Path=/oauth"], 2),
}  # fmt: skip
each_binding = pytest.mark.parametrize("binding", APPS)


@dataclass
class World:
    """The stage, and the runtime whose subjects no provider knows."""

    stage: Stage
    runtime: Runtime

    async def person(self, name: str, **profile: str) -> Person:
        """A person who is signed in at the runtime, in their own browser."""
        someone = await self.stage.person(**profile)
        await someone.open(self.runtime.login_of(subject(name)))
        return someone

    async def ask(self, binding: str, name: str) -> AuthorizationRequired:
        return await self.stage.ask(APPS[binding], name)

    async def agreed(self, asked: AuthorizationRequired, someone: Person, account: str) -> None:
        """All the way through the provider; what comes then is the binding's."""
        await someone.leave(asked.authorization_url)
        await someone.sign_in(account)
        await someone.press("Continue")

    async def confirmed(self, binding: str, someone: Person, name: str) -> None:
        """What an honest person does on the page after that."""
        if binding == "runtimeConfirm":
            await someone.press("Yes, it was me")
        else:
            await self.stage.broker.relay_code(bundle.turn(name), await code_shown(someone))
            await someone.press("Check now")

    async def connected(self, binding: str, name: str) -> Person:
        """A person with a grant: the provider will not ask them again."""
        someone = await self.person(name)
        await self.agreed(await self.ask(binding, name), someone, name)
        await self.confirmed(binding, someone, name)
        await someone.page.wait_for_url(f"{self.stage.home}/connected/**")
        assert "auth.granted" == (await self.stage.next_event()).type
        return someone


def subject(name: str) -> str:
    return f"example:user:{name}"


async def code_shown(someone: Person) -> str:
    await someone.page.get_by_role("heading", name="Your code").wait_for()
    (code,) = set(CODE.findall(await someone.text()))
    return str(code)


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path, canaries: Canaries, chromium: Browser) -> AsyncIterator[World]:
    apps = {
        name: bundle.Registration(name, "user", "none", f"Example {name}", binding=binding)  # type: ignore[arg-type]
        for binding, name in APPS.items()
    }
    listener, back_door, clock = served.free_port(), served.free_port(), served.LateClock()
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        stack.enter_context(back_door)
        site = await stack.enter_async_context(runtime.running(back_door, home, "confirmed"))
        provider = await stack.enter_async_context(authority.running(app.client(home) for app in apps.values()))
        confirmed = [replace(app, confirm_url=site.confirm_url) for app in apps.values()]
        written = bundle.write(tmp_path, home, provider.issuer, confirmed)
        running = await stack.enter_async_context(served.embedded(written, listener, {}, clock))
        site.broker = running.broker
        yield World(Stage(home, running, provider, clock, apps, chromium, canaries), site)


@each_binding
async def test_the_honest_way(world: World, binding: str) -> None:
    """The code lies in no address that stays, and the handle in no Referer."""
    stage = world.stage
    alice = await world.person("alice")
    await world.agreed(await world.ask(binding, "alice"), alice, "alice")
    if binding == "runtimeConfirm":
        await alice.page.get_by_text("You are example:user:alice.").wait_for()
    else:
        await code_shown(alice)
    assert 0 == await stage.provider.count("token")
    await world.confirmed(binding, alice, "alice")
    await alice.page.wait_for_url(f"{stage.home}/connected/{APPS[binding]}")
    assert 200 == (await stage.use(await stage.token(APPS[binding])))[0]
    elsewhere = {url: reported for url, reported in alice.referers.items() if not url.startswith(stage.home + "/")}
    assert not [reported for reported in elsewhere.values() if reported.startswith(stage.home)], (
        "no other site learns of our pages"
    )
    assert not [reported for reported in alice.referers.values() if "code=" in reported]
    assert [] == alice.shared_circuits


@pytest.mark.case("14b")
@each_binding
async def test_a_victim_who_follows_the_attackers_link_to_its_end_gives_nothing_away(
    world: World, binding: str
) -> None:
    stage = world.stage
    asked, victim = await world.ask(binding, "mallory"), await world.person("alice")
    await world.agreed(asked, victim, "alice")
    if binding == "runtimeConfirm":
        await victim.press("Yes, it was me")
        await victim.page.get_by_text("Nothing was connected").wait_for()
        assert [(subject("alice"), "ownerBindingFailed")] == world.runtime.said
    else:
        with pytest.raises(BrokerError) as caught:
            await world.confirmed(binding, victim, "alice")
        assert Code.STATE_UNKNOWN is caught.value.code
        stage.clock.advance(61)
        with pytest.raises(BrokerError):
            await world.confirmed(binding, victim, "mallory")
    assert 0 == await stage.provider.count("token")
    for name in ("mallory", "alice"):
        assert "noGrant" == (await stage.ask(APPS[binding], name)).reason
    assert "mallory" not in (await victim.text()).lower()
    assert [] == victim.shared_circuits


@pytest.mark.case("5", "15")
@each_binding
async def test_the_providers_page_passed_on_is_refused_in_the_victims_browser(world: World, binding: str) -> None:
    """alice is signed in at the provider and has agreed before: her browser comes straight back, with a code."""
    stage = world.stage
    victim = await world.connected(binding, "alice")
    asked, attacker = await world.ask(binding, "mallory"), await world.person("mallory")
    await attacker.leave(asked.authorization_url)
    to_provider = next(url for url in attacker.asked if url.startswith(stage.provider.issuer + "/auth?"))
    exchanged = await stage.provider.count("token")
    await victim.open(to_provider)
    await victim.page.wait_for_url(stage.home + "/oauth/callback/**")
    assert 403 == victim.last.status
    assert exchanged == await stage.provider.count("token")
    assert Code.OWNER_BINDING_FAILED == (await stage.broker.wait(asked.auth_session_id, timeout=60)).code
    assert 200 == (await stage.use(await stage.token(APPS[binding], "alice")))[0]
    assert [] == attacker.shared_circuits + victim.shared_circuits


@pytest.mark.case("16")
@each_binding
async def test_cookies_tossed_into_the_victims_browser_have_no_effect(world: World, binding: str) -> None:
    """A neighbour of ours on this host sets them, with what the attacker's own browser was given. `__Host-` it cannot
    set at all: Chromium drops that name without Secure, or with a path."""
    stage = world.stage
    victim, attacker = await world.connected(binding, "alice"), await world.person("mallory")
    (other,) = set(APPS) - {binding}
    another = cookie_of(await world.ask(other, "mallory"))
    exchanged = await stage.provider.count("token")
    for what, (cookies, kept) in TOSSED.items():
        asked = await world.ask(binding, "mallory")
        await attacker.leave(asked.authorization_url)
        to_provider = [url for url in attacker.asked if url.startswith(stage.provider.issuer + "/auth?")][-1]
        name = cookie_of(asked)
        (value,) = [each["value"] for each in await attacker.context.cookies(stage.home) if each["name"] == name]
        words = {"name": name, "upper": name.upper(), "another": another, "value": value, "wrong": "x" * 43}
        await toss(victim, [cookie.format(**words) for cookie in cookies])
        held = [each["name"] for each in await victim.context.cookies(stage.home + "/oauth/callback/x")]
        assert kept == len([each for each in held if each in {name, name.upper(), another} or each.startswith("__")]), (
            what
        )
        await victim.open(to_provider)
        await victim.page.wait_for_url(stage.home + "/oauth/callback/**")
        assert 403 == victim.last.status, what
        assert exchanged == await stage.provider.count("token"), what
        assert Code.OWNER_BINDING_FAILED == (await stage.broker.wait(asked.auth_session_id, timeout=60)).code, what
        await victim.context.clear_cookies(name=re.compile("oab-", re.IGNORECASE))


def cookie_of(asked: AuthorizationRequired) -> str:
    """The name of its binding's cookie."""
    return "oab-" + asked.auth_session_id.removeprefix("as-")


async def toss(victim: Person, cookies: list[str]) -> None:
    """The victim visits a page of the attacker's, on our host at another port: browsers keep no ports with cookies."""
    answer = {"body": "Win a prize", "headers": {"set-cookie": "\n".join(cookies), "content-type": "text/html"}}
    await victim.page.route(NEIGHBOUR, lambda route: route.fulfill(**answer))
    await victim.open(NEIGHBOUR)
    await victim.page.unroute(NEIGHBOUR)


@pytest.mark.case("17")
@each_binding
async def test_fifty_previews_of_the_link_change_nothing(world: World, binding: str) -> None:
    asked, alice = await world.ask(binding, "alice"), await world.person("alice")
    bot = await world.stage.person()
    for number in range(25):
        for who in (bot, alice):
            answer = await who.context.request.get(asked.authorization_url, headers={"x-preview": str(number)})
            assert 200 == answer.status
    await world.agreed(asked, alice, "alice")
    await world.confirmed(binding, alice, "alice")
    await alice.page.wait_for_url(f"{world.stage.home}/connected/{APPS[binding]}")
    assert 1 == await world.stage.provider.count("token")


async def test_the_page_after_the_callback_is_one_browsers_own(world: World) -> None:
    """Its address is public and a reload shows it again; in another browser it is a 404."""
    alice, stranger = await world.person("alice"), await world.person("mallory")
    await world.agreed(await world.ask("channelCode", "alice"), alice, "alice")
    code, address = await code_shown(alice), alice.page.url
    await alice.page.reload()
    assert code == await code_shown(alice)
    await stranger.open(address)
    assert 400 == stranger.last.status
    assert code not in await stranger.text()


async def test_an_address_with_a_handle_from_another_person_connects_nothing_by_itself(world: World) -> None:
    """mallory got hold of alice's link, consented with mallory's account, and sends her to the final address. Her
    page asks, and she did not; a form of another site's cannot press her button either."""
    stage = world.stage
    asked = await world.ask("runtimeConfirm", "alice")
    mallory, alice = await world.person("mallory"), await world.person("alice")
    await world.agreed(asked, mallory, "mallory")
    await mallory.page.get_by_text("You are example:user:mallory.").wait_for()
    await alice.open(mallory.page.url)
    await alice.page.get_by_role("heading", name="Connect it?").wait_for()
    handle = mallory.page.url.partition("handle=")[2]
    elsewhere = "http://elsewhere.example/"
    form = (
        f'<form method="post" action="{world.runtime.confirm_url}"><input name="handle" value="{handle}">'
        '<input name="token" value="guess"><button>Win a prize</button></form>'
    )
    await alice.page.route(elsewhere, lambda route: route.fulfill(body=form, content_type="text/html"))
    await alice.open(elsewhere)
    await alice.press("Win a prize")
    await alice.page.get_by_role("heading", name="Not from our page").wait_for()
    await mallory.press("Yes, it was me")
    await mallory.page.get_by_text("Nothing was connected").wait_for()
    assert 0 == await stage.provider.count("token")
    assert "noGrant" == (await stage.ask("confirmed", "alice")).reason


@pytest.mark.parametrize(
    "language, words", [("en", "Send this code in the conversation"), ("ko", "이 코드를 보내 주십시오")]
)
async def test_the_page_with_the_code_is_photographed(world: World, language: str, words: str) -> None:
    alice = await world.person("alice")
    await world.agreed(await world.ask("channelCode", "alice"), alice, "alice")
    await alice.page.wait_for_url(world.stage.home + "/next/**")
    await reads(alice, language)
    await photographed(alice, f"code-{language}", words)


@pytest.mark.parametrize("language, words", [("en", "checks that it is you"), ("ko", "본인인지 확인합니다")])
async def test_the_page_on_the_way_to_the_runtime_is_photographed(world: World, language: str, words: str) -> None:
    alice = await world.person("alice")
    await alice.page.route(world.runtime.confirm_url + "?**", lambda route: route.fulfill(status=204))
    await world.agreed(await world.ask("runtimeConfirm", "alice"), alice, "alice")
    await alice.page.wait_for_url(world.stage.home + "/next/**")
    await reads(alice, language)
    await photographed(alice, f"onward-{language}", words)


async def reads(someone: Person, language: str) -> None:
    """The open page again, for a browser that asks for this language."""

    async def ask(route: Route) -> None:
        await route.continue_(headers={**route.request.headers, "accept-language": language})

    await someone.page.route(someone.home + "/next/**", ask)
    await someone.page.goto(someone.page.url, wait_until="commit")  # it may move on before it has loaded
    await someone.page.wait_for_timeout(300)


@pytest.mark.parametrize("locale, words", [("en-GB", "sent to you privately"), ("ko-KR", "따로 보냈습니다")])
async def test_the_page_for_a_private_link_is_photographed(world: World, locale: str, words: str) -> None:
    alice = await world.person("alice", locale=locale)
    await alice.open(f"{world.stage.home}/connect")
    await photographed(alice, f"private-{locale[:2]}", words)


async def photographed(someone: Person, name: str, words: str) -> None:
    """The page shows its text."""
    assert words in await someone.text()
    await pictures.take(someone.page, name)
    assert [] == someone.shared_circuits
