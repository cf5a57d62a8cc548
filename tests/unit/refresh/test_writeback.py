"""What a refresh writes into its grant: the intent before, the token or the refusal after, beside all other writers."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from oauthbroker.audit import RefreshFailed, TokenRefreshed
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.secret import Secret
from oauthbroker.core.single_flight import InFlightCall
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.refresh_call import Redeemed
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import Grant, RefreshState
from oauthbroker.records.refresh_state import Intent
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.refusal_assessment import assess_refusal
from oauthbroker.refresh.retry_store import RetryStore
from oauthbroker.refresh.writeback import Refreshed, Writeback
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW, app_with, grant_with, token_with

APP = app_with(revocation=Revocation(kind="rfc7009", reach="token"))
KEY = GrantKey("mail", "acme:user:1")
OLD = grant_with(token=token_with(0, refresh_token=Secret("rt-1")), registration=APP.registration)
FRESH = replace(token_with(3600, refresh_token=Secret("rt-2")), access_token=Secret("at-2"))
ANSWER = Redeemed(token=FRESH, scopes=("read",), refresh_token=Secret("rt-2"), provider_data={})
LATER = NOW + timedelta(seconds=10)
LOGIN = replace(OLD, token=token_with(3600, refresh_token=Secret("rt-login")), auth_session_id="as-new")


class WatchedRepository(Repository):
    """A repository whose next saves fail, and that counts its syncs."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.fails, self.synced, self.lacks_newer = list[BrokerError](), list[str](), False

    async def save_grant(self, grant: Grant, **more: Any) -> Versioned[Grant]:
        if self.fails:
            raise self.fails.pop()
        return await super().save_grant(grant, **more)

    async def sync(self, *kinds: str) -> None:
        self.synced += kinds
        await super().sync(*kinds)

    async def may_lack_newer(self, versioned: Versioned[Grant]) -> bool:
        return self.lacks_newer


class World:
    """A grant with an expired token, and the writes into it. Revoked and late tokens are noted."""

    def __init__(self) -> None:
        self.clock, self.text, self.app = TestClock(NOW), io.StringIO(), APP
        self.log, self.metrics, self.audit = json_log(self.text, self.clock), Metrics(), AuditList()
        self.repository = WatchedRepository(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock))
        self.dropped, self.late = list[IssuedTokens](), list[tuple[Any, ...]]()
        self.retry_store = RetryStore(back=Notifier(), clock=self.clock, metrics=self.metrics, log=self.log)
        self.writeback = Writeback(
            repository=self.repository, retry_store=self.retry_store, drop=self._drop, late=self._late,
            clock=self.clock, audit=self.audit, metrics=self.metrics, log=self.log,
        )  # fmt: skip
        self.in_flight = InFlightCall[Refreshed]()

    async def _drop(self, app: App, issued: IssuedTokens) -> bool:
        self.dropped.append(issued)
        return True

    async def _late(self, app: App, key: GrantKey, *, refresh: Any, access: Any, begun: Grant | None = None) -> None:
        texts = [each.reveal() if each is not None else None for each in (refresh, access)]
        self.late.append((key, *texts, begun is not None))

    async def put(self, grant: Grant) -> Versioned[Grant]:
        there = await self.repository.grant(KEY)
        return await Repository.save_grant(self.repository, grant, expect=there.generation if there else 0)

    async def stored(self) -> Grant:
        there = await self.repository.grant(KEY)
        assert there is not None
        return there.record

    async def begin(self, looked: Versioned[Grant], *, forced: bool = False) -> Grant | None:
        async with self.repository.reserve_for(looked) as self.ahead:
            return await self.writeback.begin(looked, self.ahead, forced=forced)

    async def begun(self, grant: Grant = OLD) -> Grant:
        begun = await self.begin(await self.put(grant))
        assert begun is not None
        return begun

    def job(self, **changes: Any) -> RefreshJob:
        return RefreshJob(**{"app": self.app, "key": KEY, "seen": None, **changes})

    async def commit(self, begun: Grant, answer: Redeemed = ANSWER, **changes: Any) -> Refreshed:
        return await self.writeback.commit(self.job(**changes), self.in_flight, begun, answer, self.ahead)

    async def refuse(self, begun: Grant, refused: RefreshRefused, **changes: Any) -> Refreshed:
        assessment = assess_refusal(begun.refresh_state, refused, "unknown", self.clock.now())
        return await self.writeback.refuse(self.job(**changes), self.in_flight, begun, assessment, self.ahead)

    def entries(self) -> list[object]:
        return [entry for _, entry in self.audit.lines]

    def dropped_texts(self) -> list[list[str]]:
        return [[each.reveal() for each in issued.secrets] for issued in self.dropped]


@pytest.fixture
async def world() -> World:
    return World()


def refused_with(code: Code, *, spent: bool = False, **changes: Any) -> RefreshRefused:
    return RefreshRefused(code, spent=spent, **changes)


def access_of(grant: Grant | None) -> str | None:
    return grant.token.access_token.reveal() if grant is not None and grant.token is not None else None


# The intent


async def test_the_intent_of_an_attempt_is_stored_before_it_is_sent(world: World) -> None:
    begun = await world.begun()
    intent = (await world.stored()).refresh_state.intent
    assert intent is not None
    assert (begun, NOW, 0) == (await world.stored(), intent.at, intent.lost)
    assert world.ahead.held is not None, "the space for the answer is taken"


async def test_two_attempts_have_different_names(world: World) -> None:
    first, second = (await world.begun()).refresh_state.intent, (await world.begun()).refresh_state.intent
    assert first is not None
    assert second is not None
    assert first.attempt != second.attempt
    assert 22 == len(first.attempt), "128 random bits"


@pytest.mark.parametrize(("forced", "times"), [(True, (NOW,)), (False, ())])
async def test_a_forced_attempt_is_counted(world: World, forced: bool, times: tuple[datetime, ...]) -> None:
    begun = await world.begin(await world.put(OLD), forced=forced)
    assert begun is not None
    assert times == begun.refresh_state.forced


@pytest.mark.parametrize(
    "newer",
    [replace(OLD, token=FRESH), LOGIN, OLD.tombstoned(NOW), replace(OLD, refresh_state=RefreshState(ended="dead"))],
    ids=["refreshed", "a login", "revoked", "ended"],
)
async def test_no_attempt_begins_on_tokens_that_have_changed_since(world: World, newer: Grant) -> None:
    looked = await world.put(OLD)
    await world.put(newer)
    assert None is await world.begin(looked)
    assert newer == await world.stored()


async def test_no_attempt_begins_on_a_grant_that_is_erased(world: World) -> None:
    looked = await world.put(OLD)
    await world.repository.erase_grant(looked)
    assert None is await world.begin(looked)


@pytest.mark.parametrize(("lacks_newer", "has_intent", "lost"), [(True, False, 1), (False, False, 0), (True, True, 3)])
async def test_an_attempt_that_the_store_may_have_lost_counts_as_one_lost_answer(
    world: World, lacks_newer: bool, has_intent: bool, lost: int
) -> None:
    world.repository.lacks_newer = lacks_newer
    state = RefreshState(intent=Intent("earlier", NOW, 2) if has_intent else None)
    intent = (await world.begun(replace(OLD, refresh_state=state))).refresh_state.intent
    assert intent is not None
    assert lost == intent.lost


# The token


async def test_a_new_token_is_stored_audited_and_counted(world: World) -> None:
    begun = await world.begun()
    world.clock.advance(10)
    refreshed = await world.commit(begun)
    stored = await world.stored()
    assert (Refreshed(stored), "at-2", LATER, None) == (
        refreshed, access_of(stored), stored.updated_at, stored.refresh_state.intent,
    )  # fmt: skip
    assert [TokenRefreshed(app="mail", grant=OLD.id, forced=False)] == world.entries()
    assert (1, [], []) == (world.metrics.value(Metric.REFRESHES, "mail"), world.late, world.repository.synced)


@pytest.mark.parametrize("changes", [{"early": True}, {"rejected": Secret("at-1")}])
async def test_a_forced_refresh_says_so_in_the_audit_log(world: World, changes: Any) -> None:
    await world.commit(await world.begun(), **changes)
    assert [TokenRefreshed(app="mail", grant=OLD.id, forced=True)] == world.entries()


async def test_a_token_is_served_from_memory_until_it_is_stored(world: World) -> None:
    begun = await world.begun()
    world.repository.fails = [BrokerError(Code.STORE_UNAVAILABLE) for _ in range(3)]
    refreshed = await world.commit(begun)
    meanwhile = await world.in_flight.result()
    assert ("at-2", Code.STORE_UNAVAILABLE) == (access_of(meanwhile.grant), meanwhile.error and meanwhile.error.code)
    assert Refreshed(await world.stored()) == refreshed
    assert 0 == world.retry_store.unstored


async def test_a_token_that_a_closing_broker_could_not_store_is_returned_with_the_reason(world: World) -> None:
    begun = await world.begun()
    world.repository.fails = [BrokerError(Code.STORE_UNAVAILABLE) for _ in range(3)]
    world.retry_store.close()
    refreshed = await world.commit(begun)
    assert ("at-2", Code.STORE_UNAVAILABLE) == (access_of(refreshed.grant), refreshed.error and refreshed.error.code)
    assert [] == world.entries()


async def test_a_token_that_the_audit_log_cannot_note_is_kept_and_the_operator_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    begun = await world.begun()
    monkeypatch.setattr(world.audit, "write", full)
    refreshed = await world.commit(begun)
    assert (Refreshed(await world.stored()), "at-2") == (refreshed, access_of(refreshed.grant))
    assert "the audit log lacks an entry" in world.text.getvalue()
    assert 1 == world.metrics.value(Metric.REFRESHES, "mail")


async def test_of_two_attempts_with_the_same_token_the_later_ones_intent_stands_beside_the_token(world: World) -> None:
    begun = await world.begun()
    later = await world.stored()
    await world.put(replace(later, refresh_state=later.refresh_state.begun("a later attempt", NOW)))
    await world.commit(begun)
    stored = await world.stored()
    assert stored.refresh_state.intent is not None
    assert ("at-2", "a later attempt") == (access_of(stored), stored.refresh_state.intent.attempt)


@pytest.mark.parametrize(
    ("newer", "has_begun"),
    [(OLD.tombstoned(NOW), False), (LOGIN, True), (replace(LOGIN, registration="another"), True)],
    ids=["revoked", "a login", "a login with another client"],
)
async def test_a_revocation_or_a_login_that_came_meanwhile_wins_and_the_tokens_are_late(
    world: World, newer: Grant, has_begun: bool
) -> None:
    begun = await world.begun()
    await world.put(newer)
    assert Refreshed(newer) == await world.commit(begun)
    assert (newer, []) == (await world.stored(), world.entries())
    assert [(KEY, "rt-2", "at-2", has_begun)] == world.late
    assert ["grants"] == world.repository.synced, "the newer one may come from a write that failed"


async def test_tokens_for_a_grant_that_is_erased_are_late(world: World) -> None:
    begun = await world.begun()
    there = await world.repository.grant(KEY)
    assert there is not None
    await world.repository.erase_grant(there)
    assert Refreshed(None) == await world.commit(begun)
    assert [(KEY, "rt-2", "at-2", False)] == world.late


async def test_a_login_that_kept_the_spent_refresh_token_gets_the_new_one(world: World) -> None:
    begun = await world.begun()
    kept = replace(OLD, token=replace(token_with(600, refresh_token=Secret("rt-1"))), auth_session_id="as-new")
    kept = replace(kept, token=replace(FRESH, access_token=Secret("at-login"), refresh_token=Secret("rt-1")))
    await world.put(kept)
    refreshed = await world.commit(begun)
    stored = await world.stored()
    assert stored == refreshed.grant
    assert stored.token is not None
    assert stored.token.refresh_token is not None
    assert ("at-login", "rt-2") == (access_of(stored), stored.token.refresh_token.reveal())
    left = [
        secret.reveal() for each in (*stored.replaced, stored.retired) if each is not None for secret in each.secrets
    ]
    assert (["at-2"], []) == (left, world.late), "the access token beside it waits to be revoked"


# The refusal


@pytest.mark.parametrize(
    ("refused", "expected", "ended", "lines"),
    [
        (refused_with(Code.REAUTH_REQUIRED), Code.REAUTH_REQUIRED, "dead", 1),
        (refused_with(Code.SUBJECT_MISMATCH), Code.SUBJECT_MISMATCH, "quarantined", 1),
        (refused_with(Code.PROVIDER_UNREACHABLE), Code.PROVIDER_UNREACHABLE, "", 0),
        (refused_with(Code.TOKEN_RESPONSE_INVALID), Code.TOKEN_RESPONSE_INVALID, "", 1),
    ],
)
async def test_a_refusal_is_stored_audited_counted_and_told_where_an_operator_has_to_look(
    world: World, refused: RefreshRefused, expected: Code, ended: str, lines: int
) -> None:
    begun = await world.begun()
    refreshed = await world.refuse(begun, refused)
    stored = await world.stored()
    assert refreshed.error is not None
    assert (expected, stored) == (refreshed.error.code, refreshed.grant)
    assert (ended, None) == (stored.refresh_state.ended, stored.refresh_state.intent)
    assert [RefreshFailed(app="mail", grant=OLD.id, code=expected.value)] == world.entries()
    assert 1 == world.metrics.value(Metric.REFRESH_FAILURES, expected.value)
    assert lines == world.text.getvalue().count("a refresh was refused")


async def test_a_token_that_is_given_up_is_told_in_other_words(world: World) -> None:
    begun = await world.begun(replace(OLD, refresh_state=RefreshState(refused_at=NOW - timedelta(hours=2))))
    refreshed = await world.refuse(begun, refused_with(Code.EXCHANGE_FAILED, ambiguity="token"))
    assert refreshed.error is not None
    assert Code.REAUTH_REQUIRED is refreshed.error.code
    assert 1 == world.text.getvalue().count("a refresh token is given up for now")
    assert 0 == world.text.getvalue().count("a refresh was refused")


@pytest.mark.parametrize("rejected", [Secret("an-access-token"), None])
async def test_a_rejected_access_token_ends_with_the_refresh_token(world: World, rejected: Secret | None) -> None:
    begun = await world.begun(replace(OLD, token=token_with(3600, refresh_token=Secret("rt-1"))))
    await world.refuse(begun, refused_with(Code.REAUTH_REQUIRED), rejected=rejected)
    token = (await world.stored()).token
    assert token is not None
    assert (rejected is not None) is (token.expires_at == NOW)


async def test_a_refusal_that_cannot_be_stored_is_the_answer_all_the_same(world: World) -> None:
    begun = await world.begun()
    world.repository.fails = [BrokerError(Code.STORE_UNAVAILABLE)]
    refreshed = await world.refuse(begun, refused_with(Code.REAUTH_REQUIRED))
    assert refreshed.error is not None
    assert Code.REAUTH_REQUIRED is refreshed.error.code
    assert refreshed.grant is not None
    assert ("dead", begun) == (refreshed.grant.refresh_state.ended, await world.stored())
    assert 0 == world.retry_store.unstored


async def test_a_spare_in_a_refusal_is_kept_like_a_token(world: World) -> None:
    begun = await world.begun()
    world.repository.fails = [BrokerError(Code.STORE_UNAVAILABLE) for _ in range(2)]
    refreshed = await world.refuse(
        begun, refused_with(Code.TOKEN_RESPONSE_INVALID, spent=True, spare=Secret("rt-spare"))
    )
    stored = await world.stored()
    assert stored == refreshed.grant
    assert refreshed.error is not None
    assert Code.TOKEN_RESPONSE_INVALID is refreshed.error.code
    assert stored.refresh_state.spare is not None
    assert ("rt-spare", []) == (stored.refresh_state.spare.reveal(), world.dropped)


async def test_a_spare_in_a_refusal_that_ends_the_grant_is_not_kept_in_memory(world: World) -> None:
    begun = await world.begun()
    world.repository.fails = [BrokerError(Code.STORE_UNAVAILABLE) for _ in range(2)]
    await world.refuse(begun, refused_with(Code.SUBJECT_MISMATCH, spent=True, spare=Secret("rt-spare")))
    assert 1 == len(world.repository.fails), "it is tried once"
    assert [["rt-spare"]] == world.dropped_texts()


async def test_a_refusal_of_an_attempt_that_another_has_overtaken_asks_to_wait(world: World) -> None:
    begun = await world.begun()
    later = await world.stored()
    await world.put(replace(later, refresh_state=later.refresh_state.begun("a later attempt", NOW)))
    refreshed = await world.refuse(begun, refused_with(Code.REAUTH_REQUIRED))
    assert refreshed.error is not None
    assert (Code.REFRESH_IN_PROGRESS, 1) == (refreshed.error.code, refreshed.error.retry_after_seconds)
    assert ["grants"] == world.repository.synced


COMES: dict[str, tuple[Grant | None, Code, bool, bool]] = {
    "the grant ends": (None, Code.SUBJECT_MISMATCH, False, True),
    "the grant may go on": (None, Code.TOKEN_RESPONSE_INVALID, False, False),
    "revoked meanwhile": (OLD.tombstoned(NOW), Code.SUBJECT_MISMATCH, True, False),
    "replaced while it may go on": (LOGIN, Code.TOKEN_RESPONSE_INVALID, True, False),
    "replaced while it ends": (LOGIN, Code.SUBJECT_MISMATCH, False, True),
}


@pytest.mark.parametrize("name", COMES)
async def test_the_tokens_of_a_refused_answer_are_revoked_where_no_grant_needs_them(world: World, name: str) -> None:
    newer, code, is_late, is_spare_dropped = COMES[name]
    begun = await world.begun()
    if newer is not None:
        await world.put(newer)
    await world.refuse(begun, refused_with(code, spent=True, spare=Secret("rt-x"), access=Secret("at-x")))
    has_begun = newer is LOGIN
    assert ([(KEY, "rt-x", "at-x", has_begun)] if is_late else []) == world.late
    expected = [] if is_late else [["rt-x", "at-x"] if is_spare_dropped else ["at-x"]]
    assert expected == world.dropped_texts()


@pytest.mark.parametrize("newer", [OLD.tombstoned(NOW), None])
async def test_a_refusal_without_tokens_revokes_nothing(world: World, newer: Grant | None) -> None:
    begun = await world.begun()
    if newer is not None:
        await world.put(newer)
    await world.refuse(begun, refused_with(Code.REAUTH_REQUIRED))
    assert ([], []) == (world.late, world.dropped)


async def test_a_refusal_for_a_grant_that_is_erased_is_the_answer_and_its_tokens_are_late(world: World) -> None:
    begun = await world.begun()
    there = await world.repository.grant(KEY)
    assert there is not None
    await world.repository.erase_grant(there)
    refused = refused_with(Code.REAUTH_REQUIRED, spent=True, access=Secret("at-refused"))
    refreshed = await world.refuse(begun, refused)
    assert (None, Code.REAUTH_REQUIRED) == (refreshed.grant, refreshed.error and refreshed.error.code)
    assert [(KEY, None, "at-refused", False)] == world.late


async def test_where_revoking_a_token_ends_the_whole_grant_none_is_revoked(world: World) -> None:
    world.app = app_with(revocation=Revocation(kind="rfc7009", reach="grant"))
    begun = await world.begun()
    await world.refuse(begun, refused_with(Code.SUBJECT_MISMATCH, spent=True, access=Secret("at-x")))
    assert [] == world.dropped


# The withdrawal


@pytest.mark.parametrize("lost", [0, 2])
async def test_an_attempt_that_was_not_sent_is_taken_back_and_earlier_losses_stay(world: World, lost: int) -> None:
    state = RefreshState(intent=Intent("earlier", NOW, lost - 1)) if lost else RefreshState()
    await world.writeback.withdraw(await world.begun(replace(OLD, refresh_state=state)))
    intent = (await world.stored()).refresh_state.intent
    assert (lost - 1 if lost else None) == (intent.lost if intent is not None else None)


async def test_an_attempt_that_cannot_be_taken_back_raises_nothing(world: World) -> None:
    begun = await world.begun()
    world.repository.fails = [BrokerError(Code.STORE_UNAVAILABLE)]
    await world.writeback.withdraw(begun)
    assert begun == await world.stored()
