"""Tokens that the provider has still to hear of: none is lost, none is told twice for ever, none is shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.secret import Secret
from oauthbroker.records import Grant, RefreshState, Retired, Token
from oauthbroker.records.retired_tokens import MOST, MOST_CLIENTS, merged
from oauthbroker.records.unrevoked_tokens import forgotten, parts_of, passed_on
from oauthbroker.store.format.seal import MAX_BODY
from tests.unit.records import kit

LATER = kit.UPDATED + timedelta(seconds=30)
texts = st.lists(st.sampled_from("abcdef"), max_size=5).map(tuple)


def secrets(*names: str) -> tuple[Secret, ...]:
    return tuple(map(Secret, names))


def revealed(retired: Retired | None) -> tuple[list[str], list[str]]:
    if retired is None:
        return [], []
    return [it.reveal() for it in retired.refresh], [it.reveal() for it in retired.access]


def tokens_of(grant: Grant) -> set[str]:
    """Every token in a record."""
    own = (
        () if grant.token is None else (grant.token.access_token, grant.token.refresh_token, grant.refresh_state.spare)
    )
    sets = () if grant.retired is None else (grant.retired,)
    others = [secret for each in (*sets, *grant.elsewhere, *grant.replaced) for secret in each.secrets]
    return {secret.reveal() for secret in (*own, *others) if secret is not None}


def test_of_a_living_grant_nothing_is_to_be_told():
    grant = kit.grant()
    assert (None, False, False) == (grant.ended, grant.revocation_pending, grant.unfinished)


def test_of_a_tombstone_its_own_tokens_are_told_the_newest_refresh_token_first():
    grant = kit.grant(refresh_state=RefreshState(spare=Secret("newer")))
    assert (["newer", "printed-refresh"], ["printed-access"]) == revealed(grant.tombstoned(LATER).ended)


def test_late_tokens_join_a_tombstone_and_outlive_its_erasure():
    tombstone = kit.grant().tombstoned(LATER)
    late = tombstone.owing(Retired.of(Secret("late-refresh"), Secret("late-access"), LATER))
    reported = late.with_revocation_outcome(tombstone.ended, LATER)
    assert ("done", None, True) == (reported.revocation, reported.token, reported.revocation_pending)
    assert (["late-refresh"], ["late-access"]) == revealed(reported.ended)
    assert not reported.with_revocation_outcome(reported.ended, LATER).revocation_pending


def test_the_end_of_an_older_tombstone_erases_no_newer_one():
    """Connected again and revoked again while the provider was being told of the first end."""
    first = kit.grant().tombstoned(LATER)
    assert first.token is not None
    second = replace(first, token=replace(first.token, access_token=Secret("second"), refresh_token=None))
    assert second == second.with_revocation_outcome(first.ended, LATER)


def test_a_tombstone_without_a_token_ends_too():
    assert "done" == kit.grant(token=None).tombstoned(LATER).with_revocation_outcome(None, LATER).revocation


def test_a_refusal_is_forgotten_once_the_provider_was_told():
    tombstone = kit.grant().tombstoned(LATER).with_revocation_retry(LATER + timedelta(hours=1))
    assert (LATER + timedelta(hours=1), None) == (
        tombstone.tell_after,
        tombstone.with_revocation_outcome(tombstone.ended, LATER).tell_after,
    )


@given(kit.grants)
def test_being_told_of_all_that_ended_leaves_nothing_and_a_living_grant_whole(grant: Grant):
    reported = grant
    for part in parts_of(grant):
        reported = reported.with_revocation_outcome(part.ended, kit.UPDATED)
    assert (False, None) == (reported.revocation_pending, reported.ended)
    assert reported.token == (None if grant.revocation == "pending" else grant.token)


@given(texts, texts, texts, texts)
def test_joining_keeps_each_token_once_and_taking_away_takes_no_other(one, two, three, gone):
    joined = Retired(kit.UPDATED, secrets(*one), secrets(*two)).and_also(Retired(LATER, secrets(*three)))
    assert ({*one, *three}, set(two), LATER) == (*map(set, revealed(joined)), joined.since)
    assert len(joined.refresh) == len({*one, *three})
    left = joined.without(secrets(*gone))
    assert ({*one, *three} - set(gone), set(two) - set(gone)) == tuple(map(set, revealed(left)))
    assert (left is None) is not bool({*one, *two, *three} - set(gone))


@pytest.mark.case("53")
@pytest.mark.parametrize("later", [True, False], ids=["late tokens join", "and are joined"])
def test_tokens_that_join_a_refused_set_wait_with_it_and_belong_to_its_account(later: bool) -> None:
    """The provider is not asked again at once, and a shared grant of that account is still found."""
    refused = Retired(
        kit.UPDATED, secrets("one"), (), registration="client", authorized_by="acme:user:1", tell_after=LATER
    )
    late = Retired(LATER, secrets("two"), (), registration="client")
    (both,) = merged([refused], late) if later else merged([late], refused)
    assert (LATER, "acme:user:1", 2) == (both.tell_after, both.authorized_by, len(both.refresh))


@pytest.mark.parametrize("newest_first", [True, False])
def test_only_so_many_are_kept_the_newest(newest_first):
    old, new = Retired(kit.UPDATED, secrets(*map(str, range(MOST)))), Retired(LATER, secrets("last"))
    both = new.and_also(old) if newest_first else old.and_also(new)
    assert (MOST, "last", str(MOST - 2)) == (len(both.refresh), both.refresh[0].reveal(), both.refresh[-1].reveal())


def test_of_many_late_tokens_the_last_one_is_told():
    """The provider has not answered for as long as this person connects and leaves again."""
    grant = kit.grant().tombstoned(kit.UPDATED)
    for number in range(MOST + 5):
        at = LATER + timedelta(minutes=number)
        grant = grant.owing(Retired.of(Secret(f"refresh-{number}"), Secret(f"access-{number}"), at))
    for kind, texts in zip(("refresh", "access"), revealed(grant.ended), strict=True):
        assert [f"{kind}-{number}" for number in range(MOST + 4, 4, -1)] == texts
    reported = grant.with_revocation_outcome(grant.ended, LATER)
    assert (["printed-refresh"], ["printed-access"]) == revealed(reported.ended), "the tombstone's own come next"


def test_they_are_in_no_repr():
    grant = kit.grant().owing(Retired.of(Secret("late-refresh"), Secret("late-access"), LATER))
    assert not any("late" in text for text in (repr(grant), repr(grant.retired), str(grant.retired)))


def of_client(name: str, *texts: str, at: Any = LATER) -> Retired:
    return Retired(at, secrets(*texts), (), registration=name, authorized_by="someone", tell_after=None)


def test_tokens_of_another_client_stay_apart_and_the_provider_hears_of_them_under_their_own():
    grant = kit.grant(registration="new").owing(of_client("old", "one")).owing(of_client("old", "two"))
    (part,) = parts_of(grant)
    assert ("old", "someone", True, None) == (part.registration, part.authorized_by, part.revoked, part.token)
    assert (["two", "one"], []) == revealed(part.ended)
    assert (None, True) == (grant.ended, grant.unfinished)
    reported = grant.with_revocation_outcome(part.ended, LATER)
    assert (kit.grant(registration="new"), ()) == (reported, parts_of(reported))


def test_a_refusal_of_another_client_postpones_that_one_alone():
    grant = kit.grant(registration="new").tombstoned(LATER).owing(of_client("old", "one"))
    later = LATER + timedelta(hours=1)
    own, others = parts_of(grant.with_revocation_retry(later, "old"))
    assert (None, later) == (own.tell_after, others.tell_after)
    own, others = parts_of(grant.with_revocation_retry(later, "new"))
    assert (later, None) == (own.tell_after, others.tell_after)
    assert grant.with_revocation_retry(later, "new").with_revocation_outcome(others.ended, LATER).tell_after == later


def test_records_without_the_newer_member_open_and_write_the_same_bytes():
    old = kit.grant(retired=Retired(LATER, secrets("r"), secrets("a")))
    assert b"elsewhere" not in old.to_plaintext()
    assert old == Grant.from_plaintext(old.to_plaintext())


@given(kit.grants, kit.grants, st.sampled_from(["token", "grant"]), st.booleans())
def test_a_new_grant_loses_no_earlier_token_and_revokes_none_that_it_may_share(old, new, reach, is_apart):
    """However often it is replaced: tokens that are not revoked at once are revoked when the new grant ends."""
    new = replace(new, revoked=False, revocation="none", retired=None, elsewhere=(), replaced=())
    passed = passed_on(old, new, app_with(reach), is_apart=is_apart)
    held = {text for grant in (new, passed) for text in tokens_of(grant)}
    own = () if old.revoked or old.token is None else (old,)
    lost = {text for grant in own for text in tokens_of(grant)} - held - {""}
    lost |= {text for part in parts_of(old) for text in chain(*revealed(part.ended))} - held - {""}
    assert set() == lost, "there is space for so few"
    assert not forgotten(old, passed, app_with(reach))
    ordered = {text for part in parts_of(old) for text in chain(*revealed(part.ended))}
    reported = {text for part in parts_of(passed) for text in chain(*revealed(part.ended))}
    if reach == "grant":
        assert reported <= ordered, "no person has ordered to revoke the others while the new grant lives"
    assert not reported & {secret.reveal() for secret in used(new)}
    ended = passed.tombstoned(LATER)
    assert (held | lost) - {""} <= {text for part in parts_of(ended) for text in chain(*revealed(part.ended))}
    assert () == ended.replaced


def app_with(reach: str) -> Any:
    return SimpleNamespace(revocation=SimpleNamespace(reach=reach, kind="rfc7009"))


def token_of(access: str, refresh: str) -> Token:
    token = kit.grant().token
    assert token is not None
    return replace(token, access_token=Secret(access), refresh_token=Secret(refresh))


def used(grant: Grant) -> tuple[Secret, ...]:
    token = grant.token
    found = () if token is None else (token.access_token, token.refresh_token, grant.refresh_state.spare)
    return tuple(secret for secret in found if secret)


def test_a_record_with_the_most_and_the_longest_tokens_fits_the_store():
    """A person connects again and again, with many clients and accounts, at a provider with tokens of 64 KiB."""
    app, grant = app_with("grant"), kit.grant(registration="client 0", authorized_by="one")
    for number in range(120):
        texts = [f"{kind}{number}".ljust(64 * 1024, '"') for kind in ("access", "refresh", "spare")]
        token = token_of(*texts[:2])
        by = {"registration": f"client {number % 7}", "authorized_by": f"account {number % 11}"}
        new = kit.grant(token=token, refresh_state=RefreshState(spare=Secret(texts[2])), **by)
        grant = passed_on(grant, new, app)
        late = Retired.of(Secret(f"late{number}".ljust(64 * 1024, '"')), None, LATER)
        grant = grant.owing(replace(late, registration=f"client {number % 5}"))
    assert len(grant.to_plaintext()) < MAX_BODY
    assert len(grant.tombstoned(LATER).to_plaintext()) < MAX_BODY


def test_of_many_accounts_each_has_a_set_of_its_own_and_the_oldest_go_with_a_word_for_the_audit_log():
    app, grant, words = app_with("grant"), kit.grant(authorized_by="account 0"), []
    for number in range(1, MOST_CLIENTS + 3):
        at = LATER + timedelta(minutes=number)
        token = token_of(f"a{number}", f"r{number}")
        old, new = grant, kit.grant(token=token, authorized_by=f"account {number}", updated_at=at)
        grant = passed_on(old, new, app)
        words.append(forgotten(old, grant, app))
    assert [False] * MOST_CLIENTS + [True] * 2 == words
    assert [f"account {number}" for number in range(MOST_CLIENTS + 1, 1, -1)] == [
        each.authorized_by for each in grant.replaced
    ]
