"""What runs work with. Transactions that lost a race are tried again, with full jitter, until a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.entities.database import Database, is_lost_race
from oauthbroker.flowtools.entities.definition import Entity
from oauthbroker.flowtools.running.lifecycle import Lifecycle
from oauthbroker.plugins import PluginAudit, SystemClock

_SECONDS: Final = 30.0  # from the first race that was lost to the last try
_FIRST_WAIT, _LONGEST_WAIT = 0.004, 0.5
_CLOCK: Final = SystemClock()
T = TypeVar("T")


class Tries:
    """The tries of one run by one process. `committed` tells whether it may have committed something."""

    def __init__(self, sleep: Callable[[float], object]) -> None:
        self._sleep, self._lost, self._until, self.committed = sleep, 0, 0.0, False

    def __call__(self, work: Callable[[], T], *, unique: bool = False) -> T:
        """Do work in transactions of its own, again while it loses races. `unique`: also against a row that another one
        inserted. Raises the last race that it lost."""
        while True:
            try:
                return work()
            except (DBAPIError, PoolTimeout) as error:
                if not (is_contention(error) or (unique and isinstance(error, IntegrityError))):
                    raise
                self._wait(error)

    def go_on(self) -> None:
        """Begin to count anew: a transaction is committed, or is about to be."""
        self._lost, self.committed = 0, True

    def _wait(self, error: Exception) -> None:
        now = _CLOCK.monotonic()
        self._until = self._until if self._lost else now + _SECONDS
        wait = _CLOCK.jitter(0.0, min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(self._lost, 20)))
        if now + wait > self._until:
            raise error
        self._lost += 1
        self._sleep(wait)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What the runs of one database work with."""

    database: Database
    entities: Mapping[str, Entity]
    lease_seconds: float
    sleep: Callable[[float], object]
    audit: PluginAudit

    def transact(self, work: Callable[[Lifecycle], T], tries: Tries | None = None) -> T:
        """Do work in a transaction of its own, again while it loses races."""

        def done() -> T:
            with Lifecycle.opened(self.database, self.audit) as ways:
                return work(ways)

        return (tries or Tries(self.sleep))(done)


def is_contention(error: BaseException) -> bool:
    """Tell whether others are in the way: a lost race, or no free connection in time."""
    return isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and is_lost_race(error))


def is_away(error: BaseException) -> bool:
    """Tell whether the database, or the broker's log or store, cannot be reached, which says nothing about the run."""
    lost = isinstance(error, OperationalError | InterfaceError) and not is_contention(error)
    return lost or is_broker_away(error)


def is_broker_away(error: BaseException) -> bool:
    """Tell whether the broker's store does not answer, or its audit log takes no entry."""
    return isinstance(error, BrokerError) and error.code is Code.STORE_UNAVAILABLE
