"""List the external values that a configuration needs and this machine lacks: the end of `oauthbroker check`."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

import typer

from oauthbroker.cli.doctor.place import is_there
from oauthbroker.cli.output.commands_here import runnable
from oauthbroker.config import Loaded
from oauthbroker.config.values.value_sources import SecretKey, Source
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError
from oauthbroker.observability.logging import json_log

if TYPE_CHECKING:
    from oauthbroker.diagnostics.inspection import Inspection
    from oauthbroker.store.format.port import Store


@dataclass(frozen=True, slots=True)
class MissingValues:
    """Variables and secrets that are not set here, and secrets of a store that cannot be opened here."""

    unset: tuple[Source, ...] = ()
    unknown: tuple[Source, ...] = ()


NOTHING: Final = MissingValues()


def missing_values(loaded: Loaded) -> MissingValues:
    """Return the missing values. The store is only read, without a lock, and only if secrets are needed."""
    sources = {(source.env, source.secret): source for source in loaded.sources}
    unset = [source for source in sources.values() if source.env and not loaded.env.get(source.env)]
    secrets = [source for source in sources.values() if source.secret is not None]
    kept = _kept(loaded) if secrets else ()
    if kept is None:
        return MissingValues(tuple(unset), tuple(secrets))
    return MissingValues((*unset, *(source for source in secrets if source.secret not in kept)))


def print_missing_values(here: MissingValues) -> None:
    if here.unset:
        _tell("Not set here:", here.unset)
    if any(source.env for source in here.unset):
        typer.echo("Set variables where the broker starts.", err=True)
    if any(source.secret for source in here.unset):
        typer.echo(runnable("`oauthbroker secrets set NAME KEY` keeps a secret."), err=True)
    if here.unknown:
        _tell("Not known, because the store cannot be opened here:", here.unknown)


def _tell(head: str, sources: Iterable[Source]) -> None:
    lines = [head, *(f"  {source.described}  ({source.place})" for source in sources)]
    typer.echo("\n" + "\n".join(lines), err=True)


def _kept(loaded: Loaded) -> Collection[SecretKey] | None:
    """Return the secrets of the store; none without a store, None for one that cannot be opened."""
    if not loaded.settings.store_url_env and not is_there(loaded.settings.store_root):
        return ()
    from oauthbroker.wiring import look_into, unlocked, with_keys

    clock, settings = SystemClock(), with_keys(loaded.settings, loaded.env)
    try:
        keyring = unlocked(settings, loaded.env, json_log(io.StringIO(), clock))
        opened = look_into(settings, keyring, env=loaded.env, clock=clock)
        return () if opened is None else asyncio.run(_names(*opened))
    except (BrokerError, OSError):
        return None


async def _names(store: Store, inspection: Inspection) -> Collection[SecretKey]:
    try:
        return (await inspection.repository.secrets.all()).keys()
    finally:
        await store.close()
