"""What a browser may do with anything we answer: the stylesheet, its hash, and the security headers."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

TEMPLATES = Path(__file__).parents[1] / "templates"
_DENIED_FEATURES = ("accelerometer", "camera", "geolocation", "gyroscope", "microphone", "payment", "usb")


@cache
def stylesheet() -> str:
    """Return the one stylesheet, exactly as it stands between `<style>` and `</style>` of every page."""
    return (TEMPLATES / "style.css").read_text(encoding="utf-8")


@cache
def content_security_policy(*, images: bool = False) -> str:
    """Return a policy: nothing may load, run, frame us or be posted elsewhere; only our stylesheet applies, by its
    SHA-256. With `images` a page shows those that we serve ourselves."""
    digest = base64.b64encode(hashlib.sha256(stylesheet().encode()).digest()).decode()
    shown = "img-src 'self'; " if images else ""
    applied = f"{shown}style-src 'sha256-{digest}'"
    return f"default-src 'none'; {applied}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"


@cache
def security_headers() -> Mapping[str, str]:
    """Return the headers of every answer, names in lower case. A page may say its own Referrer-Policy."""
    return MappingProxyType(
        {
            "cache-control": "no-store",
            "content-security-policy": content_security_policy(),
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": ", ".join(f"{feature}=()" for feature in _DENIED_FEATURES),
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "x-robots-tag": "noindex, nofollow",
        }
    )


@cache
def raw_security_headers(*, https: bool) -> tuple[tuple[bytes, bytes], ...]:
    """Return the same headers in ASGI's form: they are added to every answer there is. `https`: that of
    `publicBaseUrl`; then browsers come by https alone for a year. Subdomains are not ours to bind."""
    more = {"strict-transport-security": "max-age=31536000"} if https else {}
    every = {**security_headers(), **more}
    return tuple((name.encode("ascii"), value.encode("ascii")) for name, value in every.items())
