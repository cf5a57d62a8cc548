"""Read grants for commands: all of them as heads, one by one, and whole only those that a command shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from oauthbroker.cli.output.progress import progress, unchanged
from oauthbroker.cli.stored_records import Listing, bare_id, by_id, check_app, id_start, run_within, vault_of
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.progress import Count
from oauthbroker.core.refused import Refused
from oauthbroker.records.grant_head import GrantHead

if TYPE_CHECKING:
    from oauthbroker.grants.grants import GrantSummary, Vault
    from oauthbroker.model.grant_key import GrantKey

PREFIXES: Final = ("sha256:",)
_WHOLE: Final = 64  # digits of an id
_LEAST: Final = 1000  # heads that are sorted at a time
BLOCK: Final = 500  # grants that are read, and printed, at a time
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Chosen:
    """The keys of the grants to end, the newest first; how many each app has, and those that ended before: their
    providers have still to be told. `gone` is the one that an id names, if nothing of it is left to end."""

    keys: list[GrantKey] = field(default_factory=list)
    apps: Counter[str] = field(default_factory=Counter)
    ended: set[GrantKey] = field(default_factory=set)
    gone: GrantHead | None = None


class GrantReader:
    """Reads the grants of an app, a subject, or all there are, each time anew."""

    def __init__(self, config: Path, app: str | None, subject: str | None, *, as_json: bool) -> None:
        self._config, self._app, self._subject, self._as_json = config, app, subject, as_json

    def print_newest(self, most: int, listing: Listing[GrantSummary]) -> None:
        """Print the newest grants, and how many there are."""

        async def read(vault: Vault) -> None:
            found = list[GrantHead]()

            def take(head: GrantHead) -> bool:
                found.append(head)
                if len(found) >= max(2 * most, _LEAST):
                    found[:] = newest_first(found)[:most]
                return False

            count = await self._read(vault, take)
            await self._print(vault, [head.key for head in newest_first(found)[:most]], listing, count)

        self._in_vault(read)

    def unended(self, grant_id: str | None) -> Chosen:
        """Choose those that can still be revoked; with an id, or the beginning of one, the one that it names. Raises
        Refused where it names none or several."""
        found, chosen = list[GrantHead](), Chosen()
        fits = None if grant_id is None else _starting(grant_id)

        def take(head: GrantHead) -> bool:
            if head.unended if fits is None else fits(head):
                found.append(head)
            return grant_id is not None and len(found) == _enough(grant_id)

        self._in_vault(lambda vault: self._read(vault, take))
        for head in newest_first(found) if grant_id is None else [_named(found, grant_id)]:
            if not head.unended:
                chosen.gone = head
                continue
            chosen.keys.append(head.key)
            chosen.apps[head.key.app] += 1
            if head.revoked:
                chosen.ended.add(head.key)
        return chosen

    def print(self, keys: list[GrantKey], listing: Listing[GrantSummary]) -> None:
        """Print these grants."""
        self._in_vault(lambda vault: self._print(vault, keys, listing, len(keys)))

    def summaries(self, keys: list[GrantKey]) -> list[GrantSummary]:
        """Read these few grants whole."""
        return self._in_vault(lambda vault: _summaries(vault, keys))

    def one(self, typed: str) -> GrantSummary:
        """Return the grant whose id is typed, or begins so. Raises Refused if none or several do."""
        found, fits = list[GrantHead](), _starting(typed)

        def take(head: GrantHead) -> bool:
            if fits(head):
                found.append(head)
            return len(found) == _enough(typed)

        async def read(vault: Vault) -> GrantSummary | None:
            await self._read(vault, take)
            return await vault.grants.summary(_named(found, typed).key)

        grant = self._in_vault(read)
        if grant is None:
            raise Refused("There is no such grant any more.")
        return grant

    async def _print(self, vault: Vault, keys: list[GrantKey], listing: Listing[GrantSummary], count: int) -> None:
        with listing.printing(as_json=self._as_json, count=count) as add:
            for start in range(0, len(keys), BLOCK):
                add(await _summaries(vault, keys[start : start + BLOCK]))

    def _in_vault(self, work: Callable[[Vault], Awaitable[T]]) -> T:
        with unchanged():
            return run_within(vault_of(self._config), work)

    async def _read(self, vault: Vault, take: Callable[[GrantHead], bool]) -> int:
        """Give heads to `take` until it returns true. Return how many. Raises Refused for none of an unknown app."""
        everything = self._app is None and self._subject is None
        with progress(as_json=self._as_json) as shown:
            count = Count("grants read", await vault.grants.count() if everything else None, shown)
            async for head in vault.grants.heads(app=self._app, subject=self._subject):
                count.add()
                if take(head):
                    break
        if not count.done:
            await check_app(vault, self._config, self._app)
        return count.done


async def _summaries(vault: Vault, keys: list[GrantKey]) -> list[GrantSummary]:
    """Return the grants that are still there."""
    read = [await vault.grants.summary(key) for key in keys]
    return [each for each in read if each is not None]


def _starting(typed: str) -> Callable[[GrantHead], bool]:
    """Return whether the id of a head begins as typed. Raises Refused for a text that is no beginning of an id."""
    start = id_start(typed, PREFIXES, "grant", "grants list")
    return lambda head: bare_id(head.id, PREFIXES).startswith(start)


def _enough(typed: str) -> int:
    """Return how many grants with an id that begins so tell which one is meant."""
    return 1 if len(bare_id(typed, PREFIXES)) == _WHOLE else 2


def _named(found: list[GrantHead], typed: str) -> GrantHead:
    return by_id(((head.id, head) for head in found), typed, PREFIXES, "grant", "grants list")


def newest_first(heads: list[GrantHead]) -> list[GrantHead]:
    """Sort by the exact time, which the printed one rounds."""
    return sorted(heads, reverse=True)
