"""`oauthbroker secrets`: manage the values that the configuration names as `Secret/<name>`. They are never printed."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.output.commands_here import runnable
from oauthbroker.cli.output.completion_words import secret_keys, secret_names
from oauthbroker.cli.output.error_output import confirm
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import CONFIG, LIMIT, AsJson, ConfigPath, Limit, Yes
from oauthbroker.cli.output.progress import unchanged
from oauthbroker.cli.stored_records import Listing, in_vault, unknown
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret

if TYPE_CHECKING:
    from oauthbroker.config import Loaded

MEMBERS = ("name", "key", "state")
MOST_BYTES = 64 * 1024

app = typer.Typer(no_args_is_help=True, add_completion=False)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The <name> of Secret/<name>.", autocompletion=secret_names)]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="The key in it, such as client_secret.", autocompletion=secret_keys)
]
NoValue = Annotated[
    list[str] | None, typer.Argument(hidden=True, metavar="< VALUE")
]  # accepted here, because the usage error would quote it
AnyKey = Annotated[
    str | None, typer.Argument(metavar="[KEY]", help="One key; all of them if left out.", autocompletion=secret_keys)
]


@app.command("set")
def set_command(
    name: Name, key: Key, value: NoValue = None, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """Store a secret, typed without echo or read from stdin.

    Never an argument, which other users could see.
    One line break at its end is dropped.
    A broker that runs reads it when it is started again or told to reload (SIGHUP).
    """
    if value:
        raise Refused("A secret is never an argument: others could read it. Type it when asked, or send it to stdin.")
    from oauthbroker.core.spelling import nearest

    loaded = _load(config)
    name = _checked(name, key)
    with unchanged():
        secret, is_read = _value(name, key), (name, key) in loaded.secret_keys
    in_vault(loaded, lambda vault: vault.secrets.put(name, key, secret))
    say(f"Kept Secret/{name} {key}.", {"name": name, "key": key, "isRead": is_read}, as_json=as_json)
    if not is_read:
        close = nearest(f"{name} {key}", [" ".join(each) for each in loaded.secret_keys])
        meant = f" Did you mean Secret/{close}?" if close else ""
        gone = f"`oauthbroker secrets remove {name} {key}` removes it."
        typer.echo(runnable(f"warning: nothing in {config} reads Secret/{name} {key}.{meant} {gone}"), err=True)


@app.command("list")
def list_command(limit: Limit = LIMIT, config: ConfigPath = CONFIG, as_json: AsJson = False) -> None:
    """List the missing and the stored secrets."""
    loaded = _load(config)
    found = _rows(loaded, set(in_vault(loaded, lambda vault: vault.secrets.names())))
    none = f"There are no secrets, and {config} needs none."
    listing = Listing[tuple[str, str, str]](
        ("secret", "key", ""),
        lambda it: (f"Secret/{it[0]}", *it[1:]),
        lambda it: dict(zip(MEMBERS, it, strict=True)),
        none=none,
    )
    listing.show(found, as_json=as_json, limit=limit)


@app.command("remove")
def remove_command(
    name: Name, key: AnyKey = None, as_json: AsJson = False, config: ConfigPath = CONFIG, yes: Yes = False
) -> None:
    """Remove a secret, or one key of it."""
    loaded = _load(config)
    name = _checked(name, key or "all")
    what = f"Secret/{name} {key}" if key else f"Secret/{name}"
    confirm(f"Forget {what}?", yes=yes)
    if not in_vault(loaded, lambda vault: vault.secrets.remove(name, key)):
        names = {" ".join(each) if key else each[0] for each in in_vault(loaded, lambda vault: vault.secrets.names())}
        raise Refused(unknown("secret", f"{name} {key}" if key else name, names))
    say(f"Removed {what}.", {"name": name, "key": key}, as_json=as_json)


def _load(config: Path) -> Loaded:
    from oauthbroker.config.bundle.server_environment import load_here

    with unchanged():
        return load_here(config)


def _checked(name: str, key: str) -> str:
    """Return the name without `Secret/`. Raises Refused for a name that a configuration cannot use."""
    from oauthbroker.config.values.value_sources import is_secret_key

    name = name.removeprefix("Secret/")
    if not is_secret_key(name, key):
        raise Refused("A secret's name and key are made of letters, digits, '-', '_' and '.', at most 128.")
    return name


def _value(name: str, key: str) -> Secret:
    """Read the value without echo, or from stdin without its last line break. Raises Refused."""
    if sys.stdin.isatty():
        text = typer.prompt(f"Secret/{name} {key}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        text = decoded(sys.stdin.buffer.read(MOST_BYTES + 1))
    if not text.strip():
        raise Refused("The secret is empty. Nothing was changed. Type it when asked, or send it to stdin.")
    return Secret(text)


def decoded(data: bytes) -> str:
    """Return what stdin had without its last line break. Raises Refused."""
    if len(data) > MOST_BYTES:
        raise Refused(f"The secret is longer than {MOST_BYTES // 1024} KiB. Nothing was changed.")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    raise Refused("The secret is not text in UTF-8. Nothing was changed.")


def _rows(loaded: Loaded, there: set[tuple[str, str]]) -> list[tuple[str, str, str]]:
    needed = loaded.secret_keys
    states = {(True, True): "set", (True, False): "set, not used", (False, True): "missing"}
    return [
        (*entry, states[entry in there, entry in needed])
        for entry in sorted(there | needed, key=lambda it: (it in there, it))
    ]
