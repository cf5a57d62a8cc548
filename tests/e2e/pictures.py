"""Screenshots of our pages as people meet them, kept under build/screenshots/ to be looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from playwright.async_api import Page

FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
_SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_SIZES = {"phone": (390, 844), "desktop": (1280, 900)}


async def take(page: Page, name: str) -> list[Path]:
    """The page that is open, on a phone and on a desk, by day and by night. Nothing is loaded anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    taken = []
    for device, (width, height) in _SIZES.items():
        await page.set_viewport_size({"width": width, "height": height})
        for scheme in _SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            path = FOLDER / f"{name}-{device}-{scheme}.png"
            await page.screenshot(path=path, full_page=True)
            taken.append(path)
    return taken
