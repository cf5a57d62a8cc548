"""Attacks with another person's link, in a real browser: its cookies, its CSP, its Referer, its back button."""

from __future__ import annotations

import pytest

from oauthbroker import Code
from tests.e2e.person import Person
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

ELSEWHERE = "http://elsewhere.example/"


async def show(person: Person, html: str) -> None:
    """A page of another site."""
    await person.page.route(ELSEWHERE, lambda route: route.fulfill(body=html, content_type="text/html"))
    await person.open(ELSEWHERE)


@pytest.mark.case("5", "15")
async def test_the_provider_url_of_one_person_is_refused_in_another_ones_browser(stage: Stage):
    """alice goes as far as the provider and sends bob its address. bob is signed in there and has agreed before, so
    that bob's browser comes straight back with bob's code: it has no cookie of alice's session."""
    bob = await stage.connected("personal", "bob")
    alice = await stage.person()
    asked = await stage.ask("personal", "alice")
    await alice.leave(asked.authorization_url)
    to_provider = next(url for url in alice.asked if url.startswith(stage.provider.issuer + "/auth?"))
    exchanged = await stage.provider.count("token")

    await bob.open(to_provider)
    await bob.arrive()
    assert 403 == bob.last.status
    assert exchanged == await stage.provider.count("token")
    assert Code.OWNER_BINDING_FAILED == (await stage.broker.wait(asked.auth_session_id, timeout=60)).code
    assert ("auth.failed", "example:user:alice") == await reported(stage)
    assert "noGrant" == (await stage.ask("personal", "alice")).reason
    assert 200 == (await stage.use(await stage.token("personal", "bob")))[0]
    assert [] == alice.shared_circuits + bob.shared_circuits


@pytest.mark.case("14a", "38", "101")
async def test_a_person_lured_by_another_persons_link_gives_nothing_away_and_loses_nothing(stage: Stage):
    """bob opens alice's own connect link and presses on: bob's account is not alice's. Bob's own grant stays alive."""
    bob = await stage.connected("personal", "bob")
    asked = await stage.ask("personal", "alice")
    await bob.open(asked.authorization_url)
    await bob.press("Continue to")
    await bob.page.wait_for_url(stage.home + "/oauth/callback/**")
    assert 403 == bob.last.status
    assert not {"alice", "bob"} & set((await bob.text()).lower().split())
    assert Code.SUBJECT_MISMATCH == (await stage.broker.wait(asked.auth_session_id, timeout=60)).code
    assert ("auth.failed", "example:user:alice") == await reported(stage)
    assert "noGrant" == (await stage.ask("personal", "alice")).reason
    assert 0 == await stage.provider.count("revocation")
    assert (200, "bob") == who(await stage.use(await stage.token("personal", "bob")))


@pytest.mark.case("3")
async def test_the_back_button_and_a_reload_redeem_nothing_twice(stage: Stage):
    alice = await stage.person()
    await alice.agree((await stage.ask("personal")).authorization_url, "alice")
    callback = next(url for url in alice.asked if url.startswith(stage.home + "/oauth/callback/"))
    await alice.page.reload()
    assert "is connected" in await alice.text()
    await alice.open(callback)
    assert 400 <= alice.last.status < 500
    assert 1 == await stage.provider.count("token")
    assert 200 == (await stage.use(await stage.token("personal")))[0]


@pytest.mark.case("87")
async def test_no_other_site_can_frame_our_page(stage: Stage):
    link = (await stage.ask("personal")).authorization_url
    victim = await stage.person()
    await show(victim, f'<iframe src="{link}"></iframe>')
    await victim.page.wait_for_timeout(300)
    framed = [await frame.content() for frame in victim.page.frames]
    assert 2 == len(framed)
    assert not any("csrf" in content for content in framed)
    assert any("frame-ancestors" in trouble for trouble in victim.overheard)


@pytest.mark.case("87")
async def test_no_other_site_can_press_our_button(stage: Stage):
    """The victim even has the page open in another tab, with its cookie."""
    asked = await stage.ask("personal")
    victim = await stage.person()
    await victim.open(asked.authorization_url)
    field = await victim.page.locator("input[name=csrf]").get_attribute("value")
    await show(
        victim,
        f'<form method="post" action="{asked.authorization_url}"><input name="csrf" value="{field}">'
        '<input name="decision" value="continue"><button>Win a prize</button></form>',
    )
    await victim.press("Win a prize")
    await victim.arrive()
    assert 403 == victim.last.status
    assert 0 == await stage.provider.count("authorization")
    assert "pending" == (await stage.broker.wait(asked.auth_session_id, timeout=0)).status


@pytest.mark.case("88")
async def test_a_script_on_our_page_does_not_run(stage: Stage):
    """However it might have got there: the policy of the page stands between."""
    alice = await stage.person()
    await alice.open((await stage.ask("personal")).authorization_url)
    await alice.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'document.title = `taken`';"
        " document.body.append(s); document.body.setAttribute('onclick', 'document.title = `taken`') }"
    )
    await alice.page.locator("h1").click()
    assert "taken" != await alice.page.title()
    assert any("Content Security Policy" in trouble for trouble in alice.shared_circuits)


@pytest.mark.case("92")
async def test_the_provider_learns_no_link_and_the_history_keeps_no_code(stage: Stage):
    alice = await stage.person()
    await alice.agree((await stage.ask("personal")).authorization_url, "alice")
    referers = {alice.referers[url] for url in alice.asked if url.startswith(stage.provider.issuer + "/auth?")}
    assert {""} == referers
    visits = await alice.page.evaluate("() => performance.getEntriesByType('navigation').map(one => one.name)")
    assert [f"{stage.home}/connected/personal"] == visits == [alice.page.url]
    left = {cookie["name"]: cookie for cookie in await alice.context.cookies(stage.home)}
    ours = {name: cookie for name, cookie in left.items() if name.startswith("oab")}
    assert ["oab", "oab_arrival"] == sorted(name.partition("-")[0] for name in ours if not name.startswith("oab-"))
    assert 1 == len([name for name in ours if name.startswith("oab-")]), "its own session's"
    assert all(cookie["httpOnly"] and "Lax" == cookie["sameSite"] for cookie in ours.values())
    assert [] == alice.shared_circuits


async def reported(stage: Stage) -> tuple[str, str]:
    """Type and subject of the next event."""
    event = await stage.next_event()
    return event.type, event.payload["subject"]


def who(answer: tuple[int, dict[str, str]]) -> tuple[int, str]:
    status, body = answer
    return status, body["sub"]
