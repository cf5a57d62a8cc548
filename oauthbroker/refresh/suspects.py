"""Tell the trouble of one grant from the trouble of all: which grants of an app fail, and which work."""

from __future__ import annotations

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.errors import Code

SEVERAL = 3  # grants that fail before the operator hears of the app
ALL = 32  # grants that fail within a short time, and none works, before the others are not tried: a call each is cheap
_SHORT_TIME = 60.0
_MOST_ALONE = 10_000


class Suspects:
    """The grants of one app, as their refreshes went last.

    `_failing` have failed since any grant worked last: their trouble may concern all. `_alone` began to fail before
    another grant worked: their trouble is their own, and proves nothing any longer. `_good` worked last.
    """

    def __init__(self) -> None:
        self._failing = Bounded[str, tuple[Code, float]](ALL)
        self._alone = Bounded[str, None](_MOST_ALONE)
        self._good = Bounded[str, None](ALL)
        self._told: Code | None = None

    @property
    def any_good(self) -> bool:
        return len(self._good) > 0

    def has_failed(self, grant: str) -> bool:
        """Tell whether this grant's last refresh failed."""
        return grant in self._failing or grant in self._alone

    def is_alone(self, grant: str) -> bool:
        """Tell whether another grant has worked since this one began to fail."""
        return grant in self._alone

    def worked(self, grant: str, *, all_were_paused: bool) -> list[str]:
        """Note a success. Return the grants that failed before it. They fail alone from now on, unless the app was
        paused: then its provider is back, and they may work, too."""
        for known in (self._failing, self._alone):
            known.pop(grant)
        if grant:
            self._good.keep(grant, None)
        before = list(self._failing)
        self._failing.clear()
        self._told = None
        if not all_were_paused:
            for each in before:
                self._alone.keep(each, None)
        return before

    def failed(self, grant: str, code: Code, now: float) -> int:
        """Note a failure. Return how many grants have failed with this code within a short time, and without a success
        of any; 0 for one that fails alone."""
        self._good.pop(grant)
        if grant in self._alone:
            return 0
        self._failing.keep(grant, (code, now))
        return sum(each is code and at >= now - _SHORT_TIME for _, (each, at) in self._failing.items())

    def tell_once(self, code: Code) -> bool:
        """Return whether the operator is yet to hear of several grants that fail with this code."""
        is_first, self._told = self._told is not code, code
        return is_first

    def is_reported(self, code: Code) -> bool:
        return self._told is code
