"""How far long work is. The work reports counts, and its caller decides how they are shown."""

from __future__ import annotations

from collections.abc import Callable

from oauthbroker.core.dataclasses import KW_ONLY, dataclass

Progress = Callable[[str, int, int | None], None]
"""Take the name of a count, such as `records copied`, how many are done, and of how many (None: unknown)."""


def unseen(_what: str, _done: int, _total: int | None) -> None:
    """Take the counts of work that nothing shows."""


@dataclass(slots=True)
class Count:
    """One count of long work, reported at each change."""

    what: str
    total: int | None
    report: Progress = unseen
    _: KW_ONLY
    done: int = 0

    def add(self, more: int = 1) -> None:
        self.done += more
        self.report(self.what, self.done, self.total)
