"""Scrubber: takes tokens that this process handed out back out of text, before it becomes part of a transcript.

A net under the tightrope, not the rope: it knows a token as it was handed out, with `/` escaped as JSON may have it, or
percent-encoded. It does not know one that was cut, wrapped, split over two texts, encoded otherwise, handed out by
another process, before a restart, or very long ago. Turn tokens and API keys it knows by their form, whosever they are.

Texts are as long and as strange as tools like: the work grows with the text, not with how many tokens are known.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from oauthbroker.secret import Secret

STARS = "***"
MOST_TOKENS = 10_000
_TAIL = 12  # characters; what is shorter turns up by chance and is not remembered
_RUNS = re.compile(rf"[^\s\"'<>]{{{_TAIL},}}")
_Mark = tuple[int, int, bytes]  # of one spelling of a token: its tail, its length, its digest
_OURS = re.compile(r"\boab[tk]\.[A-Za-z0-9_-]{22}(?:\.[A-Za-z0-9_-]+)+")


class Scrubber:
    """Remembers the last `most` tokens, by digests alone.

    What a token ends in finds it: tokens of one issuer begin alike (a JWT's header), and end in what is random.
    """

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._most = most
        self._known: OrderedDict[int, tuple[_Mark, ...]] = OrderedDict()
        self._ends: dict[int, dict[int, dict[bytes, int]]] = {}  # tail -> length -> digest -> how many are spelt so

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Scrubber({len(self)} tokens)"

    def remember(self, token: Secret) -> None:
        """Somebody is being given this."""
        text = token.reveal()
        if len(text) < _TAIL:
            return
        name = hash(text)  # keyed anew in each process; a text keeps it, and a token call is short
        if name in self._known:
            self._known.move_to_end(name)
            return
        self._known[name] = marks = tuple(_mark(each) for each in _spellings(text))
        for tail, length, digest in marks:
            there = self._ends.setdefault(tail, {}).setdefault(length, {})
            there[digest] = there.get(digest, 0) + 1
        if len(self._known) > self._most:
            self._forget(self._known.popitem(last=False)[1])

    def text(self, text: str) -> str:
        """The same with `***` for every token."""
        text = _OURS.sub(STARS, text)
        return _RUNS.sub(lambda run: self._run(run[0]), text) if self._ends else text

    def json(self, value: Any) -> Any:
        """JSON-like data with every text in it scrubbed, names of members included; other objects as they are."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.json(name): self.json(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.json(each) for each in value]
        return value

    def _run(self, run: str) -> str:
        found: list[tuple[int, int]] = []
        ends = [end for end in range(_TAIL, len(run) + 1) if hash(run[end - _TAIL : end]) in self._ends]
        for end in ends:
            start = end - self._length_before(run, end)
            if start == end:
                continue
            while found and start < found[-1][1]:  # they overlap, and neither leaves a piece of itself
                start = min(start, found.pop()[0])
            found.append((start, end))
        kept, place = list[str](), 0
        for start, end in found:
            kept += [run[place:start], STARS]
            place = end
        return "".join([*kept, run[place:]])

    def _length_before(self, run: str, end: int) -> int:
        """How long the longest token is that ends there; 0 for none. One slice for each length there may be."""
        lengths = self._ends[hash(run[end - _TAIL : end])]
        fitting = (length for length in lengths if length <= end)
        return max((length for length in fitting if _digest(run[end - length : end]) in lengths[length]), default=0)

    def _forget(self, marks: tuple[_Mark, ...]) -> None:
        for tail, length, digest in marks:
            lengths = self._ends[tail]
            there = lengths[length]
            there[digest] -= 1
            if not there[digest]:
                del there[digest]
            if not there:
                del lengths[length]
            if not lengths:
                del self._ends[tail]


def _mark(text: str) -> _Mark:
    return hash(text[-_TAIL:]), len(text), _digest(text)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _spellings(text: str) -> Iterator[str]:
    encoded = quote(text, safe="", errors="replace")
    lower = re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)
    yield from dict.fromkeys((text, text.replace("/", "\\/"), encoded, lower))
