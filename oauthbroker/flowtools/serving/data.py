"""The database of a FlowService: its place, and the erasure of a user there. The secrets of webhooks, sealed in the
broker's store. During a change, the old one is taken beside the new one."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from pathlib import Path
from typing import Any, Final

from oauthbroker import Broker, BrokerError, Code
from oauthbroker.plugins import PluginAudit, PluginResource, PluginResources, SubjectRecords

_SQLITE: Final = "sqlite:///"
PLUGIN: Final = "flowtools"
_KEY: Final = "webhook/"
_LEAST, _MOST = 16, 512  # characters
STANDARD: Final = "whsec_"


def database_url(resource: PluginResource, store: Path) -> str:
    """Return the URL of the database: the configured one, or SQLite beside the store."""
    secret = resource.secrets.get(("database",))
    return f"{_SQLITE}{_beside(store)}" if secret is None else secret.reveal()


def _beside(store: Path) -> Path:
    return store.with_name(f"{store.name}-flows.db")


def secret_places(store: Path, resources: PluginResources) -> list[Path]:
    """Return the files of the databases, and of the usual one: it may be left from before another was configured."""
    urls = [database_url(each, store) for each in resources.resources]
    named = [Path(url.removeprefix(_SQLITE).partition("?")[0]) for url in urls if url.startswith(_SQLITE)]
    files = dict.fromkeys([_beside(store), *named])
    return [file.with_name(file.name + suffix) for file in files for suffix in ("", "-wal", "-shm", "-journal")]


def urls_of(bundle: Any) -> list[str]:
    """Return the URL of the database of a configuration's FlowService; none without one."""
    store = Path(bundle.settings.store_root).absolute()
    return [database_url(each, store) for each in bundle.plugins.get("flowtools", PluginResources()).resources]


async def erase_subject(bundle: Any, subject: str, *, dry_run: bool, audit: PluginAudit) -> SubjectRecords:
    """End the living runs of a caller or user, and remove what the others have of them."""
    from oauthbroker.flowtools.running.auditing import audit_from_threads

    given: dict[str, Any] = {"dry_run": dry_run, "audit": audit_from_threads(audit)}
    found = [await asyncio.to_thread(_erased, url, subject, **given) for url in urls_of(bundle)]
    return SubjectRecords(records=sum(each.records for each in found), ending=sum(each.ending for each in found))


def _erased(url: str, subject: str, *, dry_run: bool, audit: PluginAudit) -> SubjectRecords:
    from sqlalchemy.exc import SQLAlchemyError

    from oauthbroker.flowtools.entities.database import Database, sqlite_file
    from oauthbroker.flowtools.running.erasing import erase

    if (file := sqlite_file(url)) is not None and not file.exists():
        return SubjectRecords()
    database = Database(url)
    try:
        return erase(database, subject, dry_run=dry_run, audit=audit)
    except SQLAlchemyError as error:
        name = type(error).__name__  # its text may quote the URL
    finally:
        database.engine.dispose()
    raise BrokerError(Code.STORE_UNAVAILABLE, note=f"the database of flows: {name}")


async def secrets_of(broker: Broker, name: str) -> list[str]:
    """Return the secrets of a name, the newest first; none if it has none."""
    found: list[str] | None = await broker.plugin_state(PLUGIN).get(_KEY + name)
    return found or []


async def set_secret(broker: Broker, name: str, text: str, *, keep: bool) -> None:
    """Store a secret; `keep` leaves the one before it valid. Raises `requestInvalid` for one that is too weak, and for
    that of another name: its webhooks would take each other's events."""
    secret = text.strip()
    if not (_LEAST <= len(secret) <= _MOST and secret.isascii() and secret.isprintable()) or not _is_whole(secret):
        note = f"a secret has {_LEAST} to {_MOST} printable ASCII characters; behind whsec_, it is base64"
        raise BrokerError(Code.REQUEST_INVALID, note=note)
    async for key, others in broker.plugin_state(PLUGIN).all():
        if key.startswith(_KEY) and key != _KEY + name and secret in others:
            raise BrokerError(Code.REQUEST_INVALID, note=f"{key.removeprefix(_KEY)} has this secret; use a new one")

    def newest(before: list[str] | None) -> list[str]:
        return [secret, *(each for each in (before or [])[:1] if keep and each != secret)]

    await broker.plugin_state(PLUGIN).change(_KEY + name, newest)


async def remove_secret(broker: Broker, name: str) -> bool:
    """Remove the secrets of a name. False if it has none."""
    return await broker.plugin_state(PLUGIN).remove(_KEY + name)


async def secret_names(broker: Broker) -> dict[str, int]:
    """Return each name with the number of its secrets."""
    found = {key: value async for key, value in broker.plugin_state(PLUGIN).all() if key.startswith(_KEY)}
    return {key.removeprefix(_KEY): len(found[key]) for key in sorted(found)}


def _is_whole(secret: str) -> bool:
    if not secret.startswith(STANDARD):
        return True
    try:
        return bool(b64decode(secret.removeprefix(STANDARD), validate=True))
    except ValueError:
        return False
