"""Read `pages` of the Broker resource: a team's name, logo and support address on the pages that users see.

The logo is a local file, read once. Its kind is detected by its first bytes and never by its name; only bitmaps are
accepted, because an SVG may hold scripts and load other files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from oauthbroker.config.checks.broker import page_problem
from oauthbroker.config.reading.files import read_plain
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.written.broker_spec import BrokerSpec, PagesSpec
from oauthbroker.core.shapes import has_shape
from oauthbroker.model.settings import Branding, Logo

MAX_LOGO_BYTES: Final = 128 * 1024
LONGEST_NAME: Final = 60
_KINDS: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n....IHDR", re.DOTALL),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/webp": re.compile(rb"RIFF....WEBPVP8", re.DOTALL),
}
_MAIL = re.compile(r"mailto:[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


def branding_of(broker: Written[BrokerSpec]) -> Branding:
    """Return the branding. A part with a problem is left out."""
    spec = broker.spec.pages
    if spec is None:
        return Branding()
    return Branding(_name(broker, spec), _support_url(broker, spec), _logo(broker, spec))


def _name(broker: Written[BrokerSpec], spec: PagesSpec) -> str:
    name = spec.name or ""
    if spec.name is not None and not (name.strip() and has_shape(name) and len(name) <= LONGEST_NAME):
        broker.refuse(("pages", "name"), "not a name", f"write one line of at most {LONGEST_NAME} characters")
        return ""
    return name.strip()


def _support_url(broker: Written[BrokerSpec], spec: PagesSpec) -> str:
    url = spec.support_url or ""
    if spec.support_url is None or _MAIL.fullmatch(url):
        return url
    problem = page_problem(url)
    if problem is not None:
        broker.refuse(("pages", "supportUrl"), problem[0], "write an https address, or mailto:team@example.com")
        return ""
    return url


def _logo(broker: Written[BrokerSpec], spec: PagesSpec) -> Logo | None:
    if spec.logo is None:
        return None
    path = broker.document.folder / Path(spec.logo).expanduser()
    body = read_plain(path, MAX_LOGO_BYTES) if "\x00" not in spec.logo else None
    kind = next((kind for kind, head in _KINDS.items() if head.match(body or b"")), None)
    if body is None:
        broker.refuse(("pages", "logo"), "not a readable plain file", "name an image beside this file")
    elif len(body) > MAX_LOGO_BYTES:
        broker.refuse(("pages", "logo"), "too large", f"keep the image under {MAX_LOGO_BYTES // 1024} kB")
    elif kind is None:
        broker.refuse(("pages", "logo"), "not a PNG, JPEG or WebP image", "convert it; an SVG could hold scripts")
    else:
        return Logo(kind, body)
    return None
