"""Canaries: the secrets of one test, and the outputs to search for them.

`mint` creates and registers a secret; `add` registers one from elsewhere. `sweep.CanarySweep` searches for them.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import ClassVar, Self

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.secret import Secret
from oauthbroker.testing.encodings import encodings_of
from oauthbroker.testing.text_dump import text_of

MARK = "cnry7q"
"""The prefix of every minted secret, which identifies one of another process or a truncated one."""

_SHORTEST = 6  # shorter texts occur by chance
_END, _STEP, _TOO_SHORT = 8, 4, -1

_off_the_record: ContextVar[bool] = ContextVar("off_the_record", default=False)


@contextmanager
def off_the_record(*, off: bool = True) -> Iterator[None]:
    """Ignore the logs of HTTP libraries in the block: there the test plays the outside world. With `off=False` they are
    swept again: an application under test is called inside."""
    before = _off_the_record.set(off)
    try:
        yield
    finally:
        _off_the_record.reset(before)


def is_off_the_record() -> bool:
    """Tell whether the current task plays the outside world."""
    return _off_the_record.get()


@dataclass(frozen=True, slots=True)
class Find:
    """One kind of secret in one place, in one form. It does not hold the secret."""

    kind: str
    where: str
    form: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.form}) in {self.where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One recorded output. `origin` is set for HTTP answers."""

    where: str
    content: bytes = field(repr=False)
    allow: frozenset[str] = frozenset()
    origin: str = ""


class Canaries:
    """The secrets of one test and the places to search."""

    _active: ClassVar[list[Canaries]] = []

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._forms: dict[bytes, tuple[str, str]] = {}
        self._formed = 0
        self._ends: dict[int, list[bytes]] = {}
        self.notes: list[Note] = []
        self.directories: list[Path] = []
        self.excused: list[Path] = []
        self.outside: set[str] = set()
        self.shown: set[str] = set()

    @classmethod
    def active(cls) -> Canaries:
        """Return the canaries of the running sweep, or new ones that are never swept."""
        return cls._active[-1] if cls._active else cls()

    def __enter__(self) -> Self:
        """Become the active canaries."""
        self._active.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._active.remove(self)

    def __len__(self) -> int:
        return len(self._known)

    def mint(self, kind: str, prefix: str = "") -> Secret:
        """Create a secret of 192 random bits with the mark."""
        text = f"{prefix}{MARK}-{kind.replace(' ', '-')}-{secrets.token_hex(24)}"
        self._known[text] = kind
        return Secret(text)

    def add(self, text: str | Secret, kind: str = "secret") -> None:
        """Register a secret from elsewhere: a state, a verifier, a ticket. Raises ValueError if it is too short."""
        plain = text.reveal() if isinstance(text, Secret) else text
        if len(plain) < _SHORTEST:
            raise ValueError(f"a canary needs at least {_SHORTEST} characters, shorter ones turn up by chance")
        self._known.setdefault(plain, kind)

    def look(self, content: object, where: str, *, allow: Iterable[str] = (), origin: str = "") -> None:
        """Sweep this output at the end: text, bytes, an exception with its causes and context, or any object.

        Other objects are read as JSON where possible, and as their repr. `allow` names kinds that may appear.
        """
        self.notes.append(Note(where=where, content=text_of(content), allow=frozenset(allow), origin=origin))

    def watch(self, *directories: Path | str) -> None:
        """Sweep every file below these, names included, as they are at the end."""
        self.directories += [Path(one) for one in directories]

    def excuse(self, *paths: Path | str) -> None:
        """Skip these files, and all below these folders, because the test wrote a secret there on purpose."""
        self.excused += [Path(one).absolute() for one in paths]

    def may_show(self, *kinds: str) -> None:
        """Allow kinds of secrets in stdout and stderr of this test: "ticket" where the link is the output."""
        self.shown |= set(kinds)

    def search(self, content: str | bytes, where: str, *, allow: Iterable[str] = ()) -> list[Find]:
        """Return a find for each kind of secret in `content` and each form, except `allow`ed kinds."""
        haystack = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        allowed = frozenset(allow)
        seen = {self._forms[needle] for needle in self._needles_near(haystack) if needle in haystack}
        finds = [Find(kind, where, form) for kind, form in sorted(seen) if kind not in allowed]
        if not seen:
            finds = [Find("minted secret, cut or foreign,", where, form) for form in sorted(_marks_in(haystack))]
        return finds

    def _needles_near(self, haystack: bytes) -> list[bytes]:
        """Return the forms that may be in the text: those whose last bytes are, and the shorter ones.

        A test with many secrets searches each output for thousands of forms. Their ends are looked up all at once, as
        numbers of eight bytes: at each fourth place of the text, where one of the last four numbers of a form must be.
        """
        self._add_forms()
        rows = (memoryview(haystack)[first:] for first in range(0, min(_END, len(haystack)), _STEP))
        whole = (row[: len(row) - len(row) % _END].cast("Q") for row in rows)
        ends = {end for row in whole for end in self._ends.keys() & row} if self._ends else ()
        return [needle for end in (_TOO_SHORT, *ends) for needle in self._ends.get(end, ())]

    def _add_forms(self) -> None:
        for text, kind in list(self._known.items())[self._formed :]:
            for needle, form in encodings_of(text).items():
                if needle not in self._forms:
                    self._forms[needle] = (kind, form)
                    for end in dict.fromkeys(_ends_of(needle)):
                        self._ends.setdefault(end, []).append(needle)
            self._formed += 1


def _ends_of(needle: bytes) -> list[int]:
    places = range(len(needle) - _END - _STEP + 1, len(needle) - _END + 1)
    return [int.from_bytes(needle[at : at + _END], sys.byteorder) if places[0] >= 0 else _TOO_SHORT for at in places]


_MARK_FORMS = encodings_of(MARK + "-")


def _marks_in(haystack: bytes) -> set[str]:
    """Return the forms of the bare mark in the text: a secret of another process, or a truncated one."""
    return {form for needle, form in _MARK_FORMS.items() if needle in haystack}
