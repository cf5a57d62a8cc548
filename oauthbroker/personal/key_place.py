"""Where the key of the person's store lies: in the keychain of the system, or else in a file of their data folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from oauthbroker.config import load
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.refused import Refused
from oauthbroker.key_services.keychain import (
    PROVIDER,
    KeychainKek,
    id_in_file,
    keep_in_keychain,
    key_to_move,
    keychain_name,
)
from oauthbroker.personal.app_files import keys_of, write_broker, write_keys
from oauthbroker.personal.places import Places
from oauthbroker.personal.serve_socket import serve_process
from oauthbroker.wiring import with_keys
from oauthbroker.wiring.key_sources import environment_without_keys, key_free

_LOCK: Final = ".keys.lock"
_LOCK_SECONDS: Final = 60.0  # while the other one waits for a person who unlocks the keychain


def use_keychain(places: Places) -> str:
    """Put the key into the keychain, if there is one: a new key, or that of the file. Return the sentence that says so;
    empty if nothing changed. The file is removed last, after the keychain has given the key back. A key that the
    configuration names stays where it is, and so does that of a running `serve`. Raises Refused, and store codes."""
    with locked(places):
        if (named := keys_of(places)) is not None:
            return _finished(places, named)
        if not (name := keychain_name()) or serve_process(places):
            return ""
        if not places.broker_file.exists():
            write_broker(places)
        path = _key_file(places)
        key = key_to_move(path, key_free(load(places.config).settings), store_exists=places.keyring.exists())
        if key is None:
            return ""
        try:
            keep_in_keychain(key)
        except BrokerError as error:
            return f"The key is kept in {path}, because {error.note}."
        write_keys(places, {"plugin": {"name": PROVIDER, "settings": {"item": key.id()}}})
        path.unlink(missing_ok=True)
        return f"The key that opens {places.store} is in {name}."


def place_of_key(places: Places) -> str:
    """Return where the key is, for `status`."""
    named = keys_of(places)
    if named is None:
        return f"The key is in {_key_file(places)}."
    if item := _item_of(named):
        return f"The key is in the keychain of the system, as oauthbroker {item}."
    return f"The key is where spec.keys of {places.broker_file} says."


def _finished(places: Places, named: object) -> str:
    """Remove the file of a key that is in the keychain since before: a crash left it."""
    path = _key_file(places)
    if (item := _item_of(named)) and path.exists() and id_in_file(path) == item:
        KeychainKek.open(item)
        path.unlink()
    return ""


def _item_of(named: object) -> str:
    """Return the name of the key in the keychain; empty for keys of another kind."""
    match named:
        case {"plugin": {"name": str(name), "settings": {"item": str(item)}}} if name == PROVIDER:
            return item
    return ""


def _key_file(places: Places) -> Path:
    return Path(with_keys(load(places.config).settings, environment_without_keys()).key_file)


@contextmanager
def locked(places: Places) -> Iterator[None]:
    """Hold off other processes of this person, which would make a key of their own. Raises Refused for one that does
    not end."""
    lock = FileLock(places.root / _LOCK, _LOCK_SECONDS, 0o600)
    try:
        lock.acquire()
    except Timeout:
        raise Refused("Another command of yours makes or moves the key. Try again when it has ended.") from None
    try:
        yield
    finally:
        lock.release()
