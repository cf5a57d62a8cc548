"""What a grant remembers of its renewals: the table of `after`, the pauses, the spare, the intent that fences."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.errors import Code
from oauthbroker.records import Grant, Renewal
from oauthbroker.records.renewal import UNCLEAR_SECONDS
from oauthbroker.secret import Secret
from tests.nouns import NOW, grant_with, token_with

SPARE, OLD = Secret("a-spare-refresh-token"), Secret("the-old-refresh-token")
moments = st.datetimes(min_value=NOW.replace(tzinfo=None)).map(lambda at: at.replace(tzinfo=NOW.tzinfo))
FIRST = Renewal().begun("attempt-1", NOW)
AFTER_A_LOSS = FIRST.begun("attempt-2", NOW)
LATER = NOW + timedelta(seconds=10)


def after(renewal: Renewal, code: Code, *, spent: bool = False, came: bool = False, spare: Any = None) -> Renewal:
    return renewal.after(code, spent=spent, came=came, spare=spare, at=LATER)


@pytest.mark.parametrize(
    "renewal, code, ended",
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
def test_what_ends_a_grants_renewals(renewal: Renewal, code: Code, ended: str) -> None:
    assert ended == after(renewal, code).ended


def test_a_refusal_in_unclear_words_counts_once_it_has_come_again_after_minutes() -> None:
    """A wall in front of the provider says the same thing to everybody for a while."""
    once = after(FIRST, Code.EXCHANGE_FAILED)
    assert (LATER, None, "") == (once.refused_at, once.intent, once.ended)
    soon = once.begun("attempt-2", LATER).after(
        Code.EXCHANGE_FAILED, spent=False, came=False, spare=None, at=LATER + timedelta(seconds=UNCLEAR_SECONDS - 1)
    )
    assert (LATER, "") == (soon.refused_at, soon.ended)
    late = LATER + timedelta(seconds=UNCLEAR_SECONDS)
    ended = soon.begun("attempt-3", late).after(Code.EXCHANGE_FAILED, spent=False, came=False, spare=None, at=late)
    assert "dead" == ended.ended


def test_what_was_surely_not_spent_leaves_no_trace() -> None:
    assert Renewal() == after(FIRST, Code.PROVIDER_RATE_LIMITED)


def test_what_an_earlier_attempt_lost_stays_lost() -> None:
    """Otherwise a busy provider between a lost answer and the refusal would turn the loss into a silent end."""
    left = after(AFTER_A_LOSS, Code.PROVIDER_RATE_LIMITED)
    assert left.intent is not None
    assert "uncertain" == after(left.begun("attempt-3", LATER), Code.REAUTH_REQUIRED).ended


@given(st.lists(st.sampled_from(["lost", "busy", "crash"]), max_size=12))
def test_a_refusal_is_uncertain_if_and_only_if_an_answer_was_lost_before(story: list[str]) -> None:
    """A crash after the intent counts as a loss: nobody knows."""
    renewal, lost = Renewal(), False
    for number, turn in enumerate(story):
        renewal = renewal.begun(f"attempt-{number}", NOW)
        if turn == "lost":
            renewal, lost = after(renewal, Code.PROVIDER_UNREACHABLE, spent=True), True
        elif turn == "crash":
            lost = True
        else:
            renewal = after(renewal, Code.PROVIDER_RATE_LIMITED)
    ended = after(renewal.begun("last", NOW), Code.REAUTH_REQUIRED).ended
    assert ("uncertain" if lost else "dead") == ended


def test_a_lost_answer_pauses_from_when_it_was_noticed_and_longer_each_time() -> None:
    renewal, pauses = Renewal(), []
    for number in range(12):
        renewal = after(renewal.begun(f"attempt-{number}", NOW), Code.PROVIDER_UNREACHABLE, spent=True)
        assert renewal.intent is not None
        pauses.append((renewal.intent.retry_at - LATER).total_seconds())
    assert [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] == pauses


def test_a_death_of_ours_pauses_for_seconds_only() -> None:
    renewal = Renewal()
    for number in range(12):
        renewal = renewal.begun(f"attempt-{number}", NOW)
    assert renewal.intent is not None
    assert 8 == (renewal.intent.retry_at - NOW).total_seconds()


def test_a_refresh_token_that_came_with_a_refused_answer_is_tried_first() -> None:
    renewal = after(FIRST, Code.TOKEN_RESPONSE_INVALID, spent=True, came=True, spare=SPARE)
    assert None is renewal.intent
    grant = grant_with(token=token_with(refresh_token=OLD), renewal=renewal)
    assert (SPARE, OLD) == grant.refresh_tokens
    assert OLD == after(renewal.begun("b", NOW), Code.SCOPE_EXCEEDED, spent=True, came=True, spare=OLD).spare


def test_an_answer_without_a_refresh_token_is_no_loss_and_keeps_the_spare() -> None:
    renewal = after(FIRST, Code.TOKEN_RESPONSE_INVALID, spent=True, came=True, spare=SPARE)
    again = after(renewal.begun("b", NOW), Code.TOKEN_RESPONSE_INVALID, spent=True, came=True)
    assert (None, SPARE) == (again.intent, again.spare)


@pytest.mark.parametrize(
    "changes",
    [{"revoked": True}, {"renewal": Renewal(ended="dead")}, {"renewal": Renewal(ended="uncertain")}, {"token": None}],
)
def test_a_grant_that_is_over_has_nothing_to_send(changes: dict[str, Any]) -> None:
    grant = grant_with(**{"token": token_with(refresh_token=OLD), **changes})
    assert () == grant.refresh_tokens


def test_a_new_token_settles_everything_but_the_hours_count() -> None:
    grant = grant_with(
        token=token_with(refresh_token=OLD), renewal=AFTER_A_LOSS.forced_at(NOW), scopes=("read", "write")
    )
    renewed = grant.renewed(token_with(60), ("read",), LATER)
    assert Renewal(forced=(NOW,), worked=True) == renewed.renewal
    assert renewed == Grant.from_plaintext(renewed.to_plaintext())
    assert (("read",), LATER) == (renewed.scopes, renewed.updated_at)


def fences(begun: Grant) -> list[tuple[str, Grant]]:
    return [
        ("revoked", begun.tombstoned(LATER)),
        ("another attempt", grant_with(renewal=begun.renewal.begun("attempt-9", LATER))),
        ("a new login", grant_with()),
        ("renewed", begun.renewed(token_with(), ("read",), LATER)),
    ]


def test_only_the_attempt_that_the_grant_names_may_commit() -> None:
    begun = grant_with(renewal=FIRST)
    assert begun.is_attempted_as(begun)
    for why, there in fences(begun):
        assert not there.is_attempted_as(begun), why


def test_forced_renewals_are_counted_by_the_hour() -> None:
    renewal = Renewal()
    for minute in range(0, 90, 10):
        renewal = renewal.forced_at(NOW + timedelta(minutes=minute))
    assert 6 == len(renewal.forced)


@given(
    st.builds(
        Renewal,
        intent=st.none() | st.just(AFTER_A_LOSS.intent),
        spare=st.none() | st.text(min_size=1).map(Secret),
        ended=st.sampled_from(["", "dead", "uncertain", "quarantined"]),
        refused_at=st.none() | moments,
        asked=st.lists(st.text(min_size=1), max_size=3).map(tuple),
        forced=st.lists(moments, max_size=3).map(tuple),
    )
)
def test_what_is_written_is_what_is_read(renewal: Renewal) -> None:
    assert renewal == Renewal.from_json(renewal.to_json())
    grant = grant_with(renewal=renewal, token_binding="jkt")
    assert grant == Grant.from_plaintext(grant.to_plaintext())
    assert "a-spare" not in repr(renewal)


def test_a_grant_of_before_reads_as_one_that_was_never_renewed() -> None:
    """Records that this version did not write have no such field."""
    body = grant_with().to_plaintext()
    assert b"renewal" not in body
    assert Renewal() == Grant.from_plaintext(body).renewal
