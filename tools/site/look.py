"""Look at the built site with Chromium, as a reader's browser shows it: `python -m tools.site.look` (`make docs-look`).

A page of each kind, wide and narrow, light and dark: axe-core finds nothing serious, nothing sticks out of the screen, and
search finds a word, all from a folder, without a server or a network. Pictures of them lie in build/screenshots/site/.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Literal

from playwright.async_api import Browser, Page, Request

from oauthbroker.core.version import VERSION
from tests.e2e.person import chromium
from tests.e2e.pictures import FOLDER, grave
from tools.site.build import SITE

PAGES = (
    "index",
    "docs/quickstart",
    "docs/errors",
    "docs/index",
    "reference/typescript",
    "reference/commands/grants",
    "reference/configuration/Forwarder",
    "reference/python/oauthbroker.testing",
    "reference/providers/github",
    "reference/metrics",
)  # none of the longest: axe takes seconds for each thousand rows
WIDTHS = (1280, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def faults(browser: Browser) -> AsyncIterator[str]:
    """Yield each fault of each page, with its width and its colours."""
    for name in PAGES:
        page = await browser.new_page()
        asked = _requests(page)
        await page.goto((SITE / VERSION / f"{name}.html").as_uri())
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                where = f"{name}, {width} px, {scheme}"
                for fault in await grave(page):
                    yield f"{where}: {fault}"
                if width < await page.evaluate("() => document.documentElement.scrollWidth"):
                    yield f"{where}: the page scrolls sideways"
                await page.screenshot(path=FOLDER / "site" / f"{name.replace('/', '-')}-{width}-{scheme}.png")
        for url in (each for each in asked if not each.startswith(("file:", "data:", "blob:"))):
            yield f"{name}: it loads {url}, which needs a network"
        await page.close()


def _requests(page: Page) -> set[str]:
    """Return the addresses that a page asks for from now on."""
    asked: set[str] = set()

    def note(request: Request) -> None:
        asked.add(request.url)

    page.on("request", note)
    return asked


async def search(browser: Browser) -> None:
    """Search for the end of a metric's name, and wait until a result has the whole of it."""
    page = await browser.new_page()
    await page.goto((SITE / VERSION / "index.html").as_uri())
    await page.keyboard.press("Control+k")
    await page.keyboard.type("audit_entries_missing")
    found = page.get_by_text("oauthbroker_audit_entries_missing_total").first
    await found.wait_for()
    await page.close()


async def main() -> int:
    async with chromium() as browser:
        found = [each async for each in faults(browser)]
        await search(browser)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
