"""Lists on a phone, with many accounts whose names are long: nothing is cut off, and nothing scrolls sideways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.e2e.desk import Desk, furnished
from tests.kit import planted_records
from tests.kit.running_broker import ALICE

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
WIDTH = 390
CUT_OFF = """() => {
  const wide = (each) => each.scrollWidth > each.clientWidth && each.clientWidth > 1  // 1: hidden, for screen readers
  const found = [...document.querySelectorAll('body *')]
    .filter((each) => getComputedStyle(each).display !== 'inline' && wide(each))
  for (const field of document.querySelectorAll('input[placeholder]')) {
    const typed = field.value
    field.value = field.placeholder
    if (wide(field)) found.push(field)
    field.value = typed
  }
  return found.map((each) => `${each.tagName} ${each.placeholder || each.textContent.trim().slice(0, 80)}`)
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def desk(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries, chromium: Browser
) -> AsyncIterator[Desk]:
    async with furnished(identity_provider, test_clock, canaries, chromium) as desk:
        for number in range(30):
            await planted_records.grant(
                desk.harness,
                "mail",
                ALICE,
                account=f"account-{number:02d}-{'averylongname' * 8}",
                label=f"person.with.a.long.name.{number:02d}{'x' * 40}@subsidiary.of.a.company.example",
                account_name=f"Person {'Long ' * 12}",
            )
        yield desk


async def fits(page: Page) -> None:
    assert WIDTH == await page.evaluate("() => document.documentElement.scrollWidth"), page.url
    assert [] == await page.evaluate(CUT_OFF), page.url


async def test_lists_with_long_names_fit_on_a_phone(desk: Desk) -> None:
    profile = {"viewport": {"width": WIDTH, "height": 844}}
    person = await desk.visitor(**profile)
    await fits(person.page)
    await person.page.locator("a.danger").last.click()
    await person.page.wait_for_url("**/disconnect")
    await fits(person.page)
    operator = await desk.operator(**profile)
    for path in ("", "/grants", "/grants?app=mail", "/waiting", "/queues", "/circuits", "/audit"):
        await operator.page.goto(f"{desk.home}/admin{path}")
        await fits(operator.page)
