"""Records are what the specification prints (12.5.4, 12.5.5), survive the store, and only move the legal way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.protocol.callback_checks import LOCATED
from oauthbroker.records import AgentEvent, Attempt, AuthSession, Claim, ClaimedSession, Grant, codec, grant_id
from oauthbroker.records.auth_session import MAX_PRESSES
from oauthbroker.records.pending_code import MAX_TRIES
from tests.unit.records import kit

Record = type[Grant] | type[AuthSession] | type[AgentEvent]


@pytest.mark.rule("12.5.4")
def test_a_grant_is_written_as_the_specification_prints_it():
    data = json.loads(kit.grant().to_plaintext())
    assert "agents.example.io/v1alpha1" == data["apiVersion"]
    assert "OAuthGrantRecord" == data["kind"]
    assert {"name": grant_id("slack-bot", "slack:team:T111")} == data["metadata"]
    assert {
        "provider": "slack",
        "oauthAppRef": {"kind": "OAuthApp", "name": "slack-bot"},
        "subject": "slack:team:T111",
        "flow": "authorization_code",
        "scopesGranted": ["chat:write", "channels:read"],
        "token": {
            "tokenType": "bearer",
            "accessToken": "printed-access",
            "refreshToken": "printed-refresh",
            "expiresAt": "2026-02-01T10:00:00Z",
        },
        "createdAt": "2026-01-31T09:10:01Z",
        "updatedAt": "2026-01-31T09:10:01Z",
        "revoked": False,
        "providerData": {},
    } == data["spec"]


@pytest.mark.rule("12.5.4")
def test_a_token_without_refresh_or_end_prints_neither():
    token = replace(kit.grant().token, refresh_token=None, expires_at=None, lifetime_seconds=None)  # type: ignore[type-var]
    spec = json.loads(kit.grant(token=token).to_plaintext())["spec"]
    assert {"tokenType", "accessToken"} == set(spec["token"])


@pytest.mark.rule("12.5.5")
def test_a_session_is_written_as_the_specification_prints_it():
    data = json.loads(kit.session().to_plaintext())
    assert "agents.example.io/v1alpha1" == data["apiVersion"]
    assert "AuthSessionRecord" == data["kind"]
    assert {"name": "as-4f2c9aAAAAAAAAAAAAAAAA"} == data["metadata"]
    assert {
        "provider": "slack",
        "oauthAppRef": {"kind": "OAuthApp", "name": "slack-bot"},
        "subjectMode": "global",
        "subject": "slack:team:T111",
        "requestedScopes": ["chat:write", "channels:read"],
        "flow": {
            "type": "authorization_code",
            "pkce": {"method": "S256", "codeVerifier": "printed-verifier", "codeChallenge": "derived"},
            "state": "printed-state",
        },
        "status": "pending",
        "createdAt": "2026-01-31T09:10:01Z",
        "expiresAt": "2026-01-31T09:20:01Z",
        "resume": kit.PRINTED_RESUME,
    } == data["spec"]


@pytest.mark.rule("12.5.5", "12.5.7")
def test_the_session_of_a_device_code_says_so_where_the_other_has_its_verifier():
    session = kit.session(attempt=Attempt.none(), device=kit.device())
    assert {
        "type": "device_code",
        "deviceCode": "printed-device-code",
        "userCode": "WDJB-MJHT",
        "verificationUri": "https://slack.example/device",
        "verificationUriComplete": "https://slack.example/device?user_code=WDJB-MJHT",
        "interval": 5,
        "nextPollAt": "2026-01-31T09:10:01Z",
        "unsure": False,
        "ticketHash": "",
    } == json.loads(session.to_plaintext())["spec"]["flow"]


@pytest.mark.rule("12.5.6-7")
def test_an_event_brings_origin_and_auth_back():
    shown = kit.event().to_json()
    assert {**kit.PRINTED_RESUME, "eventId": "evt-as-0-auth.granted", "type": "auth.granted"}.items() <= shown.items()


@pytest.mark.rule("12.5.4")
@given(kit.grants)
def test_a_grant_survives_the_store(grant: Grant):
    assert grant == Grant.from_plaintext(grant.to_plaintext())


@pytest.mark.rule("12.5.5")
@given(kit.sessions)
def test_a_session_survives_the_store(session: AuthSession):
    assert session == AuthSession.from_plaintext(session.to_plaintext())


@given(kit.events)
def test_an_event_survives_the_store(event: AgentEvent):
    assert event == AgentEvent.from_plaintext(event.to_plaintext())


def test_an_events_number_is_stored_and_not_shown():
    event = kit.event(order=7)
    assert 7 == AgentEvent.from_plaintext(event.to_plaintext()).order
    assert "order" not in event.to_json()


def test_an_event_of_an_earlier_version_is_ordered_by_its_time():
    earlier, later = (kit.event(created_at=kit.CREATED + timedelta(microseconds=each)) for each in (0, 1))
    stored = [AgentEvent.from_json({**each.to_record(), "order": None}) for each in (earlier, later)]
    assert stored[0].order + 1 == stored[1].order


@pytest.mark.case("92")
@given(kit.sessions, kit.grants)
def test_a_record_shows_no_secret_of_its_own(session: AuthSession, grant: Grant):
    ticket, token = Secret("cnry-shown-ticket"), Secret("cnry-shown-token")
    attempt = replace(session.attempt, state=Secret("cnry-shown-state"), verifier=Secret("cnry-shown-verifier"))
    shown = repr(replace(session, ticket=ticket, attempt=attempt)) + repr(attempt)
    pending_code = kit.pending_code(code=Secret("cnry-shown-code"), proof=Secret("cnry-shown-proof"))
    shown += repr(replace(session, pending_code=pending_code)) + repr(pending_code)
    login = kit.login(attempt=attempt, way_on=Secret("cnry-shown-way-on"))
    shown += repr(replace(session, login=login)) + repr(login)
    device = kit.device(code=Secret("cnry-shown-device"), user_code="cnry-shown-user-code")
    shown += repr(replace(session, device=device)) + repr(device) + repr(device.prompt)
    if grant.token is not None:
        grant = replace(grant, token=replace(grant.token, access_token=token, refresh_token=token))
    assert "cnry-shown" not in shown + repr(grant) + repr(grant.token)


def unknown_schema(body: bytes) -> bytes:
    return body.replace(b'"schema":1', b'"schema":2')


def other_version(body: bytes) -> bytes:
    return body.replace(b"agents.example.io/v1alpha1", b"agents.example.io/v9")


STRANGERS: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda body: body[:-1],
    "empty": lambda _: b"",
    "not JSON": lambda _: b"\xff\x00",
    "a list": lambda _: b"[]",
    "null": lambda _: b"null",
    "a later schema": unknown_schema,
    "another API": other_version,
    "another kind": lambda _: codec.encode("WaitingList", {"spec": {}}),
}


@pytest.mark.parametrize("change", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize(
    ("record", "body"),
    [
        (Grant, kit.grant().to_plaintext()),
        (AuthSession, kit.session().to_plaintext()),
        (AgentEvent, kit.event().to_plaintext()),
    ],
    ids=["grant", "session", "event"],
)
def test_a_malformed_record_is_refused_and_never_guessed(record: Record, body: bytes, change):
    with pytest.raises(BrokerError) as refused:
        record.from_plaintext(change(body))
    assert Code.RECORD_CORRUPT is refused.value.code
    assert refused.value.__cause__ is refused.value.__context__ is None


LATER = kit.CREATED + timedelta(seconds=30)
ENDINGS: dict[str, tuple[Callable[[AuthSession], AuthSession], str, Code | None]] = {
    "completed": (lambda session: session.completed(LATER, kit.event()), "completed", None),
    "failed": (
        lambda session: session.failed(LATER, Code.SUBJECT_MISMATCH, kit.event()),
        "failed",
        Code.SUBJECT_MISMATCH,
    ),
    "lapsed": (lambda session: session.lapsed(LATER, kit.event()), "expired", None),
}
STAGES: dict[str, Callable[[AuthSession], AuthSession]] = {
    "waiting": lambda session: session,
    "claimed": lambda session: session.claimed("me", LATER),
    "pendingCode": lambda session: session.with_pending_code(kit.pending_code()),
    "confirmed": lambda session: session.with_pending_code(kit.pending_code()).claimed("me", LATER, confirmed=True),
    "ended": lambda session: session.lapsed(LATER),
}
EACH_ENDING = pytest.mark.parametrize(("end", "status", "code"), ENDINGS.values(), ids=ENDINGS)


@pytest.mark.rule("12.5.5", "12.5.6-6")
@EACH_ENDING
@pytest.mark.parametrize("stage", ["waiting", "claimed", "pendingCode", "confirmed"])
def test_an_ended_session_keeps_nothing_that_could_be_used(end, status, code, stage):
    session: AuthSession = kit.session()
    ended = end(STAGES[stage](session))
    assert (status, code, LATER, kit.event()) == (ended.status, ended.failure, ended.finished_at, ended.outbox)
    assert not ended.open
    assert ended.ticket is ended.attempt.verifier is ended.attempt.nonce is ended.pending_code is None
    assert session.attempt.state == ended.attempt.state  # a replay is recognised
    body = ended.to_plaintext()
    words = (b"printed-ticket", b"printed-verifier", b"printed-nonce", b"printed-code", b"printed-proof")
    assert not [word for word in words if word in body]


@pytest.mark.rule("12.5.5", "12.5.6-3")
def test_a_pending_code_takes_the_session_and_is_not_printed_as_a_status():
    session = kit.session()
    pending_code = session.with_pending_code(kit.pending_code())
    assert (False, True, True) == (session.taken, pending_code.taken, pending_code.open)
    assert "pending" == json.loads(pending_code.to_plaintext())["spec"]["status"]
    for moment, over in ((kit.pending_code().until, True), (kit.pending_code().until - timedelta(seconds=1), False)):
        assert pending_code.is_past(moment) is over, "it has its own time"
    assert "pendingCode" not in json.loads(session.to_plaintext())["status"]


@pytest.mark.parametrize("stage", ["claimed", "pendingCode", "confirmed", "ended"])
def test_only_a_session_that_waits_for_its_browser_takes_a_code(stage):
    with pytest.raises(ValueError, match="does not wait for a browser"):
        STAGES[stage](kit.session()).with_pending_code(kit.pending_code())


def test_the_claim_of_a_pending_code_uses_it_up_and_keeps_the_confirmation():
    claimed = kit.session().with_pending_code(kit.pending_code()).claimed("me", LATER, confirmed=True)
    assert claimed.pending_code is None
    assert claimed.claim == Claim("me", LATER, confirmed=True)
    assert claimed == AuthSession.from_plaintext(claimed.to_plaintext()).claimed("me", LATER, confirmed=True)
    assert b"printed-code" not in claimed.to_plaintext()
    assert b"confirmed" not in kit.session().claimed("me", LATER).to_plaintext()


def test_five_tries_wear_a_pending_code_out():
    session = kit.session().with_pending_code(kit.pending_code(kind="channelCode"))
    for _ in range(MAX_TRIES):
        assert session.pending_code is not None
        assert not session.pending_code.worn_out
        session = session.tried()
    assert session.pending_code is not None
    assert session.pending_code.worn_out


@pytest.mark.rule("12.5.5", "12.5.7")
@EACH_ENDING
def test_an_ended_device_session_keeps_no_code_and_knows_its_link_by_its_hash(end, status, code):
    session: AuthSession = kit.session(attempt=Attempt.none(), device=kit.device())
    ended = end(session)
    assert ended.device.code is None
    assert ended.device.was_shown_under("printed-ticket")
    assert not ended.device.was_shown_under("printed-tickets")
    assert not session.device.was_shown_under("printed-ticket")  # type: ignore[union-attr]
    body = ended.to_plaintext()
    assert not [word for word in (b"printed-ticket", b"printed-device-code") if word in body]


def test_no_state_that_could_come_belongs_to_a_device_session():
    session: AuthSession = kit.session(attempt=Attempt.none(), device=kit.device())
    assert not [state for state in ("", "s" * 65) if parse_would_take(state) and session.attempt.state.matches(state)]


def parse_would_take(state: str) -> bool:
    """What lets a state through to the sessions at all."""
    return LOCATED.fullmatch(state) is not None


@pytest.mark.rule("12.5.5")
@EACH_ENDING
@pytest.mark.parametrize("again", [end for end, *_ in ENDINGS.values()], ids=ENDINGS)
def test_a_session_ends_once(end, status, code, again):
    with pytest.raises(ValueError, match="has ended"):
        again(end(kit.session()))


@pytest.mark.rule("12.5.5", "12.5.6-3")
def test_a_claim_is_not_printed_as_a_status():
    claimed = kit.session().claimed("me", LATER)
    assert isinstance(claimed, ClaimedSession)
    assert claimed.open
    data = json.loads(claimed.to_plaintext())
    assert "pending" == data["spec"]["status"]
    assert {"by": "me", "until": "2026-01-31T09:10:31Z"} == data["status"]["claim"]


def test_the_next_browser_replaces_the_attempt_and_nothing_else():
    session = kit.session()
    attempt = replace(session.attempt, cookie="f" * 64)
    assert replace(session, attempt=attempt) == session.attempted(attempt)


def test_a_link_wears_out_after_twenty_presses_and_one_of_before_they_were_counted_has_none():
    session = kit.session()
    for _ in range(MAX_PRESSES - 1):
        session = session.pressed()
    assert not session.worn_out
    assert session.pressed().worn_out
    assert "presses" not in json.loads(kit.session().to_plaintext())["status"]


def test_a_revoked_grant_keeps_its_tokens_until_the_provider_knows():
    live = kit.grant(pinned=("https://slack.example", "U1"), outbox=(kit.event(),))
    tombstone = live.tombstoned(LATER)
    assert (True, "pending", None, live.token) == (
        tombstone.revoked,
        tombstone.revocation,
        tombstone.pinned,
        tombstone.token,
    )
    assert (kit.event(),) == tombstone.outbox
    erased = tombstone.erased(LATER)
    assert (True, "done", None) == (erased.revoked, erased.revocation, erased.token)
    assert b"printed-access" not in erased.to_plaintext()


def test_an_outbox_forgets_the_event_that_was_sent_and_no_other():
    grant = kit.grant(outbox=(kit.event(1), kit.event(2)))
    assert (kit.event(2),) == grant.sent(kit.event(1).id).outbox
    assert grant == grant.sent("evt-as-3-auth.granted")


@pytest.mark.parametrize(("seconds", "lives"), [(-1, True), (0, True), (299, True), (300, False), (301, False)])
def test_a_token_lives_longer_than_asked_or_not(seconds, lives):
    token = kit.grant().token
    assert token is not None
    assert lives is token.lives(seconds, kit.TOKEN_ENDS - timedelta(seconds=300))
    assert replace(token, expires_at=None).lives(10**9, kit.TOKEN_ENDS)


@pytest.mark.case("45")
@given(kit.texts, kit.texts, kit.texts, kit.texts)
def test_two_pairs_never_share_a_grant(app, subject, other_app, other_subject):
    same = (app, subject) == (other_app, other_subject)
    assert same is (grant_id(app, subject) == grant_id(other_app, other_subject))


@pytest.mark.case("45")
@pytest.mark.parametrize(
    ("first", "second"), [(("a:b", "c"), ("a", "b:c")), (("ab", ""), ("a", "b")), (("", "ab"), ("ab", ""))]
)
def test_separator_tricks_give_different_grants(first, second):
    assert grant_id(*first) != grant_id(*second)


def logged_in() -> AuthSession:
    """The subject has logged in; no browser has come back from the provider."""
    session = kit.session().logging_in(kit.login(), ("chat:write",))
    assert session.login is not None
    login = session.login.spent().passed(Secret("printed-way-on"), LATER)
    return session.with_login(login, kit.session().attempt)


@pytest.mark.case("15")
def test_a_browser_at_the_login_has_no_state_for_the_provider():
    session = kit.session().logging_in(kit.login(), ("chat:write",))
    assert session.attempt == Attempt.none()
    assert ("pending", False, ("chat:write",)) == (session.status, session.taken, session.scopes)


def test_a_login_that_has_come_back_keeps_its_state_and_nothing_to_redeem_it_with():
    spent = kit.login().spent()
    assert (True, None, None) == (spent.used, spent.attempt.verifier, spent.attempt.nonce)
    assert kit.login().attempt.state == spent.attempt.state
    assert (spent.until, spent.way_on) == (None, None)


@pytest.mark.parametrize(
    ("digest", "now", "counts"),
    [
        ("d", LATER - timedelta(seconds=1), True),
        ("d", LATER, False),
        ("another", LATER - timedelta(seconds=1), False),
    ],
)
def test_a_login_counts_for_its_own_configuration_until_its_end(digest, now, counts):
    login = kit.login().spent().passed(Secret("printed-way-on"), LATER)
    assert counts is login.counts(digest, now)
    assert not kit.login().counts(digest, now)
    assert not kit.login().spent().missed().counts(digest, now)


@EACH_ENDING
def test_nothing_of_a_login_outlives_its_session(end, status, code):
    for ended in (end(logged_in()), end(logged_in().claimed("me", LATER, confirmed=True))):
        assert (status, code, None) == (ended.status, ended.failure, ended.login)
        assert b"printed-" not in ended.to_plaintext().replace(b"printed-state", b"")


@pytest.mark.parametrize("stage", ["claimed", "pendingCode", "confirmed", "ended", "waiting"])
def test_only_a_session_that_waits_for_a_login_hears_of_one(stage):
    with pytest.raises(ValueError, match="does not wait for a login"):
        STAGES[stage](kit.session()).with_login(kit.login())
