"""Explain a failed TLS connection in fixed words for the operator. This module configures nothing."""

from __future__ import annotations

# OpenSSL's verification results (x509_vfy.h). Its own messages may name hosts.
_CERTIFICATE = {
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is signed by itself",
    19: "its authority is not trusted here",
    20: "its authority is not trusted here",
    21: "its authority is not trusted here",
    23: "it has been revoked",
    62: "it is for another host",
    64: "it is for another host",
}


def tls_trouble(error: BaseException) -> str:
    """Return a note such as `TLS: the provider's certificate is refused, it has expired`; empty if TLS was not the
    cause.

    Walks through causes and contexts, because HTTP libraries wrap the socket's errors.
    """
    import ssl  # imported here: a broker without provider calls does not need it

    seen: BaseException | None = error
    for _ in range(10):
        if isinstance(seen, ssl.SSLCertVerificationError):
            why = _CERTIFICATE.get(seen.verify_code, f"OpenSSL's reason {seen.verify_code}")
            return f"TLS: the provider's certificate is refused, {why}"
        if isinstance(seen, ssl.SSLError):
            return "TLS: no safe connection could be agreed on"
        if seen is None:
            break
        seen = seen.__cause__ or seen.__context__
    return ""
