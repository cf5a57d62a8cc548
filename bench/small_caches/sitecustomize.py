"""Make the broker's caches small in each process whose PYTHONPATH names this folder: Python imports this at its start.

A cache that grows with the calls takes up to ten megabytes, and is full after 2,000 to 10,000 turns. Small ones are
full within the warm-up of a soak: what grows after it is no cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MOST = 32  # entries of a cache: more than a soak uses at the same time
_lru_cache: Callable[..., Any] = functools.lru_cache


def _small_lru_cache(maxsize: Any = MOST, *more: Any, **named: Any) -> Any:
    """Return the decorator with a small bound. None, for no bound, stays: such a cache has to be noticed."""
    return _lru_cache(min(maxsize, MOST) if isinstance(maxsize, int) else maxsize, *more, **named)


functools.lru_cache = _small_lru_cache  # before the broker's modules are imported

from oauthbroker.core.bounded_cache import Bounded  # noqa: E402
from oauthbroker.store.file import versioned_entries  # noqa: E402

_bounded: Callable[..., None] = Bounded.__init__


def _small_bounded(self: Bounded[Any, Any], most: int, **named: Any) -> None:
    _bounded(self, min(most, MOST), **named)


Bounded.__init__ = _small_bounded  # type: ignore[method-assign]
versioned_entries._MOST_HEADERS = MOST  # noqa: SLF001 - the cache that is neither
