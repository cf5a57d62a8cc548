"""Scrubber: takes tokens that this process handed out back out of text, before it becomes part of a transcript.

A net under the tightrope, not the rope: it knows a token as it was handed out, with `/` escaped as JSON may have it, or
percent-encoded as URLs and forms commonly are. It does not know one that was cut, wrapped, split over two texts,
encoded otherwise, handed out by another process, before a restart, or very long ago. It knows every turn token and API
key by its form.

Texts are as long and as strange as tools like, and tokens are what providers like: the work for one character of text
has a bound that no token changes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.secret import Secret

STARS = "***"
MOST_TOKENS = 10_000
_TAIL = 12  # characters; shorter text occurs by chance and is not remembered
_LONG = 32  # characters that tell a long token from others, at each of its ends
_SHORT = 0  # in place of the end of a token that is shorter
_MOST_LENGTHS = 4  # that are tried one by one at one place of a text
_FREE_LOOKS = 256  # places where tokens may end that a text of any length may have
_RUNS = re.compile(rf"[^\s\"'<>]{{{_TAIL},}}")
_OURS = re.compile(r"\boab[tk]\.[A-Za-z0-9_-]{22}(?:\.[A-Za-z0-9_-]+)+")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")  # spelt the same everywhere
_KEPT = ("", "/", "!*'()", ";,/?:@&=+$!*'()#")  # by strict encoders, `quote`, encodeURIComponent, encodeURI


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """Hashes of one spelling of a token: its first and its last 12 characters, its last 32, and its look."""

    head: int
    tail: int
    end: int
    length: int
    look: int


@dataclass(slots=True)
class _Alike:
    """The spellings that end alike: how many of each look, by length, the longest first where there are few lengths.
    None of them is longer than `longest`."""

    lengths: dict[int, Counter[int]] = field(default_factory=dict)
    longest: int = 0

    def add(self, mark: _Mark) -> None:
        looks = self.lengths.get(mark.length)
        if looks is None:
            looks = self.lengths[mark.length] = Counter()
            self._order()
        looks[mark.look] += 1
        self.longest = max(self.longest, mark.length)

    def remove(self, mark: _Mark) -> None:
        _take_one(self.lengths[mark.length], mark.look)
        if not self.lengths[mark.length]:
            del self.lengths[mark.length]
            self._order()

    def _order(self) -> None:
        if 1 < len(self.lengths) <= _MOST_LENGTHS:
            self.lengths = dict(sorted(self.lengths.items(), reverse=True))


class Scrubber:
    """Remembers the last `most` tokens, by hashes alone, which are keyed anew in each process.

    The end of a token finds it: tokens of one issuer begin alike (a JWT's header), and end in random text. Where
    many end alike all the same and differ in length, everything goes from the first place on where a token may begin.
    A text without spaces in which tokens seem to end more often than there is room for them is made to be slow: the
    rest of it goes, up to the last place where a token may end.
    """

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._known = Bounded[int, tuple[_Mark, ...]](most)
        self._ends: dict[int, dict[int, _Alike]] = {}  # the last 12 characters -> the last 32 -> who ends so
        self._heads: Counter[int] = Counter()
        self._longest = 0  # of all spellings that were ever known

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Scrubber({len(self)} tokens)"

    def remember(self, token: Secret) -> None:
        """Adds a token that is being handed out."""
        text = token.reveal()
        if len(text) < _TAIL:
            return
        name = hash(text)  # a text keeps it, and a token call is short
        try:
            self._known.touch(name)
        except KeyError:
            self._add(name, text)

    def _add(self, name: int, text: str) -> None:
        marks = tuple(_mark(each) for each in _spellings(text))
        for mark in marks:
            alike = self._ends.setdefault(mark.tail, {}).setdefault(mark.end, _Alike())
            alike.add(mark)
            self._heads[mark.head] += 1
            self._longest = max(self._longest, mark.length)
        for _, evicted in self._known.keep(name, marks):
            self._forget(evicted)

    def text(self, text: str) -> str:
        """Return the text with `***` for every token."""
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

    def _run(self, text: str) -> str:
        """Do the same for a piece of text without spaces and quotes."""
        known, found = self._ends, list[tuple[int, int]]()
        heads: _Heads | None = None
        looks = _FREE_LOOKS + len(text) // _TAIL  # tokens that do not overlap cannot end more often
        for end in range(_TAIL, len(text) + 1):
            alike_ends = known.get(hash(text[end - _TAIL : end]))
            if alike_ends is None:
                continue
            if heads is None:
                heads = _Heads(text, self._heads)
            looks -= 1
            start = _start(text, end, alike_ends, heads) if looks >= 0 else heads.first(end - self._longest)
            if start is None or start > end - _TAIL:
                continue
            while found and start < found[-1][1]:  # they overlap, and neither leaves a piece of itself
                start = min(start, found.pop()[0])
            if looks < 0:  # made to be slow: replace the rest, as far as a token may end in it
                found.append((start, self._last_end(text, end)))
                break
            found.append((start, end))
        kept, place = list[str](), 0
        for start, end in found:
            kept += [text[place:start], STARS]
            place = end
        return "".join([*kept, text[place:]])

    def _last_end(self, text: str, least: int) -> int:
        """Return the last place of a text where a known token may end; it is known to be one at `least`."""
        for end in range(len(text), least, -1):
            if hash(text[end - _TAIL : end]) in self._ends:
                return end
        return least

    def _forget(self, marks: tuple[_Mark, ...]) -> None:
        for mark in marks:
            _take_one(self._heads, mark.head)
            alike_ends = self._ends[mark.tail]
            alike = alike_ends[mark.end]
            alike.remove(mark)
            if not alike.lengths:
                del alike_ends[mark.end]
            if not alike_ends:
                del self._ends[mark.tail]


class _Heads:
    """Where in a text something stands that a known token begins with: `at` each place, and in their order."""

    __slots__ = ("at", "places")

    def __init__(self, text: str, known: Counter[int]) -> None:
        places = range(len(text) - _TAIL + 1)
        self.places = [start for start in places if hash(text[start : start + _TAIL]) in known]
        self.at = bytearray(len(text))
        for start in self.places:
            self.at[start] = 1

    def first(self, least: int) -> int | None:
        """Return the first of these places that is not before `least`."""
        at = bisect_left(self.places, least)
        return self.places[at] if at < len(self.places) else None


def _start(text: str, end: int, alike_ends: dict[int, _Alike], heads: _Heads) -> int | None:
    """Return where the longest token begins that ends there; None for none."""
    short = alike_ends.get(_SHORT)
    start: int | None = None
    if end >= _LONG and (short is None or len(alike_ends) > 1):
        long = alike_ends.get(hash(text[end - _LONG : end]))
        start = _start_of(text, end, long, _LONG, heads) if long is not None else None
    return start if start is not None or short is None else _start_of(text, end, short, _TAIL, heads)


def _start_of(text: str, end: int, alike: _Alike, shortest: int, heads: _Heads) -> int | None:
    if len(alike.lengths) > _MOST_LENGTHS:
        first = heads.first(end - alike.longest)
        return first if first is not None and first <= end - shortest else None
    for length, looks in alike.lengths.items():
        start = end - length
        if start >= 0 and heads.at[start] and _look(text, start, end) in looks:
            return start
    return None


def _mark(text: str) -> _Mark:
    length = len(text)
    end = _SHORT if length < _LONG else hash(text[-_LONG:])
    return _Mark(head=hash(text[:_TAIL]), tail=hash(text[-_TAIL:]), end=end, length=length, look=_look(text, 0, length))


def _look(text: str, start: int, end: int) -> int:
    """Return a hash that tells a token from others of its length: a long one's two ends, else all of it."""
    if end - start <= 2 * _LONG:
        return hash(text[start:end])
    return hash(text[start : start + _LONG] + text[end - _LONG : end])


def _take_one(counts: Counter[int], name: int) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _spellings(text: str) -> Iterator[str]:
    if _PLAIN.fullmatch(text):
        yield text
        return
    encoded = [quote(text, safe=kept, errors="replace") for kept in _KEPT]
    encoded.append(quote(text, safe="*", errors="replace").replace("~", "%7E"))  # a form's
    lower = [_in_small_letters(each) for each in dict.fromkeys(encoded)]
    yield from dict.fromkeys((text, text.replace("/", "\\/"), *encoded, *lower))


def _in_small_letters(encoded: str) -> str:
    """`%2f` for `%2F`, and nothing else."""
    first, *others = encoded.split("%")
    return "".join([first, *(f"%{each[:2].lower()}{each[2:]}" for each in others)])
