"""Export the store of the settings to an archive, import one, and accept a restored store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from oauthbroker.audit import RestoreAccepted
from oauthbroker.core.clock import Clock
from oauthbroker.core.progress import Progress, unseen
from oauthbroker.core.refused import Refused
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log
from oauthbroker.repository.repository import KINDS
from oauthbroker.repository.store_age import age_in
from oauthbroker.store.file.seen_file import read_seen, write_seen
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.archive import ArchiveReader, Export, Import, KeysChangedError
from oauthbroker.store.migration.copying import CopiedKind
from oauthbroker.store.migration.raw import document_of
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState
from oauthbroker.store.posix.system_calls import Fs, at_border
from oauthbroker.wiring.key_sources import key_providers
from oauthbroker.wiring.migration import opened_ring, raw_store
from oauthbroker.wiring.storage import audit_file, data_of
from oauthbroker.wiring.store_place import word_of

EXPORTS = 5  # one rotation changes the keyring up to three times


def export_store(
    path: Path,
    recipients: Sequence[str],
    settings: Settings,
    *,
    env: Mapping[str, str],
    clock: Clock,
    log: Log,
    progress: Progress = unseen,
) -> tuple[list[CopiedKind], list[str]]:
    """Write an archive. Return its kinds, and the records that do not open and are left out. Raises Refused and store
    codes."""
    _check_installed()
    from oauthbroker.store.migration import age

    to = age.recipients(recipients)
    left = EXPORTS
    while True:
        left -= 1
        with closing(raw_store(word_of(settings), env)) as store:
            document = document_of(store)
            ring = Keyring.opened(document, *key_providers(settings, env, log))
            export = Export(
                store=store, document=document or b"", ring=ring, known=KINDS, clock=clock, progress=progress
            )
            try:
                age.encrypt(path, export.lines(), to)
            except KeysChangedError:
                if not left:
                    raise
            else:
                return export.kinds, export.damaged


def import_store(
    path: Path,
    identity: Path,
    settings: Settings,
    *,
    env: Mapping[str, str],
    clock: Clock,
    log: Log,
    progress: Progress = unseen,
) -> list[CopiedKind]:
    """Make a restored store of an archive. Raises Refused and store codes."""
    _check_installed()
    from oauthbroker.store.migration import age

    def opened(document: bytes) -> Keyring:
        return Keyring.opened(document, *key_providers(settings, env, log))

    using, passes = age.identities(identity), iter(("bytes of the archive opened", "bytes of the archive written"))
    with age.archive_file(path) as file, closing(raw_store(word_of(settings), env, make=True)) as target:

        def read(reader: ArchiveReader) -> None:
            age.decrypt(file, reader, using, next(passes), progress)

        return Import(target=target, opened=opened, known=KINDS, clock=clock, progress=progress).run(read)


class Restored(NamedTuple):
    """A store that waits to be accepted: the time of its records, and its mark if it was imported."""

    since: str
    mark: MigrationMarker | None


def restored(settings: Settings, *, env: Mapping[str, str], log: Log) -> Restored | None:
    """Return None for a store that does not wait to be accepted. Raises store codes."""
    with closing(raw_store(word_of(settings), env)) as store:
        mark = store.mark()
        if mark is not None and mark.state is not MigrationState.RESTORED:
            raise mark.refusal()
        if mark is not None:
            return Restored(mark.there, mark)
        ring = Keyring.opened(document_of(store), *key_providers(settings, env, log))
        age, seen = age_in(store, ring), read_seen(data_of(settings), ring.store_id)
    is_older = age is not None and seen is not None and age.number < seen.number
    return Restored(age.at, None) if age is not None and is_older else None


def accept_restore(found: Restored, settings: Settings, *, env: Mapping[str, str], clock: Clock, log: Log) -> None:
    """Let brokers of this host open a restored store. Raises store codes, and `auditUnavailable`."""
    data = data_of(settings)
    with opened_ring(raw_store(word_of(settings), env), settings, env, log) as (store, ring):
        with closing(audit_file(settings, ring, log)) as audit:
            at_border(lambda: Fs().make_root(data))
            audit.write(RestoreAccepted(since=found.since), clock.now())
        write_seen(data, ring.store_id, None)
        if found.mark is not None:
            store.set_mark(None, expect=found.mark)


def _check_installed() -> None:
    if find_spec("pyrage") is None:
        raise Refused('Archives need `pip install "oauthbroker[backup]"`.')
