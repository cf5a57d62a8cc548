"""The chat page of examples/team-assistant in Chromium: question, link, consent, answer; a refused action; hostile text."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from tests.kit.cli import REPOSITORY, environment

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
PROGRAM = REPOSITORY / "examples" / "team-assistant" / "assistant.py"
SECONDS = 30


@pytest.fixture
def address() -> Iterator[str]:
    """Return the address of the chat page of a program that runs."""
    program = subprocess.Popen(
        [sys.executable, "-u", PROGRAM], env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        yield re.findall(r"http://\S+/chat", program.stdout.readline())[0]
    finally:
        program.send_signal(signal.SIGINT)
        assert program.stdout is not None
        program.stdout.close()
        program.wait(SECONDS)


async def said(page: Page, text: str) -> None:
    await page.get_by_label("Your message").fill(text)
    await page.get_by_role("button", name="Send").click()


async def shown(page: Page, text: str) -> None:
    """Load the page again until it shows the text."""
    for _ in range(SECONDS * 4):
        if text in await page.get_by_role("list", name="Conversation").inner_text():
            return
        await page.wait_for_timeout(250)
        await page.get_by_role("link", name="Look for new answers").click()
    raise AssertionError(await page.inner_text("body"))


async def test_a_question_is_answered_after_consent_and_a_forbidden_action_is_refused(chromium, address):
    page = await (await chromium.new_context()).new_page()
    await page.goto(address)
    await said(page, "Is there anything new?")
    await shown(page, "Connect your account")
    async with page.expect_popup() as opened:
        await page.get_by_role("link", name="Connect your account").click()
    consent = await opened.value
    await consent.get_by_role("button", name="Continue to").or_(consent.get_by_role("link", name="Continue to")).click()
    await consent.get_by_role("button", name="Alice Arden").click()
    await consent.get_by_role("button", name="Allow").click()
    await consent.wait_for_url(f"{address.removesuffix('/chat')}/**")
    await shown(page, "You have 3 messages: Good morning, Alice.")

    await said(page, "Remind me in 100 hours")
    await shown(page, "A reminder is at most 48 hours ahead")
    await said(page, "Remind me in 3 hours")
    await shown(page, "I will remind you in 3 hours.")

    await said(page, "Begin answers with Dear Alice, you have")
    await shown(page, "The change of the bundle is ok.")
    await said(page, "And now?")
    await shown(page, "Dear Alice, you have 3 messages: Good morning, Alice.")

    await said(page, "in 5 hours <b id=planted>bold</b>")
    await shown(page, "<b id=planted>bold</b>")
    await expect(page.locator("#planted")).to_have_count(0)
