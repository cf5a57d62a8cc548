"""Who may finish whose session: the account that came back against the subject that asked, byte for byte."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints, IdentityRule, Owner
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.owner_check import (
    LONGEST_PART,
    CheckedOwner,
    OwnerFacts,
    check_owner,
    check_pin,
    check_same_owner,
    spelling,
)
from tests.kit.samples import app_with

RULE = IdentityRule("idToken", "idp:user:{sub}")
TEAM_RULE = IdentityRule("userInfo", "idp:team:{team}")
ISSUER = "https://idp.example"
ENDPOINTS = Endpoints(
    authorization_url="https://idp.example/authorize", token_url="https://idp.example/token", issuer=ISSUER
)

USER = app_with(endpoints=ENDPOINTS, owner=Owner(user_identity=RULE))
LOCAL = app_with(endpoints=ENDPOINTS, owner=Owner(binding="localOperator"))
LOCAL_KNOWN = app_with(endpoints=ENDPOINTS, owner=Owner(binding="localOperator", user_identity=RULE))
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
    "app, subject, facts, result",
    [
        (USER, "idp:user:1", OwnerFacts(None, "idp:user:1"), CheckedOwner((ISSUER, "idp:user:1"), "idp:user:1")),
        (USER, "idp:user:1", OwnerFacts(None, "idp:user:1", VERIFIED), CheckedOwner(VERIFIED, "idp:user:1")),
        (LOCAL, "me", OwnerFacts(), CheckedOwner(None, None)),
        (LOCAL, "me", OwnerFacts(account=VERIFIED), CheckedOwner(VERIFIED, None)),
        (LOCAL_KNOWN, "me", OwnerFacts(None, "idp:user:1", VERIFIED), CheckedOwner(VERIFIED, "idp:user:1")),
        (LOCAL_KNOWN, "idp:user:1", OwnerFacts(None, "idp:user:1", VERIFIED), CheckedOwner(VERIFIED, "idp:user:1")),
        (
            SHARED,
            "idp:team:1",
            OwnerFacts("idp:team:1", "idp:user:2", VERIFIED),
            CheckedOwner((ISSUER, "idp:team:1"), "idp:user:2"),
        ),
        (OPEN, "idp:team:1", OwnerFacts("idp:team:1"), CheckedOwner((ISSUER, "idp:team:1"), None)),
    ],
)
def test_the_right_owner_passes_and_is_the_one_that_is_pinned(app, subject, facts, result) -> None:
    assert result == check_owner(app, subject, facts)


@pytest.mark.rule("12.5.6-5")
@pytest.mark.case("38", "40", "42")
@pytest.mark.parametrize(
    "app, subject, facts, code",
    [
        (USER, "idp:user:1", OwnerFacts(None, "idp:user:2"), Code.SUBJECT_MISMATCH),
        (USER, "idp:user:1", OwnerFacts("idp:user:1", None), Code.SUBJECT_UNVERIFIABLE),
        (USER, "idp:user:1", OwnerFacts(None, None, (ISSUER, "idp:user:1")), Code.SUBJECT_UNVERIFIABLE),
        (LOCAL_KNOWN, "idp:user:1", OwnerFacts(None, "idp:user:2", VERIFIED), Code.SUBJECT_MISMATCH),
        (LOCAL_KNOWN, "idp:user:1", OwnerFacts(None, None, VERIFIED), Code.SUBJECT_UNVERIFIABLE),
        (BLIND, "idp:user:1", OwnerFacts(None, "idp:user:1"), Code.SUBJECT_UNVERIFIABLE),
        (SHARED, "idp:team:1", OwnerFacts("idp:team:2", "idp:user:1"), Code.SUBJECT_MISMATCH),
        (SHARED, "idp:team:1", OwnerFacts(None, "idp:user:1"), Code.SUBJECT_UNVERIFIABLE),
        (SHARED, "idp:team:1", OwnerFacts("idp:team:1", "idp:user:3"), Code.SUBJECT_FORBIDDEN),
        (SHARED, "idp:team:1", OwnerFacts("idp:team:1", None), Code.SUBJECT_UNVERIFIABLE),
        (NOBODY, "idp:team:1", OwnerFacts("idp:team:1", "idp:user:1"), Code.SUBJECT_FORBIDDEN),
        (OPEN, "idp:team:1", OwnerFacts("idp:team:2"), Code.SUBJECT_MISMATCH),
    ],
)
def test_every_other_account_is_refused(app, subject, facts, code) -> None:
    with pytest.raises(BrokerError) as caught:
        check_owner(app, subject, facts)
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
            check_owner(app, subject, facts)
        assert Code.SUBJECT_MISMATCH is caught.value.code


@pytest.mark.case("39")
@given(st.text(max_size=20), st.text(max_size=20))
def test_only_the_same_bytes_are_the_same_person(subject: str, came: str) -> None:
    if subject == came:
        assert came == check_owner(USER, subject, OwnerFacts(None, came)).authorized_by
        return
    with pytest.raises(BrokerError) as caught:
        check_owner(USER, subject, OwnerFacts(None, came))
    assert Code.SUBJECT_MISMATCH is caught.value.code


@pytest.mark.case("39")
def test_the_issuer_is_part_of_the_account() -> None:
    """The same `sub` of another issuer is another account once one is pinned."""
    mine = check_owner(USER, "idp:user:1", OwnerFacts(None, "idp:user:1", (ISSUER, "1"))).account
    other = check_owner(USER, "idp:user:1", OwnerFacts(None, "idp:user:1", ("https://evil.example", "1"))).account
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
def test_the_first_account_stays_until_a_switch_is_asked_for(pinned, came, switch, passes) -> None:
    if passes:
        check_pin(pinned, came, switch_account=switch)
        return
    with pytest.raises(BrokerError) as caught:
        check_pin(pinned, came, switch_account=switch)
    assert Code.SUBJECT_MISMATCH is caught.value.code


def test_what_a_provider_said_of_people_is_never_printed() -> None:
    assert "OwnerFacts(...)" == repr(OwnerFacts("idp:team:1", "idp:user:1", VERIFIED))


CONFIRMED = ("runtimeConfirm", "channelCode", "brokerLogin")
each_confirmation = pytest.mark.parametrize("binding", CONFIRMED)


def confirmed(app: App, binding: str) -> App:
    return replace(app, owner=replace(app.owner, binding=binding))  # type: ignore[arg-type]


@pytest.mark.rule("12.5.6-5")
@each_confirmation
@pytest.mark.parametrize(
    "app, subject, facts, result",
    [
        (BLIND, "acme:7", OwnerFacts(), CheckedOwner(None, None)),
        (BLIND, "acme:7", OwnerFacts(account=VERIFIED), CheckedOwner(VERIFIED, None)),
        (USER, "acme:7", OwnerFacts(None, "idp:user:2"), CheckedOwner((ISSUER, "idp:user:2"), "idp:user:2")),
        (USER, "idp:user:1", OwnerFacts(None, "idp:user:1"), CheckedOwner((ISSUER, "idp:user:1"), "idp:user:1")),
        (OPEN, "idp:team:1", OwnerFacts("idp:team:1"), CheckedOwner((ISSUER, "idp:team:1"), None)),
    ],
)
def test_a_confirmation_stands_in_for_a_comparison_that_is_impossible(binding, app, subject, facts, result) -> None:
    assert result == check_owner(confirmed(app, binding), subject, facts, confirmed=True)
    with pytest.raises(BrokerError) as caught:
        check_owner(confirmed(app, binding), subject, facts)
    assert Code.SUBJECT_UNVERIFIABLE is caught.value.code, "with any answer of the provider, the owner is not verified"


@pytest.mark.rule("12.5.6-5")
@pytest.mark.case("38", "42")
@each_confirmation
@pytest.mark.parametrize(
    "app, subject, facts, code",
    [
        (USER, "idp:user:1", OwnerFacts(None, "idp:user:2"), Code.SUBJECT_MISMATCH),
        (USER, "idp:user:1", OwnerFacts(), Code.SUBJECT_UNVERIFIABLE),
        (OPEN, "idp:team:1", OwnerFacts("idp:team:2"), Code.SUBJECT_MISMATCH),
        (OPEN, "acme:team", OwnerFacts("idp:team:2"), Code.SUBJECT_MISMATCH),
        (SHARED, "idp:team:1", OwnerFacts("idp:team:1", "idp:user:3"), Code.SUBJECT_FORBIDDEN),
        (SHARED, "idp:team:1", OwnerFacts("idp:team:1"), Code.SUBJECT_UNVERIFIABLE),
    ],
)
def test_comparable_accounts_are_compared_in_spite_of_a_confirmation(binding, app, subject, facts, code) -> None:
    with pytest.raises(BrokerError) as caught:
        check_owner(confirmed(app, binding), subject, facts, confirmed=True)
    assert code is caught.value.code


ANOTHER = (ISSUER, "2")
MINE = ("idp:user:1", VERIFIED, "idp:user:1")
TEAMS = ("idp:team:1", (ISSUER, "idp:team:1"), "idp:user:2")
BY_ANYBODY = ("idp:team:1", (ISSUER, "idp:team:1"), None)
LOCALS = ("me", VERIFIED, None)


@pytest.mark.case("62")
@pytest.mark.parametrize(
    "app, grant, facts, same",
    [
        (USER, MINE, OwnerFacts(), True),
        (USER, MINE, OwnerFacts(None, "idp:user:1", VERIFIED), True),
        (USER, MINE, OwnerFacts(None, "idp:user:2", VERIFIED), False),
        (USER, MINE, OwnerFacts(None, "idp:user:1", ANOTHER), False),
        (USER, MINE, OwnerFacts(None, None, ANOTHER), False),
        (USER, ("idp:user:1", None, "idp:user:1"), OwnerFacts(None, None, ANOTHER), True),
        (LOCAL, LOCALS, OwnerFacts(None, None, VERIFIED), True),
        (LOCAL, LOCALS, OwnerFacts(None, None, ANOTHER), False),
        (SHARED, TEAMS, OwnerFacts(), True),
        (SHARED, TEAMS, OwnerFacts("idp:team:1", "idp:user:2", VERIFIED), True),
        (SHARED, TEAMS, OwnerFacts("idp:team:2"), False),
        (SHARED, TEAMS, OwnerFacts(None, "idp:user:3"), False),
        (OPEN, BY_ANYBODY, OwnerFacts(None, "idp:user:3"), True),
    ],
)
def test_what_a_refresh_says_of_its_owner_must_be_what_the_grant_was_made_for(app, grant, facts, same: bool) -> None:
    subject, pinned, authorized_by = grant
    if same:
        check_same_owner(app, GrantKey("mail", subject), pinned, authorized_by, facts)
        return
    with pytest.raises(BrokerError) as caught:
        check_same_owner(app, GrantKey("mail", subject), pinned, authorized_by, facts)
    assert Code.SUBJECT_MISMATCH is caught.value.code


@pytest.mark.case("62")
@each_confirmation
def test_a_refresh_is_compared_with_the_account_that_came_first(binding) -> None:
    """The subject is the runtime's own; the account is known all the same."""
    app, first = confirmed(USER, binding), OwnerFacts(None, "idp:user:1")
    for facts in (first, OwnerFacts()):
        check_same_owner(app, GrantKey("mail", "acme:7"), (ISSUER, "idp:user:1"), "idp:user:1", facts)
    check_same_owner(app, GrantKey("mail", "acme:7"), None, None, first)
    with pytest.raises(BrokerError) as caught:
        check_same_owner(
            app, GrantKey("mail", "acme:7"), (ISSUER, "idp:user:1"), "idp:user:1", OwnerFacts(None, "idp:user:2")
        )
    assert Code.SUBJECT_MISMATCH is caught.value.code


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=30))
def test_a_confirmation_alone_is_not_enough_where_the_provider_is_asked(subject) -> None:
    for app in (USER, BLIND):
        with pytest.raises(BrokerError):
            check_owner(app, subject, OwnerFacts(None, f"{subject}x"), confirmed=True)


@pytest.mark.parametrize(
    ("template", "claims", "is_spelt"),
    [
        ("idp:user:{sub}", "idp:user:1", True),
        ("idp:user:{sub}", "idp:team:1", False),
        ("idp:user:{sub}", "idp:user:", False),
        ("idp:user:{sub}", "idp:user:1:2", False),
        ("idp:user:{team.id}:{sub}", "idp:user:1:2", True),
        ("idp:user:{*sub}", "idp:user:1:2", True),
        ("idp:user:{sub}", "idp:user:" + "a" * LONGEST_PART, True),
        ("idp:user:{sub}", "idp:user:" + "a" * (LONGEST_PART + 1), False),
        ("a.b:{sub}", "axb:1", False),
    ],
)
def test_an_identity_is_spelt_as_the_claims_of_its_template_allow(template: str, claims: str, is_spelt: bool):
    assert is_spelt == bool(spelling(template).fullmatch(claims))
