"""What a command works with: the broker of `--config`, and entities and adapters by its options and its FlowService."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import typer

from oauthbroker import Broker, BrokerError, Code, Secret, open_broker
from oauthbroker.flowtools.deployment.versions import FlowVersions, versions_of
from oauthbroker.flowtools.entities.definition import Entity, entities_in
from oauthbroker.flowtools.running.mail import SmtpAdapter
from oauthbroker.flowtools.running.ports import Ports, with_sandbox
from oauthbroker.flowtools.serving.data import urls_of
from oauthbroker.plugins import PluginResources, on_thread

if TYPE_CHECKING:
    from oauthbroker.flowtools.entities.database import Database as Opened

T = TypeVar("T")
Absent = Literal["refused", "made", "empty"]
_SQLITE: Final = "sqlite:///flows.db"
Entities = Annotated[list[Path], typer.Option("--entity", help="Entities: files, or folders of them.")]
Policies = Annotated[list[Path], typer.Option("--policy", help="A file with a policy, or a folder of them.")]
Database = Annotated[
    str,
    typer.Option(
        envvar="OAUTHBROKER_FLOWS_DATABASE", help="The database as a URL. Else the configured one, or flows.db."
    ),
]
Config = Annotated[Path, typer.Option(help="The broker's configuration: its store, apps and FlowService.")]
CONFIG: Final = Path("config")
Sandbox = Annotated[bool, typer.Option("--sandbox", help="Play payments and SMS, which reach nothing.")]
Mail = Annotated[
    str, typer.Option(help="The server of email nodes: smtps://user@smtp.example.com?from=shop@example.com")
]
MailPassword = Annotated[str, typer.Option(envvar="OAUTHBROKER_FLOWS_MAIL_PASSWORD", hidden=True)]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command works: the versions and the database of the configured broker."""

    versions: FlowVersions
    database: str


def with_ports(
    config: Path,
    work: Callable[[Place, list[Entity], Ports], T],
    entities: Sequence[Path],
    *,
    database: str = "",
    sandbox: bool,
    mail: str,
    mail_password: str,
) -> T:
    """Return what work makes of broker, entities and ports, in a thread. Options win over the FlowService. Raises
    FlowRefused and ValueError."""
    from oauthbroker.flowtools.serving.service import ports_of

    async def done(broker: Broker) -> T:
        resources = broker.bundle.plugins.get("flowtools", PluginResources())
        ports = ports_of(next(iter(resources.resources), None), broker)
        if mail:
            password = Secret(mail_password) if mail_password else None
            ports = replace(ports, email=SmtpAdapter(mail, password))
        found, played = entities_in(entities or entity_files(resources)), with_sandbox(ports) if sandbox else ports
        place = _place(broker, database)
        return await on_thread(lambda: work(place, found, played))

    return with_broker(config, done)


def entity_files(resources: PluginResources) -> list[Path]:
    """Return the files of entities that a configuration's FlowService names."""
    return [(resources.folder or Path()) / each for one in resources.resources for each in one.spec.entities]


def at_broker(config: Path, work: Callable[[Place], T], database: str = "") -> T:
    """Return what work makes of the configured broker, in a thread, while the broker is open."""

    async def done(broker: Broker) -> T:
        place = _place(broker, database)
        return await on_thread(lambda: work(place))

    return with_broker(config, done)


def _place(broker: Broker, database: str) -> Place:
    from oauthbroker.flowtools.running.auditing import audit_from_threads

    url = database or next(iter(urls_of(broker.bundle)), _SQLITE)
    return Place(versions_of(broker, audit_from_threads(broker.audit)), url)


def database_url(url: str, config: Path) -> str:
    """Return the URL of the database that a command names, else that of the FlowService, else of a file here."""
    return url or at_broker(config, lambda here: here.database)


def opened(url: str, *, absent: Absent = "refused") -> Opened:
    """Open a database. A file that is absent is refused with BrokerError, made, or read as an empty database."""
    from oauthbroker.flowtools.entities.database import Database as Opened
    from oauthbroker.flowtools.entities.database import sqlite_file

    file = sqlite_file(url)
    is_absent = file is not None and not file.exists()
    if is_absent and absent == "refused":
        note = f"{file}: no such database; name one with --database or --config, or make it with flow run --apply"
        raise BrokerError(Code.REQUEST_INVALID, note=note)
    return Opened("sqlite:///:memory:" if is_absent and absent == "empty" else url)


def with_broker(config: Path, work: Callable[[Broker], Awaitable[T]]) -> T:
    """Return what work makes of the configured broker, which is open meanwhile. Raises BrokerError without one here."""
    if config == CONFIG and not config.exists():
        note = f"{config}: no such file or directory; pass --config, or begin with oauthbroker flow new FOLDER"
        raise BrokerError(Code.CONFIG_INVALID, note=note)

    async def done() -> T:
        async with open_broker(config, background=False) as broker:
            return await work(broker)

    return asyncio.run(done())
