"""A key in the keychain of the operating system. Needs the extra `keychain` (keyring)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.key_encryption_keys import KEY_BYTES, FileKek, LocalKek, key_of_text

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

PROVIDER: Final = "keychain"  # its entry point in `oauthbroker.key_providers`
SERVICE: Final = "oauthbroker"
_EXTRA: Final = 'needs an extra: pip install "oauthbroker[keychain]"'
_NONE_HERE: Final = "does not answer here: log in to the desktop of this machine, and try again there"
_LOCKED: Final = "is locked: unlock it, and try again"
_NOT_KEYCHAINS: Final = ("keyring.backends.null", "keyring.backends.fail", "keyring.backends.chainer", "keyrings.alt")
T = TypeVar("T")


class KeychainKek(LocalKek):
    """A key that the keychain keeps under its id, so that no key ever takes the place of another."""

    __slots__ = ()

    @classmethod
    def open(cls, item: str) -> KeychainKek:
        """Read a key. Raises `keyUnknown` for a keychain that is locked, away, or has no such key."""
        keychain = _keychain()
        text = _asked(lambda: keychain.get_password(SERVICE, item))
        if text is None:
            raise _unusable(f"has no key {item}: restore it there, or log in as the user who has it")
        found = cls(key_of_text(text))
        if found.id() != item:
            raise BrokerError(Code.KEY_MISMATCH, note=f"the keychain has another key under the name {item}")
        return found

    def health(self) -> None:
        """Check that the keychain still has this key. Raises as `open` does."""
        KeychainKek.open(self.id())


def open_keychain(settings: Mapping[str, Any]) -> LocalKek:
    """Read the key that `keys.plugin` names with `settings: {item: ...}`. Raises as `KeychainKek.open` does."""
    return KeychainKek.open(str(settings.get("item", "")))


def key_to_move(path: Path, outside: Sequence[Path], *, store_exists: bool) -> LocalKek | None:
    """Return the key of a file, which must not lie below a folder of `outside`, or a new one for a store that is not
    there yet. None for a store whose key is missing: a new key would not open it. Raises as `FileKek.open` does."""
    if path.exists():
        return FileKek.open(path, outside=outside, durably=True)
    return None if store_exists else LocalKek(SystemClock().random_bytes(KEY_BYTES))


def id_in_file(path: Path) -> str:
    """Return the id of the key of a file. Raises as `FileKek.open` does."""
    return FileKek.open(path).id()


def keep_in_keychain(key: LocalKek) -> None:
    """Write a key into the keychain, and read it back. Raises `keyUnknown` if that fails."""
    item = key.id()
    keychain = _keychain()
    _asked(lambda: keychain.set_password(SERVICE, item, key.text().reveal()))
    KeychainKek.open(item)


def keychain_name() -> str:
    """Return the name of the keychain of this system; empty if none can be used, or the extra is not installed."""
    try:
        found = _usable()
    except Exception:  # noqa: BLE001  (a backend is foreign code)
        return ""
    return str(found.name) if found is not None else ""


def _keychain() -> KeyringBackend:
    try:
        found = _asked(_usable)
    except ModuleNotFoundError:
        found, why = None, _EXTRA
    else:
        why = _NONE_HERE
    if found is None:
        raise _unusable(why)
    return found


def _usable() -> KeyringBackend | None:
    """Return the keychain that keyring recommends for this system. None of its others keeps a key from a thief of the
    disk: they keep nothing, or write it into a file."""
    import keyring

    return next((each for each in _each(keyring.get_keyring()) if _is_keychain(each)), None)


def _each(backend: KeyringBackend) -> Iterator[KeyringBackend]:
    yield backend
    yield from getattr(backend, "backends", ())  # those of a chainer, the best first


def _is_keychain(backend: KeyringBackend) -> bool:
    return backend.priority >= 1 and not type(backend).__module__.startswith(_NOT_KEYCHAINS)


def _asked(call: Callable[[], T]) -> T:
    """Ask the keychain. Raises `keyUnknown` for each of its errors, without their texts, and ModuleNotFoundError."""
    try:
        return call()
    except ModuleNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001  (a backend is foreign code: its text may hold the key)
        why = _LOCKED if type(error).__name__ == "KeyringLocked" else f"does not answer ({type(error).__name__})"
    raise _unusable(why)


def _unusable(why: str) -> BrokerError:
    return BrokerError(Code.KEY_UNKNOWN, note=f"the keychain of the system {why}")
