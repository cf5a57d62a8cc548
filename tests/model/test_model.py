"""Every order of what may happen around one refresh, within small bounds; `python -m tests.model.search` has larger ones."""

from __future__ import annotations

import functools

import pytest

from tests.kit import forms
from tests.model.bounds import BY_NATURE, ENDS_BY_NATURE, FROZEN, HABITS, SMALL, UNREMEMBERED
from tests.model.invariants import INVARIANTS, Broken
from tests.model.search import Found, reported, search
from tests.model.state import CURRENT, EARLIER, Bounds, Habit, Rules

STEPS = 60_000  # states in which a dropped rule is noticed
SPENT, OLDER, ONLY_COPY, TOLD_RIGHTLY, PERSON, AT_REST, REMEMBERED = (each.__name__ for each in INVARIANTS)
DROPPED = {
    "takes_lease": ("an outage and a kill", SPENT),
    "reads_again": ("an outage and a kill", OLDER),
    "seals_intent": ("an outage and a kill", AT_REST),
    "asks_lease": ("a frozen host", SPENT),
    "withdraws": ("lost writes and people", TOLD_RIGHTLY),
    "keeps_lost": ("people and bad answers", AT_REST),
    "keeps_spare": ("people and bad answers", ONLY_COPY),
    "fences_commit": ("people and bad answers", PERSON),
    "stores_late": ("a frozen host", ONLY_COPY),
    "grace_after_outage": ("an outage and a kill", SPENT),
    "grace_at_start": ("an outage and a kill", SPENT),
    "tries_at_once": ("an outage and a kill", SPENT),
    "never_gives_up": ("an outage and a kill", ONLY_COPY),
    "reads_before_sending": ("a frozen host", SPENT),
    "compares_before_sending": ("a frozen host", SPENT),
    "quiet_after_lost_writes": ("lost writes", SPENT),
    "writes_back": ("lost writes", REMEMBERED),
    "fences_write_back": ("lost writes and people", REMEMBERED),
    "unsure_after_lost_writes": ("lost writes and a kill", TOLD_RIGHTLY),
}


@functools.cache
def searched(name: str) -> Found:
    return search(CURRENT, SMALL[name])


def story(found: Found, why: Broken | str) -> str:
    return "\n".join([str(why), *reported(found.trace(why))])


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_nothing_breaks_but_what_stays_by_nature(name: str):
    found = searched(name)
    assert found.whole
    assert [] == [story(found, why) for why in found.broken.keys() - BY_NATURE]
    assert set() == found.ended.keys() - ENDS_BY_NATURE


@pytest.mark.slow
@pytest.mark.parametrize("habit", HABITS[1:])
def test_a_provider_that_accepts_spent_tokens_makes_nothing_worse(habit: Habit):
    for name in SMALL if forms.is_long() else ("a frozen host",):
        found = search(CURRENT, SMALL[name], habit=habit)
        assert [] == [story(found, why) for why in found.broken.keys() - BY_NATURE]


@pytest.mark.slow
def test_the_known_counterexamples_are_exactly_these():
    """Each is a sentence in SECURITY.md: a host that is frozen, an answer that dies with its holder or on its way."""
    assert FROZEN == searched("a frozen host").broken.keys()
    assert UNREMEMBERED == searched("lost writes and a kill").broken.keys()
    others = [name for name in SMALL if name not in {"a frozen host", "lost writes and a kill"}]
    assert set() == set().union(*(searched(name).broken for name in others))
    assert ENDS_BY_NATURE == set().union(*(searched(name).ended for name in SMALL))


@pytest.mark.slow
def test_the_earlier_rules_lose_the_only_copy_and_send_a_spent_token_after_an_outage():
    found = search(EARLIER, Bounds(2, outages=1))
    assert {SPENT, ONLY_COPY} == {why.invariant for why in found.broken}
    why = Broken(SPENT, "a host has its successor; nothing was lost")
    assert [
        "the database goes away",
        "the leases lapse while it is away",
        "the database is back",
        "host B takes the lease (2)",
        "host B reads again and seals its intent (3, 5)",
        "host B asks whether it still may send: yes (6)",
        "host B sends its refresh token (6)",
    ] == [str(action) for action, _ in found.trace(why)][-7:], story(found, why)


@pytest.mark.slow
def test_the_earlier_rules_take_an_older_record_in_silence_after_a_failover():
    found = search(EARLIER, Bounds(2, outages=1, lost_writes=1))
    assert {SPENT, ONLY_COPY, AT_REST, REMEMBERED} <= {why.invariant for why in found.broken}


def test_the_earlier_rules_hold_without_outages_and_frozen_hosts():
    found = search(EARLIER, Bounds(3, kills=1, bad_answers=1))
    assert found.whole
    assert not found.broken


def test_each_rule_is_in_the_table():
    """`extends_lease` alone is a right and no duty: without it a refresh only takes longer."""
    assert set(Rules._fields) - {"extends_lease"} == DROPPED.keys()


@pytest.mark.slow
@pytest.mark.parametrize("rule", DROPPED)
def test_a_rule_that_is_dropped_is_missed(rule: str):
    name, invariant = DROPPED[rule]
    found = search(CURRENT._replace(**{rule: False}), SMALL[name], known=BY_NATURE, most=STEPS)
    assert [invariant] == [why.invariant for why in found.broken.keys() - BY_NATURE]
