"""A browser's cookie jar: hosts without ports, paths, Secure, SameSite, the `__Host-` rules."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult

from oauthbroker.core.dataclasses import dataclass, field

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(slots=True, kw_only=True)
class Cookie:
    """One stored cookie. Its repr hides the value."""

    name: str
    value: str = field(repr=False)
    host: str
    path: str = "/"
    host_only: bool = True
    secure: bool = False
    http_only: bool = False
    same_site: str = "lax"
    until: float | None = None


class CookieJar:
    """The cookies of one browser profile: a list of `Cookie`s with some methods. It may be changed freely."""

    def __init__(self) -> None:
        self.all: list[Cookie] = []

    def __getitem__(self, name: str) -> Cookie:
        return next(cookie for cookie in self.all if cookie.name == name)

    def __contains__(self, name: object) -> bool:
        return any(cookie.name == name for cookie in self.all)

    def __iter__(self) -> Iterator[str]:
        return iter([cookie.name for cookie in self.all])

    def __len__(self) -> int:
        return len(self.all)

    def set(self, name: str, value: str, host: str, *, path: str = "/") -> None:
        """Set a cookie against all rules, as a sibling domain or an attacker might."""
        self.drop(name)
        self.all.append(Cookie(name=name, value=value, host=host, path=path))

    def drop(self, name: str | None = None) -> None:
        """Remove one cookie, or all."""
        self.all = [cookie for cookie in self.all if name is not None and cookie.name != name]

    def take(self, header: str, url: SplitResult) -> Cookie | None:
        """Process one Set-Cookie header and return the stored cookie; None if it breaks a rule (RFC 6265bis section
        5.6)."""
        cookie = _parsed(header, url)
        if cookie is None:
            return None
        same = (cookie.name, cookie.host, cookie.path)
        self.all = [old for old in self.all if (old.name, old.host, old.path) != same]
        if cookie.until is not None and cookie.until <= time.time():
            return None
        self.all.append(cookie)
        return cookie

    def header(self, url: SplitResult, *, cross_site: bool, navigation: bool) -> str:
        """Return the Cookie header for a request, longest path first. `navigation`: a top-level GET."""
        chosen = [cookie for cookie in self.all if _fits(cookie, url, cross_site=cross_site, navigation=navigation)]
        chosen.sort(key=lambda cookie: -len(cookie.path))
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in chosen)


def _parsed(header: str, url: SplitResult) -> Cookie | None:
    first, *rest = header.split(";")
    name, equals, value = first.partition("=")
    attributes = {key.strip().lower(): given.strip() for key, _, given in (part.partition("=") for part in rest)}
    host = url.hostname or ""
    domain = attributes.get("domain", "").lstrip(".").lower()
    cookie = Cookie(
        name=name.strip(),
        value=value.strip(),
        host=domain or host,
        path=attributes["path"] if attributes.get("path", "").startswith("/") else url.path.rpartition("/")[0] or "/",
        host_only=not domain,
        secure="secure" in attributes,
        http_only="httponly" in attributes,
        same_site=attributes.get("samesite", "lax").lower(),
        until=_until(attributes),
    )
    return cookie if equals and _allowed(cookie, host, trustworthy=is_trustworthy(url)) else None


def _allowed(cookie: Cookie, host: str, *, trustworthy: bool) -> bool:
    if not cookie.host_only and not _within(host, cookie.host):
        return False
    if cookie.secure and not trustworthy:
        return False
    if cookie.same_site == "none" and not cookie.secure:
        return False
    if cookie.name.lower().startswith("__host-"):
        return cookie.secure and cookie.host_only and cookie.path == "/"
    return cookie.secure or not cookie.name.lower().startswith("__secure-")


def _fits(cookie: Cookie, url: SplitResult, *, cross_site: bool, navigation: bool) -> bool:
    host = url.hostname or ""
    if host != cookie.host and (cookie.host_only or not _within(host, cookie.host)):
        return False
    path, prefix = url.path or "/", cookie.path
    if path != prefix and not path.startswith(prefix if prefix.endswith("/") else prefix + "/"):
        return False
    if cookie.secure and not is_trustworthy(url):
        return False
    if cookie.until is not None and cookie.until <= time.time():
        return False
    return not cross_site or cookie.same_site == "none" or (cookie.same_site == "lax" and navigation)


def _until(attributes: dict[str, str]) -> float | None:
    if attributes.get("max-age", "").lstrip("-").isdigit():
        return time.time() + int(attributes["max-age"])
    if "expires" in attributes:
        try:
            return parsedate_to_datetime(attributes["expires"]).timestamp()
        except ValueError:
            return None
    return None


def is_trustworthy(url: SplitResult) -> bool:
    """Tell whether browsers treat this origin as secure: https, or loopback."""
    return url.scheme == "https" or url.hostname in _LOOPBACK


def same_site(one: SplitResult, other: SplitResult) -> bool:
    """Tell whether scheme and registrable domain (the last two labels, or the address) are equal. Ports do not
    count."""
    return one.scheme == other.scheme and _site(one.hostname or "") == _site(other.hostname or "")


def _site(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ".".join(host.split(".")[-2:])


def _within(host: str, domain: str) -> bool:
    if "." not in domain or domain.replace(".", "").isdigit():
        return host == domain
    return host == domain or host.endswith("." + domain)
