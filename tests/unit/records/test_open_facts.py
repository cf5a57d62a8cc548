"""Open facts in a grant's record: what a round of asking, a choice, another consent and a revocation make of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.authorization.new_grant import Verified, next_grant
from oauthbroker.core.secret import Secret
from oauthbroker.model.connection_facts import ConnectionFacts, FactRequest
from oauthbroker.model.owner_check import CheckedOwner
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.records import Grant
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.open_facts import LONGEST_PAUSE, Candidate, Learnt, OpenFacts, pause_after
from oauthbroker.records.provider_data import visible_to_tools, with_choice, with_learnt
from tests.kit.samples import NOW, app_with, grant_with, session_with, token_with

REQUEST = FactRequest(url="https://acme.example/sites", each={"site": "id"}, choose=True)
APP = app_with(facts=ConnectionFacts(requests=(REQUEST,)))
ONE, TWO = Candidate(label="One", facts={"site": "1"}), Candidate(label="Two", facts={"site": "2"})
BOTH = Learnt(candidates=(ONE, TWO))
MISSING = Learnt(missing=("site",))
ALICE, BOB = ("https://acme.example", "alice"), ("https://acme.example", "bob")


def consented(old: Grant | None, learnt: Learnt, number: int = 1, account: tuple[str, str] = ALICE) -> Grant:
    tokens = TokenResponse(
        access_token=Secret("at"), token_type="bearer", refresh_token=None, lifetime_seconds=600, scopes=None,
        id_token=None,
    )  # fmt: skip
    verified = Verified(tokens=tokens, owner=CheckedOwner(account), scopes=("read",), missing=(), learnt=learnt)
    session = session_with(locator=str(number) * 22)
    return next_grant(APP, session, verified, old, NOW, NOW + timedelta(minutes=number))


def ids(events: Any) -> list[str]:
    return [event.id[4:8] for event in events]


def test_a_record_comes_back_as_it_was_and_one_without_open_facts_has_no_such_member() -> None:
    for grant in (consented(None, BOTH), consented(None, MISSING), with_choice(consented(None, BOTH), 1)):
        again = Grant.from_plaintext(grant.to_plaintext())
        assert (grant.open_facts, grant.chosen, grant.provider_data) == (
            again.open_facts,
            again.chosen,
            again.provider_data,
        )
    bare = grant_with().to_plaintext()
    assert b"openFacts" not in bare
    assert b"chosen" not in bare


def test_events_wait_for_the_choice_those_of_earlier_consents_too() -> None:
    first = consented(None, BOTH, 1)
    second = consented(first, BOTH, 2)
    assert ([], ["as-1", "as-2"]) == (ids(second.outbox), ids(second.open_facts.held if second.open_facts else ()))
    chosen = with_choice(second, 0)
    assert (["as-1", "as-2"], None, "One", {"site": "1"}) == (
        ids(chosen.outbox),
        chosen.open_facts,
        chosen.chosen,
        chosen.provider_data,
    )
    assert [0, 0] == [event.order for event in chosen.outbox], "numbered when they leave, not when they were made"


def test_a_consent_that_needs_no_choice_lets_the_held_events_go() -> None:
    assert ["as-1", "as-2"] == ids(consented(consented(None, BOTH, 1), Learnt(facts={"site": "1"}), 2).outbox)


def test_a_revocation_lets_the_held_events_go_and_forgets_the_candidates() -> None:
    ended = consented(None, BOTH).tombstoned(NOW)
    assert (["as-1"], None) == (ids(ended.outbox), ended.open_facts)


KEPT = with_choice(consented(None, BOTH), 1)
NEXT: dict[str, tuple[Grant | None, Learnt, tuple[str, str], dict[str, Any], str, bool]] = {
    "the same account, the same list": (KEPT, BOTH, ALICE, {"site": "2"}, "Two", False),
    "the same account, another list": (KEPT, Learnt(candidates=(ONE, replace(ONE, facts={"site": "3"}))), ALICE, {}, "", True),
    "the same account, one left": (KEPT, Learnt(facts={"site": "1"}, label="One"), ALICE, {"site": "1"}, "One", False),
    "the same account, no answer": (KEPT, MISSING, ALICE, {"site": "2"}, "Two", False),
    "another account": (KEPT, BOTH, BOB, {}, "", True),
    "another account, no answer": (KEPT, MISSING, BOB, {}, "", True),
    "after a revocation": (KEPT.tombstoned(NOW), BOTH, ALICE, {}, "", True),
    "no grant before": (None, BOTH, ALICE, {}, "", True),
}  # fmt: skip


@pytest.mark.parametrize("old, learnt, account, data, chosen, is_open", NEXT.values(), ids=list(NEXT))
def test_what_the_next_consent_keeps(
    old: Grant | None, learnt: Learnt, account: tuple[str, str], data: Any, chosen: str, is_open: bool
) -> None:
    grant = consented(old, learnt, 2, account)
    assert (data, chosen, is_open) == (grant.provider_data, grant.chosen, grant.open_facts is not None)


def test_missing_facts_make_a_grant_unfinished_and_each_try_doubles_the_pause() -> None:
    grant = replace(consented(None, MISSING), outbox=())
    assert grant.unfinished
    for tries, seconds in ((2, 4), (3, 8), (4, 16)):
        grant = with_learnt(grant, MISSING, grant, NOW)
        assert grant.open_facts == OpenFacts(missing=("site",), tries=tries, ask_after=NOW + timedelta(seconds=seconds))
    assert not with_learnt(grant, Learnt(facts={"site": "1"}), grant, NOW).unfinished


@pytest.mark.parametrize("tries, seconds", [(1, 2), (2, 4), (11, 2048), (12, 3600), (10_000, 3600)])
def test_a_pause_ends_after_an_hour(tries: int, seconds: int) -> None:
    assert timedelta(seconds=seconds) == pause_after(tries) <= LONGEST_PAUSE


@pytest.mark.parametrize("number", [-1, 2, 100])
def test_only_a_candidate_can_be_chosen(number: int) -> None:
    with pytest.raises(IndexError):
        with_choice(consented(None, BOTH), number)


def test_a_refresh_under_way_keeps_the_facts_that_were_stored_meanwhile() -> None:
    token = KEPT.token
    assert token is not None
    refreshed = KEPT.refreshed(token, KEPT.scopes, NOW, {"host": "https://eu.acme.example"})
    assert {"site": "2", "host": "https://eu.acme.example"} == refreshed.provider_data


def test_a_grant_that_waits_for_a_choice_needs_its_user() -> None:
    assert "again" == GrantView.of(consented(None, BOTH), APP, NOW).health
    assert "alive" == GrantView.of(replace(KEPT, token=token_with(lives=None)), APP, NOW).health


def test_facts_are_told_to_tools_and_candidates_are_not() -> None:
    assert {} == visible_to_tools(APP, consented(None, BOTH))
    assert {"site": "2"} == visible_to_tools(APP, KEPT)
    assert "1" not in repr(consented(None, BOTH).open_facts).replace("2 to choose", "")
