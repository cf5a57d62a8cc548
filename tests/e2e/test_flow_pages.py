"""The operators' pages of flow tools in a real browser: from the tools to the reason why a run failed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.e2e import pictures, served
from tests.e2e.desk import Desk
from tests.kit.default_store import default_store
from tests.kit.flow_pages import MARKER, furnish, resources_of
from tests.kit.running_broker import at, public, running, user_app

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.rule("flow-pages"),
    pytest.mark.asyncio(loop_scope="session"),
]


@dataclass
class Office(Desk):
    """A desk, and the ids of the runs."""

    runs: dict[str, str]


@pytest_asyncio.fixture(loop_scope="session")
async def office(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries, chromium: Browser, tmp_path: Path
) -> AsyncIterator[Office]:
    listener, runs = served.free_port(), await furnish(tmp_path, store := default_store(test_clock))
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    more: dict[str, Any] = {
        "settings": public(home),
        "plugins": {"flowtools": resources_of(tmp_path)},
        "clock": test_clock,
        "store": store,
    }
    with listener:
        async with (
            running(identity_provider, [at(identity_provider, home, user_app(identity_provider))], **more) as harness,
            served.listening(harness.broker.asgi.app, listener),
        ):
            yield Office(harness, home, chromium, canaries, runs)


@pytest.mark.parametrize("locale", ["en-GB", "ko-KR"])
async def test_an_operator_goes_from_the_tools_to_the_reason_why_a_run_failed(office: Office, locale: str) -> None:
    """Each page is measured and photographed on the way, and works without scripts."""
    person = await office.operator(locale=locale)
    page, seen = person.page, ""

    async def photographed(name: str) -> None:
        nonlocal seen
        seen += await page.content()
        await pictures.take(page, name + ("-korean" if locale == "ko-KR" else ""))

    await page.locator("nav a[href$='/plugins/flowtools']").click()
    await page.wait_for_url("**/admin/plugins/flowtools")
    assert "page" == await page.locator("nav a[href$='/plugins/flowtools']").get_attribute("aria-current")
    await photographed("flows-tools")
    await page.get_by_role("rowheader", name="note").get_by_role("link").click()
    await page.wait_for_url("**/tools/note@2")
    await photographed("flows-version")
    drawing = page.locator(".drawing svg")
    node = await drawing.locator("g.yellow text").first.bounding_box()
    assert node is not None
    assert node["height"] > 10, "it can be read"
    assert "rgb(254, 243, 199)" == await drawing.locator("g.yellow rect").first.evaluate(
        "it => getComputedStyle(it).fill"
    )
    await page.locator(".actions a[href*='/runs?tool=note']").click()
    await page.wait_for_url("**/runs?tool=note")
    await page.locator("#tool").select_option("")
    await page.locator("#status").select_option("failed")
    await page.locator(".filters button").click()
    await page.wait_for_url("**/runs?tool=&status=failed")
    await photographed("flows-runs")
    assert 3 == await page.locator("tbody tr").count()
    await page.locator(f"a[href$='/runs/{office.runs['checked']}']").click()
    await page.wait_for_url(f"**/runs/{office.runs['checked']}")
    await photographed("flows-run")
    assert "the number must be 1 assertFailed" in await page.locator(".note").inner_text()
    assert ["1. open", "2. line", "3. close"] == await page.get_by_role("rowheader").all_inner_texts()
    assert MARKER not in seen
    assert [] == person.shared_circuits
