"""The commands `oauthbroker flow acknowledge`, `flow deploy`, `flow activate`, `flow withdraw` and `flow versions`."""

from __future__ import annotations

import json
import os
import pwd
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.cli.command_inputs import (
    CONFIG,
    Config,
    Entities,
    Mail,
    MailPassword,
    Place,
    Policies,
    Sandbox,
    at_broker,
    with_ports,
)
from oauthbroker.flowtools.deployment.versions import DeployedFlow, FlowVersions
from oauthbroker.flowtools.entities.definition import Entity, entities_by_name
from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.risk.records import Entry, finding_key
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.specification.policies import Policy, input_policies
from oauthbroker.flowtools.specification.source import FlowRefused, read_input, refuse
from oauthbroker.flowtools.specification.spec import load_tool
from oauthbroker.plugins import ConfigProblem, harmless_text

T = TypeVar("T")
Tool = Annotated[Path, typer.Argument(help="A JSON or YAML file with one tool.")]
By = Annotated[str, typer.Option("--by", help="Your name, for the record. Left out: the account of this process.")]
Name = Annotated[str, typer.Argument(help="The name of a tool.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many are shown at most.")]
LIMIT: Final = 30
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def acknowledge(
    file: Tool,
    by: Annotated[str, typer.Option("--by", help="The name of the person who accepts the findings.")],
    finding: Annotated[list[str], typer.Option("--finding", help="RULE:NODE. Left out: all yellow ones.")] = [],  # noqa: B006
    policy: Policies = [],  # noqa: B006
    config: Config = CONFIG,
    *,
    as_json: AsJson = False,
) -> None:
    """Record that a person accepts the yellow findings of exactly these bytes."""
    with refusals_printed(as_json=as_json):
        tool = load_tool(read_input(file), str(file))
        given: dict[str, Any] = {"assessment": assess(tool, _policies(policy)), "chosen": finding, **_person(by)}
        new = at_broker(config, lambda here: here.versions.acknowledgements.record(tool, **given))
    answer = {"digest": tool.source.digest, "acknowledged": [finding_key(each) for each in new]}
    count = f"{len(new) or 'no'} finding{'s' * (len(new) != 1)} acknowledged"
    lines = [f"{finding_key(each)}: {each.what}" for each in new]
    say(answer, [*lines, f"{tool.name} version {tool.version}: {count}"], as_json=as_json)


def deploy(  # noqa: PLR0913  (options)
    file: Tool,
    by: By = "",
    policy: Policies = [],  # noqa: B006
    entities: Entities = [],  # noqa: B006
    config: Config = CONFIG,
    mail: Mail = "",
    mail_password: MailPassword = "",
    *,
    sandbox: Sandbox = False,
    as_json: AsJson = False,
) -> None:
    """Deploy a version. Red is refused, yellow needs `acknowledge`. Its entities, and an adapter for each external
    node, are configured. The first version of a tool serves at once."""
    from oauthbroker.flowtools.running.flow import member_problems, ready

    given: dict[str, Any] = {"sandbox": sandbox, "mail": mail, "mail_password": mail_password}
    with refusals_printed(as_json=as_json):
        raw, policies = read_input(file), _policies(policy)
        tool = load_tool(raw, str(file))

        def deployed(here: Place, found: list[Entity], ports: Ports) -> tuple[DeployedFlow, int | None]:
            known = entities_by_name(found)
            checked = ready(tool, entities=known, ports=ports, policies=policies).assessment
            refuse(member_problems(tool, checked.expressions, known))
            flow = here.versions.deploy(raw, str(file), **_person(by), policies=policies)
            return flow, here.versions.serving(tool.name)

        flow, serving = with_ports(config, deployed, entities, **given)
    _tell(flow, serving, "deployed", config, as_json=as_json)


def activate(
    name: Name,
    version: Annotated[int, typer.Argument(help="A deployed version, older or newer.")],
    by: By = "",
    config: Config = CONFIG,
    *,
    as_json: AsJson = False,
) -> None:
    """Let a deployed version serve, forward or back. The others stay deployed."""
    with refusals_printed(as_json=as_json):
        flow = at_broker(config, lambda here: here.versions.activate(name, version, **_person(by)))
    _tell(flow, version, "activated", config, as_json=as_json)


def withdraw(
    name: Name,
    version: Annotated[int, typer.Argument(help="A deployed version that takes no new call from now on.")],
    by: By = "",
    why: Annotated[str, typer.Option(help="The reason, for the record.")] = "",
    config: Config = CONFIG,
    *,
    serving: Annotated[bool, typer.Option("--serving", help="Also the version that serves. Then none does.")] = False,
    as_json: AsJson = False,
) -> None:
    """Permanently stop new calls to a version. Its runs that have begun go on to their end."""
    given: dict[str, Any] = {"why": why, "serving": serving, **_person(by)}
    with refusals_printed(as_json=as_json):
        record = at_broker(config, lambda here: here.versions.withdraw(name, version, **given))
    line = f"{name} version {version}: {_withdrawn(record)}; its runs that have begun go on"
    say({"name": name, "version": version, "withdrawn": _record(record)}, [line], as_json=as_json)


def versions(
    name: Annotated[str, typer.Argument(help="The name of a tool. Left out: all.")] = "",
    limit: Limit = LIMIT,
    config: Config = CONFIG,
    *,
    as_json: AsJson = False,
) -> None:
    """List versions: digest, risk, who deployed them when, and which one serves. Status 1: one shown cannot be used."""
    rows, problems = at_broker(config, lambda here: _listed(here.versions, name, limit))
    answer = {"versions": rows, "problems": [each.to_json() for each in problems]}
    say(answer, [*map(_line, rows), *map(str, problems)], as_json=as_json)
    raise typer.Exit(1 if problems else 0)


def _listed(versions: FlowVersions, name: str, limit: int) -> tuple[list[dict[str, Any]], list[ConfigProblem]]:
    rows, problems, there = list[dict[str, Any]](), list[ConfigProblem](), list[tuple[str, int | None]]()
    for each in [name] if name else versions.names():
        try:
            serving = versions.serving(each)
            there += [(f"{each}@{number}", serving) for number in versions.numbers(each)]
        except FlowRefused as refused:
            problems += refused.problems
    if name and not there and not problems:
        versions.named(name)  # raises what says that it is not deployed
    for reference, serving in shortened(there, limit):
        try:
            rows.append(_row(versions.deployed(reference), serving))
        except FlowRefused as refused:
            problems += refused.problems
    return rows, problems


def shortened(rows: Sequence[T], limit: int) -> Sequence[T]:
    """Return the first rows, and say on stderr how many are left out."""
    if len(rows) > limit:
        typer.echo(f"Shown are {limit} of {len(rows)}: --limit {len(rows)} shows all.", err=True)
    return rows[:limit]


def _row(flow: DeployedFlow, serving: int | None) -> dict[str, Any]:
    return {
        "name": flow.tool.name,
        "version": flow.tool.version,
        "digest": flow.tool.source.digest,
        "risk": flow.assessment.risk,
        "by": harmless_text(flow.by),
        "at": harmless_text(flow.at),
        "serves": serving == flow.tool.version,
        "withdrawn": _record(flow.withdrawn) if flow.withdrawn else None,
    }


def _line(row: Mapping[str, Any]) -> str:
    mark = ", serves" if row["serves"] else ""
    mark += f", {_withdrawn(row['withdrawn'])}" if row["withdrawn"] else ""
    return f"{row['name']}@{row['version']}  {row['risk']}, {row['digest'][:12]}, by {row['by']} at {row['at']}{mark}"


def _record(record: Entry) -> dict[str, str]:
    return {name: harmless_text(record[name]) for name in ("by", "at", "why")}


def _withdrawn(record: Mapping[str, str]) -> str:
    why = f" ({record['why']})" if record["why"] else ""
    return harmless_text(f"withdrawn by {record['by']} at {record['at']}{why}")


def _tell(flow: DeployedFlow, serving: int | None, done: str, config: Path, *, as_json: bool) -> None:
    name, version = flow.tool.name, flow.tool.version
    command = f"`oauthbroker flow activate {name} {version} --config {shlex.quote(str(config))}`"
    more = "" if serving == version else f"; to let it serve, run {command}"
    if flow.withdrawn:
        more = f"; version {version} is {_withdrawn(flow.withdrawn)}"
    line = f"{name} version {version}: {done}; version {serving} serves{more}"
    say(_row(flow, serving), [line], as_json=as_json)


def say(answer: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print an answer as one JSON document, or as lines for a person."""
    for line in [json.dumps(answer, ensure_ascii=False)] if as_json else lines:
        typer.echo(line)


@contextmanager
def refusals_printed(*, as_json: bool = False) -> Iterator[None]:
    """Print the problems of a refusal, and end with status 1. Refuse a command as the database does, without the text
    of a driver: it may quote the URL."""
    try:
        yield
    except FlowRefused as refused:
        say({"problems": [each.to_json() for each in refused.problems]}, [str(refused)], as_json=as_json)
        raise typer.Exit(1) from None
    except ValueError as error:
        raise BrokerError(Code.REQUEST_INVALID, note=str(error)) from None
    except Exception as error:
        from sqlalchemy.exc import SQLAlchemyError

        from oauthbroker.flowtools.running.lifecycle import is_contention

        if not isinstance(error, SQLAlchemyError):
            raise
        busy = "others change the same rows; run the command again" if is_contention(error) else ""
        raise BrokerError(Code.REQUEST_INVALID, note=f"the database: {busy or type(error).__name__}") from None


def _policies(paths: list[Path]) -> list[Policy]:
    own, problems = input_policies(paths)
    refuse(problems)
    return own


def _person(by: str) -> dict[str, str]:
    """Return who acts: a name, and the account of this process, which also stands for a name that is left out."""
    return {"by": by or account(), "account": account()}


def account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
