"""Store again the grants of which this process remembers a newer version than the store has."""

from __future__ import annotations

import asyncio

from oauthbroker.core.lifecycle import Pass
from oauthbroker.records import Grant
from oauthbroker.repository.repository import Repository

_AT_ONCE = 4


async def restore(repository: Repository) -> list[Grant]:
    """Store them again, and return them. If the store may have lost its last writes, compare all that are remembered,
    else those that were met since."""
    seen, restored, this_pass = repository.newest_seen, list[Grant](), Pass()
    if await repository.lost_writes():
        keys = seen.keys()
        for first in range(0, len(keys), _AT_ONCE):
            await asyncio.gather(*(repository.stored_grant(key) for key in keys[first : first + _AT_ONCE]))
    for key in sorted(seen.behind):
        with this_pass.entry():
            async with repository.pair(key):
                seen.behind.discard(key)
                versioned = await repository.stored_grant(key)
                if versioned is not None and key in seen.behind:
                    restored.append((await repository.save_grant(versioned.record, expect=versioned.generation)).record)
    this_pass.over()
    return restored
