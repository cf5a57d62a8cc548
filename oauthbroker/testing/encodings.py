"""The forms of a leaked secret: plain, URL-encoded, base64 and base64url, hex, escaped for a format."""

from __future__ import annotations

import base64
import json
from html import escape
from urllib.parse import quote, quote_plus


def encodings_of(text: str) -> dict[bytes, str]:
    """Return every byte string that reveals `text`, with the name of its form. The plain form comes first."""
    raw = text.encode("utf-8", "surrogatepass")
    found: dict[bytes, str] = {}
    for form, shape in (
        ("plain", raw),
        ("URL-encoded", quote(raw, safe="").encode()),
        ("URL-encoded", quote_plus(raw, safe="").encode()),
        ("URL-encoded", quote(raw, safe="/").encode()),
        *(("JSON-escaped", shape) for shape in _json_shapes(text)),
        ("HTML-escaped", escape(text).encode("utf-8", "surrogatepass")),
        ("Python-escaped", repr(text)[1:-1].encode("utf-8", "surrogatepass")),
        ("Python-escaped", ascii(text)[1:-1].encode()),
        ("Python-escaped", repr(raw)[2:-1].encode()),
        ("hex", raw.hex().encode()),
        ("hex", raw.hex().upper().encode()),
        *(("base64", piece) for piece in _base64_pieces(raw, url_safe=False)),
        *(("base64url", piece) for piece in _base64_pieces(raw, url_safe=True)),
    ):
        found.setdefault(shape, form)
    return found


def _json_shapes(text: str) -> list[bytes]:
    """Return JSON encodings: ASCII only or not, slashes escaped (as PHP and others do) or not."""
    shapes = [json.dumps(text, ensure_ascii=only_ascii)[1:-1] for only_ascii in (True, False)]
    return [one.encode("utf-8", "surrogatepass") for shape in shapes for one in (shape, shape.replace("/", r"\/"))]


def _base64_pieces(raw: bytes, *, url_safe: bool) -> list[bytes]:
    """Return the part of `raw` that is visible inside a longer base64 text, for each of its three alignments.

    Characters that also carry bits of neighbouring bytes are removed; the rest depends on `raw` alone.
    """
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    pieces = []
    for shift in range(3):
        first = -(-shift * 8 // 6)  # characters that share bits with the bytes before
        last = (shift + len(raw)) * 8 // 6  # end of the characters with our bits alone
        piece = encode(b"\0" * shift + raw)[first:last]
        if piece:
            pieces.append(piece)
    return pieces
