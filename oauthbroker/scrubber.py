"""Scrubber: takes tokens that this process handed out back out of text, before it becomes part of a transcript.

A net under the tightrope, not the rope: it knows a token as it was handed out, with `/` escaped as JSON may have it, or
percent-encoded. It does not know one that was cut, wrapped, split over two texts, encoded otherwise, handed out by
another process, before a restart, or very long ago. Turn tokens and API keys it knows by their form, whosever they are.
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
_HEAD = 12  # characters; what is shorter turns up by chance and is not remembered
_RUNS = re.compile(rf"[^\s\"'<>]{{{_HEAD},}}")
_OURS = re.compile(r"\boab[tk]\.[A-Za-z0-9_-]{22}(?:\.[A-Za-z0-9_-]+)+")


class Scrubber:
    """Remembers the last `most` tokens. An index of hashes finds where one may begin; the tokens stay Secrets."""

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._most = most
        self._known: OrderedDict[bytes, tuple[Secret, ...]] = OrderedDict()
        self._heads: dict[int, list[Secret]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Scrubber({len(self)} tokens)"

    def remember(self, token: Secret) -> None:
        """Somebody is being given this."""
        text = token.reveal()
        if len(text) < _HEAD:
            return
        name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if name in self._known:
            self._known.move_to_end(name)
            return
        self._known[name] = spelt = tuple(Secret(each) for each in _spellings(text))
        for each in spelt:
            self._heads.setdefault(_head(each.reveal()), []).append(each)
        if len(self._known) > self._most:
            self._forget(self._known.popitem(last=False)[1])

    def text(self, text: str) -> str:
        """The same with `***` for every token."""
        text = _OURS.sub(STARS, text)
        return _RUNS.sub(lambda run: self._run(run[0]), text) if self._heads else text

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
        kept, start, place = list[str](), 0, 0
        while place <= len(run) - _HEAD:
            length = self._length_at(run, place)
            if length:
                kept += [run[start:place], STARS]
                start = place + length
            place += length or 1
        return "".join([*kept, run[start:]])

    def _length_at(self, run: str, place: int) -> int:
        """How long the longest token is that stands there; 0 for none."""
        found = self._heads.get(hash(run[place : place + _HEAD]))
        if found is None:
            return 0
        return max((len(each.reveal()) for each in found if run.startswith(each.reveal(), place)), default=0)

    def _forget(self, spelt: tuple[Secret, ...]) -> None:
        for each in spelt:
            head = _head(each.reveal())
            left = [other for other in self._heads[head] if other is not each]
            if left:
                self._heads[head] = left
            else:
                del self._heads[head]


def _head(text: str) -> int:
    return hash(text[:_HEAD])


def _spellings(text: str) -> Iterator[str]:
    encoded = quote(text, safe="", errors="replace")
    lower = re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)
    yield from dict.fromkeys((text, text.replace("/", "\\/"), encoded, lower))
