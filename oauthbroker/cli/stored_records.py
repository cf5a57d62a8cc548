"""The common steps of commands on stored records: open the store, find a record by its id, print the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer

from oauthbroker.cli.output.commands_here import runnable
from oauthbroker.cli.output.json_output import ListAnswer
from oauthbroker.cli.output.progress import NOTHING, SOMEWHERE, Stopped
from oauthbroker.cli.output.tables import Table, shown
from oauthbroker.core.dataclasses import KW_ONLY, dataclass
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from oauthbroker.config import Loaded
    from oauthbroker.grants.grants import Vault

SHORTEST_ID = 6
MOST_NAMED = 10
T = TypeVar("T")
Opened = TypeVar("Opened")


@asynccontextmanager
async def vault_of(config: Path | Loaded) -> AsyncIterator[Vault]:
    """Open the store of a configuration, of which a shell may lack the values."""
    from oauthbroker.config.bundle.server_environment import load_here
    from oauthbroker.wiring import open_vault

    loaded = load_here(config) if isinstance(config, Path) else config
    async with open_vault(loaded.settings, env=loaded.env) as vault:
        yield vault


def in_vault(config: Path | Loaded, work: Callable[[Vault], Awaitable[T]]) -> T:
    """Run `work` on the store of a configuration. Raises Stopped, as `run_within` does."""
    return run_within(vault_of(config), work)


def run_within(opened: AbstractAsyncContextManager[Opened], work: Callable[[Opened], Awaitable[T]]) -> T:
    """Open something and run `work` on it. Raises Stopped at Ctrl-C, and knows whether `work` had begun."""
    begun = False

    async def run() -> T:
        nonlocal begun
        async with opened as it:
            begun = True
            return await work(it)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        raise Stopped(SOMEWHERE if begun else NOTHING) from None


async def check_app(vault: Vault, config: Path, typed: str | None) -> None:
    """Raise Refused unless a list that is empty is one of an app that is configured, or of which something is stored.
    `typed` may name an account of it."""
    from oauthbroker.config.bundle.server_environment import load_here

    name = (typed or "").partition("@")[0]
    if name and name not in (known := load_here(config).apps) and not await vault.grants.has_records_of(name):
        raise Refused(f"{unknown('app', name, known)} Nothing was changed.")


def unknown(what: str, typed: str, known: Iterable[str]) -> str:
    """Return the sentence for a name that is not there: it has the nearest name and all others."""
    from oauthbroker.core.spelling import nearest

    names = sorted(known)
    close = nearest(typed, names)
    meant = f" Did you mean {shown(close)}?" if close else ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    there = f"Known: {', '.join(map(shown, names[:MOST_NAMED]))}{more}." if names else "There is none at all."
    return f"There is no {what} {shown(typed)}.{meant} {there}"


def by_id(found: Iterable[tuple[str, T]], typed: str, prefixes: Sequence[str], what: str, command: str) -> T:
    """Return the one record whose id is typed, or begins so. Raises Refused if none or several do.

    `found` are records with their ids; `prefixes` may be left out of an id. `command` lists the records.
    """
    start = bare_id(typed, prefixes)
    chosen = [record for name, record in found if bare_id(name, prefixes).startswith(start)]
    if not chosen:
        raise Refused(f"There is no {what} {shown(typed)}. `oauthbroker {command}` shows what there is.")
    id_start(typed, prefixes, what, command)
    if len(chosen) > 1:
        raise Refused(f"That is the beginning of several {what}s' ids. Type more of it.")
    return chosen[0]


def id_start(typed: str, prefixes: Sequence[str], what: str, command: str) -> str:
    """Return how the wanted id begins, without prefixes. Raises Refused for a text that is too short."""
    start = bare_id(typed, prefixes)
    if len(start) < SHORTEST_ID:
        raise Refused(
            f"{shown(typed)} is too short for the beginning of a {what}'s id: type at least {SHORTEST_ID} characters "
            f"of one that `oauthbroker {command}` shows."
        )
    return start


def bare_id(name: str, prefixes: Sequence[str]) -> str:
    for prefix in prefixes:
        name = name.removeprefix(prefix)
    return name


@dataclass(frozen=True)
class Listing(Generic[T]):
    """How the records of a list are printed: as JSON, or in rows under `head`; without any, the sentence `none`."""

    head: Sequence[str]
    row: Callable[[T], Sequence[str]]
    document: Callable[[T], Any]
    _: KW_ONLY
    none: str

    def show(self, found: Sequence[T], *, as_json: bool, limit: int | None = None) -> None:
        """Print the first records, `limit` at most, and on stderr how many are left out."""
        with self.printing(as_json=as_json, count=len(found)) as add:
            add(found[:limit])

    @contextmanager
    def printing(self, *, as_json: bool, count: int) -> Iterator[Callable[[Sequence[T]], None]]:
        """Yield what prints the next of the records; there are `count`, and those that are shown may be fewer."""
        shown_here, table, documents = 0, Table(self.head, paged=True), ListAnswer()

        def add(found: Sequence[T]) -> None:
            nonlocal shown_here
            shown_here += len(found)
            if as_json:
                documents.add([*map(self.document, found)])
            elif found:
                table.add(map(self.row, found))

        yield add
        if as_json:
            documents.end()
        elif shown_here:
            table.end()
        else:
            typer.echo(runnable(self.none), err=True)
        if shown_here < count:
            typer.echo(f"Shown are {shown_here} of {count}: --limit {count} shows all.", err=True)
