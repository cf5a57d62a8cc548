"""CanarySweep: records the logs while it runs, and reports leaked secrets at the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from oauthbroker.testing.canary import Canaries, Find, is_off_the_record
from oauthbroker.testing.text_dump import text_of_record

PRINTED = ("stdout", "stderr")
_HTTP_LIBRARIES = ("httpx", "httpcore", "h11", "h2", "hpack", "asyncio")


class SecretLeakedError(AssertionError):
    """A secret leaked. Names its kind, its place and its form."""

    def __init__(self, finds: list[Find]) -> None:
        super().__init__("a secret leaked:\n" + "\n".join(f"  - {find}" for find in finds))
        self.finds = finds


class LogEar(logging.Handler):
    """Records every log record of every logger that reaches the root, from level 1 on, as bytes."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.heard: list[tuple[str, bytes]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if is_off_the_record() and record.name.startswith(_HTTP_LIBRARIES):
            return
        try:
            self.heard.append((f"log {record.name} {record.levelname}", text_of_record(record)))
        except Exception:  # noqa: BLE001 - a record that cannot be rendered must not break who logged it
            self.handleError(record)


class CanarySweep:
    """Use as `with CanarySweep() as sweep: ...; sweep.check()`.

    Inside, its canaries are the active ones: providers and browsers created there use them, and the root logger is at
    level 1. `finds()` searches the logs, the arguments of `canaries.look`, the answers that browsers got, and the files
    below `canaries.watch`ed directories.
    """

    def __init__(self, canaries: Canaries | None = None) -> None:
        self.canaries = canaries if canaries is not None else Canaries()
        self._ear = LogEar()
        self._level = logging.NOTSET

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._level = root.level
        root.addHandler(self._ear)
        root.setLevel(1)
        self.canaries.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.canaries.__exit__()
        root = logging.getLogger()
        root.removeHandler(self._ear)
        root.setLevel(self._level)

    def finds(self) -> list[Find]:
        """Return every secret found so far, each place and form once."""
        return list(dict.fromkeys([*self._in_logs(), *self._in_notes(), *self._in_files()]))

    def check(self) -> None:
        """Raise SecretLeakedError if there is a find."""
        if finds := self.finds():
            raise SecretLeakedError(finds)

    def _in_logs(self) -> Iterator[Find]:
        heard = list(self._ear.heard)
        if not self.canaries.search(b"\n".join(content for _, content in heard), "logs"):
            return  # one search for all is cheap; the places matter only for a find
        for where, content in heard:
            yield from self.canaries.search(content, where)

    def _in_notes(self) -> Iterator[Find]:
        for note in self.canaries.notes:
            allowed = note.allow | (self.canaries.shown if note.where in PRINTED else frozenset())
            if note.origin not in self.canaries.outside:
                yield from self.canaries.search(note.content, note.where, allow=allowed)

    def _in_files(self) -> Iterator[Find]:
        for directory in self.canaries.directories:
            for path in sorted(directory.rglob("*")):
                if self._is_swept(path):
                    yield from self._in_file(path, str(path.relative_to(directory)))

    def _is_swept(self, path: Path) -> bool:
        where = path.absolute()
        return not any(where == excused or excused in where.parents for excused in self.canaries.excused)

    def _in_file(self, path: Path, name: str) -> Iterator[Find]:
        finds = self.canaries.search(name, "a file name")
        yield from finds
        if path.is_file() and not path.is_symlink():
            try:
                content = path.read_bytes()
            except OSError:  # unreadable on purpose (0000), or gone meanwhile
                return
            yield from self.canaries.search(content, "a file" if finds else f"file {name}")
