"""The command `oauthbroker actions validate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from oauthbroker import BrokerError, Code
from oauthbroker.gateway.validation import rulebook, validate

MOST_BYTES: Final = 16 * 1024 * 1024
app = typer.Typer(add_completion=False)


@app.callback()
def actions() -> None:
    """Proposed actions: validate."""


@app.command("validate")
def validate_file(
    file: Annotated[str, typer.Argument(help="JSON: the actions, or an object of all inputs. - is stdin.")] = "-",
    schema: Annotated[str, typer.Option(help="A YAML file with one ActionSchema.")] = "",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer.")] = False,
) -> None:
    """Judge proposed actions. The status is 1 if one is rejected."""
    try:
        data = json.loads(_read(file), object_pairs_hook=_object)
        inputs = data if isinstance(data, dict) else {"action_requests": data}
        more = {"action_schema": rulebook(_Once(_read(schema)).get_single_data()["spec"])} if schema else {}
        answer = validate(**inputs | more, details=True)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, yaml.YAMLError):
        answer = {"error": "the input or the schema cannot be read, or has a wrong form"}
    if "error" in answer:
        raise BrokerError(Code.REQUEST_INVALID, note=answer["error"])
    typer.echo(json.dumps(answer) if as_json else "\n".join(map(_line, answer["validation_results"])))
    raise typer.Exit(1 if answer["rejected_actions"] else 0)


def _line(result: dict[str, Any]) -> str:
    verdict = "valid" if result["is_valid"] else "rejected"
    return " ".join([f"{result['action_index']} {verdict}", *result["errors"], *result["warnings"]])


def _read(file: str) -> bytes:
    with sys.stdin.buffer if file == "-" else Path(file).open("rb") as source:
        return source.read(MOST_BYTES)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a name twice")
    return found


class _Once(yaml.SafeLoader):
    """Refuses a name twice: the second would silently replace the rules of the first."""

    def construct_mapping(self, node: yaml.MappingNode, *args: Any, **options: Any) -> dict[Any, Any]:
        _object([(key.value, None) for key, _ in node.value])
        return super().construct_mapping(node, *args, **options)
