"""Bound the memory of issuances, over all callers: a tool can narrow its token as often as it likes, and each narrowed
token is a caller of its own."""

from __future__ import annotations

from weakref import ref

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.tokens.issuance import Issuance, Words

MOST_REMEMBERED = 16  # issuances of one caller
MOST_CALLERS = 10_000
MOST_BYTES = 16 * 1024 * 1024


class Issued(dict[Words, Issuance]):
    """The issuances of one caller, which end with it. `_asked` has a bit for the hash of each of its words: two words
    with one bit only cause an issuance to be kept early."""

    __slots__ = ("__weakref__", "_asked")

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0

    def asked_before(self, words: Words) -> bool:
        """Return whether the caller has said these words before, and note that it has now."""
        before, self._asked = self._asked, self._asked | 1 << hash(words) % 64
        return before == self._asked


@dataclass(frozen=True, slots=True)
class _Share:
    """What one caller takes."""

    issued: ref[Issued]
    size: int


class Issuances:
    """The issuances of one broker. Beyond `most_bytes`, the callers that were issued something longest ago lose theirs,
    and are decided about anew. A caller that is gone counts until then, which costs nothing but that."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._shares = Bounded[int, _Share](MOST_CALLERS, most_bytes=most_bytes, size_of=lambda share: share.size)

    def keep_issuance(self, issued: Issued, words: Words, issuance: Issuance) -> None:
        """Add an issuance to those of its caller."""
        if len(issued) >= MOST_REMEMBERED:
            issued.clear()
        issued[words] = issuance
        size = sum(each.size_with(words) for words, each in issued.items())
        for _, evicted in self._shares.keep(id(issued), _Share(ref(issued), size)):
            lost = evicted.issued()
            if lost is not None:
                lost.clear()
