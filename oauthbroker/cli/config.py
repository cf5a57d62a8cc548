"""`oauthbroker config`: what the server of a bundle reads, and the JSON Schema of its files."""

from __future__ import annotations

from typing import Annotated

import typer

from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.cli.output.tables import table

app = typer.Typer(add_completion=False, no_args_is_help=True)
Env = Annotated[bool, typer.Option("--env", help="List the variables that set the fields of the Broker resource.")]


@app.command("show")
def show_command(env: Env = False, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Print the configuration as the YAML that a server reads.

    Fields of the Broker resource have the values of their OAUTHBROKER_* variables. Values that come from elsewhere stay
    references, and a secret in plain YAML is hidden. Without a bundle here it shows the apps of `login`. With --env:
    the variables, and how each is written.
    """
    if env:
        _show_variables(as_json=as_json)
        return
    from oauthbroker.cli.named_config import bundle_here
    from oauthbroker.config.bundle.schema import SCHEMA_LINE
    from oauthbroker.config.bundle.showing import as_yaml, resources_of

    resources = resources_of(*bundle_here(config))
    if as_json:
        answer(resources)
    else:
        typer.echo(SCHEMA_LINE + as_yaml(resources), nl=False)


def _show_variables(*, as_json: bool) -> None:
    from oauthbroker.config.problems.problems import dotted
    from oauthbroker.config.reading.variables import variables

    found = [(each.name, dotted(each.path), each.form) for each in variables().values()]
    if as_json:
        answer([{"variable": name, "field": path, "form": form} for name, path, form in found])
    else:
        table(("variable", "field", "written as"), found)


@app.command("schema")
def schema_command(as_json: AsJson = False) -> None:  # noqa: ARG001  (a schema is JSON either way)
    """Print the JSON Schema of a bundle's YAML, with the kinds of the installed plug-ins, for an editor.

    `oauthbroker init` writes it beside the bundle.
    """
    from oauthbroker.config.bundle.schema import bundle_schema

    answer(bundle_schema())
