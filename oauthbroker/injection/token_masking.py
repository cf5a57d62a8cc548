"""Mask tokens where a provider's answer repeats them in plain text, also across the borders of pieces.

Each character becomes a star, so that the length of the answer stays. Another spelling of the token (base64,
percent-encoding, JSON's escapes) and parts of it are not found.
"""

from __future__ import annotations

from collections.abc import Sequence

from oauthbroker.core.secret import Secret

SHORTEST = 8  # characters: a shorter token would occur by chance
LONGEST = 4096  # a longer token is useless without these first characters, and a search has a bound


class Maskers:
    """Masks secrets in one text that comes in pieces. The longest comes first: it may contain another one."""

    __slots__ = ("_each",)

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._each = [Masker(each) for each in sorted(secrets, key=lambda it: -len(it.reveal()))]

    def feed(self, piece: bytes) -> bytes:
        for each in self._each:
            piece = each.feed(piece)
        return piece

    def end(self) -> bytes:
        """Return the rest: what one masker has held goes through those behind it."""
        rest = b""
        for each in self._each:
            rest = each.feed(rest) + each.end()
        return rest

    def once(self, text: bytes) -> bytes:
        """Return a whole text, masked."""
        for each in self._each:
            text = each.once(text)
        return text

    def name(self, name: bytes) -> bytes:
        """Return the name of a header, in lower case and masked."""
        for each in self._each:
            name = each.name(name)
        return name.lower()


class Masker:
    """Masks one token in one text that comes in pieces."""

    __slots__ = ("_held", "_mask", "_token")

    def __init__(self, token: Secret) -> None:
        text = token.reveal().encode("utf-8", "surrogatepass")[:LONGEST]
        self._token = text if len(text) >= SHORTEST else b""
        self._mask = b"*" * len(self._token)
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the text so far, without an end that may be the beginning of the token."""
        if not self._token:
            return piece
        text = (self._held + piece if self._held else piece).replace(self._token, self._mask)
        begin = self._beginning(text)
        self._held = text[begin:]
        return text[:begin]

    def end(self) -> bytes:
        """Return the rest."""
        rest, self._held = self._held, b""
        return rest

    def once(self, text: bytes) -> bytes:
        """Return a whole text, masked."""
        return text.replace(self._token, self._mask) if self._token else text

    def name(self, name: bytes) -> bytes:
        """Return the name of a header, in lower case and masked. Names have no case, so that the token's is none."""
        return name.lower().replace(self._token.lower(), self._mask) if self._token else name.lower()

    def _beginning(self, text: bytes) -> int:
        """Return where the longest end of the text begins that is a beginning of the token."""
        at = text.find(self._token[:1], max(0, len(text) - len(self._token) + 1))
        while at >= 0:
            if self._token.startswith(text[at:]):
                return at
            at = text.find(self._token[:1], at + 1)
        return len(text)
