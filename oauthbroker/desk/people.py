"""What stands behind the pages for people: visits, the connections of each, and when grants were used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oauthbroker.apps import OAuthApp
from oauthbroker.audit import AuditWriter
from oauthbroker.clock import Clock
from oauthbroker.desk.connections import Connections
from oauthbroker.desk.uses import Uses
from oauthbroker.desk.visits import Visits
from oauthbroker.flows.opening import Opening
from oauthbroker.inventory import Grants
from oauthbroker.records.use import Use
from oauthbroker.records.visit import Visit
from oauthbroker.repository import Repository
from oauthbroker.settings import Settings


@dataclass(frozen=True, slots=True)
class People:
    """One per broker."""

    visits: Visits
    uses: Uses
    connections: Connections

    @classmethod
    def of(
        cls,
        apps: Mapping[str, OAuthApp],
        repository: Repository,
        grants: Grants,
        opening: Opening,
        settings: Settings,
        clock: Clock,
        audit: AuditWriter,
    ) -> People:
        visits = Visits(repository.shelf("visits", Visit.from_plaintext), clock)
        uses = Uses(repository.shelf("uses", Use.from_plaintext), clock)
        connections = Connections(apps, repository, visits, uses, grants, opening, settings, clock, audit)
        return cls(visits, uses, connections)

    async def close(self) -> None:
        """What this process knows of uses is written."""
        await self.uses.write(everything=True)
