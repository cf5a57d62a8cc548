"""What must hold at every action. Each invariant returns why it is broken, "" if it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.model import actions, disturbances
from tests.model.actions import Action
from tests.model.state import CURRENT, Host, Record, State
from tests.model.versions import has_newer, is_ancestor

SENDS = (actions.SEND, actions.UNHEARD)
ENVIRONMENT = (disturbances.KILL, disturbances.FAIL_OVER, actions.LOSE)
PEOPLE = (disturbances.REVOKE, disturbances.CONSENT, disturbances.ERASE, disturbances.WITHDRAW_THERE)


class Broken(NamedTuple):
    """An invariant that an action broke, and why."""

    invariant: str
    why: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.why}"


def a_spent_token_is_sent_again_only_if_its_answer_was_lost(before: State, action: Action, _: State) -> str:
    """(1)"""
    if action.word not in SENDS:
        return ""
    sent = before.hosts[action.host - 1].sends
    if sent < before.provider.first:
        return ""
    if any(sent < each for each in (before.record.token, before.record.spare)):
        return f"the store has its successor; {_cause(before)}"
    return f"a host has its successor; {_cause(before)}" if any(sent < each for each in _kept(before)) else ""


def no_older_token_is_written_over_a_newer_one(before: State, action: Action, after: State) -> str:
    """(2)"""
    if action.word in (*ENVIRONMENT, *PEOPLE) or after.record.word in {"revoked", "erased"}:
        return ""
    return _cause(before) if after.record.token < before.record.token else ""


def the_only_copy_of_a_rotated_token_is_never_dropped(before: State, action: Action, after: State) -> str:
    """(3)"""
    newest = before.provider.newest
    if action.word in (*ENVIRONMENT, *PEOPLE) or newest in _kept(after):
        return ""
    if after.provider.newest != newest or after.provider.family != "lives" or newest not in _kept(before):
        return ""
    return _cause(before)


def the_end_of_a_grant_is_told_rightly(before: State, action: Action, after: State) -> str:
    """(4) `dead` only by the provider's own word, `uncertain` only where an answer may be lost."""
    word = after.record.word
    if before.record.word == word or word not in {"dead", "uncertain"}:
        return ""
    if action.word in ENVIRONMENT or _is_written_back(before, after):
        return ""
    if word == "dead":
        if after.provider.family == "withdrawn" or _is_old(before, action):
            return ""
        return "the database had lost it, and its holder has died" if before.failed_over else _cause(before)
    return "" if before.ambiguity else "no answer was lost"


def what_a_person_did_stays(before: State, action: Action, after: State) -> str:
    """(5) A revocation, an erasure, a new consent."""
    if action.word in (*ENVIRONMENT, *PEOPLE):
        return ""
    if before.record is not after.record and not _is_written_back(before, after):
        if before.record.word in {"revoked", "erased"} and after.record.word != before.record.word:
            return _cause(before)
        kept = before.record.token >= before.provider.first  # the database has not lost the consent
        if kept and _is_old(before, action) and after.record != _without_intent(before.record, action.host):
            return _cause(before)
    return ""


def at_rest_the_store_has_the_newest_token_or_an_intent(_: State, __: Action, after: State) -> str:
    """(6)"""
    if not _rests(after) or after.provider.family != "lives" or after.record.word != "live":
        return ""
    record = after.record
    if after.provider.newest in (record.token, record.spare) or record.intent:
        return ""
    return (
        "no living broker remembers the newest token" if after.failed_over else after.ambiguity or "no answer was lost"
    )


def a_living_broker_writes_back_what_the_database_has_lost(_: State, __: Action, after: State) -> str:
    """(5) and (6), after the database has lost its last writes."""
    if not after.failed_over or not _rests(after):
        return ""
    return "it remembers" if any(has_newer(after, number, CURRENT) for number in range(1, len(after.hosts) + 1)) else ""


Invariant = Callable[[State, Action, State], str]
INVARIANTS: tuple[Invariant, ...] = (
    a_spent_token_is_sent_again_only_if_its_answer_was_lost,
    no_older_token_is_written_over_a_newer_one,
    the_only_copy_of_a_rotated_token_is_never_dropped,
    the_end_of_a_grant_is_told_rightly,
    what_a_person_did_stays,
    at_rest_the_store_has_the_newest_token_or_an_intent,
    a_living_broker_writes_back_what_the_database_has_lost,
)


def broken(before: State, action: Action, after: State) -> Broken | None:
    """Return the first invariant that the action breaks."""
    for invariant in INVARIANTS:
        if why := invariant(before, action, after):
            return Broken(invariant.__name__, why)
    return None


def family_ended(before: State, after: State) -> str:
    """Return why the broker itself ended the family, by a spent token; "" if it did not. No rule can always prevent it."""
    ended = after.provider.family == "reused" and before.provider.family != "reused"
    return (before.ambiguity or _cause(before)) if ended else ""


def _kept(state: State) -> set[int]:
    """Return the refresh tokens of the family that the store has, or a host holds, expects or remembers."""
    records = [state.record, *(host.remembers for host in state.hosts if host.remembers is not None)]
    kept = {each for record in records if record.word == "live" for each in (record.token, record.spare)}
    return kept | {host.fresh for host in state.hosts}


def _rests(state: State) -> bool:
    return state.up and all(
        host.step in {"idle", "asked"} and not host.asleep and not host.contact for host in state.hosts
    )


def _is_written_back(before: State, after: State) -> bool:
    return before.failed_over and is_ancestor(before.record, after.record)


def _is_old(state: State, action: Action) -> bool:
    """Return whether the attempt began before the last consent."""
    return bool(action.host) and 0 < _host(state, action).begun.token < state.provider.first


def _host(state: State, action: Action) -> Host:
    return state.hosts[action.host - 1]


def _without_intent(record: Record, host: int) -> Record:
    return record if record.intent != host else record._replace(intent=0)


def _cause(state: State) -> str:
    """Return what led to it: a frozen host, or nothing that excuses it."""
    return f"a host was frozen when it was {state.frozen}" if state.frozen else "nothing was lost"
