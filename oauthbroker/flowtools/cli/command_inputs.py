"""What a command works with: the broker of `--config`, and entities and adapters by its options and its FlowService."""

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
from oauthbroker.plugins import PluginAudit, PluginResources, on_thread

if TYPE_CHECKING:
    from oauthbroker import Broker
    from oauthbroker.flowtools.entities.database import Database as Opened
    from oauthbroker.flowtools.entities.definition import Entity
    from oauthbroker.flowtools.running.ports import Ports

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
    """Where a command works: the versions, the audit log and the database of the configured broker."""

    versions: FlowVersions
    audit: PluginAudit
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

    def use(self, work: Callable[[Place, list[Entity], Ports], T]) -> T:
        """Return what work makes of broker, entities and ports, in a thread. Raises FlowRefused and ValueError."""
        from oauthbroker.flowtools.entities.definition import entities_in

        async def used(broker: Broker) -> T:
            resources = broker.bundle.plugins.get("flowtools", PluginResources())
            folders = [(resources.folder or Path()) / each for one in resources.resources for each in one.spec.entities]
            found, ports = entities_in(self.entities or folders), self._with_options(_ports(broker, resources))
            place = _place(broker, self.database)
            return await on_thread(lambda: work(place, found, ports))

        return with_broker(self.config, used)

    def _with_options(self, ports: Ports) -> Ports:
        from oauthbroker.flowtools.running.mail import SmtpAdapter, mail_server
        from oauthbroker.flowtools.running.ports import with_sandbox

        if self.mail:
            password = Secret(self.mail_password) if self.mail_password else None
            ports = replace(ports, email=SmtpAdapter(mail_server(self.mail, password)))
        return with_sandbox(ports) if self.sandbox else ports


def at_broker(config: Path, work: Callable[[Place], T], database: str = "") -> T:
    """Return what work makes of the configured broker, in a thread, while the broker is open."""

    async def done(broker: Broker) -> T:
        place = _place(broker, database)
        return await on_thread(lambda: work(place))

    return with_broker(config, done)


def _place(broker: Broker, database: str) -> Place:
    from oauthbroker.flowtools.running.auditing import audit_from_threads

    url = database or next(iter(urls_of(broker.bundle)), _SQLITE)
    return Place(versions_of(broker), audit_from_threads(broker.audit), url)


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
    """Return what work makes of the configured broker, which is open meanwhile."""

    async def done() -> T:
        async with open_broker(config, background=False) as broker:
            return await work(broker)

    return asyncio.run(done())


def _ports(broker: Broker, resources: PluginResources) -> Ports:
    from oauthbroker.flowtools.running.ports import Ports
    from oauthbroker.flowtools.running.requests import BrokerRequests
    from oauthbroker.flowtools.serving.service import ports_of

    found = [ports_of(each, broker) for each in resources.resources]
    return found[0] if found else Ports(requests=BrokerRequests(broker))
