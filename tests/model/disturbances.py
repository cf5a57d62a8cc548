"""What may come between two steps: hosts die and freeze, the database goes away, people change their minds."""

from __future__ import annotations

from tests.model.actions import Action, Next, steps
from tests.model.state import ACTIVE, GRACE, NOTHING, QUIET, STEADY, Habit, Host, Provider, Record, Rules, State
from tests.model.versions import has_newer, over, owner_of, restored, written

KILL = "is killed and starts again"
FREEZE = "is frozen, and its lease lapses"
THAW = "goes on"
EXTEND = "extends its lease, which has lapsed or is gone"
GRACE_ENDS = "has had steady contact for the whole grace"
WRITE_BACK = "writes back the record that the database has lost"
BEHIND = "the standby falls behind"
AWAY = "the database goes away"
OUTLAST = "the leases lapse while it is away"
BACK = "the database is back"
FAIL_OVER = "the database is back without its last transactions"
REVOKE = "revokes the grant for its person"
CONSENT = "stores a new consent"
ERASE = "erases the grant"
WITHDRAW_THERE = "the person withdraws at the provider"

_COSTS = ("", "asked", "leased", "sealed", "sent", "answered", "may send")  # of a freeze, the worst last
HOLDS = ("leased", *ACTIVE)
FLIGHT = ("sent", "answered")


def successors(state: State, rules: Rules, habit: Habit) -> Next:
    """Yield every action that may come next, and the state after it."""
    if state.in_between:
        for number, host in enumerate(state.hosts, 1):
            if host.step == "may send" and not host.asleep:
                yield from steps(state, number, rules, habit)
                yield from _ends(state, number, rules)
        return
    for number in range(1, len(state.hosts) + 1):
        yield from steps(state, number, rules, habit)
        yield from _ends(state, number, rules)
        yield from _goes_on(state, number, rules)
    yield from _database(state, rules)
    if state.left.persons and state.up:
        for number in range(1, len(state.hosts) + 1 if state.behind is not None else 2):
            if not state.hosts[number - 1].asleep:
                yield from _person(
                    state.one_less("persons"), restored(state, number, rules).one_less("persons"), number
                )


def _ends(state: State, number: int, rules: Rules) -> Next:
    host = state.hosts[number - 1]
    if state.left.kills and (host.step != "idle" or host.remembers is not None or host.contact != STEADY):
        yield Action(KILL, number), _killed(state, number, rules)
    if state.left.freezes and host.step != "idle" and abs(state.lease) == number and not host.asleep:
        frozen = state.with_host(number, host._replace(asleep=True))._replace(
            frozen=max(state.frozen, host.step, key=_COSTS.index), lease=-number
        )
        yield Action(FREEZE, number), frozen.one_less("freezes")


def _goes_on(state: State, number: int, rules: Rules) -> Next:
    host = state.hosts[number - 1]
    if host.asleep:
        yield Action(THAW, number), state.with_host(number, host._replace(asleep=False))
    elif state.up:
        if rules.extends_lease and host.step in HOLDS and state.lease in {0, -number}:
            yield Action(EXTEND, number), state._replace(lease=number)
        if host.contact != STEADY and not _within_grace(state, rules):
            yield Action(GRACE_ENDS, number), state.with_host(number, host._replace(contact=STEADY))
        if has_newer(state, number, rules):
            yield Action(WRITE_BACK, number), restored(state, number, rules)


def _within_grace(state: State, rules: Rules) -> bool:
    """Return whether the grace is not over yet: it is longer than a call of the provider and a write, so a living host
    stores its answer within it, and writes back the record that it remembers."""
    awake = [(number, host) for number, host in enumerate(state.hosts, 1) if not host.asleep]
    if rules.tries_at_once and any(host.step in FLIGHT and state.lease != number for number, host in awake):
        return True
    return any(has_newer(state, number, rules) for number, _ in awake)


def _killed(state: State, number: int, rules: Rules) -> State:
    host = state.hosts[number - 1]
    dead = over(state._replace(lease=-number, up=False) if abs(state.lease) == number else state, number)
    contact = STEADY
    if rules.grace_at_start and rules.grace_after_outage:
        contact = QUIET if state.failed_over and rules.quiet_after_lost_writes else GRACE
    why = "its holder was killed" if host.fresh or host.remembers is not None else state.ambiguity
    why = why or ("not settled" if host.step in ACTIVE else "")
    return dead.with_host(number, Host(contact=contact))._replace(up=state.up, ambiguity=why).one_less("kills")


def _database(state: State, rules: Rules) -> Next:
    if state.up:
        if state.left.outages:
            yield Action(AWAY), state._replace(up=False).one_less("outages")
        if state.left.lost_writes and state.behind is None:
            yield Action(BEHIND), state._replace(behind=state.record).one_less("lost_writes")
    else:
        if state.lease > 0:
            yield Action(OUTLAST), state._replace(lease=-state.lease)
        contact = GRACE if rules.grace_after_outage else STEADY
        yield Action(BACK), _back(state, contact)
        if state.behind is not None and state.behind != state.record:
            contact = QUIET if rules.quiet_after_lost_writes else contact
            yield Action(FAIL_OVER), _failed_over(_back(state, contact))


def _back(state: State, contact: int) -> State:
    """Return the state once the database is back. A second outage shortens no grace."""
    hosts = tuple(host if host.contact >= contact else host._replace(contact=contact) for host in state.hosts)
    return state._replace(up=True, hosts=hosts)


def _failed_over(state: State) -> State:
    """Return the state without what the standby has not: its leases are gone too."""
    assert state.behind is not None
    behind = state.behind._replace(intent=owner_of(state, state.behind))
    return state._replace(record=behind, behind=None, lease=0, failed_over=True, ambiguity="lost writes")


def _person(state: State, seen: State, number: int) -> Next:
    record, provider = seen.record, state.provider
    ended = provider._replace(family="withdrawn") if provider.family == "lives" else provider
    if record.word in {"live", "dead", "uncertain"}:
        revoked = record._replace(word="revoked", spare=0, intent=0, lost=0)
        yield Action(REVOKE, number), written(seen, number, revoked)._replace(provider=ended)
        yield Action(ERASE, number), written(seen, number, NOTHING)._replace(provider=ended)
    if provider.family == "lives":
        yield Action(WITHDRAW_THERE), state._replace(provider=ended)
    new = Provider(provider.newest + 1, provider.newest + 1)
    consented = written(seen, number, Record(new.newest, consent=new.newest))
    yield Action(CONSENT, number), consented._replace(provider=new, ambiguity="")
