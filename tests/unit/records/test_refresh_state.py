"""The refresh state of a grant: the table of `after`, the pauses, the spare, the intent that fences."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.records import Grant, RefreshState, overlapping_refreshes
from tests.kit.samples import NOW, grant_with, token_with

SPARE, OLD = Secret("a-spare-refresh-token"), Secret("the-old-refresh-token")
moments = st.datetimes(min_value=NOW.replace(tzinfo=None)).map(lambda at: at.replace(tzinfo=NOW.tzinfo))
FIRST = RefreshState().begun("attempt-1", NOW)
AFTER_A_LOSS = FIRST.begun("attempt-2", NOW)
LATER = NOW + timedelta(seconds=10)


def after(
    refresh_state: RefreshState, code: Code, *, spent: bool = False, came: bool = False, spare: Any = None
) -> RefreshState:
    return refresh_state.after(code, spent=spent, came=came, spare=spare, at=LATER)


@pytest.mark.parametrize(
    "refresh_state, code, ended",
    [
        (FIRST, Code.REAUTH_REQUIRED, "dead"),
        (AFTER_A_LOSS, Code.REAUTH_REQUIRED, "uncertain"),
        (FIRST, Code.SUBJECT_MISMATCH, "quarantined"),
        (AFTER_A_LOSS, Code.SUBJECT_MISMATCH, "quarantined"),
        (FIRST, Code.EXCHANGE_FAILED, ""),
        (FIRST, Code.APP_MISCONFIGURED, ""),
        (FIRST, Code.PROVIDER_UNREACHABLE, ""),
        (FIRST, Code.PROVIDER_RATE_LIMITED, ""),
        (FIRST, Code.TOKEN_RESPONSE_INVALID, ""),
        (FIRST, Code.SCOPE_EXCEEDED, ""),
    ],
)
def test_what_ends_a_grants_refreshes(refresh_state: RefreshState, code: Code, ended: str) -> None:
    assert ended == after(refresh_state, code).ended


def test_an_ambiguous_refusal_is_noted_with_its_first_time() -> None:
    once = after(FIRST, Code.EXCHANGE_FAILED).marked_ambiguous(LATER)
    assert (LATER, None, "", False) == (once.refused_at, once.intent, once.ended, once.given_up)
    again = after(once.begun("attempt-2", LATER), Code.APP_MISCONFIGURED).marked_ambiguous(LATER + timedelta(hours=1))
    assert LATER == again.refused_at
    day_before = NOW - timedelta(days=1)
    assert day_before == once.marked_ambiguous(day_before).refused_at, "the clock was set back"


@pytest.mark.parametrize(
    "refused_for, rests_for", [(0, 300), (300, 300), (301, 301), (1800, 1800), (3600, 3600), (86_400, 3600)]
)
def test_a_refresh_token_that_was_given_up_is_kept_and_rests_for_as_long_as_it_was_refused(
    refused_for: int, rests_for: int
) -> None:
    at = LATER + timedelta(seconds=refused_for)
    state = after(FIRST, Code.EXCHANGE_FAILED).marked_ambiguous(LATER).begun("attempt-2", at)
    given_up = state.unsent().give_up(at, spent=False)
    assert ("", True, False) == (given_up.ended, given_up.given_up, given_up.is_uncertain)
    assert given_up.rests(at + timedelta(seconds=rests_for - 1))
    assert not given_up.rests(at + timedelta(seconds=rests_for))
    assert not given_up.rests(at - timedelta(hours=3)), "the clock was set back"
    grant = grant_with(token=token_with(refresh_token=OLD), refresh_state=given_up)
    assert (OLD,) == grant.refresh_tokens


def test_a_token_that_was_given_up_after_a_lost_answer_is_uncertain() -> None:
    assert after(AFTER_A_LOSS, Code.EXCHANGE_FAILED).give_up(LATER, spent=False).is_uncertain
    assert not after(FIRST, Code.TOKEN_RESPONSE_INVALID, spent=True).give_up(LATER, spent=True).is_uncertain


def test_an_unspent_refresh_token_leaves_no_trace() -> None:
    assert RefreshState() == after(FIRST, Code.PROVIDER_RATE_LIMITED)


def test_what_an_earlier_attempt_lost_stays_lost() -> None:
    """Otherwise a busy provider between a lost answer and the refusal would turn the loss into a silent end."""
    left = after(AFTER_A_LOSS, Code.PROVIDER_RATE_LIMITED)
    assert left.intent is not None
    assert "uncertain" == after(left.begun("attempt-3", LATER), Code.REAUTH_REQUIRED).ended


@given(st.lists(st.sampled_from(["lost", "busy", "crash"]), max_size=12))
def test_a_refusal_is_uncertain_if_and_only_if_an_answer_was_lost_before(story: list[str]) -> None:
    """A crash after the intent counts as a loss, since the outcome is unknown."""
    refresh_state, lost = RefreshState(), False
    for number, turn in enumerate(story):
        refresh_state = refresh_state.begun(f"attempt-{number}", NOW)
        if turn == "lost":
            refresh_state, lost = after(refresh_state, Code.PROVIDER_UNREACHABLE, spent=True), True
        elif turn == "crash":
            lost = True
        else:
            refresh_state = after(refresh_state, Code.PROVIDER_RATE_LIMITED)
    ended = after(refresh_state.begun("last", NOW), Code.REAUTH_REQUIRED).ended
    assert ("uncertain" if lost else "dead") == ended


def test_a_lost_answer_pauses_from_when_it_was_noticed_and_longer_each_time() -> None:
    refresh_state, pauses = RefreshState(), []
    for number in range(12):
        refresh_state = after(refresh_state.begun(f"attempt-{number}", NOW), Code.PROVIDER_UNREACHABLE, spent=True)
        assert refresh_state.intent is not None
        pauses.append((refresh_state.intent.retry_at - LATER).total_seconds())
    assert [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] == pauses


def test_a_death_of_ours_pauses_for_seconds_only() -> None:
    refresh_state = RefreshState()
    for number in range(12):
        refresh_state = refresh_state.begun(f"attempt-{number}", NOW)
    assert refresh_state.intent is not None
    assert 8 == (refresh_state.intent.retry_at - NOW).total_seconds()


def test_a_death_on_a_host_whose_clock_is_minutes_ahead_pauses_for_seconds_only() -> None:
    refresh_state = RefreshState()
    for number in range(12):
        refresh_state = refresh_state.begun(f"attempt-{number}", NOW)
    assert refresh_state.intent is not None
    pausing = [back for back in range(300) if refresh_state.intent.pauses(NOW - timedelta(seconds=back))]
    assert list(range(9)) == pausing


def test_a_silence_that_a_host_with_a_clock_ahead_noticed_pauses_until_that_host_tries_again() -> None:
    """Hosts that took turns would else double the pause at each call."""
    intent = after(FIRST, Code.PROVIDER_UNREACHABLE, spent=True).intent
    assert intent is not None
    assert intent.pauses(LATER - timedelta(seconds=200))


def test_a_refresh_token_that_came_with_a_refused_answer_is_tried_first() -> None:
    refresh_state = after(FIRST, Code.TOKEN_RESPONSE_INVALID, spent=True, came=True, spare=SPARE)
    assert None is refresh_state.intent
    grant = grant_with(token=token_with(refresh_token=OLD), refresh_state=refresh_state)
    assert (SPARE, OLD) == grant.refresh_tokens
    assert OLD == after(refresh_state.begun("b", NOW), Code.SCOPE_EXCEEDED, spent=True, came=True, spare=OLD).spare


def test_an_answer_without_a_refresh_token_is_no_loss_and_keeps_the_spare() -> None:
    refresh_state = after(FIRST, Code.TOKEN_RESPONSE_INVALID, spent=True, came=True, spare=SPARE)
    again = after(refresh_state.begun("b", NOW), Code.TOKEN_RESPONSE_INVALID, spent=True, came=True)
    assert (None, SPARE) == (again.intent, again.spare)


@pytest.mark.parametrize(
    "changes",
    [
        {"revoked": True},
        {"refresh_state": RefreshState(ended="dead")},
        {"refresh_state": RefreshState(ended="uncertain")},
        {"token": None},
    ],
)
def test_a_grant_that_is_over_has_nothing_to_send(changes: dict[str, Any]) -> None:
    grant = grant_with(**{"token": token_with(refresh_token=OLD), **changes})
    assert () == grant.refresh_tokens


def test_a_new_token_settles_everything_but_the_hours_count() -> None:
    grant = grant_with(
        token=token_with(refresh_token=OLD), refresh_state=AFTER_A_LOSS.forced_at(NOW), scopes=("read", "write")
    )
    refreshed = grant.refreshed(token_with(60), ("read",), LATER)
    assert RefreshState(forced=(NOW,), worked=True) == refreshed.refresh_state
    assert refreshed == Grant.from_plaintext(refreshed.to_plaintext())
    assert (("read",), LATER) == (refreshed.scopes, refreshed.updated_at)


def fences(begun: Grant) -> list[tuple[str, Grant]]:
    return [
        ("revoked", begun.tombstoned(LATER)),
        ("another attempt", grant_with(refresh_state=begun.refresh_state.begun("attempt-9", LATER))),
        ("a new login", grant_with()),
        ("renewed", begun.refreshed(token_with(), ("read",), LATER)),
    ]


def test_only_the_attempt_that_the_grant_names_may_commit() -> None:
    begun = grant_with(refresh_state=FIRST)
    assert overlapping_refreshes.is_attempted_as(begun, begun)
    for why, there in fences(begun):
        assert not overlapping_refreshes.is_attempted_as(there, begun), why


@pytest.mark.parametrize("refused", ["with a spare", "without"])
@pytest.mark.parametrize("there", ["its own intent", "another attempt", "another attempt's token", "revoked"])
def test_a_refusal_keeps_a_new_spare_and_takes_no_token_of_another_attempt_away(there: str, refused: str) -> None:
    begun = grant_with(token=token_with(refresh_token=OLD), refresh_state=FIRST)
    newest = {
        "its own intent": begun,
        "another attempt": grant_with(token=begun.token, refresh_state=FIRST.begun("attempt-9", LATER)),
        "another attempt's token": grant_with(token=token_with(), refresh_state=FIRST),
        "revoked": begun.tombstoned(LATER),
    }[there]
    spare = SPARE if refused == "with a spare" else None
    state = after(FIRST, Code.ID_TOKEN_INVALID if spare else Code.REAUTH_REQUIRED, spent=True, came=True, spare=spare)
    changed = overlapping_refreshes.after_refusal(newest, begun, begun.refused(state, LATER, rejected=False))
    if there == "revoked" or (there == "another attempt" and spare is None):
        assert changed is None
        return
    assert changed is not None
    if spare is not None:
        assert SPARE in changed.refresh_tokens
    if there == "another attempt":
        assert newest.refresh_state.intent == changed.refresh_state.intent
    if there == "another attempt's token":
        assert (newest.token, "", None) == (changed.token, changed.refresh_state.ended, changed.refresh_state.intent)
    if there == "its own intent" and spare is None:
        assert "dead" == changed.refresh_state.ended


def test_forced_refreshes_are_counted_by_the_hour() -> None:
    refresh_state = RefreshState()
    for minute in range(0, 90, 10):
        refresh_state = refresh_state.forced_at(NOW + timedelta(minutes=minute))
    assert 6 == len(refresh_state.forced)


@given(
    st.builds(
        RefreshState,
        intent=st.none() | st.just(AFTER_A_LOSS.intent),
        spare=st.none() | st.text(min_size=1).map(Secret),
        ended=st.sampled_from(["", "dead", "uncertain", "quarantined"]),
        refused_at=st.none() | moments,
        rests_until=st.none() | moments,
        asked=st.lists(st.text(min_size=1), max_size=3).map(tuple),
        forced=st.lists(moments, max_size=3).map(tuple),
    )
)
def test_a_written_state_is_read_back_unchanged(refresh_state: RefreshState) -> None:
    assert refresh_state == RefreshState.from_json(refresh_state.to_json())
    grant = grant_with(refresh_state=refresh_state, token_binding="jkt")
    assert grant == Grant.from_plaintext(grant.to_plaintext())
    assert "a-spare" not in repr(refresh_state)


def test_a_grant_of_before_reads_as_one_that_was_never_refreshed() -> None:
    """Records that this version did not write have no such field."""
    body = grant_with().to_plaintext()
    assert b"refresh" not in body
    assert RefreshState() == Grant.from_plaintext(body).refresh_state
