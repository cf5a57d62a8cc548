"""The state of the model of refresh: the record of one pair, the hosts, the database and the provider.

Refresh tokens are numbers in the order in which the provider issues them. A host is a number from 1; 0 is none.
The numbers in brackets are the steps of docs/refresh.md, "How it works".
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Word = Literal["live", "dead", "uncertain", "revoked", "erased"]
Step = Literal["idle", "asked", "leased", "sealed", "may send", "sent", "answered"]
Kind = Literal["", "token", "junk", "refused", "silence"]
Family = Literal["lives", "withdrawn", "reused"]
Habit = Literal["strict", "grace", "lenient"]

STEADY, GRACE, QUIET = 0, 1, 2  # a host's contact with the database: a grace runs; one after lost writes
ORPHAN: Final = 9  # the intent of an attempt that is over
ACTIVE: Final = ("sealed", "may send", "sent", "answered")


class Rules(NamedTuple):
    """What a host keeps to. Each rule can be dropped alone."""

    takes_lease: bool = True  # (2) only its holder goes on
    reads_again: bool = True  # (3) goes on only with the tokens that its caller saw
    seals_intent: bool = True  # (5)
    asks_lease: bool = True  # (6) right before it sends
    withdraws: bool = True  # takes back the intent of a request that was not sent
    keeps_lost: bool = True  # leaves the intent of a lost answer
    keeps_spare: bool = True  # (7) stores the refresh token of an answer that it refuses
    fences_commit: bool = True  # (8) own intent, or the tokens that it sent
    stores_late: bool = True  # (8) the tokens that it sent suffice, also without the lease and the own intent
    grace_after_outage: bool = True  # a lapsed lease is taken only after a grace of steady contact
    grace_at_start: bool = True  # of which a process that starts knows nothing, and waits as well
    extends_lease: bool = True  # of which it is still the last holder, as soon as it can
    tries_at_once: bool = True  # an answer is stored as soon as the database is back
    never_gives_up: bool = True  # and tried for as long as the process lives
    reads_before_sending: bool = True  # (6) right before: the own intent still stands
    compares_before_sending: bool = True  # (6) and the tokens too: a late answer leaves the intent of another attempt
    quiet_after_lost_writes: bool = True  # no refresh token is sent during the grace
    writes_back: bool = True  # a newer token and a revocation that it remembers and the database has lost
    fences_write_back: bool = True  # what came after the loss stays
    unsure_after_lost_writes: bool = True  # a refusal of a record that may be older is `uncertain`


CURRENT: Final = Rules()
EARLIER: Final = Rules(  # before outages, failovers and frozen hosts were thought of
    grace_after_outage=False,
    grace_at_start=False,
    extends_lease=False,
    tries_at_once=False,
    never_gives_up=False,
    reads_before_sending=False,
    compares_before_sending=False,
    quiet_after_lost_writes=False,
    writes_back=False,
    unsure_after_lost_writes=False,
)


class Bounds(NamedTuple):
    """How often each trouble may come, and how many refresh tokens the provider issues."""

    tokens: int = 3
    kills: int = 0
    freezes: int = 0
    outages: int = 0
    lost_writes: int = 0
    bad_answers: int = 0
    persons: int = 0  # what people do: revoke, consent anew, erase, withdraw at the provider


class Record(NamedTuple):
    """The grant in the store. `since`: written since the database lost its last writes."""

    token: int = 1
    spare: int = 0
    intent: int = 0  # the host whose attempt it is
    lost: int = 0  # answers lost before that attempt
    word: Word = "live"
    since: bool = False
    consent: int = 1  # the first refresh token that came with it

    @property
    def tokens(self) -> tuple[int, ...]:
        """Return the refresh tokens to try, the newest first."""
        return tuple(each for each in (self.spare, self.token) if each) if self.word == "live" else ()


NOTHING: Final = Record(0, word="erased", consent=0)


class Host(NamedTuple):
    """A process on a host of its own. `begun` is the record as its caller saw it, then as it sealed it. `remembers` is
    the newest record that it has seen, if the standby has an older token or no revocation."""

    step: Step = "idle"
    begun: Record = NOTHING
    kind: Kind = ""  # the answer: on its way, then in memory
    came: int = 0  # the refresh token in it
    contact: int = STEADY
    remembers: Record | None = None
    asleep: bool = False

    @property
    def sends(self) -> int:
        return self.begun.spare or self.begun.token

    @property
    def fresh(self) -> int:
        """Return the refresh token that only this host has."""
        return self.came if self.kind in {"token", "junk"} else 0


class Provider(NamedTuple):
    """The newest refresh token, the first one of the last consent, and whether that family lives."""

    newest: int = 1
    first: int = 1
    family: Family = "lives"


class State(NamedTuple):
    """`lease` is its holder, negative once it has lapsed. `behind` is the standby's record. `doubt` says why an answer may
    be lost, `frozen` in which step a host was frozen. `left` are the troubles still to come."""

    record: Record
    lease: int
    up: bool
    hosts: tuple[Host, ...]
    provider: Provider
    behind: Record | None
    failed_over: bool
    ambiguity: str
    frozen: str
    left: Bounds

    def with_host(self, number: int, host: Host) -> State:
        return self._replace(hosts=(*self.hosts[: number - 1], host, *self.hosts[number:]))

    @property
    def in_between(self) -> bool:
        """Return whether a living host has asked whether it may send: nothing comes in between but its own end."""
        return any(host.step == "may send" and not host.asleep for host in self.hosts)

    def one_less(self, disturbance: str) -> State:
        return self._replace(left=self.left._replace(**{disturbance: getattr(self.left, disturbance) - 1}))


def first_state(bounds: Bounds, hosts: int = 2) -> State:
    """Return the state after a consent."""
    return State(Record(), 0, True, (Host(),) * hosts, Provider(), None, False, "", "", bounds)
