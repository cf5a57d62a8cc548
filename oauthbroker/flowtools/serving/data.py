"""The database of a FlowService: its place, and the erasure of a user there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from oauthbroker import BrokerError, Code
from oauthbroker.plugins import PluginAudit, PluginResource, PluginResources, SubjectRecords

_SQLITE: Final = "sqlite:///"


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
        kept = erase(database, subject, dry_run=dry_run, audit=audit)
        return SubjectRecords(records=kept.runs, ending=kept.living)
    except SQLAlchemyError as error:
        name = type(error).__name__  # its text may quote the URL
    finally:
        database.engine.dispose()
    raise BrokerError(Code.STORE_UNAVAILABLE, note=f"the database of flows: {name}")
