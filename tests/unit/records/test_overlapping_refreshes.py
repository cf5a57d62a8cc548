"""Two refreshes of one grant that overlap, because the first one's host was frozen while its lease ran out: in each
order of their answers, the newest refresh token is tried first and no spent one is tried again."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.records import Grant, RefreshState, Token, overlapping_refreshes
from tests.kit.samples import NOW, grant_with, token_with

OLD, SPARE = Secret("the-old-refresh-token"), Secret("the-old-spare")
FIRST, SECOND = "first", "second"
ANSWERS = ("a token", "a refused token", "a refusal", "silence", "not sent", "death")
ORDERS = {"as they were sent": (FIRST, SECOND), "the other way round": (SECOND, FIRST)}


def brought_by(attempt: str) -> Secret:
    return Secret(f"refresh-token-of-the-{attempt}")


def token_of(name: str, refresh_token: Secret) -> Token:
    return replace(token_with(refresh_token=refresh_token), access_token=Secret(f"access-token-of-the-{name}"))


def begun(newest: Grant, attempt: str) -> Grant:
    return replace(newest, refresh_state=newest.refresh_state.begun(attempt, NOW))


def answered(newest: Grant, sent: Grant, attempt: str, answer: str) -> Grant:
    """Return the grant as the write-back leaves it after this answer."""
    token = token_of(attempt, brought_by(attempt))
    match answer:
        case "death":
            return newest
        case "a token":
            if overlapping_refreshes.awaits_answer_of(newest, sent):
                grant = newest.refreshed(token, ("read",), NOW)
                return (
                    grant
                    if overlapping_refreshes.is_attempted_as(newest, sent)
                    else overlapping_refreshes.beside(grant, newest.refresh_state, sent)
                )
            return overlapping_refreshes.adopting(newest, sent, token) or newest
    code, spent, came, spare = {
        "a refused token": (Code.SCOPE_EXCEEDED, True, True, brought_by(attempt)),
        "a refusal": (Code.REAUTH_REQUIRED, True, False, None),
        "silence": (Code.PROVIDER_UNREACHABLE, True, False, None),
        "not sent": (Code.PROVIDER_UNREACHABLE, False, False, None),
    }[answer]
    state = sent.refresh_state.after(code, spent=spent, came=came, spare=spare, at=NOW)
    return overlapping_refreshes.after_refusal(newest, sent, sent.refused(state, NOW, rejected=False)) or newest


@pytest.mark.parametrize("spare", [None, SPARE], ids=["no spare", "a spare"])
@pytest.mark.parametrize("order", ORDERS)
def test_what_two_overlapping_attempts_leave(order: str, spare: Secret | None) -> None:
    for answers in product(ANSWERS, repeat=2):
        before = grant_with(token=token_with(refresh_token=OLD), refresh_state=RefreshState(spare=spare))
        answer = dict(zip((FIRST, SECOND), answers, strict=True))
        sent = {FIRST: begun(before, FIRST)}
        newest = sent[SECOND] = begun(sent[FIRST], SECOND)
        for attempt in ORDERS[order]:
            newest = answered(newest, sent[attempt], attempt, answer[attempt])

        brought = [brought_by(it) for it in (SECOND, FIRST) if answer[it] in {"a token", "a refused token"}]
        left, case = newest.refresh_tokens, (order, answer)
        if brought:
            assert left[0] == brought[0], case
        elif answer[SECOND] == "a refusal":
            assert (left, newest.refresh_state.ended) == ((), "uncertain"), case  # the first answer is lost
        else:
            assert left == before.refresh_tokens, case
        if "a token" in answers:
            assert not [it for it in left if it in before.refresh_tokens], (
                case
            )  # a provider may end the family for a spent one


@pytest.mark.parametrize("code", [Code.SCOPE_EXCEEDED, Code.REAUTH_REQUIRED])
def test_a_spare_that_came_after_a_new_consent_is_kept_where_that_kept_the_spent_token(code: Code) -> None:
    sent = begun(grant_with(token=token_with(refresh_token=OLD)), FIRST)
    consented = grant_with(token=token_of("consent", OLD))
    spare = brought_by(FIRST) if code is Code.SCOPE_EXCEEDED else None
    state = sent.refresh_state.after(code, spent=True, came=spare is not None, spare=spare, at=NOW)
    changed = (
        overlapping_refreshes.after_refusal(consented, sent, sent.refused(state, NOW, rejected=False)) or consented
    )
    assert changed.token == consented.token
    assert changed.refresh_tokens == ((spare, OLD) if spare is not None else (OLD,))


def test_nothing_revives_a_grant_whose_account_was_another_one() -> None:
    sent = begun(grant_with(token=token_with(refresh_token=OLD)), FIRST)
    ended = replace(sent, refresh_state=sent.refresh_state.over("quarantined"))
    assert answered(ended, sent, FIRST, "a refused token").refresh_tokens == ()
