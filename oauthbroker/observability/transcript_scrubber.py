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
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.secret import Secret

STARS = "***"
MOST_TOKENS = 10_000
_TAIL = 12  # characters; shorter text occurs by chance and is not remembered
_LONG = 32  # characters that tell a long token from others, at each of its ends
_SHORT = 0  # in place of the end of a token that is shorter
_MOST_LENGTHS = 4  # that are tried one by one at one place of a text
_FREE_LOOKS = 256  # that a text of any length, or the texts of one document, may have
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
class _Looks:
    """How many looks are left for one call, at places where tokens may end and at lengths that they may have there."""

    left: int


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
    A text in which tokens seem to end more often than there is space for them is made to be slow: the rest of each
    piece without spaces goes, up to the last place where a token may end in it.
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

    def remember(self, token: Secret, parts: Callable[[Secret], Iterable[Secret]] | None = None) -> None:
        """Add a token that is being handed out, or the `parts` that requests carry of a credential."""
        text = token.reveal()
        if len(text) < _TAIL:
            return
        name = hash(text)  # a text keeps it, and a token call is short
        try:
            self._known.touch(name)
        except KeyError:
            self._add(name, [token] if parts is None else parts(token))

    def _add(self, name: int, tokens: Iterable[Secret]) -> None:
        texts = (text for token in tokens if len(text := token.reveal()) >= _TAIL)
        marks = tuple(map(_mark, dict.fromkeys(each for text in texts for each in _spellings(text))))
        for mark in marks:
            alike = self._ends.setdefault(mark.tail, {}).setdefault(mark.end, _Alike())
            alike.add(mark)
            self._heads[mark.head] += 1
            self._longest = max(self._longest, mark.length)
        for _, evicted in self._known.keep(name, marks):
            self._forget(evicted)

    def text(self, text: str) -> str:
        """Return the text with `***` for every token."""
        return self._text(text, _Looks(_FREE_LOOKS))

    def json(self, value: Any) -> Any:
        """JSON-like data with every text in it scrubbed, names of members included; other objects as they are."""
        return self._json(value, _Looks(_FREE_LOOKS))

    def _json(self, value: Any, looks: _Looks) -> Any:
        if isinstance(value, str):
            return self._text(value, looks)
        if isinstance(value, dict):
            return {self._json(name, looks): self._json(each, looks) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._json(each, looks) for each in value]
        return value

    def _text(self, text: str, looks: _Looks) -> str:
        text = _OURS.sub(STARS, text)
        return _RUNS.sub(lambda run: self._run(run[0], looks), text) if self._ends else text

    def _run(self, text: str, looks: _Looks) -> str:
        """Do the same for a piece of text without spaces and quotes."""
        tails = _marks(text, self._ends)
        at = tails.find(1)
        heads = _marks(text, self._heads) if at >= 0 else tails
        if at < 0 or heads.find(1) < 0:
            return text
        looks.left += len(text) // _TAIL  # tokens that do not overlap cannot end more often
        found = list[tuple[int, int]]()
        while at >= 0 and looks.left > 0:
            end = at + _TAIL
            start = _start(text, end, self._ends[hash(text[at:end])], heads, looks)
            if start is not None and start <= at:
                _join(found, start, end)
            at = tails.find(1, at + 1)
        if at >= 0:  # made to be slow: replace the rest, as far as a token may end in it
            start, last = heads.find(1, max(0, at + _TAIL - self._longest)), tails.rfind(1)
            if 0 <= start <= last:
                _join(found, start, last + _TAIL)
        kept, place = list[str](), 0
        for start, end in found:
            kept += [text[place:start], STARS]
            place = end
        return "".join([*kept, text[place:]])

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


def _marks(text: str, known: Container[int]) -> bytearray:
    """Return a 1 for each place of a text where 12 characters begin whose hash is known. No step of this loop is
    Python's own, because it runs for each character."""
    pieces = map(text.__getitem__, map(slice, range(len(text)), range(_TAIL, len(text) + 1)))
    return bytearray(map(known.__contains__, map(hash, pieces)))


def _join(found: list[tuple[int, int]], start: int, end: int) -> None:
    """Add a token. Where it overlaps with others, neither leaves a piece of itself."""
    while found and start < found[-1][1]:
        start = min(start, found.pop()[0])
    found.append((start, end))


def _start(text: str, end: int, alike_ends: dict[int, _Alike], heads: bytearray, looks: _Looks) -> int | None:
    """Return where the longest token begins that ends there; None for none."""
    looks.left -= 1
    short = alike_ends.get(_SHORT)
    start: int | None = None
    if end >= _LONG and (short is None or len(alike_ends) > 1):
        long = alike_ends.get(hash(text[end - _LONG : end]))
        start = _start_of(text, end, long, _LONG, heads, looks) if long is not None else None
    return start if start is not None or short is None else _start_of(text, end, short, _TAIL, heads, looks)


def _start_of(text: str, end: int, alike: _Alike, shortest: int, heads: bytearray, looks: _Looks) -> int | None:
    if len(alike.lengths) > _MOST_LENGTHS:
        first = heads.find(1, max(0, end - alike.longest))
        return first if 0 <= first <= end - shortest else None
    for length, known in alike.lengths.items():
        start = end - length
        if start >= 0 and heads[start]:
            if _look(text, start, end) in known:
                return start
            looks.left -= 1
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
