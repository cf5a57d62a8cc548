"""Keep the newest state of a store that this host has seen, beside the audit log: a file that no backup brings back."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from oauthbroker.store.posix.atomic_files import create_whole
from oauthbroker.store.posix.checked_files import closing, read_file
from oauthbroker.store.posix.system_calls import Fs, at_border

NAME: Final = "audit.seen"
_MOST_BYTES: Final = 4096


class Age(NamedTuple):
    """A number that grows while brokers use a store, and the time at which it did."""

    number: int = 0
    at: str = "an unknown time"

    @classmethod
    def of(cls, found: Any) -> Age:
        """Raises TypeError and LookupError for anything else than `number` and `at`."""
        number, at = found["number"], found["at"]
        if not isinstance(number, int) or not isinstance(at, str):
            raise TypeError
        return cls(number, at)


def read_seen(data: Path, store_id: str) -> Age | None:
    """Return the newest age that this host has seen of a store. Raises store codes."""
    text = at_border(lambda: _read(data))
    with suppress(ValueError, TypeError, LookupError, RecursionError):
        found = json.loads(text)
        return Age.of(found) if found["storeId"] == store_id else None
    return None


def write_seen(data: Path, store_id: str, age: Age | None) -> None:
    """Replace it durably; None forgets it. Raises store codes."""
    text = json.dumps({"storeId": store_id, **age._asdict()} if age is not None else {})
    at_border(lambda: _write(data, text.encode() + b"\n"))


def _read(data: Path) -> bytes:
    try:
        folder = Fs().open_root(data)
    except FileNotFoundError:
        return b""
    with closing(Fs(), folder):
        found = read_file(Fs(), folder, NAME, _MOST_BYTES)
    return found[0] if found else b""


def _write(data: Path, text: bytes) -> None:
    fs = Fs()
    with closing(fs, fs.open_root(data)) as folder:
        create_whole(fs, folder, NAME, text)
