"""What a configured URL may look like. Pure: nothing is resolved or fetched."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

HTTPS_ADVICE: Final = "write https://"
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%#-]+")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def host_of(url: str) -> str:
    """Return the host of a URL that `problem` found nothing wrong with."""
    return urlsplit(url).hostname or ""


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: two URLs with the same ones share their cookies' reach and more."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def is_http(url: str) -> bool:
    return urlsplit(url).scheme == "http"


def problem(url: str, *, query: bool = True) -> tuple[str, str] | None:
    """Return (what, what to do) for a URL that is not an absolute, plain http(s) URL, else None."""
    if not _CHARACTERS.fullmatch(url):
        return "not a URL", "write https://host/path, percent-encode other characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "not a URL", "write https://host/path"
    if parts.scheme not in {"https", "http"}:
        return "not an https URL", HTTPS_ADVICE
    if parts.username is not None or parts.password is not None:
        return "a user name in a URL", "remove what stands before the @"
    if port == 0 or not is_host(parts.hostname or ""):
        return "a URL without a usable host", "write https://host/path"
    if "#" in url or ("?" in url and not query):
        return "a URL with a query or fragment", "remove it"
    return None


def is_host(host: str) -> bool:
    """Return whether it is a host name, or an address without brackets."""
    if ":" in host:
        try:
            return bool(ipaddress.IPv6Address(host))
        except ValueError:
            return False
    return _HOST.fullmatch(host) is not None


def is_network(text: str) -> bool:
    """Return whether the text is an IP address, or a network such as 10.0.0.0/24."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
