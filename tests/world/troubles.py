"""The disturbances of a world, and the losses that each excuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from tests.world.loop import Process
from tests.world.provider import Family

LEASE_SECONDS = 30.0
FAILOVER_GRACE = 30.0  # 15 s without a refresh, then each living broker stores the grants in its memory
_STORING_SECONDS = 15.0  # from an answer to its write, tries included
_REQUEST_SECONDS = 10.0  # between a look at the lease and the end of the request


@dataclass
class Trouble:
    """One disturbance of a process or, by its name, of a host. It lasts until `end`."""

    kind: str
    who: Process | str
    begin: float
    end: float = inf


class Troubles:
    """The disturbances so far."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self.all = now, list[Trouble]()
        self.failovers = list[tuple[float, float]]()  # since when the standby was behind, and when it took over

    def begin(self, kind: str, who: Process | str) -> Trouble:
        trouble = Trouble(kind, who, self._now())
        self.all.append(trouble)
        return trouble

    def end(self, trouble: Trouble) -> None:
        trouble.end = self._now()

    def may_forget(self, begun: float, done: float) -> bool:
        """Tell whether a standby that took over may lack the writes of this time.

        That is all that a takeover excuses: a consent, an answer, an acknowledgement or a place in a conversation of the
        time when the standby was behind. A revocation of that time comes back (`Laws._forgotten`).
        """
        return any(begun <= at and behind <= done for behind, at in self.failovers)

    def may_forget_answer(self, family: Family, number: int = 0) -> bool:
        """Tell whether a standby that took over may lack an answer after this token."""
        later = [each for each in family.answers if each.number > number]
        return any(self.may_forget(each.at, each.at + _STORING_SECONDS) for each in later)

    def was_disturbed(self, process: Process, since: float) -> bool:
        """Tell whether a process was killed or frozen since then, or cut off alone for longer than a lease lasts."""
        return any(
            each.end >= since
            and (each.who is process or (each.who == process.name and each.end - each.begin > LEASE_SECONDS))
            for each in self.all
        )

    def has_thawed(self, process: Process) -> bool:
        """Tell whether a process may have been frozen between its look at the lease and its request."""
        return any(each.who is process and each.end >= self._now() - _REQUEST_SECONDS for each in self.all)

    def may_lose(self, family: Family, number: int = 0, last: float = inf) -> bool:
        """Tell whether an answer after this token, up to the last, was lost or known only to a process that was
        disturbed."""
        return any(
            not each.delivered or self.was_disturbed(each.process, each.at)
            for each in family.answers
            if number < each.number <= last
        )
