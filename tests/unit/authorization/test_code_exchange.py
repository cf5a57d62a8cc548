"""A code becomes a grant, or ends its session: each step of the exchange, and the ways in which it fails."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from oauthbroker.audit import OwnerConfirmed
from oauthbroker.authorization.code_exchange import PROVIDER_CALLS, Exchange
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.owner_check import OwnerFacts
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.callback_checks import ValidCallback
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.records import ClaimedSession
from oauthbroker.repository.repository import PAIR_WAIT_SECONDS
from tests.kit.samples import NOW, app_with
from tests.unit.authorization.finish_kit import FinishWorld, moved_on

APP = app_with(revocation=Revocation(kind="rfc7009", reach="token"))
ANSWER = b'{"access_token": "at-new", "token_type": "bearer", "refresh_token": "rt-new", "expires_in": 600}'
VALID = ValidCallback(Secret("the-code"))


class World(FinishWorld):
    """An exchange with a scripted provider."""

    def __init__(self) -> None:
        super().__init__(APP)
        self.answer: tuple[int, bytes] | BaseException = 200, ANSWER
        self.sent, self.kinds, self.claim_until = list[Any](), list[str](), NOW
        self.unknown: BrokerError | None = None
        self.seconds = 0.0
        others: Any = self
        self.exchange = Exchange(
            asker=others, discovery=others, finish=self.finish, clock=self.clock, limits=Limits(provider_seconds=7)
        )

    async def endpoints(self, app: App) -> Any:
        if self.unknown is not None:
            raise self.unknown
        return app.endpoints

    async def ask(self, app: App, request: Any, *, kind: str) -> ProviderResponse:
        self.sent.append(request(app))
        self.kinds.append(kind)
        claim = (await self.session()).claim
        assert claim is not None, "the session is claimed before its code is sent"
        self.claim_until = claim.until
        self.clock.advance(self.seconds)
        if isinstance(self.answer, BaseException):
            raise self.answer
        status, body = self.answer
        return ProviderResponse(status=status, content_type="application/json", retry_after=None, body=body)

    async def redeem(self, versioned: Any, confirmed: Any = None) -> Code | None:
        try:
            assert isinstance(await self.exchange.redeem(APP, versioned, VALID, confirmed), ClaimedSession)
        except BrokerError as error:
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            assert "exchange_code" not in frames, "its frames hold tokens"
            return error.code
        return None


@pytest.fixture
def world() -> World:
    return World()


async def test_a_code_becomes_a_grant(world: World) -> None:
    assert None is await world.redeem(await world.put())
    grant = await world.grant()
    assert grant is not None
    assert grant.token is not None
    assert ("at-new", "completed") == (grant.token.access_token.reveal(), (await world.session()).status)
    assert ["Connected"] == world.entries()


async def test_a_code_is_sent_once_with_the_sessions_own_verifier(world: World) -> None:
    versioned = await world.put()
    await world.redeem(versioned)
    (sent,), attempt = world.sent, versioned.record.attempt
    assert attempt.verifier is not None
    form = {name: value.reveal() if isinstance(value, Secret) else value for name, value in sent.form.items()}
    assert ("the-code", attempt.verifier.reveal()) == (form["code"], form["code_verifier"])
    assert ("https://acme.example/token", ["code"]) == (sent.url, world.kinds)


async def test_a_claim_outlives_seven_calls_of_the_provider_and_the_wait_for_the_pair(world: World) -> None:
    await world.redeem(await world.put())
    assert NOW + timedelta(seconds=PROVIDER_CALLS * 7 + PAIR_WAIT_SECONDS) == world.claim_until


async def test_a_token_lives_from_when_its_code_was_sent(world: World) -> None:
    world.seconds = 5
    await world.redeem(await world.put())
    grant = await world.grant()
    assert grant is not None
    assert grant.token is not None
    assert NOW + timedelta(seconds=600) == grant.token.expires_at
    assert [NOW] == [sent_at for *_, sent_at in world.read_with]


@pytest.mark.parametrize("confirmed", ["runtimeConfirm", None])
async def test_the_audit_log_says_how_an_owner_was_confirmed_before_the_code_is_sent(
    world: World, confirmed: Any
) -> None:
    await world.redeem(await world.put(), confirmed)
    session = await world.session()
    entries = [each for _, each in world.audit.lines if isinstance(each, OwnerConfirmed)]
    assert ([OwnerConfirmed(app="mail", session=session.id, how=confirmed)] if confirmed else []) == entries
    assert "Connected" == world.entries()[-1]


async def test_a_confirmation_that_the_audit_log_cannot_hold_ends_the_session_before_the_code_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = world.audit.write

    def full(entry: Any, at: datetime) -> None:
        if isinstance(entry, OwnerConfirmed):
            raise BrokerError(Code.STORE_UNAVAILABLE)
        write(entry, at)

    monkeypatch.setattr(world.audit, "write", full)
    assert Code.STORE_UNAVAILABLE is await world.redeem(await world.put(), "runtimeConfirm")
    assert ([], "failed") == (world.sent, (await world.session()).status)


async def test_where_the_pair_cannot_be_written_the_session_is_as_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = list[tuple[str, str]]()

    async def locked(key: GrantKey) -> None:
        checked.append((key.app, key.subject))
        raise BrokerError(Code.STORE_LOCKED)

    versioned = await world.put()
    monkeypatch.setattr(world.repository, "check_writable", locked)
    assert Code.STORE_LOCKED is await world.redeem(versioned)
    assert ([("mail", "acme:user:1")], []) == (checked, world.sent)
    assert versioned.record == await world.session()


async def test_a_session_that_another_caller_has_claimed_sends_no_code(world: World) -> None:
    versioned = await world.put()
    await world.repository.save_session(moved_on(versioned), expect=versioned.generation)
    assert Code.STATE_USED is await world.redeem(versioned)
    assert ([], True) == (world.sent, (await world.session()).open)


FAILS: dict[str, tuple[Any, Any, Code, bool]] = {
    "the provider refuses the code": ((400, b'{"error": "invalid_grant"}'), None, Code.EXCHANGE_FAILED, False),
    "no answer came": (TransportFailed("lost", sent=True), None, Code.EXCHANGE_UNCERTAIN, False),
    "nothing was sent": (TransportFailed("no route", sent=False), None, Code.PROVIDER_UNREACHABLE, False),
    "another account": ((200, ANSWER), OwnerFacts(user_identity="acme:user:2"), Code.SUBJECT_MISMATCH, True),
    "an answer that is refused with its tokens": (
        (200, ANSWER.replace(b'"bearer"', b'"mac"')), None, Code.TOKEN_RESPONSE_INVALID, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILS)
async def test_a_failed_exchange_ends_the_session_and_revokes_the_tokens_that_came(world: World, name: str) -> None:
    world.answer, facts, code, has_tokens = FAILS[name]
    world.facts = facts or world.facts
    assert code is await world.redeem(await world.put())
    session = await world.session()
    assert ("failed", code, None) == (session.status, session.failure, await world.grant())
    assert ([["rt-new", "at-new"]] if has_tokens else []) == world.revoked_texts()


async def test_endpoints_that_cannot_be_read_end_the_session_with_their_error(world: World) -> None:
    world.unknown = BrokerError(Code.PROVIDER_RATE_LIMITED)
    assert Code.PROVIDER_RATE_LIMITED is await world.redeem(await world.put())
    assert Code.PROVIDER_RATE_LIMITED is (await world.session()).failure


@pytest.mark.parametrize(("sent", "expected"), [(True, Code.EXCHANGE_UNCERTAIN), (False, Code.PROVIDER_UNREACHABLE)])
async def test_the_reason_of_a_failed_request_is_kept_for_the_operator(
    world: World, sent: bool, expected: Code
) -> None:
    world.answer = TransportFailed("a reason", sent=sent)
    claimed = await world.claimed()
    assert isinstance(claimed.record, ClaimedSession)
    with pytest.raises(BrokerError) as raised:
        await world.exchange.exchange_code(APP, VALID, claimed.record)
    assert (expected, "a reason") == (raised.value.code, raised.value.note)


async def test_a_session_without_its_verifier_sends_no_code(world: World) -> None:
    claimed = (await world.claimed()).record
    assert isinstance(claimed, ClaimedSession)
    with pytest.raises(BrokerError) as raised:
        await world.exchange.exchange_code(APP, VALID, replace(claimed, attempt=claimed.attempt.spent()))
    assert (Code.STATE_USED, []) == (raised.value.code, world.sent)


async def test_work_that_was_begun_ends_also_when_its_caller_is_gone_and_closing_waits_for_it(world: World) -> None:
    begun, may_end, done = asyncio.Event(), asyncio.Event(), list[str]()

    async def work() -> None:
        begun.set()
        await may_end.wait()
        done.append("committed")

    caller = asyncio.ensure_future(world.exchange.see_through(work()))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    closing = asyncio.ensure_future(world.exchange.close())
    await asyncio.sleep(0)
    assert not closing.done()
    may_end.set()
    await closing
    assert ["committed"] == done
    with pytest.raises(BrokerError) as raised:
        await world.exchange.see_through(work())
    assert Code.BROKER_UNREACHABLE is raised.value.code
