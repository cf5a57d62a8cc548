"""The commands `oauthbroker flow secret set`, `list` and `remove`: secrets of webhooks, which are never shown."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.cli.command_inputs import CONFIG, Config, with_broker
from oauthbroker.flowtools.cli.deploying_commands import AsJson, say
from oauthbroker.flowtools.serving import webhook_secrets as kept

Name = Annotated[str, typer.Argument(help="The name that `webhookSecret` of a trigger has.")]
_MOST: Final = 4096
secret = typer.Typer(add_completion=False, help="Secrets of webhooks: set, list, remove.")


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
    with_broker(config, lambda broker: kept.set_secret(broker, name, text, keep=not only))
    typer.echo(f"{name}: stored")


@secret.command("list")
def list_(config: Config = CONFIG, *, as_json: AsJson = False) -> None:
    """List the names of secrets, each with the number of valid ones."""
    found = with_broker(config, kept.secret_names)
    answer = {"secrets": [{"name": name, "valid": count} for name, count in found.items()]}
    say(answer, [f"{name}  {count} valid" for name, count in found.items()], as_json=as_json)


@secret.command("remove")
def remove(name: Name, config: Config = CONFIG) -> None:
    """Remove a secret. Webhooks with it are refused from then on."""
    if not with_broker(config, lambda broker: kept.remove_secret(broker, name)):
        raise BrokerError(Code.NOT_FOUND, note="no secret has this name")
    typer.echo(f"{name}: removed")
