"""`oauthbroker init`: make the key and the keyring of a new store. Never overwrites a file."""

from __future__ import annotations

import typer

from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.core.clock import SystemClock

ADVICE = """\
Back the key up now, and not together with the store. Without it nothing in the store can be read again,
not even by you. A person who has both can read every token."""

app = typer.Typer(add_completion=False)


@app.command("init")
def init_command(as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Make the key and the keyring of a new store.

    The key is a file of its own, outside the store, that only you can read. An existing key file is used, an existing
    keyring is refused.
    """
    from oauthbroker.config.bundle.schema import write_schema
    from oauthbroker.config.bundle.server_environment import load_here
    from oauthbroker.wiring import init_store, with_keys

    loaded = load_here(config)
    write_schema(config)
    new = init_store(with_keys(loaded.settings, loaded.env), loaded.env, SystemClock())
    done = "Made the key" if new.key_is_new else "Used the key that was there"
    text = f"{done}: {new.key}\nMade the store's keyring: {new.keyring}\n\n{ADVICE}"
    say(text, {"keyFile": new.key, "keyIsNew": new.key_is_new, "keyring": new.keyring}, as_json=as_json)
