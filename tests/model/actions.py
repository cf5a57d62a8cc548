"""What may happen next: the steps of a refresh, as docs/refresh.md numbers them. `disturbances.py` has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.state import ORPHAN, QUIET, STEADY, Habit, Provider, Record, Rules, State, Word
from tests.model.versions import marked_ambiguous, over, restored, unwritten, written


class Action(NamedTuple):
    """A line of a trace. `host` is 0 for what no host does."""

    word: str
    host: int = 0

    def __str__(self) -> str:
        return f"host {' ABCD'[self.host]} {self.word}" if self.host else self.word


Next = Iterator[tuple[Action, State]]

ASK = "has a caller whose token has ended (1)"
TAKE = "takes the lease (2)"
SETTLED = "reads again: another has changed the grant (3)"
WAIT = "reads again, and may not send yet (3)"
SEAL = "reads again and seals its intent (3, 5)"
CANNOT = "cannot reach the database and ends"
MAY = "asks whether it still may send: yes (6)"
WITHDRAW = "asks whether it still may send: no, and withdraws its intent (6)"
SEND = "sends its refresh token (6)"
UNHEARD = "sends its refresh token, which never arrives (6)"
HEAR = "gets the answer (7)"
LOSE = "waits for an answer that is lost (7)"
REFUSE = "gets an answer that it refuses, with a refresh token (7)"
COMMIT = "stores the refresh token of the answer (8)"
SPARE = "stores the refresh token of the answer that it refused (8)"
NOTE = "notes the provider's refusal (8)"
SILENCE = "notes that the answer is lost (8)"
GIVE_UP = "gives up storing the answer"


def steps(state: State, number: int, rules: Rules, habit: Habit) -> Next:
    """Yield what one host may do next in its refresh."""
    host = state.hosts[number - 1]
    if not host.asleep:
        match host.step:
            case "idle":
                yield from _called(state, number, rules)
            case "asked":
                yield from _take(state, number, rules)
            case "leased":
                yield from _seal(state, number, rules)
            case "sealed":
                yield from _ask(state, number, rules)
            case "may send":
                yield from _send(state, number, habit)
            case "sent":
                yield from _answer(state, number)
            case "answered":
                yield from _store(state, number, rules)


def _called(state: State, number: int, rules: Rules) -> Next:
    if state.up:
        now = restored(state, number, rules)
        if now.record.tokens and now.provider.newest < now.left.tokens:
            looked = unwritten(state, now)
            called = looked.hosts[number - 1]._replace(step="asked", begun=_seen(now.record))
            yield Action(ASK, number), looked.with_host(number, called)


def _seen(record: Record) -> Record:
    return Record(record.token, consent=record.consent)


def _take(state: State, number: int, rules: Rules) -> Next:
    host = state.hosts[number - 1]
    waits = rules.grace_after_outage and host.contact != STEADY
    free = state.lease == 0 or (state.lease < 0 and not waits)
    if state.up and (free or not rules.takes_lease):
        leased = state.with_host(number, host._replace(step="leased"))
        yield Action(TAKE, number), leased._replace(lease=number) if free else leased


def _seal(state: State, number: int, rules: Rules) -> Next:
    if not state.up:
        yield Action(CANNOT, number), over(state, number)
        return
    now = restored(state, number, rules)
    host, record = now.hosts[number - 1], now.record
    if not rules.reads_again and record.word == "live":
        record = record._replace(token=host.begun.token)
    if not record.tokens or record.token != host.begun.token:
        yield Action(SETTLED, number), over(unwritten(state, now), number)
        return
    if not _may_go_on(now, number, rules):
        yield Action(WAIT, number), over(unwritten(state, now), number)
        return
    lost = min(record.lost + 1, 2) if record.intent else 0
    doubtful = rules.unsure_after_lost_writes and now.failed_over and not record.since
    sealed = record._replace(intent=number, lost=max(lost, int(doubtful)))
    begun = now.with_host(number, host._replace(step="sealed", begun=sealed._replace(since=False)))
    if record.intent not in {0, ORPHAN} or doubtful:  # it takes over from a host that may live
        begun = marked_ambiguous(begun, "not settled")
    yield Action(SEAL, number), written(begun, number, sealed) if rules.seals_intent else begun


def _may_go_on(state: State, number: int, rules: Rules) -> bool:
    """Return whether the store says that the host has the lease, and no grace after lost writes runs."""
    leased = state.lease == number or not (rules.takes_lease and rules.asks_lease)
    return leased and not (rules.quiet_after_lost_writes and state.hosts[number - 1].contact == QUIET)


def _ask(state: State, number: int, rules: Rules) -> Next:
    if rules.reads_before_sending and not state.up:
        yield Action(CANNOT, number), over(marked_ambiguous(state, "not settled"), number)
        return
    now = restored(state, number, rules) if state.up else state
    host = now.hosts[number - 1]
    stands = now.record.intent == number or not rules.reads_before_sending or not rules.seals_intent
    same = now.record.tokens == host.begun.tokens or not (rules.reads_before_sending and rules.compares_before_sending)
    if stands and same and _may_go_on(now, number, rules):
        looked = unwritten(state, now)
        yield Action(MAY, number), looked.with_host(number, looked.hosts[number - 1]._replace(step="may send"))
    elif not now.up:
        yield Action(CANNOT, number), over(marked_ambiguous(now, "not settled"), number)
    else:
        yield Action(WITHDRAW, number), over(_withdrawn(state, now, number, rules), number)


def _withdrawn(state: State, now: State, number: int, rules: Rules) -> State:
    record, begun = now.record, now.hosts[number - 1].begun
    if record.intent != number or not rules.withdraws:
        return unwritten(state, now)
    if record.token == begun.token and record.lost:
        return written(now, number, record._replace(intent=ORPHAN, lost=record.lost - 1))
    return written(now, number, record._replace(intent=0, lost=0))


def _send(state: State, number: int, habit: Habit) -> Next:
    host = state.hosts[number - 1]
    provider, came = redeemed(state.provider, host.sends, habit)
    sent = host._replace(step="sent", kind="token" if came else "refused", came=came)
    yield Action(SEND, number), state.with_host(number, sent)._replace(provider=provider)
    if state.left.bad_answers:
        silent = state.with_host(number, host._replace(step="answered", kind="silence"))
        yield Action(UNHEARD, number), marked_ambiguous(silent.one_less("bad_answers"), "not settled")


def redeemed(provider: Provider, token: int, habit: Habit) -> tuple[Provider, int]:
    """Return the provider after a request with this refresh token, and the new token; 0 for a refusal."""
    if provider.family != "lives" or token < provider.first:
        return provider, 0
    age = provider.newest - token
    if age == 0 or habit == "lenient" or (habit == "grace" and age == 1):
        return provider._replace(newest=provider.newest + 1), provider.newest + 1
    return provider._replace(family="reused"), 0


def _answer(state: State, number: int) -> Next:
    host = state.hosts[number - 1]
    yield Action(HEAR, number), state.with_host(number, host._replace(step="answered"))
    if state.left.bad_answers:
        silent = state.with_host(number, host._replace(step="answered", kind="silence", came=0))
        lost = (
            silent._replace(ambiguity="an answer was lost") if host.fresh else marked_ambiguous(silent, "not settled")
        )
        yield Action(LOSE, number), lost.one_less("bad_answers")
        if host.kind == "token":
            junk = state.with_host(number, host._replace(step="answered", kind="junk"))
            yield Action(REFUSE, number), junk.one_less("bad_answers")


def _store(state: State, number: int, rules: Rules) -> Next:
    host = state.hosts[number - 1]
    if not state.up:
        if host.kind in {"refused", "silence"}:
            yield Action(CANNOT, number), over(marked_ambiguous(state, "not settled"), number)
        elif not rules.never_gives_up:
            yield Action(GIVE_UP, number), over(marked_ambiguous(state, "not settled"), number)
        return
    now = restored(state, number, rules)
    word, after = _checked(now, number, rules)
    yield Action(word, number), over(unwritten(state, now) if after is now else after, number)


def _checked(now: State, number: int, rules: Rules) -> tuple[str, State]:
    host = now.hosts[number - 1]
    match host.kind:
        case "token":
            return COMMIT, _committed(now, number, rules)
        case "junk":
            return SPARE, _refused(now, number, host.came * rules.keeps_spare)
        case "silence":
            return SILENCE, _silent(now, number, rules)
        case _:
            return NOTE, _refused(now, number, 0, "uncertain" if host.begun.lost else "dead")


def _committed(state: State, number: int, rules: Rules) -> State:
    """Store the token. The intent of another attempt over the same tokens stays, and the spare that it brought."""
    record, begun, came = state.record, state.hosts[number - 1].begun, state.hosts[number - 1].came
    kept = record.word not in {"revoked", "erased"}
    same = kept and rules.stores_late and record.token == begun.token
    if (record.intent == number and kept) or not rules.fences_commit or not rules.seals_intent:
        return written(state, number, Record(came, consent=begun.consent))._replace(ambiguity="")
    if not same:
        return state
    spare = 0 if record.spare in {begun.spare, begun.token} else record.spare
    return written(state, number, record._replace(token=came, spare=spare, word="live"))


def _refused(state: State, number: int, mine: int, word: Word = "live") -> State:
    """Store the meaning of a refusal for the own attempt. What another one has stored stays; a spare is kept."""
    record, begun = state.record, state.hosts[number - 1].begun
    spent = {begun.spare, begun.token}
    others = 0 if record.spare in spent else record.spare
    if record.intent != number:
        if mine and not others and record.token in spent and record.word not in {"revoked", "erased"}:
            return written(state, number, record._replace(spare=mine, word="live"))
        return state
    ended = record._replace(spare=0, intent=0, lost=0, word=word)
    if record.token != begun.token or others:
        ended = ended._replace(word="live", spare=mine or record.spare)
    elif word == "live":
        ended = ended._replace(spare=mine or begun.spare)
    return written(state, number, ended)


def _silent(state: State, number: int, rules: Rules) -> State:
    record, begun = state.record, state.hosts[number - 1].begun
    if record.intent == number and (record.token != begun.token or not rules.keeps_lost):
        return written(state, number, record._replace(intent=0, lost=0))
    return state
