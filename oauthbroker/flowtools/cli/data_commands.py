"""The commands `oauthbroker flow backup` and `restore`, and `oauthbroker flow secret set`, `list` and `remove`: secrets
of webhooks, which are never shown."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.cli.command_inputs import CONFIG, Config, Database, database_url, with_broker
from oauthbroker.flowtools.cli.deploying_commands import LIMIT, AsJson, Limit, say, shortened
from oauthbroker.flowtools.serving.data import remove_secret, secret_names, set_secret

_DUMP: Final = (
    "the database is PostgreSQL: back it up whole with pg_dump --format=custom, and restore it into an empty one with "
    "pg_restore --exit-on-error"
)
Name = Annotated[str, typer.Argument(help="The name that `webhookSecret` of a trigger has.")]
_MOST: Final = 4096
secret = typer.Typer(add_completion=False, help="Secrets of webhooks: set, list, remove.")


def backup(
    file: Annotated[Path, typer.Argument(help="A new file.")], database: Database = "", config: Config = CONFIG
) -> None:
    """Copy the database of flows in SQLite into a new file: entities and runs, of one moment.

    Brokers may work meanwhile. The copy has inputs and results in plain text. Export the store first (`oauthbroker
    store export`), then copy this database: events may then come twice after a restore, and start no second run.
    """
    copy_sqlite(_file_of(database_url(database, config)), file)
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
    copy_sqlite(file, place)
    typer.echo(f"{place}: restored")


def _file_of(url: str) -> Path:
    from oauthbroker.flowtools.entities.database import sqlite_file

    file = sqlite_file(url)
    if file is None:
        raise BrokerError(Code.REQUEST_INVALID, note=_DUMP)
    return file


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database of flows as it is at one moment into a new file that the owner alone can read. The file appears
    when it is complete and on the disk. Raises BrokerError if there is nothing to copy, or a file in the way."""
    in_the_way = [each for end in ("", "-wal", "-journal") if (each := target.with_name(target.name + end)).exists()]
    if in_the_way:
        note = f"{in_the_way[0]} exists; name a new file, or move it away while no broker runs"
        raise BrokerError(Code.REQUEST_INVALID, note=note)
    new = target.with_name(f".{target.name}.tmp")
    try:
        new.unlink(missing_ok=True)  # of a copy that was killed
        os.close(os.open(new, os.O_CREAT | os.O_EXCL, 0o600))
        _vacuum(source, new)
        _sync(new)
        os.link(new, target)  # fails if the name is in use
        _sync(target.parent)
    except OSError as error:
        raise BrokerError(Code.REQUEST_INVALID, note=f"{target}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            new.unlink()


def _vacuum(source: Path, new: Path) -> None:
    try:
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True, timeout=30.0)) as connection:
            connection.execute("SELECT 1 FROM flow_run LIMIT 1")
            connection.execute("VACUUM INTO ?", (str(new),))
    except sqlite3.Error as error:
        note = f"{source} is no readable database of flows: {error}"
        raise BrokerError(Code.REQUEST_INVALID, note=note) from None


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@secret.command("set")
def set_(
    name: Name,
    config: Config = CONFIG,
    *,
    only: Annotated[bool, typer.Option("--only", help="End the secret before it at once.")] = False,
) -> None:
    """Read a secret from stdin and store it sealed. The one before it stays valid until the next change."""
    try:
        text = sys.stdin.buffer.read(_MOST).decode()
    except UnicodeDecodeError:
        raise BrokerError(Code.REQUEST_INVALID, note="the secret is no text") from None
    with_broker(config, lambda broker: set_secret(broker, name, text, keep=not only))
    typer.echo(f"{name}: stored")


@secret.command("list")
def list_(limit: Limit = LIMIT, config: Config = CONFIG, *, as_json: AsJson = False) -> None:
    """List the names of secrets, each with the number of valid ones."""
    found = shortened([*with_broker(config, secret_names).items()], limit)
    answer = {"secrets": [{"name": name, "valid": count} for name, count in found]}
    say(answer, [f"{name}  {count} valid" for name, count in found], as_json=as_json)


@secret.command("remove")
def remove(name: Name, config: Config = CONFIG) -> None:
    """Remove a secret. Webhooks with it are refused from then on."""
    if not with_broker(config, lambda broker: remove_secret(broker, name)):
        raise BrokerError(Code.NOT_FOUND, note="no secret has this name")
    typer.echo(f"{name}: removed")
