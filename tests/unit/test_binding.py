"""Who may finish whose session: the account that came back against the subject that asked, byte for byte."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.apps import Endpoints, IdentityRule, Owner
from oauthbroker.binding import OwnerFacts, OwnerVerdict, check_pin, judge_owner
from oauthbroker.errors import BrokerError, Code
from tests.nouns import app_with

RULE = IdentityRule("idToken", "idp:user:{sub}")
TEAM_RULE = IdentityRule("userInfo", "idp:team:{team}")
ISSUER = "https://idp.example"
ENDPOINTS = Endpoints("https://idp.example/authorize", "https://idp.example/token", issuer=ISSUER)

USER = app_with(endpoints=ENDPOINTS, owner=Owner(user_identity=RULE))
LOCAL = app_with(endpoints=ENDPOINTS, owner=Owner(binding="localOperator"))
BLIND = app_with(endpoints=ENDPOINTS, owner=Owner())
SHARED = app_with(
    endpoints=ENDPOINTS,
    subject_mode="global",
    owner=Owner(global_identity=TEAM_RULE, user_identity=RULE, authorizers=("idp:user:1", "idp:user:2")),
)
OPEN = app_with(
    endpoints=ENDPOINTS, subject_mode="global", owner=Owner(global_identity=TEAM_RULE, authorizers="anyone")
)
NOBODY = app_with(
    endpoints=ENDPOINTS, subject_mode="global", owner=Owner(global_identity=TEAM_RULE, user_identity=RULE)
)
VERIFIED = (ISSUER, "1")


@pytest.mark.rule("12.5.6-5")
@pytest.mark.parametrize(
    "app, subject, facts, verdict",
    [
        (USER, "idp:user:1", OwnerFacts(None, "idp:user:1"), OwnerVerdict((ISSUER, "idp:user:1"), "idp:user:1")),
        (USER, "idp:user:1", OwnerFacts(None, "idp:user:1", VERIFIED), OwnerVerdict(VERIFIED, "idp:user:1")),
        (LOCAL, "me", OwnerFacts(), OwnerVerdict(None, None)),
        (LOCAL, "me", OwnerFacts(account=VERIFIED), OwnerVerdict(VERIFIED, None)),
        (
            SHARED,
            "idp:team:1",
            OwnerFacts("idp:team:1", "idp:user:2", VERIFIED),
            OwnerVerdict((ISSUER, "idp:team:1"), "idp:user:2"),
        ),
        (OPEN, "idp:team:1", OwnerFacts("idp:team:1"), OwnerVerdict((ISSUER, "idp:team:1"), None)),
    ],
)
def test_the_right_owner_passes_and_is_the_one_that_is_pinned(app, subject, facts, verdict) -> None:
    assert verdict == judge_owner(app, subject, facts)


@pytest.mark.rule("12.5.6-5")
@pytest.mark.case("38", "40", "42")
@pytest.mark.parametrize(
    "app, subject, facts, code",
    [
        (USER, "idp:user:1", OwnerFacts(None, "idp:user:2"), Code.SUBJECT_MISMATCH),
        (USER, "idp:user:1", OwnerFacts("idp:user:1", None), Code.SUBJECT_UNVERIFIABLE),
        (USER, "idp:user:1", OwnerFacts(None, None, (ISSUER, "idp:user:1")), Code.SUBJECT_UNVERIFIABLE),
        (BLIND, "idp:user:1", OwnerFacts(None, "idp:user:1"), Code.SUBJECT_UNVERIFIABLE),
        (SHARED, "idp:team:1", OwnerFacts("idp:team:2", "idp:user:1"), Code.SUBJECT_MISMATCH),
        (SHARED, "idp:team:1", OwnerFacts(None, "idp:user:1"), Code.SUBJECT_UNVERIFIABLE),
        (SHARED, "idp:team:1", OwnerFacts("idp:team:1", "idp:user:3"), Code.SUBJECT_FORBIDDEN),
        (SHARED, "idp:team:1", OwnerFacts("idp:team:1", None), Code.SUBJECT_UNVERIFIABLE),
        (NOBODY, "idp:team:1", OwnerFacts("idp:team:1", "idp:user:1"), Code.SUBJECT_FORBIDDEN),
        (OPEN, "idp:team:1", OwnerFacts("idp:team:2"), Code.SUBJECT_MISMATCH),
    ],
)
def test_everybody_else_is_refused(app, subject, facts, code) -> None:
    with pytest.raises(BrokerError) as caught:
        judge_owner(app, subject, facts)
    assert (code, "") == (caught.value.code, caught.value.note)


@pytest.mark.case("39")
@pytest.mark.parametrize(
    "near",
    [
        "idp:user:É",
        "idp:user:é ",
        " idp:user:é",
        unicodedata.normalize("NFD", "idp:user:é"),
        "IDP:user:é",
        "idp:user:é\0",
        "idp:user:e",
        "idp:user:é\u200d",
        "idp:user",
        "",
    ],
    ids=ascii,
)
def test_a_near_miss_is_a_miss(near: str) -> None:
    for app, facts, subject in (
        (USER, OwnerFacts(None, near), "idp:user:é"),
        (SHARED, OwnerFacts(near, "idp:user:1"), "idp:user:é"),
    ):
        with pytest.raises(BrokerError) as caught:
            judge_owner(app, subject, facts)
        assert Code.SUBJECT_MISMATCH is caught.value.code


@pytest.mark.case("39")
@given(st.text(max_size=20), st.text(max_size=20))
def test_only_the_same_bytes_are_the_same_person(subject: str, came: str) -> None:
    if subject == came:
        assert came == judge_owner(USER, subject, OwnerFacts(None, came)).authorized_by
        return
    with pytest.raises(BrokerError) as caught:
        judge_owner(USER, subject, OwnerFacts(None, came))
    assert Code.SUBJECT_MISMATCH is caught.value.code


@pytest.mark.case("39")
def test_the_issuer_is_part_of_who_somebody_is() -> None:
    """The same `sub` of another issuer is another account once one is pinned."""
    mine = judge_owner(USER, "idp:user:1", OwnerFacts(None, "idp:user:1", (ISSUER, "1"))).account
    other = judge_owner(USER, "idp:user:1", OwnerFacts(None, "idp:user:1", ("https://evil.example", "1"))).account
    with pytest.raises(BrokerError) as caught:
        check_pin(mine, other, switch_account=False)
    assert Code.SUBJECT_MISMATCH is caught.value.code


@pytest.mark.case("41")
@pytest.mark.parametrize(
    "pinned, came, switch, passes",
    [
        (None, VERIFIED, False, True),
        (None, None, False, True),
        (VERIFIED, VERIFIED, False, True),
        (VERIFIED, (ISSUER, "2"), False, False),
        (VERIFIED, None, False, False),
        (VERIFIED, (ISSUER, "2"), True, True),
        (VERIFIED, ("https://evil.example", "1"), False, False),
    ],
)
def test_the_first_account_stays_until_somebody_says_switch(pinned, came, switch, passes) -> None:
    if passes:
        check_pin(pinned, came, switch_account=switch)
        return
    with pytest.raises(BrokerError) as caught:
        check_pin(pinned, came, switch_account=switch)
    assert Code.SUBJECT_MISMATCH is caught.value.code


def test_what_a_provider_said_of_people_is_never_printed() -> None:
    assert "OwnerFacts(...)" == repr(OwnerFacts("idp:team:1", "idp:user:1", VERIFIED))
