"""`oauthbroker init`: make the key and the keyring of a new store. Never overwrites a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.new_files import keep_from_others
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.cli.output.progress import unchanged
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code

ADVICE = """\
Back the key up now, and not together with the store. Without it nothing in the store can be read again,
not even by you. A person who has both can read every token."""

app = typer.Typer(add_completion=False)


Server = Annotated[Path | None, typer.Option("--server", metavar="FOLDER", help="Make a new folder to serve from.")]
IfMissing = Annotated[bool, typer.Option("--if-missing", help="A store that is there is no refusal: for a job.")]


@app.command("init")
def init_command(
    server: Server = None, if_missing: IfMissing = False, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """Make the key and the keyring of a new store.

    The key is a file of its own, outside the store, that only you can read. An existing key file is used, an existing
    keyring is refused, or with --if-missing left as it is. Tables of a database are brought up to this version.

    With --server: a new folder with the apps of this configuration as a bundle, their secrets in a store of its own, an
    API key, a unit for systemd and a compose file with PostgreSQL.
    """
    keep_from_others()
    if server is not None:
        _make_server(server, config, as_json=as_json)
        return
    from oauthbroker.config.bundle.schema import write_schema
    from oauthbroker.config.bundle.server_environment import load_here
    from oauthbroker.wiring import init_store, with_keys

    with unchanged():
        loaded = load_here(config)
    try:
        new = init_store(with_keys(loaded.settings, loaded.env), loaded.env, SystemClock())
    except BrokerError as error:
        if error.code is not Code.KEY_EXISTS:
            raise
        if not if_missing:
            error.note = f"{error.note}; a job that may run twice says --if-missing".removeprefix("; ")
            raise
        write_schema(config)
        say("The store is there. Nothing was made.", {"isThere": True}, as_json=as_json)
        return
    write_schema(config)
    done = "Made the key" if new.key_is_new else "Used the key that was there"
    text = f"{done}: {new.key}\nMade the store's keyring: {new.keyring}\n\n{ADVICE}"
    say(text, {"keyFile": new.key, "keyIsNew": new.key_is_new, "keyring": new.keyring}, as_json=as_json)


def _make_server(folder: Path, config: Path, *, as_json: bool) -> None:
    from oauthbroker.cli.named_config import bundle_here
    from oauthbroker.cli.new_server import lines_about, make_server

    source, env = bundle_here(config)
    made = make_server(folder, source if source.exists() or source != CONFIG else None, env)
    document = {
        "folder": str(made.folder),
        "apps": made.apps,
        "missingSecrets": [{"name": name, "key": key} for name, key in made.missing],
        "unsetVariables": made.unset,
        "callbacks": made.callbacks,
    }
    say("\n".join(lines_about(made)), document, as_json=as_json)
