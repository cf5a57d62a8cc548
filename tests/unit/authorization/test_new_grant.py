"""The grant that a consent leads to: the values taken over from the one before, and those begun anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.authorization.new_grant import Verified, granted_event, next_grant
from oauthbroker.core.secret import Secret
from oauthbroker.model.owner_check import CheckedOwner
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.static_credential import CredentialField, Placement, StaticCredential
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.records import Grant, RefreshState
from oauthbroker.records.connection_event import session_event
from oauthbroker.records.open_facts import Candidate, OpenFacts
from tests.kit.samples import NOW, app_with, grant_with, session_with, token_with
from tests.unit.authorization.finish_kit import tokens_with

APP, SESSION = app_with(), session_with(scopes=("read", "write"))
ALICE = "https://acme.example", "alice"
LATER = NOW + timedelta(days=1)
OLD = grant_with(
    registration=APP.registration,
    pinned=ALICE,
    token=token_with(refresh_token=Secret("rt-old")),
    declined={"write": 1},
)


def consented(old: Grant | None, refresh: str | None = None, missing: tuple[str, ...] = (), **owner: Any) -> Grant:
    tokens = TokenResponse(
        access_token=Secret("at-new"), token_type="bearer", lifetime_seconds=600, scopes=None, id_token=None,
        refresh_token=Secret(refresh) if refresh is not None else None,
    )  # fmt: skip
    checked = CheckedOwner(**{"account": ALICE, "authorized_by": None, **owner})
    scopes = tuple(scope for scope in SESSION.scopes if scope not in missing)
    verified = Verified(tokens=tokens, owner=checked, scopes=scopes, missing=missing)
    return next_grant(APP, SESSION, verified, old, NOW, LATER)


def refresh_of(grant: Grant) -> str | None:
    assert grant.token is not None
    return grant.token.refresh_token.reveal() if grant.token.refresh_token is not None else None


def test_a_first_grant_holds_x_and_its_event() -> None:
    grant = consented(None, "rt-new")
    assert ("mail", "acme", "acme:user:1", "authorization_code") == (
        grant.app, grant.provider, grant.subject, grant.flow,
    )  # fmt: skip
    assert (("read", "write"), ALICE, SESSION.id) == (grant.scopes, grant.pinned, grant.auth_session_id)
    assert (LATER, LATER, APP.registration) == (grant.created_at, grant.updated_at, grant.registration)
    assert (granted_event(SESSION, grant, LATER),) == grant.outbox
    assert "rt-new" == refresh_of(grant)


def test_its_token_lives_from_when_it_was_asked_for() -> None:
    token = consented(None).token
    assert token is not None
    assert NOW + timedelta(seconds=600) == token.expires_at


@pytest.mark.parametrize(
    ("old", "came", "owner", "expected"),
    [
        (OLD, None, {}, "rt-old"),
        (OLD, "rt-new", {}, "rt-new"),
        (None, None, {}, None),
        (OLD, None, {"account": (ALICE[0], "bob")}, None),
        (replace(OLD, pinned=None), None, {"account": None}, None),
        (replace(OLD, registration="another"), None, {}, None),
        (replace(OLD, revoked=True), None, {}, None),
        (replace(OLD, refresh_state=RefreshState(ended="dead")), None, {}, None),
        (replace(OLD, refresh_state=RefreshState(spare=Secret("rt-spare"))), None, {}, "rt-spare"),
    ],
)
def test_a_refresh_token_is_kept_only_for_the_same_account_and_client(
    old: Grant | None, came: str | None, owner: dict[str, Any], expected: str | None
) -> None:
    assert expected == refresh_of(consented(old, came, **owner))


@pytest.mark.parametrize(("came", "expected"), [("rt-new", False), (None, True)])
def test_a_consent_verifies_a_grant_unless_it_keeps_the_unverified_refresh_token(
    came: str | None, expected: bool
) -> None:
    """Of an imported grant: nothing has shown yet whose that token is. The next refresh does."""
    assert expected is consented(replace(OLD, unverified=True), came).unverified
    assert not consented(OLD, came).unverified


@pytest.mark.parametrize(
    ("old", "expected"),
    [(OLD, NOW), (replace(OLD, revoked=True), LATER), (replace(OLD, registration="another"), LATER), (None, LATER)],
)
def test_a_grant_is_as_old_as_the_first_consent_of_its_client(old: Grant | None, expected: Any) -> None:
    assert expected == consented(old).created_at


@pytest.mark.parametrize(
    ("old", "missing", "owner", "expected"),
    [
        (OLD, ("write",), {}, {"write": 2}),
        (OLD, (), {}, {}),
        (None, ("write",), {}, {"write": 1}),
        (replace(OLD, revoked=True), ("write",), {}, {"write": 1}),
        (OLD, ("write",), {"account": (ALICE[0], "bob")}, {"write": 1}),
        (replace(OLD, declined={"admin": 3}), ("write",), {}, {"admin": 3, "write": 1}),
    ],
)
def test_scopes_that_were_declined_are_counted_in_a_row(
    old: Grant | None, missing: tuple[str, ...], owner: dict[str, Any], expected: dict[str, int]
) -> None:
    grant = consented(old, missing=missing, **owner)
    assert expected == grant.declined
    assert list(missing) == grant.outbox[-1].payload.get("scopesMissing", [])


TYPED = StaticCredential(
    fields=(CredentialField(name="key", title="Key"),), placement=Placement(kind="headers", texts={"name": "{key}"})
)
FASTER = replace(OLD, scopes=("read", "write", "admin"))
DEAD = {"refresh_state": RefreshState(ended="dead"), "token": token_with(expires_at=NOW)}


@pytest.mark.parametrize(
    ("old", "changes", "is_kept"),
    [
        ({}, {}, True),
        ({"scopes": ("read", "write")}, {}, False),
        ({"scopes": ("write", "admin")}, {}, False),
        ({"pinned": (ALICE[0], "bob")}, {}, False),
        ({"pinned": None}, {"account": None}, False),
        ({"revoked": True}, {}, False),
        ({"registration": "another"}, {}, False),
        ({"open_facts": OpenFacts(candidates=(Candidate(label="S", facts={}),))}, {}, False),
        (DEAD, {}, False),
        ({**DEAD, "token": token_with(expires_at=LATER + timedelta(seconds=60))}, {}, True),
        ({}, {"switch_account": True}, False),
        ({}, {"claims": "{}"}, False),
        ({}, {"credential": True}, False),
    ],
    ids=[
        "another link's consent was faster", "this consent was asked for all of it", "this consent brings a scope",
        "another account's", "an account that is unknown", "revoked", "another client's", "a choice is open", "dead",
        "alive without refreshes", "the account is switched", "claims are demanded", "a credential was typed",
    ],
)  # fmt: skip
def test_a_consent_that_was_not_asked_for_scopes_of_a_faster_one_replaces_it_only_where_it_has_to(
    old: dict[str, Any], changes: dict[str, Any], is_kept: bool
) -> None:
    account = changes.pop("account", ALICE)
    app = replace(APP, credential=TYPED) if changes.pop("credential", False) else APP
    tokens = tokens_with("at-new", "rt-new")
    verified = Verified(tokens=tokens, owner=CheckedOwner(account), scopes=("read", "write"), missing=())
    grant = next_grant(
        app,
        replace(SESSION, **changes),
        verified,
        replace(FASTER, **{"registration": app.registration, **old}),
        NOW,
        LATER,
    )
    assert is_kept is (grant.token is not None and "at-new" != grant.token.access_token.reveal())


@pytest.mark.parametrize(("reach", "at_once"), [("token", True), ("grant", False)])
def test_tokens_that_were_not_needed_are_revoked_or_wait_for_the_end_of_the_grant_that_they_could_end(
    reach: Any, at_once: bool
) -> None:
    app = replace(APP, revocation=Revocation(kind="rfc7009", reach=reach))
    verified = Verified(tokens=tokens_with(), owner=CheckedOwner(ALICE, SESSION.subject), scopes=("read",), missing=())
    grant = next_grant(app, SESSION, verified, FASTER, NOW, LATER)
    unused = grant.retired if at_once else grant.replaced[0]
    assert unused is not None
    assert ["rt-new", "at-new"] == [each.reveal() for each in unused.secrets]
    assert (FASTER.scopes, FASTER.outbox) == (grant.scopes, grant.outbox), "its own session tells of this consent"


def test_events_that_are_not_queued_yet_stay_before_the_new_one() -> None:
    waiting = session_event(session_with(locator="M" * 22), "auth.granted", NOW)
    assert [waiting.id, f"evt-{SESSION.id}-auth.granted"] == [
        event.id for event in consented(replace(OLD, outbox=(waiting,))).outbox
    ]
    assert waiting.id == consented(replace(OLD, outbox=(waiting,), registration="another")).outbox[0].id


def test_an_event_names_app_subject_and_session_and_no_secret() -> None:
    event = session_event(SESSION, "auth.failed", NOW, code="providerDenied")
    assert {
        "oauthAppRef": {"kind": "OAuthApp", "name": "mail"},
        "provider": "acme",
        "subject": "acme:user:1",
        "authSessionId": SESSION.id,
        "code": "providerDenied",
    } == event.payload
