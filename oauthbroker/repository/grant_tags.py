"""The tags of grants: by which app and which people they are found. The table is in docs/store-format.md."""

from __future__ import annotations

from datetime import date
from operator import attrgetter
from typing import Any

from oauthbroker.core.dataclasses import dataclass
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

    def ending(self, day: date) -> Tag:
        """Return the tag of grants whose users are to be told on that day (UTC) that they end."""
        return self.store.tag(KIND, "ending", day.isoformat())

    def notice(self, notice: str) -> Tag:
        """Return the tag of the grant whose notice has this id."""
        return self.store.tag(KIND, "notice", notice)

    def of(self, grant: Grant) -> tuple[Tag, ...]:
        """Return all tags of a grant."""
        day, id_of_notice = notice_of(grant)
        ending = () if day is None else (self.ending(day),)
        notice = (self.notice(id_of_notice),) if id_of_notice else ()
        return (self.app(grant.app), *map(self.who, sorted(people_of(grant))), *ending, *notice)


def notice_of(grant: Grant) -> tuple[date | None, str]:
    """Return the day on which the grant's user is to be told that it ends, and the id of the notice that was given. A
    day before the end was learned is that day: the look goes back a few days only."""
    ends = grant.ends
    if ends is None or not grant.ends_by_itself:
        return None, ""
    due = ends.announce_at
    return None if due is None else max(due, ends.since).date(), ends.notice


def tagged_by(grant: Grant) -> tuple[Any, ...]:
    """Return what the tags of a grant follow from, beside its key."""
    return people_of(grant), notice_of(grant)


def people_of(grant: Grant) -> frozenset[str]:
    """Return the subject, and who agreed to it or to replaced tokens that it keeps."""
    agreed = map(attrgetter("authorized_by"), (grant, *grant.elsewhere, *grant.replaced))
    return frozenset(filter(None, (grant.subject, *agreed)))
