"""The stylesheet and the headers: exactly the content that is sent is allowed, and all readers can read it."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from oauthbroker.web.html.consent_html import render_connect
from oauthbroker.web.html.ending_html import render_outcome
from oauthbroker.web.middleware.security_headers import content_security_policy, security_headers, stylesheet
from tests.unit.web.kit import Document, a_view

TEXT, EDGE = 4.5, 3.0  # WCAG 2.2: 1.4.3 for text, 1.4.11 for what marks a control
PAIRS = [
    ("ink", "card", TEXT), ("soft", "card", TEXT), ("soft", "page", TEXT), ("ink", "calm-soft", TEXT),
    ("on-accent", "accent", TEXT), ("on-accent", "accent-strong", TEXT), ("note-ink", "note", TEXT),
    ("edge", "card", EDGE), ("accent", "card", EDGE), ("accent", "calm-soft", EDGE), ("soft", "calm-soft", TEXT),
    ("good", "good-soft", TEXT), ("bad", "bad-soft", TEXT), ("pen", "paper", TEXT), ("bad", "card", TEXT),
    ("card", "bad", TEXT), ("accent", "page", TEXT), ("soft", "calm-soft", TEXT), ("ink", "page", TEXT),
]  # fmt: skip


@pytest.mark.case("87", "88")
def test_the_policy_names_the_very_stylesheet_that_is_sent():
    sent = Document(render_connect(a_view(), "en").html).one("style").text
    digest = base64.b64encode(hashlib.sha256(sent.encode()).digest()).decode()
    assert content_security_policy().split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ]


@pytest.mark.case("87")
@pytest.mark.parametrize(
    "page, referrer",
    [(render_connect(a_view(), "en"), "same-origin"), (render_outcome("connected"), "no-referrer")],
)
def test_a_page_forbids_framing_caching_sniffing_and_referrers(page, referrer):
    headers = page.response().headers
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["referrer-policy"] == referrer
    assert headers["x-robots-tag"].startswith("noindex")
    assert "camera=()" in headers["permissions-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["content-type"] == "text/html; charset=utf-8"


def test_the_security_headers_cannot_be_changed_by_who_reads_them():
    with pytest.raises(TypeError):
        security_headers()["x-frame-options"] = "ALLOWALL"  # type: ignore[index]


def test_the_stylesheet_loads_nothing():
    assert not re.search(r"url\(|@import|@font-face|expression|</", stylesheet())


def colours(scheme: str) -> dict[str, str]:
    health, dark = re.split(r"@media \(prefers-color-scheme: dark\)", stylesheet(), maxsplit=1)
    source = health if scheme == "light" else dark
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", source))


def luminance(colour: str) -> float:
    """WCAG 2.2 relative luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("front, back, least", PAIRS)
def test_colours_keep_their_contrast(scheme, front, back, least):
    table = colours(scheme)
    bright, dim = sorted((luminance(table[front]), luminance(table[back])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= least


def test_dark_mode_redefines_every_colour_and_no_rule_names_one_directly():
    assert set(colours("light")) == set(colours("dark"))
    rules = re.sub(r"--[a-z-]+: #[0-9a-f]{6};", "", stylesheet())
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b", rules)
    assert set(re.findall(r"var\(--([a-z-]+)\)", rules)) <= set(colours("light"))


def test_the_focus_ring_is_never_taken_away():
    assert ":focus-visible" in stylesheet()
    assert not re.search(r"outline:\s*(none|0)", stylesheet())
