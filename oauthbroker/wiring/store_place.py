"""Name the store in a refusal that comes from it: its folder, or its database without the password."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Settings

VARIABLE: Final = "env:"
_OF_STORE: Final = {
    Code.STORE_UNAVAILABLE,
    Code.STORE_PERMISSIONS,
    Code.STORE_FORMAT,
    Code.STORE_ROLLED_BACK,
    Code.STORE_CLOSED,
    Code.KEY_EXISTS,
    Code.KEY_MISMATCH,
}
_FIXES: Final = {
    "ENOSPC": "the disk is full: free space there",
    "EDQUOT": "the quota is used up: free space there",
    "EROFS": "it is read-only: mount it for writing, or name another folder",
    "EACCES": "this user may not use it: correct its owner and mode",
    "EPERM": "this user may not use it: correct its owner and mode",
    "EEXIST": "a file is in its place: name another folder, or move the file away",
    "ENOTDIR": "a file is in its place: name another folder, or move the file away",
    "ELOOP": "a link is in its place: put the file or folder itself there",
    "ENOENT": "it cannot be made there: name another folder, or make the one above it",
    "ENOLCK": "its file system has no locks: name a folder on another one",
    "EOPNOTSUPP": "its file system lacks what the store needs: name a folder on another one",
    "ENOTSUP": "its file system lacks what the store needs: name a folder on another one",
    "ENOSYS": "its file system lacks what the store needs: name a folder on another one",
    "EIO": "the disk fails: check it",
}


def check_place(settings: Settings) -> None:
    """Raise `storeUnavailable` where a file is in the place of the store's folder, or of one above it."""
    root = Path(settings.store_root)
    with suppress(OSError):  # what cannot be looked up is named when it is used
        found = next((each for each in (root, *root.parents) if each.exists()), root)
        if found.exists() and not found.is_dir():
            fix = _FIXES["ENOTDIR"]
            note = f"{fix}; {found}" if found != root else fix
            raise BrokerError(Code.STORE_UNAVAILABLE, note=f"{note}; {place_of(word_of(settings), {})}", lasting=True)


@contextmanager
def naming_store(settings: Settings, env: Mapping[str, str]) -> Iterator[None]:
    """Add the place of the store, and what to do about an error of the system, to the note of what the block raises."""
    with naming(lambda: place_of(word_of(settings), env)):
        yield


@contextmanager
def naming(place: Callable[[], str]) -> Iterator[None]:
    """Add another place in the same way, unless the note has one."""
    try:
        yield
    except BrokerError as error:
        if error.code in _OF_STORE and not any(f"{known}: " in error.note for known in ("store", "key")):
            error.note = _noted(error.note, place())
        raise


def noted(note: str, settings: Settings, env: Mapping[str, str]) -> str:
    """Return the note with what to do and the place of the store."""
    return _noted(note, place_of(word_of(settings), env))


def _noted(note: str, place: str) -> str:
    first, _, rest = note.partition(";")
    fix = _FIXES.get(first.rpartition(" ")[2])
    return "; ".join(filter(None, (f"{first}, {fix}" if fix else first, rest.strip(), place)))


def word_of(settings: Settings) -> str:
    """Return how commands name the store of the settings."""
    return f"{VARIABLE}{settings.store_url_env}" if settings.store_url_env else settings.store_root


def place_of(word: str, env: Mapping[str, str]) -> str:
    """Return the place of the store that a command's word names: a database's variable with its address."""
    url = env.get(word.removeprefix(VARIABLE)) if word.startswith(VARIABLE) else None
    address = _address(Secret(url)) if url else ""
    return f"store: {word}, the database {address}" if address else f"store: {word}"


def _address(url: Secret) -> str:
    try:
        from oauthbroker.store.postgres.connect_failures import shown_address
    except ImportError:  # the driver is in an extra, and the refusal says so
        return ""
    return shown_address(url)
