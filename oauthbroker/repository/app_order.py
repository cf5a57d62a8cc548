"""Decide in which order the grants of an app are read page by page.

A file store has the tags of one app in one folder, in no order: a page in the app's own order reads all of their names.
The tags of people are spread over 256 folders. So the grants of an app that has very many are read in the order of
people, where others are passed over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

FEW: Final = 20_000  # names of tags that one page may read: 30 ms
LOOK: Final = 128  # grants that are looked at, at most, to learn how many an app has
SOME: Final = 16  # grants after which that can be told
FITTING: Final = 8  # of the app among them; an app with fewer fills no page in the order of people
_VALUES: Final = 2**128  # of the keyed hash that a place begins with


async def has_very_many(first: AsyncIterator[tuple[str, bool]]) -> bool:
    """Tell from the first places in the order of people, and whether their grants are the app's, whether the app has
    very many. The hashes of the places are evenly spread, so the last one shows how many there are."""
    looked = fitting = 0
    async for place, fits in first:
        looked, fitting = looked + 1, fitting + fits
        if looked < SOME:
            continue
        times = _VALUES / (int(place.partition(".")[0], 16) + 1)
        if looked * times < FEW:
            return False
        if fitting >= FITTING and fitting * times > FEW:
            return True
    return False
