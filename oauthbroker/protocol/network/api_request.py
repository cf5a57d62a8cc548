"""A request to a provider's API, as plain data."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence

from oauthbroker.core.dataclasses import dataclass

Headers = Sequence[tuple[bytes, bytes]]
_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ApiRequest:
    """A request for a checked target. `headers` have neither Host nor the body's length. `body` is repeatable as bytes,
    and of `length` bytes otherwise, or of as many as come. `account` shares connections with itself only. `app`,
    `ca` and `direct` as in `ProviderRequest`."""

    method: str
    scheme: str
    host: str
    port: int
    path: str
    headers: Headers
    body: bytes | AsyncIterable[bytes] = b""
    length: int | None = None
    account: str = ""
    app: str = ""
    ca: str = ""
    direct: bool = False

    def __repr__(self) -> str:
        return f"ApiRequest({self.method} {self.host})"

    @property
    def head(self) -> list[tuple[bytes, bytes]]:
        """Return the headers with Host, and the one that says where the body ends."""
        own = self.port == (443 if self.scheme == "https" else 80)
        authority = self.host if own else f"{self.host}:{self.port}"
        return [(b"Host", authority.encode("ascii")), *self.headers, *self._framing()]

    def _framing(self) -> Headers:
        if isinstance(self.body, bytes):
            if not self.body and self.method in _BODILESS:
                return ()
            return ((b"Content-Length", b"%d" % len(self.body)),)
        if self.length is None:
            return ((b"Transfer-Encoding", b"chunked"),)
        return ((b"Content-Length", b"%d" % self.length),)
