"""`oauthbroker init`: make the key and the keyring of a new store. Never overwrites a file."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from oauthbroker.cli.answers import answer
from oauthbroker.cli.options import CONFIG, AsJson, ConfigPath

app = typer.Typer(add_completion=False)


@app.command("init")
def init_command(as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Make the key and the keyring of a new store.

    The key is a file of its own, outside the store, that only you can read. An existing key file is used, an existing
    keyring is refused.
    """
    from oauthbroker.config import load
    from oauthbroker.core.clock import SystemClock
    from oauthbroker.wiring import init_store, with_keys

    settings = with_keys(load(config).settings, os.environ)
    is_new, key_file = init_store(settings, SystemClock())
    keyring = Path(settings.store_root) / "data" / "keyring"
    if as_json:
        answer({"keyFile": str(key_file), "keyIsNew": is_new, "keyring": str(keyring)})
    else:
        _tell(is_new=is_new, key_file=key_file, keyring=keyring)


def _tell(*, is_new: bool, key_file: Path, keyring: Path) -> None:
    typer.echo(f"{'Made the key' if is_new else 'Used the key that was there'}: {key_file}")
    typer.echo(f"Made the store's keyring: {keyring}")
    typer.echo("")
    typer.echo(
        "Back the key up now, and not together with the store. Without it nothing in the store can be read again,"
    )
    typer.echo("not even by you. A person who has both can read every token.")
