"""Look a name up that a test wrote. A misspelt one fails the test, which would pass in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from oauthbroker.core.spelling import nearest

T = TypeVar("T")


class UnknownName(KeyError, ValueError):
    """A name that the provider does not know. It says which is the nearest."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        close = nearest(str(name), known)
        hint = f" Did you mean {close!r}?" if close else f" Known are: {', '.join(sorted(known)) or 'none'}."
        super().__init__(f"The provider has no {what} {name!r}.{hint}")

    def __str__(self) -> str:
        return str(self.args[0])


def known(what: str, name: str, all_of: Mapping[str, T]) -> T:
    """Return the value of a name. Raises UnknownName."""
    if name not in all_of:
        raise UnknownName(what, name, all_of)
    return all_of[name]
