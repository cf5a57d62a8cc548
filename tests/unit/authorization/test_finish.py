"""The end of every flow: one claim, three checks, one commit in a fixed order, and the failure of each step."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.audit import Connected, ConnectFailed, GrantRevoked, TokensDropped
from oauthbroker.authorization.finish import SYNCS
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.owner_check import CheckedOwner, OwnerFacts
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.observability.metrics import Metric
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.records import AuthSession
from oauthbroker.records.auth_session import Claim
from oauthbroker.repository.repository import PAIR_WAIT_SECONDS, Conflict, Repository, Versioned
from oauthbroker.revocation.shared_grants import SharedGrants
from tests.kit.samples import NOW, app_with, grant_with, session_with, token_with
from tests.unit.authorization.finish_kit import ALICE, APP, FinishWorld, moved_on, tokens_with

OTHER = "M" * 22


@pytest.fixture
def world() -> FinishWorld:
    return FinishWorld()


async def verified_by(world: FinishWorld, claimed: Versioned[AuthSession], **changes: Any) -> Any:
    return await world.finish.verify(world.app, claimed.record, tokens_with(**changes), NOW)


async def commit(world: FinishWorld, claimed: Versioned[AuthSession], **changes: Any) -> None:
    await world.finish.commit(world.app, claimed, await verified_by(world, claimed, **changes), NOW)


async def code_of(work: Any) -> Code | None:
    try:
        await work
    except BrokerError as error:
        return error.code
    return None


# The claim


async def test_of_two_callers_that_claim_a_session_one_wins(world: FinishWorld) -> None:
    versioned = await world.put()
    first = await world.finish.claim(versioned, 60, confirmed=True)
    assert first is not None
    claim = first.record.claim
    assert claim is not None
    assert (NOW + timedelta(seconds=60 + PAIR_WAIT_SECONDS), True) == (claim.until, claim.confirmed)
    assert None is await world.finish.claim(versioned, 60)
    assert claim == (await world.session()).claim


async def test_a_claim_is_not_confirmed_unless_its_caller_says_so(world: FinishWorld) -> None:
    claim = (await world.claimed()).record.claim
    assert claim is not None
    assert not claim.confirmed


# The checks


async def test_tokens_of_the_sessions_own_user_pass_with_the_scopes_that_the_session_asked_for(
    world: FinishWorld,
) -> None:
    claimed = await world.claimed()
    verified = await verified_by(world, claimed)
    assert (CheckedOwner(ALICE, ALICE[1]), ("read",), ()) == (verified.owner, verified.scopes, verified.missing)
    assert [("mail", verified.tokens, claimed.record.attempt.nonce, NOW)] == world.read_with


@pytest.mark.parametrize(
    ("facts", "scopes", "expected"),
    [
        (OwnerFacts(user_identity="acme:user:2"), None, Code.SUBJECT_MISMATCH),
        (OwnerFacts(), None, Code.SUBJECT_UNVERIFIABLE),
        (OwnerFacts(user_identity="acme:user:1"), ("read", "admin"), Code.SCOPE_EXCEEDED),
        (BrokerError(Code.PROVIDER_UNREACHABLE), None, Code.PROVIDER_UNREACHABLE),
    ],
)
async def test_tokens_that_fail_a_check_are_refused_with_its_code(
    world: FinishWorld, facts: Any, scopes: Any, expected: Code
) -> None:
    world.facts = facts
    assert expected is await code_of(verified_by(world, await world.claimed(), scopes=scopes))


async def test_a_defect_of_a_check_is_an_error_of_the_broker_and_names_no_secret(world: FinishWorld) -> None:
    world.facts = RuntimeError("at-new")
    with pytest.raises(BrokerError) as raised:
        await verified_by(world, await world.claimed())
    assert "at-new" not in f"{raised.value!r} {raised.value.note}"
    assert None is raised.value.__cause__
    assert None is raised.value.__context__


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_binding_that_needs_a_confirmation_looks_at_the_claim(confirmed: bool) -> None:
    world = FinishWorld(app_with(owner=Owner(binding="runtimeConfirm")))
    claimed = await world.finish.claim(await world.put(), 60, confirmed=confirmed)
    assert claimed is not None
    expected = None if confirmed else Code.SUBJECT_UNVERIFIABLE
    assert expected is await code_of(verified_by(world, claimed))


# The commit


async def test_a_commit_stores_grant_and_event_then_ends_the_session(world: FinishWorld) -> None:
    signal = world.outbox.listen()
    await commit(world, await world.claimed())
    grant = await world.grant()
    assert grant is not None
    assert grant.token is not None
    assert "at-new" == grant.token.access_token.reveal()
    assert [f"evt-as-{'L' * 22}-auth.granted"] == [event.id for event in grant.outbox]
    session = await world.session()
    assert ("completed", NOW, None) == (session.status, session.finished_at, session.ticket)
    assert ([], 0) == (await world.waiting(), world.counted())
    assert [Connected(app="mail", grant=grant.id, session=session.id)] == [each for _, each in world.audit.lines]
    assert 1 == world.metrics.value(Metric.CONNECTIONS_COMPLETED, "mail")
    assert signal.is_set(), "the event does not wait for the next sweep"


async def test_a_consent_is_evidence_for_its_client(world: FinishWorld) -> None:
    await commit(world, await world.claimed())
    other = grant_with(subject="acme:user:2", registration=APP.registration)
    other = replace(other, refresh_state=replace(other.refresh_state, worked=True))
    assert "good" == world.clients.standing(other, NOW, world.clock.now())


async def test_a_commit_stores_nothing_once_another_caller_has_ended_the_session(world: FinishWorld) -> None:
    claimed = await world.claimed()
    await world.repository.save_session(moved_on(claimed), expect=claimed.generation)
    assert Code.EXCHANGE_UNCERTAIN is await code_of(commit(world, claimed))
    assert (None, []) == (await world.grant(), world.entries())


async def test_a_commit_stores_nothing_once_the_session_is_erased(world: FinishWorld) -> None:
    claimed = await world.claimed()
    await world.repository.erase_session(claimed)
    assert Code.EXCHANGE_UNCERTAIN is await code_of(commit(world, claimed))
    assert None is await world.grant()


async def test_without_an_audit_entry_there_is_no_grant(world: FinishWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    claimed = await world.claimed()
    monkeypatch.setattr(world.audit, "write", full)
    assert Code.STORE_UNAVAILABLE is await code_of(commit(world, claimed))
    assert (None, True) == (await world.grant(), (await world.session()).open)


BOB = "https://acme.example/token", "acme:user:9"


@pytest.mark.parametrize(
    ("old", "session", "expected"),
    [
        ({"pinned": BOB}, {}, Code.SUBJECT_MISMATCH),
        ({"pinned": BOB}, {"switch_account": True}, None),
        ({"pinned": BOB, "registration": "another"}, {}, None),
        ({"pinned": ALICE}, {}, None),
        ({"pinned": None}, {}, None),
    ],
    ids=["another account", "a wanted switch", "of another client", "the same account", "none pinned"],
)
async def test_the_account_that_is_pinned_keeps_others_out(
    world: FinishWorld, old: Any, session: Any, expected: Code | None
) -> None:
    before = grant_with(**{"registration": APP.registration, **old})
    await world.put_grant(before)
    assert expected is await code_of(commit(world, await world.claimed(**session)))
    assert (expected is not None) is (before == await world.grant())


async def test_a_grant_that_another_writer_replaces_meanwhile_is_read_again_and_noted_once(world: FinishWorld) -> None:
    old = grant_with(registration=APP.registration, token=token_with(refresh_token=Secret("rt-old")))
    old = replace(old, outbox=())
    await world.put_grant(old)
    world.repository.grant_fails = [Conflict()]
    await commit(world, await world.claimed())
    assert ["Connected"] == world.entries()
    grant = await world.grant()
    assert grant is not None
    assert session_with().id == grant.auth_session_id


async def test_after_three_conflicts_a_commit_gives_up(world: FinishWorld) -> None:
    world.repository.grant_fails = [Conflict() for _ in range(3)]
    assert Code.STORE_LOCKED is await code_of(commit(world, await world.claimed()))
    assert ([], None) == (world.repository.grant_fails, await world.grant())


@pytest.mark.parametrize("failed_syncs", [0, SYNCS - 1, SYNCS])
async def test_a_write_that_reports_a_failure_and_is_there_counts_and_is_synced(
    world: FinishWorld, failed_syncs: int
) -> None:
    claimed = await world.claimed()
    world.repository.grant_fails, world.repository.is_stored_first = [BrokerError(Code.STORE_UNAVAILABLE)], True
    world.repository.sync_fails = failed_syncs
    await commit(world, claimed)
    assert "completed" == (await world.session()).status
    assert min(failed_syncs + 1, SYNCS) * ["grants"] == world.repository.synced


@pytest.mark.parametrize("old", [None, grant_with(auth_session_id="as-other")])
async def test_a_write_that_reports_a_failure_and_is_not_there_fails(world: FinishWorld, old: Any) -> None:
    if old is not None:
        await world.put_grant(replace(old, registration=APP.registration))
    claimed = await world.claimed()
    world.repository.grant_fails = [BrokerError(Code.STORE_UNAVAILABLE)]
    assert Code.STORE_UNAVAILABLE is await code_of(commit(world, claimed))
    assert ("pending", []) == ((await world.session()).status, world.repository.synced)


async def test_scopes_that_a_provider_never_lists_are_told_to_the_operator(world: FinishWorld) -> None:
    old = grant_with(registration=APP.registration, pinned=ALICE, declined={"write": 9})
    await world.put_grant(old)
    await commit(world, await world.claimed(scopes=("read", "write")), scopes=("read",))
    assert '"write"' in world.text.getvalue()
    assert 1 == world.text.getvalue().count("does not list scopes")


@pytest.mark.parametrize(("declined", "scopes"), [({}, ("read",)), ({"admin": 9}, ("read", "write"))])
async def test_a_scope_that_is_missing_once_and_one_that_was_not_asked_for_are_no_news(
    world: FinishWorld, declined: Any, scopes: Any
) -> None:
    await world.put_grant(grant_with(registration=APP.registration, pinned=ALICE, declined=declined))
    await commit(world, await world.claimed(scopes=("read", "write")), scopes=scopes)
    assert "" == world.text.getvalue()


async def test_tokens_that_a_new_grant_can_no_longer_hold_are_in_the_audit_log(
    world: FinishWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.authorization.finish.forgotten", lambda *_: True)
    await commit(world, await world.claimed())
    grant = await world.grant()
    assert grant is not None
    assert GrantRevoked(app="mail", grant=grant.id, provider="none") in [each for _, each in world.audit.lines]


# The other sessions of the pair


@pytest.mark.parametrize(
    ("other", "status"),
    [
        ({}, "completed"),
        ({"scopes": ("read", "write")}, "pending"),
        ({"switch_account": True}, "pending"),
        ({"claim": Claim("another", NOW + timedelta(seconds=60))}, "pending"),
    ],
    ids=["the same scopes", "more scopes", "a switch", "claimed"],
)
async def test_a_commit_completes_the_other_sessions_that_its_grant_satisfies(
    world: FinishWorld, other: Any, status: str
) -> None:
    await world.put(**{"locator": OTHER, **other})
    await commit(world, await world.claimed())
    session = await world.session(OTHER)
    assert status == session.status
    assert ([] if status == "completed" else [OTHER]) == await world.waiting()
    if status == "completed":
        assert session.outbox is not None
        assert f"evt-as-{OTHER}-auth.granted" == session.outbox.id


async def test_the_session_whose_code_it_was_has_its_event_in_the_grant_alone(world: FinishWorld) -> None:
    await commit(world, await world.claimed())
    assert None is (await world.session()).outbox


# The end without a grant


async def test_a_failure_ends_the_session_in_one_write_with_its_event(world: FinishWorld) -> None:
    signal, versioned = world.outbox.listen(), await world.put()
    assert await world.finish.fail(versioned, Code.PROVIDER_DENIED, event="auth.denied")
    session = await world.session()
    assert ("failed", Code.PROVIDER_DENIED, NOW) == (session.status, session.failure, session.finished_at)
    assert session.outbox is not None
    assert ("auth.denied", "providerDenied") == (session.outbox.type, session.outbox.payload["code"])
    assert [ConnectFailed(app="mail", session=session.id, code="providerDenied")] == [
        each for _, each in world.audit.lines
    ]
    assert 1 == world.metrics.value(Metric.CONNECTIONS_FAILED, "providerDenied")
    assert ([], 0, True) == (await world.waiting(), world.counted(), signal.is_set())


async def test_a_failure_leaves_the_other_sessions_of_the_pair_waiting(world: FinishWorld) -> None:
    await world.put(locator=OTHER)
    await world.finish.fail(await world.put(), Code.PROVIDER_DENIED)
    assert [OTHER] == await world.waiting()


@pytest.mark.parametrize(("event", "expected"), [("auth.failed", True), (None, False)])
async def test_a_failure_without_an_event_sends_none(world: FinishWorld, event: Any, expected: bool) -> None:
    await world.finish.fail(await world.put(), Code.PROVIDER_DENIED, event=event)
    assert expected is ((await world.session()).outbox is not None)


@pytest.mark.parametrize("end", ["fail", "lapse"])
async def test_a_session_that_has_moved_on_is_not_ended_and_nothing_is_noted(world: FinishWorld, end: str) -> None:
    versioned = await world.put()
    await world.repository.save_session(moved_on(versioned), expect=versioned.generation)
    more = (Code.PROVIDER_DENIED,) if end == "fail" else ()
    assert not await getattr(world.finish, end)(versioned, *more)
    assert (True, [], 1) == ((await world.session()).open, world.entries(), world.counted())


@pytest.mark.parametrize("end", ["fail", "lapse"])
async def test_a_session_that_has_ended_does_not_end_again(world: FinishWorld, end: str) -> None:
    versioned = await world.put()
    ended = await world.repository.save_session(versioned.record.completed(NOW), expect=versioned.generation)
    more = (Code.PROVIDER_DENIED,) if end == "fail" else ()
    assert not await getattr(world.finish, end)(ended, *more)
    assert "completed" == (await world.session()).status


@pytest.mark.parametrize("event", [None, "auth.expired"])
async def test_a_session_that_lapses_is_expired_and_counts_no_longer(world: FinishWorld, event: Any) -> None:
    signal = world.outbox.listen()
    assert await world.finish.lapse(await world.put(), event=event)
    session = await world.session()
    assert ("expired", event) == (session.status, session.outbox.type if session.outbox is not None else None)
    assert ([], 0, True, []) == (await world.waiting(), world.counted(), signal.is_set(), world.entries())


async def test_a_caller_with_the_lease_keeps_the_waiting_list_itself(world: FinishWorld) -> None:
    versioned = await world.put()
    assert await world.finish.lapse_locked(versioned)
    assert ([versioned.record.locator], 0) == (await world.waiting(), world.counted())


# The tokens that are not kept


@pytest.mark.parametrize(("is_revoked", "owed"), [(True, False), (False, True)])
async def test_tokens_that_come_to_nothing_are_revoked_or_owed_by_the_subjects_record(
    is_revoked: bool, owed: bool
) -> None:
    world = FinishWorld(app_with(revocation=Revocation(kind="rfc7009", reach="token")))
    world.is_revoked = is_revoked
    await world.put_grant(grant_with(registration=world.app.registration))
    await world.finish.give_up(world.app, await world.claimed(), Code.SUBJECT_MISMATCH, tokens_with().issued)
    assert [["rt-new", "at-new"]] == world.revoked_texts()
    grant = await world.grant()
    assert grant is not None
    retired = grant.retired
    assert owed is (retired is not None)
    if retired is not None:
        assert (NOW, ["rt-new", "at-new"]) == (retired.since, [each.reveal() for each in retired.secrets])
    session = await world.session()
    assert Code.SUBJECT_MISMATCH is session.failure
    dropped = TokensDropped(app="mail", session=session.id, code="subjectMismatch", revoked=is_revoked)
    assert dropped == world.audit.lines[-1][1]


@pytest.mark.parametrize(
    ("reach", "there"),
    [("grant", None), ("token", grant_with(token=token_with(refresh_token=Secret("rt-new"))))],
    ids=["it would end the whole grant", "a living grant uses it"],
)
async def test_tokens_are_not_revoked_where_that_ends_others(reach: Any, there: Any) -> None:
    world = FinishWorld(app_with(revocation=Revocation(kind="rfc7009", reach=reach)))
    if there is not None:
        await world.put_grant(there)
    await world.finish.drop(world.app, session_with(), Code.SUBJECT_MISMATCH, tokens_with().issued)
    assert [] == world.revoked
    dropped = TokensDropped(app="mail", session=session_with().id, code="subjectMismatch", revoked=False)
    assert [dropped] == [each for _, each in world.audit.lines]
    assert there == await world.grant()


OWN = {"owner": Owner(user_identity=IdentityRule("idToken", "acme:user:{sub}"))}


@pytest.mark.parametrize(
    ("code", "app", "there", "revoked"),
    [
        (Code.SCOPE_EXCEEDED, {}, None, True),
        (Code.FACT_MISSING, {}, None, True),
        (Code.SCOPE_EXCEEDED, {}, {"revoked": True, "token": None}, True),
        (Code.SCOPE_EXCEEDED, {}, {}, False),
        (Code.SUBJECT_MISMATCH, {}, None, False),
        (Code.ID_TOKEN_INVALID, {}, None, False),
        (Code.SCOPE_EXCEEDED, {"owner": Owner(binding="channelCode")}, None, False),
        (Code.SCOPE_EXCEEDED, {"subject_mode": "global"}, None, False),
    ],
    ids=[
        "the subject's own, and it has none", "a fact is missing", "its grant has ended", "its grant is active",
        "another account's", "unknown whose", "nothing was compared", "a team's",
    ],
)  # fmt: skip
async def test_tokens_of_the_subjects_own_account_are_revoked_where_it_has_no_grant_that_would_end(
    code: Code, app: Any, there: Any, revoked: bool
) -> None:
    world = FinishWorld(app_with(**{"revocation": Revocation(kind="rfc7009", reach="grant"), **OWN, **app}))
    if there is not None:
        await world.put_grant(grant_with(**{"registration": world.app.registration, **there}))
    await world.finish.give_up(world.app, await world.claimed(), code, tokens_with().issued)
    assert ([["rt-new", "at-new"]] if revoked else []) == world.revoked_texts()
    assert revoked is world.audit.lines[-1][1].revoked  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["a grant", "a login"])
async def test_they_are_kept_where_another_app_with_this_client_has_or_makes_a_grant_of_the_subject(what: str) -> None:
    world = FinishWorld(app_with(revocation=Revocation(kind="rfc7009", reach="grant"), **OWN))
    digest = world.app.config_digest
    apps = {name: replace(world.app, name=name) for name in (world.app.name, "another")}
    world.shared_grants = SharedGrants(world.repository, world.clock, apps)
    if what == "a grant":
        other = grant_with(app="another", registration=world.app.registration)
        await Repository.save_grant(world.repository, other, expect=0)
        await world.finish.drop(
            world.app, session_with(config_digest=digest), Code.SCOPE_EXCEEDED, tokens_with().issued
        )
    else:
        await world.claimed()
        await world.finish.drop(
            world.app, session_with(locator=OTHER, config_digest=digest), Code.SCOPE_EXCEEDED, tokens_with().issued
        )
    assert [] == world.revoked


async def test_unrevoked_tokens_of_a_subject_without_a_record_are_noted_alone() -> None:
    world = FinishWorld(app_with(revocation=Revocation(kind="rfc7009", reach="token")))
    world.is_revoked = False
    await world.finish.drop(world.app, session_with(), Code.SUBJECT_MISMATCH, tokens_with().issued)
    assert (["TokensDropped"], None) == (world.entries(), await world.grant())


async def test_without_tokens_there_is_nothing_to_drop(world: FinishWorld) -> None:
    await world.finish.give_up(world.app, await world.claimed(), Code.EXCHANGE_FAILED, IssuedTokens())
    assert ["ConnectFailed"] == world.entries()


async def test_tokens_are_dropped_also_where_the_session_cannot_be_ended(
    world: FinishWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def locked(*_: Any, **__: Any) -> bool:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    claimed = await world.claimed()
    monkeypatch.setattr(type(world.finish), "fail", locked)
    giving_up = world.finish.give_up(world.app, claimed, Code.SUBJECT_MISMATCH, tokens_with().issued)
    assert Code.STORE_UNAVAILABLE is await code_of(giving_up)
    assert ["TokensDropped"] == world.entries()


# The end of a worker


async def test_a_session_whose_grant_is_stored_is_completed_at_once(world: FinishWorld) -> None:
    claimed = await world.claimed()
    await world.put(locator=OTHER)
    signal = world.outbox.listen()
    await world.put_grant(grant_with(registration=APP.registration, auth_session_id=claimed.record.id))
    assert await world.finish.recover(claimed)
    assert ["completed"] * 2 == [(await world.session(each)).status for each in ("L" * 22, OTHER)]
    assert ([], True, []) == (await world.waiting(), signal.is_set(), world.entries())


async def test_a_session_whose_grant_was_replaced_since_is_known_by_its_event(world: FinishWorld) -> None:
    claimed = await world.claimed()
    await commit(world, claimed)
    grant = await world.grant()
    assert grant is not None
    await world.put_grant(replace(grant, auth_session_id="as-later"))
    again = await world.repository.session(claimed.record.locator)
    assert again is not None
    reopened = await world.repository.save_session(claimed.record, expect=again.generation)
    assert await world.finish.recover(reopened)
    assert "completed" == (await world.session()).status


async def test_a_revoked_grant_completes_its_own_session_alone(world: FinishWorld) -> None:
    claimed = await world.claimed()
    await world.put(locator=OTHER)
    await world.put_grant(grant_with(auth_session_id=claimed.record.id).tombstoned(NOW))
    assert await world.finish.recover(claimed)
    assert ["completed", "pending"] == [(await world.session(each)).status for each in ("L" * 22, OTHER)]


async def test_a_session_whose_commit_waits_for_the_pair_is_not_ended_by_another_process(world: FinishWorld) -> None:
    """However short the calls of the provider are: a commit waits for the pair as long as any writer."""
    versioned = await world.put()
    claimed = await world.finish.claim(versioned, 7)
    assert claimed is not None
    world.clock.advance(7 + PAIR_WAIT_SECONDS - 1)
    assert not await world.finish.recover(claimed)
    assert (await world.session()).open


@pytest.mark.parametrize(("seconds", "over"), [(79, False), (80, True)])
async def test_a_claim_without_a_grant_fails_when_it_has_expired(world: FinishWorld, seconds: int, over: bool) -> None:
    claimed = await world.claimed()
    await world.put_grant(grant_with(auth_session_id="as-earlier"))
    world.clock.advance(seconds)
    assert over is await world.finish.recover(claimed)
    assert (Code.EXCHANGE_UNCERTAIN if over else None) is (await world.session()).failure
