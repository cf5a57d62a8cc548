"""The functions of docs/embedding.md about links that are sent privately and browsers that are confirmed, run."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.model.token_results import Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.docs import code_blocks
from tests.kit.running_broker import BASE, Harness, running, turn, user_app
from tests.story.binding_kit import (
    ALICE,
    MALLORY,
    came_back,
    code_on,
    confirming_app,
    handle_on,
    of_alice,
    settings_for,
)

pytestmark = pytest.mark.case("14b")


@pytest.fixture
def page() -> dict[str, Any]:
    """What the page defines, one block after the other, for apps of the test's own names."""
    space: dict[str, Any] = {}
    for block in code_blocks("docs/embedding.md"):
        text = block.replace("slack-bot", "mail")
        exec(compile(text, "docs/embedding.md", "exec"), space)  # noqa: S102 - the page's code is under test
    return space


async def test_the_page_that_confirms(
    identity_provider: IdentityProvider, test_clock: TestClock, page: dict[str, Any]
) -> None:
    app = confirming_app(identity_provider, "runtimeConfirm")
    async with running(identity_provider, [app], clock=test_clock, settings=settings_for()) as harness:
        for who, leads_to in ((MALLORY, "?code=ownerBindingFailed"), (ALICE, "/connected/mail")):
            person = harness.browser()
            handle = handle_on(await came_back(harness, await harness.ask_link(of=of_alice()), person))
            assert (await page["confirm_page"](harness.broker, handle, who)).endswith(leads_to)
            seen = 200 if who == ALICE else 404
            assert seen == (await person.open(f"{BASE}/connected/mail")).status
        assert "/oauth-failed?code=stateUnknown" == await page["confirm_page"](harness.broker, handle, ALICE)
        assert 404 == (await harness.browser().open(f"{BASE}/connected/mail")).status


async def test_the_conversation_that_relays(
    identity_provider: IdentityProvider, test_clock: TestClock, page: dict[str, Any]
) -> None:
    app = confirming_app(identity_provider, "channelCode")
    async with running(identity_provider, [app], clock=test_clock, settings=settings_for()) as harness:
        shown = await came_back(harness, await harness.ask_link(of=of_alice()), harness.browser())
        assert await page["on_message"](harness.broker, of_alice(), "what is this?") is None
        assert "completed" == await page["on_message"](harness.broker, of_alice(), f" {code_on(shown).lower()} ")
        assert isinstance(await harness.ask(of=of_alice()), Ready)


async def test_the_links_that_are_sent_privately(
    identity_provider: IdentityProvider, test_clock: TestClock, page: dict[str, Any]
) -> None:
    tools = {"Tool/slack": ()}
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, tools=tools) as harness:
        refused = await page["call_a_tool"](harness.broker, turn())
        assert "appForbidden" == refused.code
        await _asked(harness)
        sent: list[tuple[str, str, Any]] = []

        async def send(subject: str, url: str, device_code: Any) -> None:
            sent.append((subject, url, device_code))

        (block,) = await page["tell_privately"](harness.broker, turn(), send)
        ((subject, url, device_code),) = sent
        assert (turn().auth.subjects["user"], None) == (subject, device_code)  # type: ignore[union-attr]
        assert url not in str(block)
        assert 200 == (await harness.browser().open(url)).status


async def _asked(harness: Harness) -> None:
    result = await harness.broker.oauth(turn(), private_links=True).get_access_token("mail")
    assert f"{BASE}/connect" == result.to_json()["authorizationUrl"]
