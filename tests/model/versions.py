"""The versions of the record: who writes one, who remembers one that the database has lost."""

from __future__ import annotations

from tests.model.state import ACTIVE, ORPHAN, Host, Record, Rules, State


def written(state: State, number: int, record: Record) -> State:
    """Write a version of the record, which the host then remembers."""
    return remembered(state._replace(record=record._replace(since=state.failed_over)), number)


def remembered(state: State, number: int) -> State:
    host, behind = state.hosts[number - 1], state.behind
    newest = state.record if behind is not None and is_ancestor(behind, state.record) else None
    return state if host.remembers == newest else state.with_host(number, host._replace(remembers=newest))


def is_ancestor(record: Record, newest: Record) -> bool:
    """Return whether a record is of an earlier consent than another one, not yet revoked, has an older token, or lacks the
    spare. An erasure leaves nothing to compare with."""
    if "erased" in {record.word, newest.word} or record.consent != newest.consent:
        return record.word != "erased" and 0 < record.consent < newest.consent
    if record.word == "revoked" or newest.word == "revoked":
        return record.word != newest.word == "revoked"
    if record.token == newest.token:
        return bool(newest.spare) and not record.spare and record.word == "live"
    return record.token < newest.token


def restored(state: State, number: int, rules: Rules) -> State:
    """Return the state as the host sees it: it remembers what the database has lost, which may be older than what another
    host has lost."""
    if not state.failed_over:
        return remembered(state, number)
    if not has_newer(state, number, rules):
        return state
    lost = state.hosts[number - 1].remembers
    assert lost is not None
    return state._replace(record=lost._replace(intent=owner_of(state, lost), since=True))


def unwritten(state: State, seen: State) -> State:
    """Return the state after a look that changes nothing."""
    return state if state.failed_over else seen


def has_newer(state: State, number: int, rules: Rules) -> bool:
    """Return whether a host remembers what the database has lost, and writes it back. What came after the loss stays."""
    newest = state.hosts[number - 1].remembers
    if not rules.writes_back or not state.failed_over or newest is None:
        return False
    if not rules.fences_write_back:
        return newest[:2] != state.record[:2]
    return is_ancestor(state.record, newest)


def owner_of(state: State, record: Record) -> int:
    """Return whose attempt an intent of an older version is."""
    if record.intent in {0, ORPHAN}:
        return record.intent
    owner = state.hosts[record.intent - 1]
    return record.intent if owner.step in ACTIVE and owner.begun == record._replace(since=False) else ORPHAN


def marked_ambiguous(state: State, why: str) -> State:
    return state._replace(ambiguity=state.ambiguity or why)


def over(state: State, number: int) -> State:
    """Return the state after the host has ended its refresh. Without a database its lease lapses."""
    idle = Host(contact=state.hosts[number - 1].contact, remembers=state.hosts[number - 1].remembers)
    after = state.with_host(number, idle)
    if after.record.intent == number:
        after = after._replace(record=after.record._replace(intent=ORPHAN))
    if abs(state.lease) == number:
        after = after._replace(lease=0 if state.up else -number)
    return after
