"""What tokens of turns came to, by their digests, as far as there is room. A turn that ends forgets its own tokens and
looks at nobody else's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

MOST_KNOWN = 10_000


class Known(Protocol):
    """Of which turn a token is, and under which configuration that was found out."""

    @property
    def locator(self) -> str: ...

    @property
    def bundle(self) -> object: ...


K = TypeVar("K", bound=Known)


class KnownTokens(Generic[K]):
    """The last `MOST_KNOWN` that were kept, all of them under one configuration: a newer one forgets the older's."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[bytes, K] = OrderedDict()
        self._of_turn: dict[str, set[bytes]] = {}
        self._bundle: object = None

    def __len__(self) -> int:
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"KnownTokens({len(self)} of {len(self._of_turn)} turns)"

    def get(self, digest: bytes) -> K | None:
        return self._tokens.get(digest)

    def keep(self, digest: bytes, known: K) -> None:
        if known.bundle is not self._bundle:
            self._tokens.clear()
            self._of_turn.clear()
            self._bundle = known.bundle
        if digest not in self._tokens:
            self._of_turn.setdefault(known.locator, set()).add(digest)
        self._tokens[digest] = known
        self._tokens.move_to_end(digest)
        if len(self._tokens) > MOST_KNOWN:
            self.forget(next(iter(self._tokens)))

    def forget(self, digest: bytes) -> None:
        known = self._tokens.pop(digest, None)
        if known is None:
            return
        left = self._of_turn[known.locator]
        left.discard(digest)
        if not left:
            del self._of_turn[known.locator]

    def forget_turns(self, locators: Iterable[str]) -> None:
        for locator in locators:
            for digest in self._of_turn.pop(locator, ()):
                del self._tokens[digest]

    def turns(self) -> set[str]:
        """The locators of the turns whose tokens are known."""
        return set(self._of_turn)
