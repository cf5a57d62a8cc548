"""Read grants for commands: one by one, with progress. Only those that a command needs are in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oauthbroker.cli.output.progress import progress
from oauthbroker.cli.stored_records import bare_id, by_id, check_app, id_start, in_vault
from oauthbroker.core.progress import Count

if TYPE_CHECKING:
    from oauthbroker.grants.grants import GrantSummary, Vault

_PREFIXES: Final = ("sha256:",)
_WHOLE: Final = 64  # digits of an id
_LEAST: Final = 1000  # grants that are sorted at a time


class GrantReader:
    """Reads the grants of an app, a subject, or all there are, each time anew."""

    def __init__(self, config: Path, app: str | None, subject: str | None, *, as_json: bool) -> None:
        self._config, self._app, self._subject, self._as_json = config, app, subject, as_json

    def newest(self, most: int) -> tuple[list[GrantSummary], int]:
        """Return the newest grants, and how many there are."""
        found: list[GrantSummary] = []

        def take(grant: GrantSummary) -> bool:
            found.append(grant)
            if len(found) >= max(2 * most, _LEAST):
                found[:] = newest_first(found)[:most]
            return False

        count = self._read(take)
        return newest_first(found)[:most], count

    def unended(self) -> list[GrantSummary]:
        """Return those that can still be revoked, the newest first."""
        found: list[GrantSummary] = []

        def take(grant: GrantSummary) -> bool:
            found.extend([grant] if grant.unended else ())
            return False

        self._read(take)
        return newest_first(found)

    def one(self, typed: str, fits: Callable[[GrantSummary], bool] = lambda _: True) -> GrantSummary:
        """Return the grant whose id is typed, or begins so. Raises Refused if none or several do."""
        start = id_start(typed, _PREFIXES)
        found: list[GrantSummary] = []

        def take(grant: GrantSummary) -> bool:
            if bare_id(grant.grantId, _PREFIXES).startswith(start) and fits(grant):
                found.append(grant)
            return len(found) == (1 if len(start) == _WHOLE else 2)

        self._read(take)
        return by_id(((each.grantId, each) for each in found), typed, _PREFIXES, "grant", "grants list")

    def _read(self, take: Callable[[GrantSummary], bool]) -> int:
        """Give grants to `take` until it returns true. Return how many. Raises Refused for none of an unknown app."""
        with progress(as_json=self._as_json) as shown:

            async def read(vault: Vault) -> int:
                everything = self._app is None and self._subject is None
                count = Count("grants read", await vault.grants.count() if everything else None, shown)
                async for grant in vault.grants.list(app=self._app, subject=self._subject):
                    count.add()
                    if take(grant):
                        break
                return count.done

            count = in_vault(self._config, read)
        if not count:
            check_app(self._config, self._app)
        return count


def newest_first(grants: list[GrantSummary]) -> list[GrantSummary]:
    """Sort by the exact time, which the printed one rounds."""
    return sorted(grants, key=lambda grant: (grant.created_at, grant.grantId), reverse=True)
