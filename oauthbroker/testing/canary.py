"""Canaries: secrets that are recognised wherever they turn up.

`Canaries` knows every secret of a test; `sweep.CanarySweep` looks for them in logs, output, files, answers.
A find says which kind of secret lay where and in which form, never the secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from oauthbroker.secret import Secret
from oauthbroker.testing.disguises import disguises

MARK = "cnry7q"
"""Begins every minted secret, so that one of another process, or a cut one, is recognised too."""

_SHORTEST = 6  # shorter texts turn up by chance


class SecretLeakedError(AssertionError):
    """A secret lay where none may lie."""


@dataclass(frozen=True, slots=True)
class Find:
    """One secret in one place."""

    kind: str
    where: str
    form: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.form}) in {self.where}"


class Canaries:
    """The secrets of one test. Minting registers; what others made is registered with `add`."""

    _active: ClassVar[list[Canaries]] = []

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._forms: dict[bytes, tuple[str, str]] = {}
        self._formed = 0

    @classmethod
    def active(cls) -> Canaries:
        """Those of the running test (see `pytest_plugin`), or new ones that nobody sweeps."""
        return cls._active[-1] if cls._active else cls()

    def __enter__(self) -> Self:
        """Become the active canaries."""
        self._active.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._active.remove(self)

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

    def __len__(self) -> int:
        return len(self._known)

    def search(self, content: str | bytes, where: str, *, allow: Iterable[str] = ()) -> list[Find]:
        """Every kind of secret that `content` gives away, `allow`ed kinds excepted; one find for each kind and form."""
        haystack = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        allowed = frozenset(allow)
        finds = {
            (kind, form): Find(kind, where, form)
            for needle, (kind, form) in self._needles().items()
            if kind not in allowed and needle in haystack
        }
        if not finds and not allowed:
            finds = {("", form): Find("a minted secret", where, form) for form in _mark_in(haystack)}
        return list(finds.values())

    def _needles(self) -> dict[bytes, tuple[str, str]]:
        if self._formed != len(self._known):
            for text, kind in list(self._known.items())[self._formed :]:
                for needle, form in disguises(text).items():
                    self._forms.setdefault(needle, (kind, form))
                self._formed += 1
        return self._forms


_MARK_FORMS = disguises(MARK + "-")


def _mark_in(haystack: bytes) -> set[str]:
    """The forms in which the bare mark turns up: a secret of another process, or one cut short."""
    return {form for needle, form in _MARK_FORMS.items() if needle in haystack}
