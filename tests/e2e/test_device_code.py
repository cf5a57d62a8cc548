"""Device codes against a provider and a browser that we did not write: one screen shows the code, another one types it."""

from __future__ import annotations

import pytest

from oauthbroker import AuthorizationRequired, Code
from oauthbroker.model.token_results import DevicePrompt
from tests.e2e import pictures
from tests.e2e.bundle import turn
from tests.e2e.person import Person
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PROFILE = {"sub": "alice", "name": "Alice Example", "team": "T111"}


def prompt_of(asked: AuthorizationRequired) -> DevicePrompt:
    assert asked.device_code is not None
    return asked.device_code


async def watched(stage: Stage, asked: AuthorizationRequired, **profile: object) -> Person:
    """A person with the broker's page open, which shows the code."""
    someone = await stage.person(**profile)
    await someone.open(asked.authorization_url)
    assert prompt_of(asked).user_code in await someone.text()
    return someone


@pytest.mark.rule("12.5.7")
@pytest.mark.parametrize("app", ["terminal", "wall"])
async def test_a_code_typed_on_another_screen_wakes_the_agent_and_its_token_works(stage: Stage, app: str):
    """`terminal` is one person's, `wall` a team's with alice as its authorizer. The page that shows the code needs no
    script, and says that it is done when it is asked."""
    asked = await stage.ask(app)
    prompt = prompt_of(asked)
    assert stage.provider.issuer + "/device" == prompt.verification_uri
    block = await stage.broker.pending(turn())
    assert block is not None
    assert prompt.to_json() in [item.get("deviceCode") for item in block["items"]]
    desk = await watched(stage, asked, java_script_enabled=False)
    phone = await stage.person()
    await phone.type_code(prompt.verification_uri, prompt.user_code)
    await phone.agree_elsewhere("alice")

    stage.clock.advance(prompt.interval)
    event = await stage.next_event()
    assert ("auth.granted", turn().resume_target) == (event.type, event.target)
    assert stage.apps[app].subject == event.payload["subject"]
    assert (200, PROFILE) == await stage.use(await stage.token(app))
    await desk.press("Check now")
    await desk.page.wait_for_url(f"{stage.home}/connected/{app}")
    assert f"{stage.apps[app].title} is connected" in await desk.text()
    assert [] == desk.shared_circuits + phone.shared_circuits


async def test_the_pages_button_takes_the_code_along(stage: Stage):
    """For those who agree on the screen that they are looking at: the code is filled in, and shown by the provider."""
    asked = await stage.ask("terminal")
    alice = await watched(stage, asked)
    await alice.press("Open 127.0.0.1")
    await alice.confirm_code(prompt_of(asked).user_code)
    await alice.agree_elsewhere("alice")
    stage.clock.advance(prompt_of(asked).interval)
    assert "auth.granted" == (await stage.next_event()).type
    assert (200, PROFILE) == await stage.use(await stage.token("terminal"))
    assert [] == alice.shared_circuits


async def test_a_no_at_the_provider_is_told_on_the_page_and_to_the_agent(stage: Stage):
    asked = await stage.ask("terminal")
    alice = await watched(stage, asked)
    phone = await stage.person()
    await phone.open(prompt_of(asked).verification_uri)
    await phone.page.get_by_placeholder("Enter code").fill(prompt_of(asked).user_code)
    await phone.press("Continue")
    await phone.press("Abort")
    stage.clock.advance(prompt_of(asked).interval)
    assert "auth.denied" == (await stage.next_event()).type
    await alice.press("Check now")
    await alice.page.wait_for_url(f"{stage.home}/declined/terminal")
    assert "Nothing was connected" in await alice.text()
    assert [] == alice.shared_circuits


@pytest.mark.case("14a")
async def test_a_code_that_was_passed_on_connects_nothing(stage: Stage):
    """Consent phishing: mallory's turn asks, alice is talked into typing. Her account is not mallory's, so neither gets
    anything, and the page tells no name."""
    asked = await stage.ask("terminal", "mallory")
    page = await watched(stage, asked)
    victim = await stage.person()
    await victim.type_code(prompt_of(asked).verification_uri, prompt_of(asked).user_code)
    await victim.agree_elsewhere("alice")
    stage.clock.advance(prompt_of(asked).interval)
    assert "auth.failed" == (await stage.next_event()).type
    assert Code.SUBJECT_MISMATCH == (await stage.broker.wait(asked.auth_session_id, timeout=60)).code
    assert "noGrant" == (await stage.ask("terminal", "mallory")).reason
    assert "noGrant" == (await stage.ask("terminal", "alice")).reason
    await page.open(asked.authorization_url)
    assert 403 == page.last.status
    assert "alice" not in (await page.page.content()).lower()


@pytest.mark.parametrize(
    "app, locale, name, words",
    [
        ("terminal", "en-GB", "device", "Only continue if you started this yourself, just now."),
        ("wall", "ko-KR", "device-korean", "방금 직접 시작한 경우에만 계속하십시오."),
    ],
)
async def test_the_page_with_the_code_as_people_meet_it(stage: Stage, app: str, locale: str, name: str, words: str):
    alice = await watched(stage, await stage.ask(app), locale=locale)
    assert words in await alice.text()
    await pictures.take(alice.page, name)
    assert [] == alice.shared_circuits
