"""Verify a slot of the audit log: each line genuine and in its place, and none missing. No file access: lines in, a
verification out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from oauthbroker.audit.chain import AuditKeys, ChainHead, Line, log_words, members, parse, starts_anew
from oauthbroker.audit.checkpoint import ChainCheckpoint
from oauthbroker.audit.verification import Break, Kind, SlotVerification
from oauthbroker.core.dataclasses import dataclass, field


def verify(
    files: Iterable[tuple[str, Iterable[bytes]]],
    keys: AuditKeys,
    chain_checkpoint: ChainCheckpoint | None,
    noted: ChainHead | None = None,
    *,
    newest: str = "audit.jsonl",
) -> SlotVerification:
    """Verify files, the oldest first: (name, lines with their line breaks).

    `chain_checkpoint` was read before them; `noted` is a line that the caller knows to exist. `newest` is the name of
    the newest file, which may be missing.
    """
    found = SlotVerification(checkpointed=None if chain_checkpoint is None else chain_checkpoint.head.seq)
    verifier = _Verifier(keys=keys, chain_checkpoint=chain_checkpoint, noted=noted, found=found, file=newest)
    for name, lines in files:
        verifier.open(name)
        for raw in lines:
            verifier.take(raw)
        verifier.shut()
    return verifier.verification()


@dataclass(slots=True, kw_only=True)
class _Unchained:
    """Lines from before the chain: counted, and hashed without a line break that a broker may have added."""

    lines: int = 0
    size: int = 0
    strange: int = 0
    owed: bytes = b""
    digest: Any = field(default_factory=hashlib.sha256)

    def take(self, raw: bytes) -> None:
        found = members(raw) if raw.endswith(b"\n") else {"at": "", "type": ""}
        self.strange += not ({"at", "type"} <= found.keys() and not {"seq", "mac"} & found.keys())
        self.digest.update(self.owed)
        self.owed = b"\n" if raw.endswith(b"\n") else b""
        self.digest.update(raw.removesuffix(b"\n"))
        self.lines, self.size = self.lines + 1, self.size + len(raw)

    def is_what(self, words: dict[str, Any]) -> bool:
        """Tell whether a LogBegan has the digest of these lines."""
        digest = self.digest.copy()
        if words.get("bytes") == self.size:
            digest.update(self.owed)
        elif words.get("bytes") != self.size - len(self.owed):
            return False
        return bool(words.get("digest") == (digest.hexdigest() if self.size else ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Odd:
    """A line without number and MAC; `cut`: it lacks its line break too."""

    line: int
    bytes: int
    digest: str
    cut: bool


@dataclass(slots=True, kw_only=True)
class _Verifier:
    """Verifies line by line. `found` is the verification so far, `claimed` the MAC in the line before."""

    keys: AuditKeys
    chain_checkpoint: ChainCheckpoint | None
    noted: ChainHead | None
    found: SlotVerification
    file: str
    number: int = 0
    claimed: bytes | None = None
    expected: int = 1
    checkpoint_met: bool = False
    noted_met: bool = False
    old: _Unchained = field(default_factory=_Unchained)
    odd: list[_Odd] = field(default_factory=list)

    def open(self, name: str) -> None:
        if self.found.unfinished:  # allowed in the newest file only
            self._break("foreign")
        self.file, self.number, self.found.unfinished, self.old = name, 0, 0, _Unchained()

    def take(self, raw: bytes) -> None:
        self.number += 1
        line = parse(raw.removesuffix(b"\n")) if raw.endswith(b"\n") else None
        if line is None:
            self._odd(raw)
            return
        words = log_words(line)
        if self.found.verified and self.keys.follows(self.found.head.mac, line):
            self._good(line, words)
        elif starts_anew(self.keys, line):
            self._anew(line, words)
        elif self.claimed is not None and self.keys.follows(self.claimed, line):
            self._good(line, words)
        else:
            self._bad(line)
        self.claimed = line.mac

    def shut(self) -> None:
        """Close a file: a last piece without a line break was cut by a crash or is being written."""
        if self.odd and self.odd[-1].cut and self.odd[-1].line == self.number:
            self.found.unfinished = self.odd.pop().bytes
        self._foreign()
        if self.old.lines and not self.found.verified:
            self.found.unchained += self.old.lines
            if self.old.strange:
                self._break("foreign")

    def verification(self) -> SlotVerification:
        found, chain_checkpoint = self.found, self.chain_checkpoint
        if chain_checkpoint is None:
            if found.verified or not found.unchained:
                found.add(Break(file="audit.anchor", line=0, kind="checkpoint"))
        elif chain_checkpoint.head.seq > found.head.seq:
            self._break("cut", lines=(found.head.seq + 1, chain_checkpoint.head.seq))
        elif chain_checkpoint.head.seq >= found.first > 0 and not self.checkpoint_met:
            self._break("replaced")
        if self.noted is not None and not self.noted_met:
            self._break("replaced", lines=(self.noted.seq, self.noted.seq))
        return found

    def _odd(self, raw: bytes) -> None:
        """Note a line outside the chain: of an old log, cut (reported by the next line), or foreign."""
        if not self.found.verified and self.number == self.old.lines + 1:
            self.old.take(raw)
        else:
            digest = hashlib.sha256(raw.removesuffix(b"\n")).hexdigest()
            self.odd.append(_Odd(line=self.number, bytes=len(raw), digest=digest, cut=not raw.endswith(b"\n")))
        self.claimed = None

    def _good(self, line: Line, words: dict[str, Any]) -> None:
        found = self.found
        if "kind" in words:
            found.add(Break(file=self.file, line=self.number, kind="reported", reported=str(words["kind"])))
        if words.get("type") == "LogTorn" and self._is_torn(words):
            found.torn += 1
            self.odd.clear()
        self._foreign()
        found.head, self.expected = line.head, line.seq + 1
        found.first = found.first or line.seq
        found.verified += 1
        if self.chain_checkpoint is not None and line.head == self.chain_checkpoint.head:
            self.checkpoint_met = True
        self.noted_met = self.noted_met or line.head == self.noted
        if b'"type":"AuditGap"' in line.body:
            found.gaps += int(members(line.body + b"}").get("missing", 0))

    def _anew(self, line: Line, words: dict[str, Any]) -> None:
        """Note a genuine line that names another predecessor than the last line."""
        if not (self.found.verified or self.found.broken):
            self._begin(words)
        elif line.seq > self.expected:
            self._break("missing", lines=(self.expected, line.seq - 1))
        else:
            self._break("misplaced")
        self._good(line, words)

    def _begin(self, words: dict[str, Any]) -> None:
        """Note the first line of the available chain."""
        if words["type"] == "LogBegan":
            if not self.old.is_what(words):
                self._break("changed", line=1)
            self.found.unchained += self.old.lines
        elif self.number > 1:
            self._break("missing")
        else:
            self.found.moved_away = True

    def _bad(self, line: Line) -> None:
        self._foreign()
        if not (self.found.verified or self.found.broken):
            self._break("missing", lines=(1, line.seq - 1) if line.seq > 1 else None)
        elif line.seq == self.expected:
            self._break("changed")
        elif line.seq > self.expected:
            self._break("missing", lines=(self.expected, line.seq - 1))
        else:
            self._break("misplaced")
        self.expected = max(self.expected, line.seq + 1)

    def _is_torn(self, words: dict[str, Any]) -> bool:
        said = (words.get("bytes", 0) + 1, words.get("digest"))
        return len(self.odd) == 1 and (self.odd[0].bytes, self.odd[0].digest) == said

    def _foreign(self) -> None:
        for each in self.odd:
            self._break("foreign", line=each.line)
        self.odd.clear()

    def _break(self, kind: Kind, *, line: int | None = None, lines: tuple[int, int] | None = None) -> None:
        self.found.add(Break(file=self.file, line=line or self.number, kind=kind, lines=lines))
