"""One callback: where it leads, what a stranger is told, and what a refused one does to its session."""

from __future__ import annotations

import io
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.authorization.callback import Callback
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret, digest_of
from oauthbroker.model.apps import App, Owner
from oauthbroker.observability.logging import json_log
from oauthbroker.records import AuthSession
from oauthbroker.records.auth_session import Claim
from oauthbroker.records.browser_attempt import Login
from oauthbroker.records.pending_code import PENDING_CODE_SECONDS, as_code
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW, app_with, session_with

LOCATOR, COOKIE, ISSUER = "L" * 22, "this-browser", "https://acme.example"
STATE = LOCATOR + "s" * 43
APP = app_with()
APP = replace(APP, endpoints=replace(APP.endpoints, issuer=ISSUER))


def bound(binding: Any) -> App:
    return replace(APP, owner=Owner(binding=binding))


class World:
    """A callback on a store in memory. `did` notes the calls of its parts that follow."""

    def __init__(self, app: App = APP) -> None:
        self.app, self.clock, self.log = app, TestClock(NOW), io.StringIO()
        self.repository = Repository(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock))
        self.did, self.promised, self.login = list[tuple[Any, ...]](), False, "login-digest"
        login = SimpleNamespace(digest=lambda: self.login)
        others: Any = self
        self.config = SimpleNamespace(bundle=SimpleNamespace(login=login))
        self.callback = Callback(
            repository=self.repository, discovery=others, finish=others, exchange=others,
            config=self.config, clock=self.clock, log=json_log(self.log, self.clock),  # type: ignore[arg-type]
        )  # fmt: skip

    async def issuer_promised(self, app: App) -> bool:
        self.did.append(("metadata", app.name))
        return self.promised

    async def see_through(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work

    async def redeem(self, app: App, versioned: Versioned[AuthSession], valid: Any, how: Any) -> AuthSession:
        self.did.append(("redeem", app.name, valid.code.reveal(), how))
        return versioned.record

    async def fail(self, versioned: Any, code: Code, *, event: str = "auth.failed") -> bool:
        self.did.append(("fail", code, event))
        return True

    async def lapse(self, versioned: Any) -> bool:
        self.did.append(("lapse",))
        return True

    async def put(self, **changes: Any) -> None:
        session = session_with(config_digest=self.app.config_digest)
        attempt = replace(session.attempt, cookie=digest_of(COOKIE))
        await self.repository.save_session(replace(session, **{"attempt": attempt, **changes}), expect=0)

    async def receive(self, query: str = f"state={STATE}&code=c", cookie: str | None = COOKIE) -> Code | AuthSession:
        """Return the session, or the code of the refusal."""
        try:
            return await self.callback.receive(
                self.app, query.encode(), {LOCATOR: cookie}.get if cookie else lambda _: None
            )
        except BrokerError as error:
            return error.code

    def ended(self) -> list[tuple[Any, ...]]:
        return [each for each in self.did if each[0] in {"fail", "lapse", "redeem"}]


@pytest.fixture
async def world() -> World:
    world = World()
    await world.put()
    return world


# Where a valid one leads


async def test_a_valid_callback_redeems_its_code(world: World) -> None:
    assert isinstance(await world.receive(), AuthSession)
    assert [("metadata", "mail"), ("redeem", "mail", "c", None)] == world.did


@pytest.mark.parametrize(("kind", "length"), [("runtimeConfirm", 65), ("channelCode", 8)])
async def test_a_code_that_awaits_its_confirmation_is_kept_and_not_redeemed(kind: Any, length: int) -> None:
    world = World(bound(kind))
    await world.put()
    session = await world.receive()
    assert isinstance(session, AuthSession)
    assert session.pending_code is not None
    assert (kind, "c") == (session.pending_code.kind, session.pending_code.code.reveal())
    assert NOW + timedelta(seconds=PENDING_CODE_SECONDS) == session.pending_code.until
    proof = session.pending_code.proof.reveal()
    assert length == len(proof)
    assert as_code(proof) == proof if kind == "channelCode" else proof.startswith(LOCATOR)
    there = await world.repository.session(LOCATOR)
    assert there is not None
    assert session == there.record
    assert [] == world.ended()


async def test_of_two_callbacks_that_keep_a_code_one_wins() -> None:
    world = World(bound("runtimeConfirm"))
    await world.put()
    there = await world.repository.session(LOCATOR)
    assert there is not None

    async def as_it_was(_: str) -> Any:
        return there

    world.repository.session = as_it_was  # type: ignore[assignment,method-assign]
    assert isinstance(await world.receive(), AuthSession)
    assert Code.STATE_USED is await world.receive()


# The broker's own login


def passed(digest: str = "login-digest", seconds: int = 60) -> Login:
    login = Login(attempt=session_with().attempt, digest=digest)
    return login.spent().passed(Secret("way-on"), NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        (passed(), None),
        (None, Code.OWNER_BINDING_FAILED),
        (Login(attempt=session_with().attempt, digest="login-digest"), Code.OWNER_BINDING_FAILED),
        (passed("another-digest"), Code.OWNER_BINDING_FAILED),
        (passed(seconds=0), Code.OWNER_BINDING_FAILED),
    ],
    ids=["passed", "none", "under way", "another configuration", "too long ago"],
)
async def test_behind_a_broker_login_only_one_who_has_logged_in_comes_back(
    login: Login | None, expected: Code | None
) -> None:
    world = World(bound("brokerLogin"))
    await world.put(login=login)
    answer = await world.receive()
    if expected is None:
        assert [("redeem", "mail", "c", "brokerLogin")] == world.ended()
    else:
        assert expected is answer
        assert [("fail", Code.OWNER_BINDING_FAILED, "auth.failed")] == world.ended()


async def test_without_a_configured_login_no_login_counts() -> None:
    world = World(bound("brokerLogin"))
    await world.put(login=passed())
    world.config.bundle.login = None
    assert Code.OWNER_BINDING_FAILED is await world.receive()


# What a stranger learns, and what its own browser is told


SPENT: dict[str, tuple[dict[str, Any], Code]] = {
    "used": ({"status": "completed"}, Code.STATE_USED),
    "claimed": ({"claim": Claim("x", NOW + timedelta(minutes=1))}, Code.STATE_USED),
    "expired": ({"expires_at": NOW}, Code.STATE_EXPIRED),
    "lapsed": ({"status": "expired"}, Code.STATE_EXPIRED),
    "another app's": ({"app": "files"}, Code.APP_MISMATCH),
}


@pytest.mark.case("2", "3", "4", "6")
@pytest.mark.parametrize("cookie", [COOKIE, "another", None])
@pytest.mark.parametrize("name", SPENT)
async def test_only_its_own_browser_is_told_why_a_state_is_worth_nothing(name: str, cookie: str | None) -> None:
    changes, code = SPENT[name]
    world = World()
    await world.put(**changes)
    assert (code if cookie == COOKIE else Code.STATE_UNKNOWN) is await world.receive(cookie=cookie)


@pytest.mark.case("2")
@pytest.mark.parametrize("state", ["M" * 22 + "s" * 43, LOCATOR + "x" * 43])
async def test_an_unknown_state_asks_no_provider_and_changes_nothing(world: World, state: str) -> None:
    assert Code.STATE_UNKNOWN is await world.receive(f"state={state}&code=c")
    assert [] == world.did


async def test_an_error_response_asks_for_no_metadata(world: World) -> None:
    await world.receive(f"state={STATE}&error=access_denied")
    assert [("fail", Code.PROVIDER_DENIED, "auth.denied")] == world.did


# What a refused one does to its session


ENDS: dict[str, tuple[str, str | None, dict[str, Any], Code, list[tuple[Any, ...]]]] = {
    "the user denied": (
        "error=access_denied", COOKIE, {}, Code.PROVIDER_DENIED, [("fail", Code.PROVIDER_DENIED, "auth.denied")],
    ),
    "our client is wrong": (
        "error=invalid_client", COOKIE, {}, Code.APP_MISCONFIGURED,
        [("fail", Code.APP_MISCONFIGURED, "auth.failed")],
    ),
    "another browser": (
        "code=c", "another", {}, Code.OWNER_BINDING_FAILED, [("fail", Code.OWNER_BINDING_FAILED, "auth.failed")],
    ),
    "another issuer": (
        "code=c&iss=https%3A%2F%2Fevil.example", COOKIE, {}, Code.ISSUER_MISMATCH,
        [("fail", Code.ISSUER_MISMATCH, "auth.failed")],
    ),
    "too late": ("code=c", COOKIE, {"expires_at": NOW}, Code.STATE_EXPIRED, [("lapse",)]),
    "the app has changed": ("code=c", COOKIE, {"config_digest": "old"}, Code.STATE_EXPIRED, [("lapse",)]),
    "another app's": ("code=c", COOKIE, {"app": "files"}, Code.APP_MISMATCH, []),
    "denied, and ended before": ("error=access_denied", COOKIE, {"status": "failed"}, Code.STATE_USED, []),
    "lapsed before": ("code=c", COOKIE, {"status": "expired"}, Code.STATE_EXPIRED, []),
    "claimed by another": (
        "error=access_denied", COOKIE, {"claim": Claim("x", NOW + timedelta(minutes=1))}, Code.STATE_USED, [],
    ),
}  # fmt: skip


@pytest.mark.case("4", "5", "6", "9", "10")
@pytest.mark.parametrize("name", ENDS)
async def test_a_refused_callback_ends_its_session_as_the_refusal_demands(name: str) -> None:
    query, cookie, changes, code, ended = ENDS[name]
    world = World()
    await world.put(**changes)
    assert code is await world.receive(f"state={STATE}&{query}", cookie)
    assert ended == world.ended()


async def test_a_promised_issuer_that_is_missing_fails_the_session(world: World) -> None:
    world.promised = True
    assert Code.ISSUER_MISMATCH is await world.receive()
    assert [("fail", Code.ISSUER_MISMATCH, "auth.failed")] == world.ended()


async def test_the_configured_issuer_is_the_one_that_may_answer(world: World) -> None:
    assert isinstance(await world.receive(f"state={STATE}&code=c&iss={ISSUER}"), AuthSession)


async def test_a_callback_with_another_sessions_state_changes_nothing(world: World) -> None:
    """The locator is public: who knows it must not be able to end the session."""
    forged = LOCATOR + "x" * 43
    for query in ("error=access_denied", "code=c"):
        assert Code.STATE_UNKNOWN is await world.receive(f"state={forged}&{query}")
    assert [] == world.ended()


@pytest.mark.parametrize(("error", "lines"), [("invalid_client", 1), ("access_denied", 0)])
async def test_the_operator_is_told_of_errors_that_are_not_a_denial(world: World, error: str, lines: int) -> None:
    await world.receive(f"state={STATE}&error={error}")
    assert lines == world.log.getvalue().count("an authorization was refused")
