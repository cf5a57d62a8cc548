"""The store of the settings, opened: its key, its records, its audit log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.checkpoint import read_or_begin
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.folder import is_unused
from oauthbroker.audit.memory import AuditList
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import on_thread
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log
from oauthbroker.records.api_key import ApiKey
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.repository.store_age import StoreAge
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import DEGRADED_SECONDS, Store
from oauthbroker.store.keys.key_encryption_keys import FileKek, KeyProvider
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.keys.keyring_home import KeyringFile, KeyringHome
from oauthbroker.store.keys.rotation import LEASE_KIND, KeyRotation, SealedStore
from oauthbroker.store.memory import MemoryStore
from oauthbroker.store.posix.checked_files import close
from oauthbroker.store.posix.folders import open_data
from oauthbroker.store.posix.system_calls import Fs, at_border
from oauthbroker.wiring.key_sources import FurtherKeyError, key_free, key_origin, key_providers, provider_of
from oauthbroker.wiring.store_place import check_place, naming, naming_store, noted

_LEASES = (*LEASES, LEASE_KIND)


class OpenedStore(NamedTuple):
    """The store, the rotation of its keys, and its age."""

    store: Store
    rotation: KeyRotation
    age: StoreAge


async def open_store(settings: Settings, env: Mapping[str, str], clock: Clock, log: Log) -> OpenedStore:
    """Open the store of the settings: files, or a PostgreSQL database. Raises as `unlocked` does."""
    with naming_store(settings, env):
        home, keyring = await on_thread(partial(_opened, settings, env, log))
        store = _store_of(settings, keyring, env=env, clock=clock, log=log)
        age = StoreAge(store=store, store_id=keyring.store_id, data=data_of(settings), clock=clock)
        try:
            await age.check()
        except BaseException:
            await store.close()
            raise
        return OpenedStore(store, KeyRotation(store, home, clock), age)


def _store_of(settings: Settings, keyring: Keyring, *, env: Mapping[str, str], clock: Clock, log: Log) -> SealedStore:
    if settings.store_url_env:
        at_border(partial(_open_data_of_host, Path(settings.store_root)))
    if is_unused(data_of(settings)):
        with suppress(OSError):  # the first broker tries again
            read_or_begin(data_of(settings), AuditKeys(keyring.mac))
    if settings.store_url_env:
        return database_store(settings, keyring, env=env, on_damage=reporting(log))
    return FileStore(
        Path(settings.store_root),
        keyring,
        kinds=KINDS,
        lease_kinds=_LEASES,
        clock=clock,
        on_damage=reporting(log),
    )


def _open_data_of_host(root: Path) -> None:
    """Make and check the folder that has this host's part of the audit log. Raises `storePermissions`."""
    fs = Fs()
    close(fs, open_data(fs, root))


def database_store(
    settings: Settings, keyring: Keyring, *, env: Mapping[str, str], on_damage: Callable[[str, Code], None]
) -> SealedStore:
    """Return the store in the database of the settings. It connects when it is first used."""
    url = store_url(settings, env)
    if url is None:
        raise ValueError("the settings name no database")
    from oauthbroker.store.postgres.connection_pool import ConnectionPool
    from oauthbroker.store.postgres.feed import Feed
    from oauthbroker.store.postgres.postgres_store import PostgresStore

    direct_url = url_in(settings.store_direct_url_env, env) if settings.store_direct_url_env else url
    return PostgresStore(
        ConnectionPool(url),
        keyring,
        kinds=KINDS,
        lease_kinds=_LEASES,
        on_damage=on_damage,
        feed=Feed(direct_url, trusted=settings.store_consistency != "strict"),
        degraded_seconds=DEGRADED_SECONDS if settings.store_consistency == "available" else 0.0,
    )


def store_url(settings: Settings, env: Mapping[str, str]) -> Secret | None:
    """Return the URL of the database that keeps the records; None for a store in files.

    Raises `storeUnavailable` if the variable is not set, or the driver is not installed."""
    return url_in(settings.store_url_env, env) if settings.store_url_env else None


def url_in(name: str, env: Mapping[str, str]) -> Secret:
    """Return the URL of a database in a variable. Raises as `store_url` does."""
    if not env.get(name):
        raise BrokerError(
            Code.STORE_UNAVAILABLE,
            note=f"the environment variable {name} has no URL of a database: set it",
            lasting=True,
        )
    if env[name] != env[name].strip():
        raise BrokerError(
            Code.STORE_UNAVAILABLE,
            note=f"the environment variable {name} begins or ends with white space: remove it",
            lasting=True,
        )
    check_driver()
    return Secret(env[name])


def check_driver() -> None:
    """Raises `storeUnavailable` if the driver of PostgreSQL is not installed."""
    if find_spec("psycopg_pool") is None:
        needs = 'PostgreSQL needs `pip install "oauthbroker[postgres]"`'
        raise BrokerError(Code.STORE_UNAVAILABLE, note=needs, lasting=True)


def unlocked(settings: Settings, env: Mapping[str, str], log: Log) -> Keyring:
    """Open the keyring of the store. A refusal names the place of the key, because there are several, or
    that of a store of another format.

    Raises `keyUnknown`, `keyMismatch`, `storeFormat`, `storePermissions`."""
    return _opened(settings, env, log)[1]


def _opened(settings: Settings, env: Mapping[str, str], log: Log) -> tuple[KeyringHome, Keyring]:
    check_place(settings)
    keys: tuple[KeyProvider, ...] | None = None
    try:
        keys = key_providers(settings, env, log)
        home = _home(settings, env, *keys)
        return home, home.load()
    except FurtherKeyError:
        raise
    except BrokerError as error:
        refused = error
    note = refused.note
    if keys is None or refused.code in {Code.KEY_UNKNOWN, Code.KEY_MISMATCH}:
        can_be_new = refused.code is Code.KEY_UNKNOWN and not refused.hint and settings.key_service is None
        is_new = can_be_new and settings.store_url_env
        more = "for a new store, run `oauthbroker init`" if is_new else ""
        note = "; ".join(filter(None, (note, f"key: {key_origin(settings, env)}", more)))
    if keys is not None and refused.code is not Code.KEY_UNKNOWN:
        note = noted(note, settings, env)
    named = BrokerError(
        refused.code, note=note, lasting=refused.lasting, store=settings.store_root, command="`oauthbroker init`"
    )
    named.hint = _hint(settings, refused)
    raise named


def _hint(settings: Settings, refused: BrokerError) -> str:
    """Return the sentence for a missing key file or keyring: there is no store yet, or a part of one is away."""
    is_away = refused.code is Code.KEY_UNKNOWN and not refused.hint
    if not is_away or settings.key_service is not None or settings.store_url_env:
        return refused.hint
    try:
        return "keyAway" if KeyringFile(_keyring_path(settings)).read() is not None else "noStore"
    except BrokerError as error:
        return error.hint


def _home(settings: Settings, env: Mapping[str, str], *keks: KeyProvider) -> KeyringHome:
    url = store_url(settings, env)
    if url is None:
        return KeyringFile(_keyring_path(settings), *keks)
    from oauthbroker.store.postgres.schema import KeyringTable

    return KeyringTable(url, *keks)


def check_database(settings: Settings, env: Mapping[str, str]) -> None:
    """Read the keyring of a store in a database, without its key. Raises store codes."""
    url = store_url(settings, env)
    if url is None:
        return
    from oauthbroker.store.postgres.schema import read_keyring

    with naming_store(settings, env):
        read_keyring(url)


def reporting(log: Log) -> Callable[[str, Code], None]:
    """Log entries and records that cannot be read: a kind, the first digits of a name, and the code."""
    return lambda place, code: log.error("unreadable", place=place, code=code.value)


class NewStore(NamedTuple):
    """A store that was made: the file or the id of its key, whether that is new, and where the keyring is."""

    key: str
    key_is_new: bool
    keyring: str


def init_store(settings: Settings, env: Mapping[str, str], clock: Clock) -> NewStore:
    """Make the key file, unless there is one or a key service in its place, and the keyring; in a database the tables,
    too.

    Raises `keyExists` where a keyring is: nothing is ever overwritten. A further host of a database's store takes its
    key file from the first one: `keyUnknown`.
    """
    check_place(settings)
    with naming_store(settings, env):
        url = store_url(settings, env)
        if url is not None:
            migrate_store(url)
        kek, key, is_new = _key_of_new_store(settings, env)
        _home(settings, env, kek).create(clock=clock)
    return NewStore(key, is_new, str(_keyring_path(settings)) if url is None else "table oauthbroker.keyring")


def _key_of_new_store(settings: Settings, env: Mapping[str, str]) -> tuple[KeyProvider, str, bool]:
    if settings.key_service is not None:
        kek = provider_of(settings.key_service, env, key_free(settings), settings.outgoing_proxy)
        return kek, kek.id(), False
    path, outside = Path(settings.key_file), key_free(settings)
    if (is_new := not path.exists()) and _home(settings, env).read() is not None:
        raise BrokerError(Code.KEY_UNKNOWN, note=f"the store has a keyring, but its key file is missing; key: {path}")
    with naming(lambda: f"key: {path}"):
        at_border(lambda: Fs().make_root(path.parent))
        made = FileKek.create(path, outside=outside) if is_new else FileKek.open(path, outside=outside, durably=True)
    return made, str(path), is_new


def migrate_store(url: Secret) -> list[int]:
    """Run the migrations that a database lacks, and return their numbers. Raises store codes."""
    from oauthbroker.store.postgres.schema import migrate

    return migrate(url)


def default_audit(settings: Settings, store: Store, clock: Clock, log: Log) -> AuditWriter:
    """Open the log beside the records, in a slot of this process; in memory for a store in memory. Raises
    `storeUnavailable` if other processes hold all slots."""
    if isinstance(store, MemoryStore):
        return AuditList()
    audit = audit_file(settings, store, log)
    audit.take(clock.now())
    return audit


def audit_file(settings: Settings, store: Store | Keyring, log: Log) -> AuditFile:
    keys = AuditKeys(store.mac)
    return AuditFile(folder=data_of(settings), keys=keys, most_bytes=settings.audit_max_bytes, tell=log.warning)


def data_of(settings: Settings) -> Path:
    return Path(settings.store_root) / "data"


def _keyring_path(settings: Settings) -> Path:
    return data_of(settings) / "keyring"


def api_keys(repository: Repository, clock: Clock, audit: AuditWriter) -> ApiKeys:
    return ApiKeys(records=repository.records("apikeys", ApiKey.from_plaintext), clock=clock, audit=audit)
