"""What a command works with: the broker's store, and entities and adapters by its options and the FlowService."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import typer

from oauthbroker import BrokerError, Code, Secret, open_broker
from oauthbroker.flowtools.deployment.versions import FlowVersions, versions_of
from oauthbroker.flowtools.serving.data import urls_of
from oauthbroker.plugins import PluginResources

if TYPE_CHECKING:
    from oauthbroker import Broker
    from oauthbroker.flowtools.entities.database import Database as Opened
    from oauthbroker.flowtools.entities.definition import Entity
    from oauthbroker.flowtools.running.ports import Ports

T = TypeVar("T")
Absent = Literal["refused", "made", "empty"]
_SQLITE: Final = "sqlite:///flows.db"
Entities = Annotated[list[Path], typer.Option("--entity", help="Entities: files, or folders of them.")]
Database = Annotated[
    str,
    typer.Option(
        envvar="OAUTHBROKER_FLOWS_DATABASE", help="The database as a URL. Else the configured one, or flows.db."
    ),
]
Config = Annotated[Path, typer.Option(help="The broker's configuration: its store, its apps and its FlowService.")]
CONFIG: Final = Path("config")
Sandbox = Annotated[bool, typer.Option("--sandbox", help="Play payments and SMS, which reach nothing.")]
Mail = Annotated[
    str, typer.Option(help="The server of email nodes: smtps://user@smtp.example.com?from=shop@example.com")
]
MailPassword = Annotated[str, typer.Option(envvar="OAUTHBROKER_FLOWS_MAIL_PASSWORD", hidden=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where a flow is deployed and runs."""

    versions: FlowVersions
    entities: list[Entity]
    ports: Ports
    database: str


@dataclass(frozen=True)
class CommandInputs:
    """What a command is told. Options win over the FlowService."""

    entities: Sequence[Path]
    config: Path
    _: KW_ONLY
    database: str = ""
    sandbox: bool
    mail: str
    mail_password: str = field(repr=False)

    def use(self, work: Callable[[World], T]) -> T:
        """Return what work makes of it, in a thread, while the broker is open. Raises FlowRefused and ValueError for
        what cannot be used."""
        return with_broker(self.config, lambda broker: self._with(broker, work))

    async def _with(self, broker: Broker, work: Callable[[World], T]) -> T:
        from oauthbroker.flowtools.running.resuming import to_its_end
        from oauthbroker.flowtools.serving.entity_files import entities_in

        resources = broker.bundle.plugins.get("flowtools", PluginResources())
        folders = [(resources.folder or Path()) / each for one in resources.resources for each in one.spec.entities]
        world = World(
            versions=versions_of(broker),
            entities=entities_in(self.entities or folders),
            ports=self._with_options(_ports(broker, resources)),
            database=self.database or _configured(broker),
        )
        return await to_its_end(lambda: work(world))

    def _with_options(self, ports: Ports) -> Ports:
        from oauthbroker.flowtools.running.mail import SmtpAdapter, mail_server
        from oauthbroker.flowtools.running.ports import with_sandbox

        if self.mail:
            password = Secret(self.mail_password) if self.mail_password else None
            ports = replace(ports, email=SmtpAdapter(mail_server(self.mail, password)))
        return with_sandbox(ports) if self.sandbox else ports


def with_versions(config: Path, work: Callable[[FlowVersions], T]) -> T:
    """Return what work makes of the versions in the broker's store, in a thread."""

    async def done(broker: Broker) -> T:
        from oauthbroker.flowtools.running.resuming import to_its_end

        versions = versions_of(broker)
        return await to_its_end(lambda: work(versions))

    return with_broker(config, done)


def database_url(url: str, config: Path) -> str:
    """Return the URL of the database that a command names, else that of the FlowService, else of a file here."""

    async def configured(broker: Broker) -> str:
        return _configured(broker)

    return url or with_broker(config, configured)


def _configured(broker: Broker) -> str:
    return next(iter(urls_of(broker.bundle)), _SQLITE)


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
    """Return what work makes of the configured broker, which is open meanwhile."""

    async def done() -> T:
        async with open_broker(config, background=False) as broker:
            return await work(broker)

    return asyncio.run(done())


def _ports(broker: Broker, resources: PluginResources) -> Ports:
    from oauthbroker.flowtools.running.ports import Ports
    from oauthbroker.flowtools.running.requests import BrokerRequests
    from oauthbroker.flowtools.serving.adapters import ports_of

    found = [ports_of(each, broker) for each in resources.resources]
    return found[0] if found else Ports(requests=BrokerRequests(broker))
