"""The tags of grants: by which app and which people they are found. The table is in store/README.md."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from oauthbroker.core.errors import BrokerError
from oauthbroker.records import Grant
from oauthbroker.repository.versioned import opened
from oauthbroker.store.format.port import Entry, Store, Tag

KIND = "grants"
AT_ONCE = 4096  # grants whose tags share the syncs of their folders


@dataclass(frozen=True, slots=True)
class GrantTags:
    """Computes tags in one store."""

    store: Store

    def app(self, name: str) -> Tag:
        return self.store.tag(KIND, "app", name)

    def who(self, subject: str) -> Tag:
        """Return the tag of grants that belong to this subject, or that it agreed to."""
        return self.store.tag(KIND, "who", subject)

    def of(self, grant: Grant) -> tuple[Tag, ...]:
        """Return all tags of a grant."""
        return (self.app(grant.app), *map(self.who, sorted(people_of(grant))))


def people_of(grant: Grant) -> frozenset[str]:
    """Return the subject, and who agreed to it or to replaced tokens that it keeps."""
    agreed = (grant.authorized_by, *(others.authorized_by for others in (*grant.elsewhere, *grant.replaced)))
    return frozenset(filter(None, (grant.subject, *agreed)))


async def tag_grants(store: Store) -> None:
    """Give every readable grant its tags. One that is mended later gets them from a running broker."""
    tags, batch = GrantTags(store), list[tuple[Entry, tuple[Tag, ...]]]()
    async for entry in store.scan(KIND):
        with suppress(BrokerError):
            batch.append((entry.without_body(), tags.of(opened(Grant.from_plaintext, entry))))
        if len(batch) == AT_ONCE:
            await store.retag(batch)
            batch.clear()
    await store.retag(batch)
