"""An address as a QR code: inline SVG of one path, so that our Content-Security-Policy has nothing to forbid."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

import segno
from markupsafe import Markup

QUIET_ZONE = 4  # modules of white around it (ISO/IEC 18004 section 5.3.8)


@lru_cache(maxsize=64)
def qr_svg(address: str) -> Markup:
    """Black on white whatever the page's colours are, as large as its box. It has no words: the page around it says
    in text where the code leads."""
    matrix = segno.make_qr(address, error="m").matrix
    size = len(matrix) + 2 * QUIET_ZONE
    path = "".join(_runs(row, y) for y, row in enumerate(matrix, QUIET_ZONE))
    return Markup(
        '<svg class="qr" viewBox="0 0 {0} {0}" aria-hidden="true" focusable="false" shape-rendering="crispEdges">'
        '<path d="{1}"/></svg>'
    ).format(size, path)


def _runs(row: bytearray, y: int) -> str:
    """The dark modules of a row, those side by side as one rectangle."""
    found, x = "", QUIET_ZONE
    for is_dark, modules in groupby(row, key=bool):
        width = len(list(modules))
        found += f"M{x} {y}h{width}v1h-{width}z" if is_dark else ""
        x += width
    return found
