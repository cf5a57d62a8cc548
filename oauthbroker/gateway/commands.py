"""The command `oauthbroker gateway validate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from oauthbroker import BrokerError, Code
from oauthbroker.gateway.validation import rulebook, validate
from oauthbroker.gateway.values import shown
from oauthbroker.plugins import decode_json, read_resources

MOST_BYTES: Final = 16 * 1024 * 1024
_MEMBERS: Final = ("action_requests", "action_schema", "user_context", "available_products", "available_coupons")
app = typer.Typer(add_completion=False, help="Proposed actions: validate.", callback=lambda: None)


@app.command("validate")
def validate_file(
    file: Annotated[str, typer.Argument(help="JSON: the actions, or an object of all inputs. - is stdin.")] = "-",
    schema: Annotated[str, typer.Option(help="A YAML file or a folder with one ActionSchema.")] = "",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer.")] = False,
) -> None:
    """Validate proposed actions. The status is 1 if one is rejected."""
    data = decode_json(_read(file), Code.REQUEST_INVALID, most_values=MOST_BYTES)
    inputs = {"action_requests": None, **data} if isinstance(data, dict) else {"action_requests": data}
    more = ", ".join(map(shown, sorted(inputs.keys() - _MEMBERS)[:3]))
    _check(not more, f"the input has the unknown {more}; its members are {', '.join(_MEMBERS)}")
    _check(not isinstance(inputs.get("action_schema"), str), "action_schema is a name: name its file with --schema")
    if schema:
        found = read_resources(schema, "gateway").resources
        _check(len(found) == 1, f"--schema has {len(found)} resources of the kind ActionSchema, and has to have one")
        inputs["action_schema"] = rulebook(found[0].spec)
    answer = validate(**inputs, details=True)
    _check("error" not in answer, answer.get("error", ""))
    results = ((each["is_valid"], each["errors"] + each["warnings"]) for each in answer["validation_results"])
    lines = [" ".join([str(at), ("rejected", "valid")[ok], *texts]) for at, (ok, texts) in enumerate(results)]
    typer.echo(json.dumps(answer) if as_json else "\n".join(lines))
    raise typer.Exit(1 if answer["rejected_actions"] else 0)


def _check(fits: bool, note: str, code: Code = Code.REQUEST_INVALID) -> None:  # noqa: FBT001  (an assertion)
    if not fits:
        raise BrokerError(code, note=note)


def _read(file: str) -> bytes:
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as source:
            data = source.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BrokerError(Code.REQUEST_INVALID, note=f"{shown(file)}: {error}") from None
    _check(len(data) <= MOST_BYTES, f"the input has more than {MOST_BYTES >> 20} MiB", Code.REQUEST_TOO_LARGE)
    return data
