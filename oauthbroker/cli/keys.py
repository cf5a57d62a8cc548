"""`oauthbroker keys`: the seeds that seal a store, and the keys that open it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from oauthbroker.cli.output.commands_here import runnable
from oauthbroker.cli.output.error_output import confirm
from oauthbroker.cli.output.json_output import answer, say
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath, Yes
from oauthbroker.cli.output.progress import progress, resumable, unchanged
from oauthbroker.cli.output.tables import counted, table
from oauthbroker.cli.stored_records import run_within
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from oauthbroker.wiring.store_keys import StoreKeys

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, add_completion=False)
Wait = Annotated[int, typer.Option("--wait", min=0, help="Seconds to wait for brokers to open the new seed.")]


@app.command("status")
def status_command(as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """List the keys that open the keyring, the seeds, and how many records each has sealed.

    Reads the header of every record.
    """
    with unchanged(), progress(as_json=as_json) as shown:
        found = _run(config, lambda keys: keys.status(shown))
    if as_json:
        answer(found)
        return
    table(
        ("key", "opens", "configured"), [(it["id"], _yes(it["opens"]), _yes(it["configured"])) for it in found["keys"]]
    )
    typer.echo("")
    rows = [(it["id"], it["state"], it["createdAt"], str(it["records"])) for it in found["seeds"]]
    table(("seed", "state", "made", "records"), rows)
    typer.echo("")
    typer.echo(runnable(f"Epoch {found['epoch']}. {_advice(found)}"))


@app.command("new")
def new_command(file: Path, as_json: AsJson = False) -> None:
    """Make a key file, and touch neither a store nor a configuration. An existing file is refused."""
    from oauthbroker.store.keys.key_encryption_keys import FileKek
    from oauthbroker.wiring.store_place import naming

    with naming(lambda: f"key: {file}"):
        kek = FileKek.create(file.absolute())
    say(f"Made the key {kek.id()}: {file}", {"keyFile": str(file.absolute()), "id": kek.id()}, as_json=as_json)


@app.command("rotate")
def rotate_command(wait: Wait = 90, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Make a new seed, which seals every record that is written from now on.

    It seals as soon as every running broker can open it. Then the brokers seal the other records anew in the
    background. Running this again goes on with an interrupted rotation.
    """
    done = _run(config, lambda keys: keys.rotate(wait=wait))
    if not done and not wait:
        begun = "Begun: running processes open the new seed within seconds. Run this again to finish."
        say(runnable(begun), {"rotated": False}, as_json=as_json)
        raise typer.Exit(1)
    if not done:
        raise Refused(
            "A running process has not opened the new seed, so it seals nothing yet. `oauthbroker keys "
            "status` counts such processes. Check that each broker's key opens the keyring, then run this again."
        )
    say("A new seed seals. `oauthbroker keys reseal` seals the older records now.", {"rotated": True}, as_json=as_json)


@app.command("reseal")
def reseal_command(as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Seal all records with the newest seed now. Brokers do this in the background, more slowly.

    Safe at any time, beside brokers, and after an interruption.
    """
    with resumable(), progress(as_json=as_json) as shown:
        done = _run(config, lambda keys: keys.reseal(shown))
    document = {"resealed": done.resealed, "seen": done.seen, "unreadable": done.unreadable, "done": done.done}
    say(f"Sealed {counted(done.resealed, 'record')} anew, of {done.seen}.", document, as_json=as_json)
    if not done.done:
        left = f"{counted(done.unreadable, 'record')} cannot be opened: `oauthbroker doctor` names them."
        typer.echo(runnable(left), err=True)
        raise typer.Exit(1)


@app.command("retire")
def retire_command(yes: Yes = False, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Destroy the old seeds. Refused while any record is sealed with one of them.

    A backup from before the last `reseal` needs its own keyring from then on: restore both together.
    """
    confirm("Destroy the old seeds?", yes=yes)
    with progress(as_json=as_json) as shown:
        left = _run(config, lambda keys: keys.retire(shown))
    if left:
        raise Refused(f"{counted(left, 'record')} are sealed with an old seed. Run `oauthbroker keys reseal` first.")
    say("No old seed is left.", {"retired": True}, as_json=as_json)


@app.command("rewrap")
def rewrap_command(as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Wrap the keyring for the keys of the configuration, `keys` and `keys.also`, and for no other key.

    Every one of them has to be usable. No record is changed.
    """
    _run(config, lambda keys: keys.rewrap())
    say("The keys of the configuration open the keyring, and no other key.", {"rewrapped": True}, as_json=as_json)


def _run(config: Path, work: Callable[[StoreKeys], Awaitable[T]]) -> T:
    from oauthbroker.config.bundle.server_environment import load_here
    from oauthbroker.wiring.store_keys import open_keys

    with unchanged():
        loaded = load_here(config)
    return run_within(open_keys(loaded.settings, env=loaded.env), work)


def _advice(found: dict[str, Any]) -> str:
    behind = found["processesBehind"]
    if behind and any(seed["state"] == "next" for seed in found["seeds"]):
        return f"Processes that have not opened the new seed yet: {behind}. It seals once they have."
    old = [seed for seed in found["seeds"] if seed["state"] == "decryptOnly"]
    if any(seed["records"] for seed in old):
        return "Records are being sealed anew; `oauthbroker keys reseal` does it now."
    return "`oauthbroker keys retire` destroys the old seeds." if old else "Nothing to do."


def _yes(value: bool | None) -> str:
    return "not tried" if value is None else "yes" if value else "no"
