"""Canaries: the secrets of one test, and what was put out while they lived.

Minting registers a secret; what others made is registered with `add`. `sweep.CanarySweep` looks for them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from oauthbroker.secret import Secret
from oauthbroker.testing.disguises import disguises
from oauthbroker.testing.evidence import text_of

MARK = "cnry7q"
"""Begins every minted secret, so that one of another process, or a cut one, is recognised too."""

_SHORTEST = 6  # shorter texts turn up by chance

_off_the_record: ContextVar[bool] = ContextVar("off_the_record", default=False)


@contextmanager
def off_the_record() -> Iterator[None]:
    """What HTTP libraries log inside is the test's own business: it plays the outside world there."""
    before = _off_the_record.set(True)
    try:
        yield
    finally:
        _off_the_record.reset(before)


@contextmanager
def on_the_record() -> Iterator[None]:
    """The reverse: an application under test that is called from inside `off_the_record`."""
    before = _off_the_record.set(False)
    try:
        yield
    finally:
        _off_the_record.reset(before)


def is_off_the_record() -> bool:
    """Whether the present task plays the outside world."""
    return _off_the_record.get()


@dataclass(frozen=True, slots=True)
class Find:
    """One kind of secret in one place, in one form. Never the secret."""

    kind: str
    where: str
    form: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.form}) in {self.where}"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was put out. `origin` is set for HTTP answers."""

    where: str
    content: bytes = field(repr=False)
    allow: frozenset[str] = frozenset()
    origin: str = ""


class Canaries:
    """The secrets of one test and the places to look at."""

    _active: ClassVar[list[Canaries]] = []

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._forms: dict[bytes, tuple[str, str]] = {}
        self._formed = 0
        self.notes: list[Note] = []
        self.directories: list[Path] = []
        self.excused: list[Path] = []
        self.outside: set[str] = set()
        self.shown: set[str] = set()

    @classmethod
    def active(cls) -> Canaries:
        """Those of the running sweep, or new ones that nobody sweeps."""
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
        """A new secret of 192 random bits that carries the mark."""
        text = f"{prefix}{MARK}-{kind.replace(' ', '-')}-{secrets.token_hex(24)}"
        self._known[text] = kind
        return Secret(text)

    def add(self, text: str | Secret, kind: str = "secret") -> None:
        """Register a secret that somebody else made: a state, a verifier, a ticket. Raises ValueError if too short."""
        plain = text.reveal() if isinstance(text, Secret) else text
        if len(plain) < _SHORTEST:
            raise ValueError(f"a canary needs at least {_SHORTEST} characters, shorter ones turn up by chance")
        self._known.setdefault(plain, kind)

    def look(self, content: object, where: str, *, allow: Iterable[str] = (), origin: str = "") -> None:
        """Have this swept at the end: text, bytes, an exception with all that hangs on it, or anything else.

        Other objects are read as JSON where they can be, and as their repr. `allow` names kinds that may be there.
        """
        self.notes.append(Note(where, text_of(content), frozenset(allow), origin))

    def watch(self, *directories: Path | str) -> None:
        """Sweep every file below these, names included, as they are at the end."""
        self.directories += [Path(one) for one in directories]

    def excuse(self, *paths: Path | str) -> None:
        """Leave these files (or all below these folders) out: a test wrote a secret there on purpose."""
        self.excused += [Path(one).absolute() for one in paths]

    def may_show(self, *kinds: str) -> None:
        """Let kinds of secrets be printed to stdout and stderr in this test: "ticket" where the link is the output."""
        self.shown |= set(kinds)

    def search(self, content: str | bytes, where: str, *, allow: Iterable[str] = ()) -> list[Find]:
        """Every kind of secret that `content` gives away, `allow`ed kinds excepted; one find for each kind and form."""
        haystack = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        allowed = frozenset(allow)
        seen = {self._forms[needle] for needle in self._needles() if needle in haystack}
        finds = [Find(kind, where, form) for kind, form in sorted(seen) if kind not in allowed]
        if not seen:
            finds = [Find("minted secret, cut or foreign,", where, form) for form in sorted(_marks_in(haystack))]
        return finds

    def _needles(self) -> Iterable[bytes]:
        for text, kind in list(self._known.items())[self._formed :]:
            for needle, form in disguises(text).items():
                self._forms.setdefault(needle, (kind, form))
            self._formed += 1
        return self._forms


_MARK_FORMS = disguises(MARK + "-")


def _marks_in(haystack: bytes) -> set[str]:
    """The forms in which the bare mark turns up: a secret of another process, or one cut short."""
    return {form for needle, form in _MARK_FORMS.items() if needle in haystack}
