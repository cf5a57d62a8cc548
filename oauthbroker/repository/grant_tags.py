"""The tags of grants: by which app and which people they are found. The table is in docs/store-format.md."""

from __future__ import annotations

from dataclasses import dataclass

from oauthbroker.records import Grant
from oauthbroker.store.format.port import Store, Tag

KIND = "grants"


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
