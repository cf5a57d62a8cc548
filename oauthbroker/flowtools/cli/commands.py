"""The commands `oauthbroker flow`: those that only read are here, those for versions beside it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.cli.command_inputs import CONFIG, Config, Entities, Policies, entity_files
from oauthbroker.flowtools.cli.data_commands import backup, restore, secret
from oauthbroker.flowtools.cli.deploying_commands import (
    AsJson,
    acknowledge,
    activate,
    deploy,
    refusals_printed,
    say,
    versions,
    withdraw,
)
from oauthbroker.flowtools.cli.running_commands import approve, cancel, decline, plan, retry, run, runs
from oauthbroker.flowtools.deployment.versions import route_problem, same_route, same_secret, secret_problem
from oauthbroker.flowtools.entities.definition import Entity, entities_by_name, entities_in
from oauthbroker.flowtools.risk.assessment import RiskAssessment, assess
from oauthbroker.flowtools.risk.drawing import draw
from oauthbroker.flowtools.risk.rules import findings
from oauthbroker.flowtools.specification.policies import input_policies
from oauthbroker.flowtools.specification.source import FlowRefused, input_files, published_schema, read_input
from oauthbroker.flowtools.specification.spec import FlowTool, load_tool
from oauthbroker.plugins import PluginResources, read_resources, two_sentences

_WORDS: Final = {"no": "not deployable", "acknowledge": "deployable with acknowledgement", "yes": "deployable"}
Tools = Annotated[list[Path], typer.Argument(help="JSON or YAML files, or folders of them.")]
_EXAMPLE: Final = Path(__file__).parents[1] / "example"
app = typer.Typer(add_completion=False, help="Flow tools: check, deploy, draw, run.")
_COMMANDS: Final = (acknowledge, activate, deploy, withdraw, plan, run, runs, approve, decline, retry, cancel, versions)
for _command in (*_COMMANDS, backup, restore):
    app.command()(_command)
app.add_typer(secret, name="secret")


@app.command("new")
def new(folder: Annotated[Path, typer.Argument(help="A folder that is new or empty.")]) -> None:
    """Write an example to begin with: tools, an entity, a policy, inputs, and a configuration that serves them."""
    os.umask(os.umask(0o022) | 0o022)  # no other user writes what serves here
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise BrokerError(Code.REQUEST_INVALID, note=f"{folder}: has files already; name a new folder")
        for each in filter(Path.is_file, _EXAMPLE.rglob("*")):  # not `copytree`: a package may be read-only
            (copy := folder / each.relative_to(_EXAMPLE)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each, copy)
    except OSError as error:
        raise BrokerError(Code.REQUEST_INVALID, note=f"{folder}: {error.strerror or 'cannot be written'}") from None
    typer.echo(f"{folder}: written; go on there with `oauthbroker flow check tools/ --policy policies/`")


@app.command("check")
def check(
    tools: Tools,
    policy: Policies = [],  # noqa: B006  (typer copies it)
    entities: Entities = [],  # noqa: B006
    config: Config = CONFIG,
    *,
    as_json: AsJson = False,
) -> None:
    """Assess tools: their problems, their risk and why. The status is 1 if one cannot be deployed. Entities are those
    of the options, else of the FlowService of the configuration."""
    from oauthbroker.flowtools.running.flow import entity_problems, member_problems, readable

    own, problems = input_policies(policy)
    with refusals_printed(as_json=as_json):
        known = _known_entities(entities, config)
    assessed: list[tuple[FlowTool, RiskAssessment]] = []
    seen: dict[tuple[str, int], FlowTool] = {}
    for file in input_files(tools):
        try:
            tool = load_tool(read_input(file), str(file))
            assessment = assess(tool, own, readable(known or {}))
            assessed.append((tool, assessment))
            problems += () if known is None else entity_problems(tool, known)
            problems += member_problems(tool, assessment.expressions, known or {})
        except FlowRefused as refused:
            problems += refused.problems
            continue
        first = seen.setdefault((tool.name, tool.version), tool)
        if first.source.digest != tool.source.digest:
            what = f"two files here are {tool.name} {tool.version}: {first.source.document.file} and {file}"
            problems.append(tool.source.problem(("version",), what, "write another version in one of them"))
    problems += [problem for _, assessment in assessed for problem in assessment.problems]
    newest = {tool.name: tool for tool, _ in sorted(assessed, key=lambda each: each[0].version)}
    problems += [secret_problem(other, one) for one, other in same_secret(newest.values())]
    problems += [route_problem(other, one) for one, other in same_route(newest.values())]
    for at, (tool, found) in enumerate(assessed):  # what of all problems is its own, so that it is not deployable
        mine = (each for each in problems if each.file == tool.source.document.file)
        assessed[at] = tool, replace(found, problems=tuple(mine))
    answer: dict[str, Any] = {
        "tools": [_as_json(*each) for each in assessed],
        "problems": [each.to_json() for each in problems],
        "entities": None if known is None else sorted(known),
    }
    lines = [line for each in assessed for line in _lines(*each)]
    if known is None and any("entity" in node.config for tool, _ in assessed for node in tool.nodes.values()):
        lines.append("entities: not checked; name them with --entity, or a configuration with --config")
    say(answer, [*lines, *map(str, problems)], as_json=as_json)
    raise typer.Exit(1 if problems or any(each.deployable == "no" for _, each in assessed) else 0)


def _known_entities(paths: list[Path], config: Path) -> dict[str, Entity] | None:
    """Return the entities of the options, else those of the FlowService of a configuration; None without either."""
    if not paths:
        there = config != CONFIG or config.exists()
        resources = read_resources(config, "flowtools") if there else PluginResources()
        if not resources.resources:
            return None
        paths = entity_files(resources)
    return entities_by_name(entities_in(paths))


@app.command("graph")
def graph(
    file: Annotated[Path, typer.Argument(help="A JSON or YAML file with one tool.")],
    out: Annotated[Path | None, typer.Option(help="Write the SVG here. Left out: print it.")] = None,
) -> None:
    """Draw a tool's flow as SVG, its findings in colour."""
    with refusals_printed():
        tool = load_tool(read_input(file), str(file))
    drawn = draw(tool, findings(tool))
    if out is None:
        typer.echo(drawn, nl=False)
        return
    try:
        out.write_text(drawn, "utf-8")
    except OSError as error:
        raise BrokerError(Code.REQUEST_INVALID, note=f"{out}: {error.strerror}") from None


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of a tool, for editors."""
    typer.echo(json.dumps(published_schema(), indent=2, ensure_ascii=False))


def _lines(tool: FlowTool, assessment: RiskAssessment) -> list[str]:
    head = f"{tool.name} version {tool.version}: {assessment.risk}, {_WORDS[assessment.deployable]}"
    lines = [head, *(f"  note: {note}" for note in assessment.notes)]
    for each in assessment.findings:
        text = two_sentences(each.what, each.hint)
        lines.append(f"  {each.risk}  rule {each.rule}  {each.node or 'startNode'}: {text}")
        if len(each.path) > 1:
            lines.append(f"    path: {' -> '.join(each.path)}")
    return lines


def _as_json(tool: FlowTool, assessment: RiskAssessment) -> dict[str, Any]:
    return {
        "name": tool.name,
        "version": tool.version,
        "file": tool.source.document.file,
        "digest": tool.source.digest,
        "risk": assessment.risk,
        "deployable": assessment.deployable,
        "concurrencyStrategy": assessment.concurrency,
        "notes": list(assessment.notes),
        "findings": [asdict(each) for each in assessment.findings],
    }
