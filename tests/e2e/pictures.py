"""Our pages as people meet them: what axe-core finds on them, and screenshots under build/screenshots/ to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from playwright.async_api import Page

from tests.kit import forms
from tests.kit.installed import NODE_HOME

FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
AXE = NODE_HOME / "node_modules" / "axe-core" / "axe.min.js"
_GRAVE = {"serious", "critical"}
_SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_SIZES = {"narrow": (320, 640), "phone": (390, 844), "desktop": (1280, 800)}
_SHORT: Mapping[str, tuple[Literal["light", "dark"], ...]] = {"narrow": ("light",), "desktop": ("dark",)}
_AT_REST = """async () => {
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const ends = document.getAnimations().map((each) => each.finished);
    await Promise.race([Promise.allSettled(ends), new Promise((done) => setTimeout(done, 5000))]);
}"""  # a colour that fades has another contrast
_EMPTY = 5_000  # bytes; an empty page is smaller


async def take(page: Page, name: str) -> None:
    """Check the open page on three screens, by day and by night. Nothing is loaded anew. The short form measures every
    screen, looks at two of the six, and takes no picture: only a person can look at one.

    Raises AssertionError where something sticks out of a screen, where axe-core finds something serious or critical,
    and for an empty picture.
    """
    for device, (width, height) in _SIZES.items():
        await page.set_viewport_size({"width": width, "height": height})
        assert width >= await page.evaluate("() => document.documentElement.scrollWidth"), f"{name}: {width} px"
        for scheme in _SCHEMES if forms.is_long() else _SHORT.get(device, ()):
            await page.emulate_media(color_scheme=scheme)
            assert [] == await grave(page), f"{name}: {width} px, {scheme}"
            if forms.is_long():
                await _photograph(page, FOLDER / f"{name}-{device}-{scheme}.png")


async def _photograph(page: Page, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=path, full_page=True)
    assert path.stat().st_size > _EMPTY


async def grave(page: Page) -> list[str]:
    """What axe-core calls serious or critical on the open page: the rule, and where."""
    if not await page.evaluate("() => 'axe' in window"):  # half a megabyte: once a page, not once a picture
        await page.evaluate(AXE.read_text("utf-8"))
    await page.evaluate(_AT_REST)
    found = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"], "axe looked at nothing"
    return [
        f"{each['id']}: {[node['target'] for node in each['nodes']]}"
        for each in found["violations"]
        if each["impact"] in _GRAVE
    ]
