"""The commands `oauthbroker flow run` and `oauthbroker flow runs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from oauthbroker import BrokerError, Code, Turn, TurnAuth
from oauthbroker.flowtools.cli.command_inputs import (
    CONFIG,
    Config,
    Database,
    Entities,
    Mail,
    MailPassword,
    Place,
    Sandbox,
    at_broker,
    database_url,
    opened,
    with_ports,
)
from oauthbroker.flowtools.cli.deploying_commands import AsJson, By, account, refusals_printed, say
from oauthbroker.flowtools.entities.definition import Entity, entities_in
from oauthbroker.flowtools.risk.records import person
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.source import MOST_BYTES, nearest, one_of, read_input
from oauthbroker.plugins import decode_json, harmless_text

if TYPE_CHECKING:
    from oauthbroker.flowtools.running.approvals import RunLine
    from oauthbroker.flowtools.running.working import RunResult

_Decision = Literal["approve", "decline", "retry", "cancel"]
_ASK_A_PERSON: Final = 75  # EX_TEMPFAIL of sysexits.h


def run(  # noqa: PLR0913  (options)
    name: Annotated[
        str, typer.Argument(metavar="NAME[@VERSION]", help="A deployed tool. NAME: the version that serves.")
    ],
    *,
    given: Annotated[str, typer.Option("--input", help="A file with the input as JSON, or - for stdin.")] = "",
    entities: Entities = [],  # noqa: B006
    database: Database = "",
    caller: Annotated[str, typer.Option("--as", help="The caller's id. Left out: the account of this process.")] = "",
    role: Annotated[list[str], typer.Option("--role", help="A role of the caller.")] = [],  # noqa: B006
    user: Annotated[str, typer.Option(help="The subject of the caller's own tokens, such as slack:user:T1:U1.")] = "",
    team: Annotated[str, typer.Option(help="The subject of tokens for all, such as slack:team:T1.")] = "",
    config: Config = CONFIG,
    resume: Annotated[str | None, typer.Option(help="Go on with this run; --input and the caller are its own.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make the tables fit the entities; no data is lost.")] = False,
    sandbox: Sandbox = False,
    mail: Mail = "",
    mail_password: MailPassword = "",
    as_json: AsJson = False,
) -> None:
    """Run a deployed tool once. Status 1: it did not succeed. Status 75: a user has to consent first."""
    from oauthbroker.flowtools.entities.database import apply as apply_changes
    from oauthbroker.flowtools.running.contract import FlowRuns
    from oauthbroker.flowtools.running.lifecycle import again

    subjects = {mode: subject for mode, subject in (("user", user), ("global", team)) if subject}
    turn = Turn("flowtools", "command", auth=TurnAuth(subjects=subjects)) if subjects else None
    with refusals_printed(as_json=as_json):
        data, actor = _input(given), Actor(id=caller or account(), roles=frozenset(role), turn=turn)
        options: dict[str, Any] = {"database": database, "mail": mail, "mail_password": mail_password}

        def call(here: Place, found: list[Entity], ports: Ports) -> RunResult:
            deployed = here.versions.deployed(name)
            there = opened(here.database, absent="made" if apply else "refused")
            if apply:
                again(apply_changes)(there, found)
            runs = FlowRuns(there, found, ports, audit=here.versions.audit)
            flow = runs.ready(deployed.tool, deployed.policies)
            flow = replace(flow, withdrawn=deployed.withdrawn is not None)
            return runs.resume(flow, resume) if resume else runs.call(flow, data, actor)

        result = with_ports(config, call, entities, sandbox=sandbox, **options)
    _tell(result, as_json=as_json)
    raise typer.Exit({"succeeded": 0, "waiting": _ASK_A_PERSON}.get(result.state, 1))


def runs(
    run_id: Annotated[str, typer.Argument(metavar="[RUN]", help="One run, with its steps. Left out: a list.")] = "",
    tool: Annotated[str, typer.Option(help="Runs of this tool.")] = "",
    state: Annotated[str, typer.Option(help="Runs in this state, such as failed, waiting, unknown or escalated.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many, newest first.")] = 30,
    database: Database = "",
    config: Config = CONFIG,
    *,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first, or show the steps of one. It shows no input and no result."""
    from oauthbroker.flowtools.running import approvals, journal

    if state and state not in journal.STATES:
        raise BrokerError(Code.REQUEST_INVALID, note=f"--state is no state of runs; {one_of(state, journal.STATES)}")
    where: dict[str, Any] = {name: value for name, value in (("id", run_id), ("tool", tool), ("state", state)) if value}
    with refusals_printed(), opened(database_url(database, config)).reading() as connection:
        there = journal.exist(connection)
        rows = [_row(each) for each in approvals.run_lines(connection, limit=limit, **where)] if there else []
        tools = journal.tools(connection) if there and tool and not rows else []
        if run_id and rows:
            rows[0]["steps"] = [each._asdict() for each in journal.step_lines(connection, run_id)]
            made = approvals.decisions(connection, run_id)
            rows[0]["decisions"] = [{"policy": each.policy, "decision": each.decision, "by": each.by} for each in made]
    if run_id and not rows:
        raise BrokerError(Code.NOT_FOUND, note="no run with this id")
    if tool and not rows and tool not in tools and (config != CONFIG or config.exists()):
        known = {*tools, *at_broker(config, lambda here: here.versions.names())}
        if tool not in known:
            hint = nearest(tool, known) or "flow versions lists those that are deployed"
            note = f"no tool {harmless_text(tool)}: none is deployed, and none has run; {hint}"
            raise BrokerError(Code.NOT_FOUND, note=note)
    say({"runs": rows}, (harmless_text(line) for row in rows for line in _lines(row)), as_json=as_json)


_STOPPED: Final = "A run that a policy has stopped: flow runs --state escalated."
Run = Annotated[str, typer.Argument(metavar="RUN", help=_STOPPED)]
AnyRun = Annotated[str, typer.Argument(metavar="RUN", help="A run: flow runs lists them.")]
_DECIDED: Final = {"approve": "approved", "decline": "declined", "retry": "retried", "cancel": "cancelled"}


def approve(
    run_id: Run, by: By = "", database: Database = "", config: Config = CONFIG, *, as_json: AsJson = False
) -> None:
    """Let a stopped run pass the policy that asks; not for its own caller. It goes on by itself where flows are served,
    or with flow run --resume."""
    _decide("approve", run_id, by=by, database=database, config=config, as_json=as_json)


def decline(
    run_id: Run,
    by: By = "",
    why: Annotated[str, typer.Option(help="A reason for those who look at the run.")] = "",
    database: Database = "",
    config: Config = CONFIG,
    *,
    as_json: AsJson = False,
) -> None:
    """End a stopped run. Its commits stay."""
    more: dict[str, Any] = {"why": harmless_text(why)}
    _decide("decline", run_id, by=by, database=database, config=config, as_json=as_json, **more)


def retry(
    run_id: AnyRun,
    by: By = "",
    database: Database = "",
    config: Config = CONFIG,
    *,
    happened: Annotated[
        bool | None,
        typer.Option("--happened/--not-happened", help="The effect whose answer was lost: look there first."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a run go on that failed or whose outcome is unknown: what certainly had no effect is tried again. It goes on
    by itself where flows are served, or with flow run --resume."""
    _decide("retry", run_id, by=by, database=database, config=config, as_json=as_json, happened=happened)


def cancel(
    run_id: AnyRun, by: By = "", database: Database = "", config: Config = CONFIG, *, as_json: AsJson = False
) -> None:
    """End a run that has not ended. Its commits stay, and its charges are refunded."""
    _decide("cancel", run_id, by=by, database=database, config=config, as_json=as_json)


def _decide(
    decision: _Decision, run_id: str, *, by: str, database: str, config: Path, as_json: bool, **more: Any
) -> None:
    """Make a decision of `approvals` in the name of the person at this command, and print the run's state after it."""
    from oauthbroker.flowtools.running import approvals, journal

    def decided(here: Place) -> str:
        there, decide = opened(here.database), getattr(approvals, decision)
        decide(there, run_id, by=person(by or account()), account=account(), audit=here.versions.audit, **more)
        with there.reading() as connection:
            return approvals.run_lines(connection, limit=1, id=run_id)[0].state

    with refusals_printed(as_json=as_json):
        state = at_broker(config, decided, database)
    later = (
        ""
        if state in journal.ENDED
        else f"; it goes on where flows are served, or with flow run NAME --resume {run_id}"
    )
    answer = {"run": run_id, "decision": _DECIDED[decision], "state": state}
    say(answer, [f"run {run_id}: {_DECIDED[decision]}{later}"], as_json=as_json)


def plan(
    entities: Annotated[list[Path], typer.Argument(metavar="ENTITY...", help="Entities: files, or folders of them.")],
    database: Database = "",
    config: Config = CONFIG,
    *,
    as_json: AsJson = False,
) -> None:
    """Show how the tables would change to fit the entities, and change nothing. Status 1: data would be lost."""
    from oauthbroker.flowtools.entities import database as tables

    with refusals_printed(as_json=as_json):
        changes = tables.plan(opened(database_url(database, config), absent="empty"), entities_in(entities))
    answer = {"changes": [{"what": each.what, "refused": each.refused or None} for each in changes]}
    say(answer, map(str, changes) if changes else ["the tables fit the entities"], as_json=as_json)
    raise typer.Exit(1 if any(each.refused for each in changes) else 0)


def _input(given: str) -> Any:
    raw = b"{}"
    if given:
        raw = sys.stdin.buffer.read(MOST_BYTES + 1) if given == "-" else read_input(Path(given))
    if len(raw) > MOST_BYTES:
        raise BrokerError(Code.REQUEST_TOO_LARGE)
    return decode_json(raw, Code.REQUEST_INVALID, most_values=MOST_BYTES)


def _row(run: RunLine) -> dict[str, Any]:
    from oauthbroker.flowtools.entities.database import iso

    shown = {name: getattr(run, name) for name in ("tool", "version", "state", "code", "message")}
    return {"run": run.id, **shown, "notes": [*run.notes], "actor": run.caller, "started": iso(run.started)}


def _lines(row: dict[str, Any]) -> Iterator[str]:
    why = f": {row['code'] or ''} {row['message']}" if row["message"] else ""
    by = row["actor"] or "no caller"
    yield f"{row['run']}  {row['tool']}@{row['version']}  {row['state']}  {row['started']}  by {by}{why}"
    yield from (f"  note: {note}" for note in row["notes"])
    for step in row.get("steps", ()):
        yield f"  {step['node']}  {step['state']}  attempts {step['attempts']}, rows {step['rows']}"
    for each in row.get("decisions", ()):
        by = f" by {each['by']}" if each["by"] else ""
        yield f"  policy {each['policy']}: {each['decision']}{by}"


def _tell(result: RunResult, *, as_json: bool) -> None:
    asked = result.authorization
    if as_json:
        members = {"run": result.run, "state": result.state, "output": result.output, "code": result.code}
        members |= {"message": result.message, "notes": list(result.notes), "authorization": asked and asked.to_json()}
        typer.echo(json.dumps(members, ensure_ascii=False))
        return
    begun = f"run {result.run}" if result.run is not None else "no run began"
    why = " ".join(word for word in (result.code, result.message) if word)
    typer.echo(harmless_text(": ".join(word for word in (begun, result.state, why) if word)), err=True)
    for note in result.notes:
        typer.echo(harmless_text(f"note: {note}"), err=True)
    if asked is not None:
        typer.echo(f"{harmless_text(asked.message)}\n{asked.authorization_url}", err=True)
    if result.state == "succeeded":
        typer.echo(json.dumps(result.output, ensure_ascii=False))
