"""TLS for everything that we connect to: always verified, TLS 1.2 at least, never from the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def tls_context(ca: str) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities, and the certificates in `ca` (PEM)."""
    import ssl

    import httpx2

    context = httpx2.create_ssl_context(trust_env=False)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca:
        context.load_verify_locations(cadata=ca)
    return context
