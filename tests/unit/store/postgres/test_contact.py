"""Who may take a lapsed lease: a process that has reached its database all the time, for a grace."""

from __future__ import annotations

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.store.postgres.contact import LEASE_SECONDS, Contact, grace_of

GRACE = grace_of(LEASE_SECONDS)
ROUND = 5.0  # seconds between two statements of a broker that has nothing to do


class Clock:
    now = 1000.0


@pytest.fixture
def contact(monkeypatch: pytest.MonkeyPatch) -> Contact:
    monkeypatch.setattr(SystemClock, "monotonic", staticmethod(lambda: Clock.now))
    return Contact()


def hear(contact: Contact, seconds: float) -> None:
    """Hear the database as a broker does that has nothing to do."""
    for _ in range(int(seconds / ROUND)):
        Clock.now += ROUND
        contact.heard()


def test_a_process_that_starts_waits_for_the_grace(contact: Contact) -> None:
    assert not contact.steady
    contact.heard()
    assert not contact.steady
    hear(contact, GRACE - ROUND)
    assert not contact.steady
    hear(contact, ROUND)
    assert contact.steady


def test_a_failed_statement_ends_the_contact_and_the_next_answer_begins_it_anew(contact: Contact) -> None:
    contact.heard()
    hear(contact, 10 * GRACE)
    contact.lost()
    assert not contact.steady
    contact.heard()
    hear(contact, GRACE - ROUND)
    assert not contact.steady
    hear(contact, ROUND)
    assert contact.steady


@pytest.mark.parametrize("away, steady", [(LEASE_SECONDS * 2 / 3, False), (ROUND, True)])
def test_a_gap_in_which_a_lease_may_lapse_ends_the_contact_unseen(contact: Contact, away: float, steady: bool) -> None:
    """An idle host has made no statement in the outage. A holder extends its lease at a third of its time, so it lasts
    for two thirds at the least."""
    contact.heard()
    hear(contact, 10 * GRACE)
    Clock.now += away
    assert contact.steady is steady
    contact.heard()
    assert contact.steady is steady
