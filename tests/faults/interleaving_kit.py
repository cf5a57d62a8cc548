"""What two processes on one store share: a board of counters, the rights that come and go, and disks that tell little.

A right is a grant, a turn or an API key. Its version is odd while it is valid, and grows with each change of it.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.store.posix.system_calls import Fs
from tests.faults.broker_worker import Elsewhere
from tests.kit.crashfs import HookedFs
from tests.kit.running_broker import BASE, user_app

Kind = Literal["grant", "turn", "key"]
Disk = Literal["real", "coarse", "forged"]

EACH = 8  # rights of each kind
BUSY = 3  # of these change all the time; the others rest for long between two changes
LASTING = "idp:user:LASTING"  # the subject whose grant stays
APP = "mail"
MANY = 10**7
WIDTH = 8
_NUMBER = struct.Struct("<Q")


@dataclass(frozen=True)
class Right:
    """One of the rights that come and go."""

    kind: Kind
    number: int  # among all rights

    @property
    def subject(self) -> str:
        return f"idp:user:P{self.number}" if self.kind == "grant" else LASTING

    def token(self, version: int) -> str:
        """Return the access token that a version of a grant has. All are equally long."""
        return f"access-{self.number:04}-{version:08}"


KINDS: tuple[Kind, ...] = ("grant", "turn", "key")
RIGHTS = tuple(Right(kind, EACH * place + number) for place, kind in enumerate(KINDS) for number in range(EACH))


def rights_of(kind: Kind) -> tuple[Right, ...]:
    return tuple(right for right in RIGHTS if right.kind == kind)


class Board:
    """Counters in shared memory, three for each right. A change is written down before it begins (`begun`) and once it
    was answered (`answered`). `seen` is the newest version that a call which began after the answer was checked by."""

    COLUMNS = ("begun", "answered", "seen")

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(WIDTH * (len(RIGHTS) * len(self.COLUMNS) + len(KINDS))))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def begun(self, right: Right) -> int:
        return self._get(self._place(right, "begun"))

    def answered(self, right: Right) -> int:
        return self._get(self._place(right, "answered"))

    def seen(self, right: Right) -> int:
        return self._get(self._place(right, "seen"))

    def write(self, right: Right, column: str, version: int) -> None:
        self._set(self._place(right, column), version)

    def hot(self, kind: Kind) -> Right:
        """Return the right of this kind that changes next."""
        return RIGHTS[self._get(self._hot_place(kind))]

    def heat(self, right: Right) -> None:
        self._set(self._hot_place(right.kind), right.number)

    def _place(self, right: Right, column: str) -> int:
        return right.number * len(self.COLUMNS) + self.COLUMNS.index(column)

    def _hot_place(self, kind: Kind) -> int:
        return len(RIGHTS) * len(self.COLUMNS) + KINDS.index(kind)

    def _get(self, place: int) -> int:
        number: int = _NUMBER.unpack_from(self._memory, WIDTH * place)[0]
        return number

    def _set(self, place: int, number: int) -> None:
        _NUMBER.pack_into(self._memory, WIDTH * place, number)


@dataclass(frozen=True)
class Answer:
    """What one call was told. `valid` is the version of the right that it proves, None if it was refused. `before` was
    answered when the call began, `after` had begun when it ended, `held` is the version of the caller's token or key."""

    before: int
    after: int
    held: int
    valid: int | None

    @property
    def fits(self) -> bool:
        """Tell whether some moment of the call explains the answer."""
        if self.valid is not None:
            return self.before <= self.valid <= self.after
        return self.after > self.held or self.held % 2 == 0


class TellingLittle(HookedFs):
    """A disk whose file times are rounded down to `step` nanoseconds. `forged`: besides, all entries have one inode
    number, one size and one time of modification, so that only the time of change tells two versions apart."""

    def __init__(self, step: int, *, forged: bool) -> None:
        self._step_ns, self._forged = step, forged

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        found = run()
        return self._seen(found) if call in {"stat", "fstat"} else found

    def _seen(self, found: os.stat_result) -> os.stat_result:
        is_entry = stat.S_ISREG(found.st_mode) and found.st_size > 0
        times = {name: getattr(found, name) // self._step_ns * self._step_ns for name in ("st_mtime_ns", "st_ctime_ns")}
        words = list(found)
        if self._forged and is_entry:
            words[stat.ST_INO], words[stat.ST_SIZE], times["st_mtime_ns"] = 1, 2**16, 10**18
        return os.stat_result(words, times)


DISKS: dict[Disk, Callable[[], Fs]] = {
    "real": Fs,
    "coarse": lambda: TellingLittle(10**9, forged=False),
    "forged": lambda: TellingLittle(10**8, forged=True),
}


def bundle(folder: Path) -> Bundle:
    """Return the configuration of both processes: one app, whose provider has no revocation endpoint."""
    limits = Limits(
        requests_per_minute=MANY, sessions_per_conversation=MANY, sessions_per_subject=MANY, sessions_per_app=MANY,
        sessions_total=MANY,
    )  # fmt: skip
    settings = Settings(
        public_base_url=BASE,
        weaken=frozenset({"plainHttpProvider"}),
        limits=limits,
        store_root=str(folder / "store"),
    )
    return Bundle(settings, {APP: app()})


def app() -> App:
    base = "http://127.0.0.1:9"
    names = ("authorizationUrl", "tokenUrl", "userInfoUrl", "jwksUrl", "deviceAuthorizationUrl")
    endpoints = {"issuer": base, "revokeUrl": "", **{name: f"{base}/{name}" for name in names}}
    provider: Any = Elsewhere(endpoints, "a client's secret")
    return user_app(provider, APP, refresh_ahead_seconds=0)
