"""The commands `oauthbroker flow backup` and `oauthbroker flow restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.cli.command_inputs import CONFIG, Config, Database, database_url

_DUMP: Final = (
    "the database is PostgreSQL: back it up whole with pg_dump --format=custom, and restore it into an empty one with "
    "pg_restore --exit-on-error"
)


def backup(
    file: Annotated[Path, typer.Argument(help="A new file.")], database: Database = "", config: Config = CONFIG
) -> None:
    """Copy the database of flows in SQLite into a new file: entities, runs and audit log, of one moment.

    Brokers may work meanwhile. The copy has inputs and results in plain text. Export the store first (`oauthbroker
    store export`), then copy this database: events may then come twice after a restore, and start no second run.
    """
    _copy(_file_of(database_url(database, config)), file)
    typer.echo(f"{file}: written")


def restore(
    file: Annotated[Path, typer.Argument(help="A file of `flow backup`.")],
    database: Database = "",
    config: Config = CONFIG,
) -> None:
    """Make the database of flows of a copy. Its place has to be empty, and no broker may run.

    Runs that had not ended go on as soon as a broker serves. Never let the database that was copied serve again.
    """
    place = _file_of(database_url(database, config))
    _copy(file, place)
    typer.echo(f"{place}: restored")


def _file_of(url: str) -> Path:
    from oauthbroker.flowtools.entities.database import sqlite_file

    file = sqlite_file(url)
    if file is None:
        raise BrokerError(Code.REQUEST_INVALID, note=_DUMP)
    return file


def _copy(source: Path, target: Path) -> None:
    from oauthbroker.flowtools.entities.copying import CopyRefused, copy_sqlite

    try:
        return copy_sqlite(source, target)
    except CopyRefused as refused:
        note = str(refused)
    except OSError as error:
        note = f"{target}: {error.strerror}"
    raise BrokerError(Code.REQUEST_INVALID, note=note)
