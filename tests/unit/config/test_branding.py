"""`pages` of the Broker resource: what a team may put on its pages, and what never comes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.model.settings import Branding, Logo
from tests.kit.images import PNG
from tests.unit.config.bundles import write

HEAD = "apiVersion: agents.example.io/v1alpha1\nkind: Broker\nmetadata: {name: broker}\nspec:\n"
JPEG = b"\xff\xd8\xff\xe0" + b"\x00" * 40
WEBP = b"RIFF\x20\x00\x00\x00WEBPVP8 " + b"\x00" * 40
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def branding(folder: Path, spec: str, logo: bytes | None = None) -> Branding:
    bundle = write(folder / "config", broker=f"{HEAD}  pages: {spec}\n")
    if logo is not None:
        (bundle / "logo.png").write_bytes(logo)
    return load(bundle).settings.branding


def problem(folder: Path, spec: str, logo: bytes | None = None) -> tuple[str, str]:
    with pytest.raises(ConfigInvalidError) as refused:
        branding(folder, spec, logo)
    (found,) = refused.value.problems
    return found.path, found.what


def test_a_team_says_whose_pages_these_are(tmp_path: Path):
    found = branding(tmp_path, "{name: Acme, logo: logo.png, supportUrl: 'https://help.acme.example/agents?x=1'}", PNG)
    assert Branding("Acme", "https://help.acme.example/agents?x=1", Logo("image/png", PNG)) == found
    assert Branding() == branding(tmp_path, "{}")
    assert "mailto:help@acme.example" == branding(tmp_path, "{supportUrl: 'mailto:help@acme.example'}").support_url


@pytest.mark.parametrize(
    ("body", "kind"), [(PNG, "image/png"), (JPEG, "image/jpeg"), (WEBP, "image/webp")], ids=["png", "jpeg", "webp"]
)
def test_what_a_logo_is_its_bytes_say_and_not_its_name(tmp_path: Path, body: bytes, kind: str):
    assert Logo(kind, body) == branding(tmp_path, "{logo: logo.png}", body).logo


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (SVG, "not a PNG, JPEG or WebP image"),
        (b"<!doctype html>" + PNG, "not a PNG, JPEG or WebP image"),
        (b"GIF89a" + b"\x00" * 40, "not a PNG, JPEG or WebP image"),
        (b"RIFF\x20\x00\x00\x00WAVEfmt ", "not a PNG, JPEG or WebP image"),
        (b"", "not a PNG, JPEG or WebP image"),
        (PNG[:8], "not a PNG, JPEG or WebP image"),
        (PNG + b"\x00" * 128 * 1024, "too large"),
        (None, "not a readable plain file"),
    ],
)
def test_any_other_file_is_no_logo(tmp_path: Path, body: bytes | None, what: str):
    assert ("spec.pages.logo", what) == problem(tmp_path, "{logo: logo.png}", body)


@pytest.mark.parametrize("name", ["/dev/zero", "config", "."])
def test_a_logo_that_is_no_plain_file_is_refused_without_waiting(tmp_path: Path, name: str):
    assert ("spec.pages.logo", "not a readable plain file") == problem(tmp_path, f"{{logo: '{name}'}}")


@pytest.mark.parametrize("name", ["' '", '"two\\nlines"', '"\\u202eemca"', '"a\\u200bb"', f"{'n' * 61}"])
def test_a_name_is_one_short_line_of_visible_characters(tmp_path: Path, name: str):
    assert ("spec.pages.name", "not a name") == problem(tmp_path, f"{{name: {name}}}")


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "http://help.acme.example",
        "//help.acme.example",
        "https://a@help.acme.example/",
        "mailto:help@acme.example?body=x",
        "mailto:",
        "tel:1",
    ],
)
def test_a_support_address_is_https_or_mail(tmp_path: Path, url: str):
    assert "spec.pages.supportUrl" == problem(tmp_path, f"{{supportUrl: '{url}'}}")[0]
