"""The store of the settings, opened: its key, its records, its audit log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.memory import AuditList
from oauthbroker.audit.port import AuditWriter
from oauthbroker.config.settings import with_key_file
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log
from oauthbroker.records.api_key import ApiKey
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.repository.upgrade_steps import STEPS
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.file.fs import Fs, at_border
from oauthbroker.store.kek import EnvKek, FileKek, KeyProvider
from oauthbroker.store.keys import Keyring
from oauthbroker.store.memory import MemoryStore
from oauthbroker.store.port import Store
from oauthbroker.store.upgrade import LEASE_KIND, KeyringFile, is_behind, left_of, names_of, upgrade

KEY_ENV = "OAUTHBROKER_KEY"
CREDENTIALS_ENV = "CREDENTIALS_DIRECTORY"
CREDENTIAL = "oauthbroker.kek"


class OpenedStore(NamedTuple):
    """The store, and whether it is of this version: one that is only read may wait for its upgrade."""

    store: Store
    current: bool


async def open_store(
    settings: Settings, env: Mapping[str, str], clock: Clock, log: Log, *, upgrading: bool = True
) -> OpenedStore:
    """Open the file store of the settings. A store of an older version is upgraded first, unless the caller only reads:
    then the log names the steps that are left. Raises `storeLocked`, and as `unlocked` does."""
    file, keyring = _opened(settings, env, log)
    current = upgrading or not is_behind(keyring, STEPS)
    store = FileStore.open(
        Path(settings.store_root),
        keyring,
        kinds=KINDS,
        lease_kinds=(*LEASES, LEASE_KIND),
        clock=clock,
        on_damage=reporting(log),
        copies_damage=current,
    )
    try:
        if upgrading:
            await upgrade(store, keyring, file, STEPS)
        elif not current:
            log.warning("the store waits for an upgrade: a broker that starts does it", left=left_of(keyring, STEPS))
    except BaseException:
        await store.close()
        raise
    return OpenedStore(store, current)


def unlocked(settings: Settings, env: Mapping[str, str], log: Log) -> Keyring:
    """Open the keyring of the store. A refusal names the place of the key, because there are several.

    Raises `keyUnknown`, `keyMismatch`, `storePermissions`."""
    return _opened(settings, env, log)[1]


def _opened(settings: Settings, env: Mapping[str, str], log: Log) -> tuple[KeyringFile, Keyring]:
    refused = BrokerError(Code.KEY_UNKNOWN)
    try:
        file = KeyringFile(_keyring_path(settings), key_provider(settings, env, log))
        keyring = file.load()
        left_of(keyring, STEPS)
    except BrokerError as error:
        refused = error
    else:
        return file, keyring
    note = "; ".join(filter(None, (refused.note, f"key: {key_origin(settings, env)}")))
    raise BrokerError(refused.code, note=note)


def upgrade_state(keyring: Keyring) -> Literal["done", "waits", "begun"]:
    """Return whether the store is of this version, waits for an upgrade, or is in one that may have been
    interrupted."""
    if keyring.upgrades is not None and keyring.upgrades.under_way:
        return "begun"
    return "waits" if is_behind(keyring, STEPS) else "done"


def reporting(log: Log) -> Callable[[str, Code], None]:
    """Log entries and records that cannot be read: a kind, the first digits of a name, and the code."""
    return lambda place, code: log.error("unreadable", place=place, code=code.value)


def init_store(settings: Settings, clock: Clock) -> tuple[bool, Path]:
    """Makes the key file (unless there is one) and the keyring; (whether the key is new, where it is).

    Raises `keyExists` where a keyring is: nothing is ever overwritten.
    """
    path = Path(settings.key_file)
    at_border(lambda: Fs().make_root(path.parent))
    is_new = not path.exists()
    if is_new and _keyring_path(settings).exists():
        raise BrokerError(Code.KEY_UNKNOWN, note="the store has a keyring, but its key file is missing")
    outside = _key_free(settings)
    kek = FileKek.create(path, outside=outside) if is_new else FileKek.open(path, outside=outside, durably=True)
    Keyring.create(_keyring_path(settings), kek, clock=clock, upgrades=names_of(STEPS))
    return is_new, path


def key_provider(settings: Settings, env: Mapping[str, str], log: Log) -> KeyProvider:
    """Return the source of the KEK: the environment (with a warning), a systemd credential, or the key file."""
    if env.get(KEY_ENV):
        log.warning("the key comes from the environment, which keeps it readable; use a key file")
        return EnvKek(env[KEY_ENV])
    return FileKek.open(Path(key_origin(settings, env)), outside=_key_free(settings))


def key_origin(settings: Settings, env: Mapping[str, str]) -> str:
    """Return the variable or the path of the file that the key is read from."""
    if env.get(KEY_ENV):
        return KEY_ENV
    credential = Path(env[CREDENTIALS_ENV], CREDENTIAL) if env.get(CREDENTIALS_ENV) else None
    return str(credential) if credential is not None and credential.exists() else settings.key_file


def _key_free(settings: Settings) -> tuple[Path, ...]:
    """Return the folders that are copied together with what the key protects: no key may lie there."""
    return tuple(Path(each) for each in (settings.store_root, settings.bundle_root) if each)


def with_keys(settings: Settings, env: Mapping[str, str]) -> Settings:
    """Return the settings with `key_file` filled in from the environment or the default."""
    return replace(settings, key_file=with_key_file(settings, env))


def default_audit(settings: Settings, store: Store, log: Log) -> AuditWriter:
    """Open the log beside the records, in a slot of this process; in memory for a store in memory. Raises
    `storeUnavailable` if other processes hold all slots."""
    if isinstance(store, MemoryStore):
        return AuditList()
    audit = audit_file(settings, store, log)
    audit.take()
    return audit


def audit_file(settings: Settings, store: Store, log: Log) -> AuditFile:
    keys = AuditKeys(store.mac)
    return AuditFile(folder=_data(settings), keys=keys, most_bytes=settings.audit_max_bytes, tell=log.warning)


def _data(settings: Settings) -> Path:
    return Path(settings.store_root) / "data"


def _keyring_path(settings: Settings) -> Path:
    return _data(settings) / "keyring"


def api_keys(repository: Repository, clock: Clock, audit: AuditWriter) -> ApiKeys:
    return ApiKeys(repository.shelf("apikeys", ApiKey.from_plaintext), clock, audit)
