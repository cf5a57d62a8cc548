"""Names that come from elsewhere, made fit to be shown: no hidden characters, no endless lines, no disguise."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.shapes import JOINERS, without_stray_joiners
from oauthbroker.web.html.korean_particles import particle

Titles = dict[str, Any]
_PLAIN = re.compile("[ -~]*")
_FIELD = re.compile(r"\{(\w+)(?::([^{}]+))?\}")
_MARKS_IN_A_ROW = 4  # more stacked accents than any script uses
HOST_LIMIT = 260  # a DNS name and a port
_AUTHORITY = re.compile(r"[A-Za-z]+://([^/?#\\]*)")
_HOST = re.compile(r"([a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[._])")
_URL = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+([/?#][A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]*)?")


def shown(text: str, limit: int = 80) -> str:
    """`text` on one line, without control, direction-changing or invisible characters, at most `limit` long."""
    clean = " ".join(_visible(text[: 8 * limit]).split())
    if len(clean) <= limit and len(text) <= 8 * limit:
        return clean
    return clean[: limit - 1].rstrip(" " + JOINERS) + "\u2026"


def _visible(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    kept: list[str] = []
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        if category in {"Cc", "Zl", "Zp", "Zs"}:
            kept.append(" ")
        elif marks <= _MARKS_IN_A_ROW and (category[0] != "C" or character in JOINERS):
            kept.append(character)
    return without_stray_joiners("".join(kept))


def isolated(text: str, limit: int = 80) -> Markup:
    """`shown(text)` escaped and in a `<bdi>`, so that its direction never reorders the sentence around it."""
    return Markup("<bdi>{}</bdi>").format(shown(text, limit))


def phrase(template: str, **names: str | Markup) -> Markup:
    """Return our own sentence with foreign names in it, each isolated. Safe to place in HTML text.

    `{app:을/를}` is the name and the Korean particle that fits it.
    """
    shown_names = {key: name if isinstance(name, Markup) else isolated(name) for key, name in names.items()}
    return Markup(_FIELD.sub(lambda field: str(_filled(shown_names, field)), str(escape(template))))  # noqa: S704


def plain_phrase(template: str, **names: str) -> str:
    """Do the same for `<title>`, where no element may stand: isolates as characters, escaped by the template."""
    shown_names = {key: f"\u2068{shown(name)}\u2069" for key, name in names.items()}
    return _FIELD.sub(lambda field: _filled(shown_names, field), template)


def titled(template: str, **names: str) -> Titles:
    """Return one sentence as the `title` and the `heading` of a page."""
    return {"title": plain_phrase(template, **names), "heading": phrase(template, **names)}


def _filled(names: Mapping[str, str], field: re.Match[str]) -> str:
    name, pair = names[field[1]], field[2]
    if pair is None:
        return name
    read = name.striptags() if isinstance(name, Markup) else name
    return name + particle(read, pair)


def counted(forms: str, count: int) -> str:
    """`forms` of one language with the `{count}` in it: `{count} app|{count} apps`, or one form for every number."""
    one, _, many = forms.partition("|")
    return (one if count == 1 else many or one).format(count=count)


def host_of(url: str) -> str:
    """Return the host a person will see in the address bar, ASCII (IDNs as `xn--`), with its port where it has one.

    Never shortened: the end of a host is what tells an impostor. Raises `appMisconfigured` when there is none.
    """
    authority = _AUTHORITY.match(url)
    host = authority[1].rpartition("@")[2].lower() if authority else ""
    host = host if host.isascii() else _as_ascii(host)
    if len(host) > HOST_LIMIT or not _HOST.fullmatch(host):
        raise BrokerError(Code.APP_MISCONFIGURED, note="a provider URL without a usable host")
    return host


def _as_ascii(host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ""


def checked_url(url: str) -> str:
    """Return a URL a browser may be sent to: http(s), a host, no credentials, only characters a URL has (RFC 3986).
    Raises `appMisconfigured`; nothing of the URL is repeated. Not read by urllib, whose cache would keep the state."""
    if not _URL.fullmatch(url):
        raise BrokerError(Code.APP_MISCONFIGURED, note="a provider URL that no browser should be given")
    host_of(url)
    return url


def whole_word(text: str) -> Markup:
    """Return a name in camelCase or with dots, uncut, which breaks into lines only between its parts."""
    return Markup("<bdi>{}</bdi>").format(Markup("<wbr>").join(_PARTS.split(shown(text, 200))))


def breakable(url: str) -> Markup:
    """Return a `checked_url` to be read and typed, which breaks into lines after its slashes."""
    return Markup("/<wbr>").join(url.split("/"))
