"""`oauthbroker store`: move, verify, export and import the store, and the tables of one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.output.error_output import confirm
from oauthbroker.cli.output.json_output import answer, say
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath, Yes
from oauthbroker.cli.output.progress import progress, resumable, stoppable, unchanged
from oauthbroker.cli.output.tables import counted, table
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.refused import Refused
from oauthbroker.observability.logging import Log, logger_log

if TYPE_CHECKING:
    from oauthbroker.model.settings import Settings
    from oauthbroker.store.migration.copying import CopiedKind

app = typer.Typer(no_args_is_help=True, add_completion=False)
_PLACE = "A folder, or env:NAME for the PostgreSQL database whose URL the variable NAME has."
From = Annotated[str, typer.Argument(metavar="FROM", help=_PLACE)]
To = Annotated[str, typer.Argument(metavar="TO", help=_PLACE)]
Place = Annotated[str, typer.Argument(metavar="[PLACE]", help=f"{_PLACE} Else the store of the configuration.")]
CutOver = Annotated[bool, typer.Option("--cut-over", help="Close FROM for ever and open TO. Stop the brokers first.")]
SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Leave records behind that do not open.")]
Abandon = Annotated[
    bool, typer.Option("--abandon", help="The store that replaced this one is lost, or was never used.")
]
Archive = Annotated[Path, typer.Argument(metavar="FILE", help="The archive.")]
Recipients = Annotated[
    list[str] | None, typer.Option("--recipient", "-r", metavar="age1...", help="Who can import it. Repeatable.")
]
RecipientsFile = Annotated[Path | None, typer.Option("--recipients-file", help="One recipient on each line.")]
Identity = Annotated[Path, typer.Option("--identity", "-i", help="A file of mode 0600, as age-keygen writes it.")]
NOT_ALL = 1
MEANING = """\
The records of the store are of {at}, and older than those that brokers have used since:
- Refresh tokens that were used since may be spent. A provider may end the whole grant when one is used again.
- Grants, secrets and API keys that were revoked, erased or removed since are back. Revoke them again.
- New grants, running turns and their tokens, and all changes since are gone. A link that was used since may work
  again until it expires.
- Events may be delivered twice.
- The store that they were copied from must never be used again: two living stores would end each other's grants."""


@app.command("copy")
def copy_command(
    source: From,
    target: To,
    cut_over: CutOver = False,
    skip_damaged: SkipDamaged = False,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Copy the store to another place: from files to PostgreSQL, or back.

    Without --cut-over, brokers may go on with FROM. Repeat the command to copy later changes. With --cut-over, FROM
    is closed, the rest is copied, every record is opened and compared, and TO opens. After a crash, the same command
    goes on. Both use the same key. Then write TO into spec.store, and start the brokers.
    """
    from oauthbroker.wiring.migration import copy_store

    settings, env, log = _settings(config)
    with resumable(), progress(as_json=as_json) as shown:
        copied = copy_store(
            (source, target),
            settings,
            env=env,
            clock=SystemClock(),
            log=log,
            cut_over=cut_over,
            skip_damaged=skip_damaged,
            progress=shown,
        )
    lines = [f"Left behind, does not open: {place}" for place in copied.damaged]
    if copied.cut_over:
        lines += [f"Done: every record opens and is equal. {source} is closed. Write {target} into spec.store."]
    else:
        lines += ["Copied. Repeat this, then stop the brokers and add --cut-over."]
    document = {"cutOver": copied.cut_over, "damaged": copied.damaged}
    _tell(copied.kinds, lines, document, as_json=as_json, changes=True)
    if copied.damaged:
        raise typer.Exit(NOT_ALL)


@app.command("verify")
def verify_command(place: Place = "", as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Open every record, and compare its name and its tags with its content.

    Brokers may work meanwhile, and nothing is changed. Status 1: a fault, also of a lost folder or of many lost
    records: restore them from a backup. Leftovers are harmless.
    """
    from oauthbroker.wiring.migration import verify_store
    from oauthbroker.wiring.store_place import word_of

    settings, env, log = _settings(config)
    with unchanged(), progress(as_json=as_json) as shown:
        found = verify_store(place or word_of(settings), settings, env=env, log=log, progress=shown)
    lines = [
        *(f"{record}: {what}" for record, what in found.faults),
        *(f"{kind}: {what} (harmless)" for kind, what in found.leftovers),
        f"{counted(len(found.faults), 'fault')}.",
    ]
    document = {
        "ok": not found.faults,
        "faults": [{"record": record, "fault": fault} for record, fault in found.faults],
        "leftovers": [{"kind": kind, "what": what} for kind, what in found.leftovers],
    }
    _tell(found.kinds, lines, document, as_json=as_json)
    if found.faults:
        raise typer.Exit(NOT_ALL)


@app.command("export")
def export_command(
    file: Archive,
    recipient: Recipients = None,
    recipients_file: RecipientsFile = None,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Write all records, as they are sealed, and the wrapped keyring into a new file that is encrypted with age.

    Brokers may work meanwhile. Each record is whole, and of some moment of the export. To open an archive takes an
    identity of one of the recipients and the key of the store. Status 1: records that do not open were left out.
    """
    from oauthbroker.wiring.backup import export_store

    settings, env, log = _settings(config)
    words = [*(recipient or ()), *_lines_of(recipients_file)]
    with stoppable("Stopped. No archive was written."), progress(as_json=as_json) as shown:
        kinds, damaged = export_store(file, words, settings, env=env, clock=SystemClock(), log=log, progress=shown)
    apart = _kept_apart(config)
    lines = [*(f"Left out, does not open: {place}" for place in damaged), *apart]
    _tell(kinds, lines, {"damaged": damaged, "apart": apart}, as_json=as_json)
    if damaged:
        raise typer.Exit(NOT_ALL)


@app.command("import")
def import_command(file: Archive, identity: Identity, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Restore the store of the configuration from an archive. Its place has to be empty.

    Every record is opened before the first write, and compared after the last. After
    a crash, the same command goes on. The store does not open for brokers until `store accept-restore`.
    """
    from oauthbroker.wiring.backup import import_store

    settings, env, log = _settings(config)
    with resumable(), progress(as_json=as_json) as shown:
        kinds = import_store(file, identity, settings, env=env, clock=SystemClock(), log=log, progress=shown)
    line = "Every record opens and is that of the archive. Now read `oauthbroker store accept-restore`."
    _tell(kinds, [line], {}, as_json=as_json)


@app.command("accept-restore")
def accept_restore_command(yes: Yes = False, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Let brokers use a restored store. It says first what that means."""
    from oauthbroker.wiring.backup import accept_restore, restored

    settings, env, log = _settings(config)
    found = restored(settings, env=env, log=log)
    if found is not None:
        typer.echo(MEANING.format(at=found.since), err=True)
        confirm("Let brokers use it?", yes=yes)
        accept_restore(found, settings, env=env, clock=SystemClock(), log=log)
    message = "Brokers may use the store." if found is not None else "The store does not wait to be accepted."
    say(message, {"accepted": found is not None}, as_json=as_json)


@app.command("reopen")
def reopen_command(
    place: Place = "", abandon: Abandon = False, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """Undo the closing of a store by a move.

    Before the cut-over is complete this is safe. After it, brokers at the other store have refreshed tokens. The
    refresh tokens here are spent, and a provider may revoke the whole grant when one is used again. So move back with
    `store copy`. Only if the other store is lost, or no broker ever used it, use --abandon here.
    """
    from oauthbroker.wiring.migration import reopen_store
    from oauthbroker.wiring.store_place import word_of

    settings, env, _ = _settings(config)
    done = reopen_store(place or word_of(settings), env, abandon=abandon)
    say("The store is open again." if done else "The store was not closed.", {"reopened": done}, as_json=as_json)


@app.command("migrate")
def migrate_command(as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Bring the tables of the database up to this version.

    Safe while brokers of the version before run: migrations only add. The database's user needs the right to create
    tables here, and nowhere else. `oauthbroker init` does this for a new store.
    """
    from oauthbroker.wiring import migrate_store, store_url
    from oauthbroker.wiring.store_place import naming_store

    settings, env, _ = _settings(config)
    with naming_store(settings, env):
        url = store_url(settings, env)
        if url is None:
            raise Refused("The store is in files. Only a store in PostgreSQL has migrations: write spec.store.url.")
        done = migrate_store(url)
    message = f"Done: the tables are at version {max(done)}." if done else "Nothing to do."
    say(message, {"migrations": done}, as_json=as_json)


def _settings(config: Path) -> tuple[Settings, Mapping[str, str], Log]:
    from oauthbroker.config.bundle.server_environment import load_here
    from oauthbroker.wiring import with_keys

    with unchanged():
        loaded = load_here(config)
        return with_keys(loaded.settings, loaded.env), loaded.env, logger_log()


def _kept_apart(config: Path) -> list[str]:
    """Return a sentence for each plug-in that keeps data outside of the store."""
    from oauthbroker.config.bundle.server_environment import load_here
    from oauthbroker.plugins.discovery import declared

    loaded = load_here(config)
    used = [declared(plugin) for plugin in loaded.settings.plugins if loaded.plugins.get(plugin)]
    return [plugin.backup for plugin in used if plugin.backup]


def _lines_of(path: Path | None) -> list[str]:
    with suppress(OSError, ValueError):
        return path.read_text("utf-8").splitlines() if path is not None else []
    raise Refused(f"{path} cannot be read.")


def _tell(
    kinds: list[CopiedKind], lines: list[str], document: dict[str, object], *, as_json: bool, changes: bool = False
) -> None:
    """Print the kinds that have records and the lines; or, as JSON, the document and all kinds."""
    if as_json:
        answer({**document, "kinds": [*map(_document, kinds)]})
        return
    head = ("kind", "records", *(("written", "removed") if changes else ()), "sha256")
    rows = [
        (each.kind, str(each.records), *((str(each.written), str(each.removed)) if changes else ()), each.digest[:16])
        for each in kinds
        if each.records or each.removed
    ]
    table(head, rows)
    for line in lines:
        typer.echo(line)


def _document(kind: CopiedKind) -> dict[str, object]:
    return {
        "kind": kind.kind,
        "records": kind.records,
        "written": kind.written,
        "removed": kind.removed,
        "sha256": kind.digest,
    }
