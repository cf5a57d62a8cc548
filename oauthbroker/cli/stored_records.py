"""The common steps of commands on stored records: open the store, find a record by its id, print the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.tables import table
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from oauthbroker.config import Loaded
    from oauthbroker.grants.grants import Vault

SHORTEST_ID = 6
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
    """Run `work` on the store of a configuration."""
    return asyncio.run(within(vault_of(config), work))


async def within(opened: AbstractAsyncContextManager[Opened], work: Callable[[Opened], Awaitable[T]]) -> T:
    async with opened as it:
        return await work(it)


def by_id(found: Iterable[tuple[str, T]], typed: str, prefixes: Sequence[str], what: str, command: str) -> T:
    """Return the one record whose id is typed, or begins so. Raises Refused if none or several do.

    `found` are records with their ids; `prefixes` may be left out of an id. `command` lists the records.
    """
    start = _bare(typed, prefixes)
    if len(start) < SHORTEST_ID:
        raise Refused(f"Type at least {SHORTEST_ID} characters of the id.")
    chosen = [record for name, record in found if _bare(name, prefixes).startswith(start)]
    if not chosen:
        raise Refused(f"There is no such {what}. `oauthbroker {command}` shows what there is.")
    if len(chosen) > 1:
        raise Refused(f"That is the beginning of several {what}s' ids. Type more of it.")
    return chosen[0]


def _bare(name: str, prefixes: Sequence[str]) -> str:
    for prefix in prefixes:
        name = name.removeprefix(prefix)
    return name


def show_all(
    documents: Sequence[Any], rows: Iterable[Sequence[str]], head: Sequence[str], none: str, *, as_json: bool
) -> None:
    """Print records as JSON or as a table; `none` is the sentence for no records."""
    if as_json:
        answer(documents)
    elif documents:
        table(head, rows)
    else:
        typer.echo(none, err=True)
