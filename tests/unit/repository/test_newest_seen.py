"""Which stored version is older than the one that this process remembers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.records import Grant, RefreshState
from oauthbroker.records.refresh_state import Intent
from oauthbroker.repository.newest_seen import KEPT_SECONDS, NewestSeen
from oauthbroker.repository.versioned import Versioned
from oauthbroker.store.format.port import Entry, Key
from tests.kit.samples import grant_with, token_with
from tests.unit.records.kit import event

SECOND = timedelta(seconds=1)


def version(grant: Grant, generation: int, stamp: int | None = None) -> Versioned[Grant]:
    return Versioned(grant, Entry(Key("grants", "0" * 64), generation, b"", stamp=stamp or generation))


def refreshed(grant: Grant, number: int) -> Grant:
    token = replace(
        token_with(None, None), access_token=Secret(f"access-{number}"), refresh_token=Secret(f"r-{number}")
    )
    return grant.refreshed(token, grant.scopes, grant.updated_at + SECOND)


ONE = refreshed(grant_with(auth_session_id="as-1"), 1)
TWO, THREE = refreshed(ONE, 2), refreshed(refreshed(ONE, 2), 3)
BEGUN = replace(ONE, refresh_state=RefreshState(intent=Intent("of another host", ONE.updated_at)))
CONSENT = replace(refreshed(ONE, 4), auth_session_id="as-2")
REVOKED = TWO.tombstoned(TWO.updated_at + SECOND)

AHEAD = replace(ONE, updated_at=TWO.updated_at + 100 * SECOND)
RENEWED = replace(ONE, updated_at=TWO.updated_at + 3600 * SECOND)
LATE = refreshed(replace(ONE, updated_at=RENEWED.updated_at), 9)  # an answer that was stored since, in another process
SPARE = replace(TWO, refresh_state=RefreshState(spare=Secret("r-3")))
DEAD = replace(TWO, refresh_state=RefreshState(ended="dead"))
Case = tuple[list[tuple[Grant, int]], tuple[Any, ...], Grant | None]
CASES: dict[str, Case] = {
    "the token before, at its generation": ([(ONE, 3), (TWO, 5)], (ONE, 3), TWO),
    "the token before, of a host whose clock is ahead": ([(AHEAD, 3), (TWO, 5)], (AHEAD, 3), TWO),
    "an older token that was not seen, at a lower generation": ([(THREE, 7)], (ONE, 3), THREE),
    "the token before, with the intent of another host, which has caught up": ([(ONE, 3), (TWO, 5)], (BEGUN, 5), TWO),
    "the same, which has gone further": ([(ONE, 3), (TWO, 5)], (BEGUN, 9), TWO),
    "the consent before": ([(ONE, 3), (CONSENT, 4)], (ONE, 3), CONSENT),
    "the grant that was revoked": ([(ONE, 3), (TWO, 5), (REVOKED, 6)], (TWO, 5), REVOKED),
    "the same after its tokens were erased": ([(TWO, 5), (REVOKED.erased(REVOKED.updated_at), 7)], (TWO, 5), REVOKED.erased(REVOKED.updated_at)),
    "the token before, again after the newer one was stored again": ([(ONE, 3), (TWO, 5), (TWO, 4)], (ONE, 3), TWO),
    "the consent before, refreshed since": ([(ONE, 3), (CONSENT, 4)], (LATE, 4, 99), CONSENT),
    "the grant that was revoked, refreshed since": ([(ONE, 3), (REVOKED, 6)], (LATE, 5, 99), REVOKED),
    "the token itself, without the spare of a refused answer": ([(TWO, 5), (SPARE, 6)], (TWO, 5), SPARE),
    # newer versions, and others
    "the version itself": ([(ONE, 3), (TWO, 5)], (TWO, 5), None),
    "its own token at a lower generation: another host stored it again": ([(ONE, 3), (TWO, 5)], (TWO, 4), None),
    "its own token, which is dead": ([(TWO, 5), (SPARE, 6)], (DEAD, 5), None),
    "the next token": ([(ONE, 3), (TWO, 5)], (THREE, 7), None),
    "the next token at a lower generation: a host went on from an older version": ([(ONE, 3), (TWO, 5)], (THREE, 4, 99), None),
    "the token before, which the provider has given again an hour later": ([(ONE, 3), (TWO, 5)], (RENEWED, 7), None),
    "an import of the same tokens after a revocation": ([(ONE, 3), (REVOKED, 6)], (RENEWED, 1, 99), None),
    "a revocation of an older version": ([(TWO, 5)], (ONE.tombstoned(ONE.updated_at), 4), None),
    "a consent that was not seen": ([(ONE, 3), (TWO, 5)], (CONSENT, 4), None),
    "a new consent after an erasure": ([(REVOKED, 6)], (CONSENT, 1), None),
    "nothing remembered": ([], (ONE, 3), None),
}  # fmt: skip


@pytest.mark.parametrize("seen, found, newer", CASES.values(), ids=CASES.keys())
def test_an_ancestor_of_a_remembered_version_is_told_from_a_newer_one(
    seen: list[tuple[Grant, int]], found: tuple[Any, ...], newer: Grant | None
) -> None:
    memory = NewestSeen()
    for each in seen:
        assert memory.note(version(*each))
    assert newer == memory.newer_than(version(*found))
    assert (newer is not None) == bool(memory.behind)
    assert memory.note(version(*found)) is (newer is None)


def test_the_events_that_the_older_version_has_still_to_queue_are_queued_again() -> None:
    memory, first, second = NewestSeen(), event(1, "a"), event(2, "a")
    memory.note(version(replace(TWO, outbox=(second,)), 5))
    newer = memory.newer_than(version(replace(ONE, outbox=(first, second)), 3))
    assert newer is not None
    assert (first, second) == newer.outbox


def test_an_erased_or_old_version_is_not_remembered() -> None:
    now = [0.0]
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    memory = NewestSeen(clock)
    memory.note(version(TWO, 5))
    memory.forget(TWO)
    assert memory.newer_than(version(ONE, 3)) is None
    memory.note(version(TWO, 5))
    assert [TWO.key] == memory.keys()
    now[0] = KEPT_SECONDS
    assert (None, []) == (memory.newer_than(version(ONE, 3)), memory.keys())
