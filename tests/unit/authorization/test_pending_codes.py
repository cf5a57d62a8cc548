"""A code that waits for its confirmation: the one proof, runtime and browser that release it, and each that does not."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.authorization.pending_codes import PendingCodes
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret, digest_of
from oauthbroker.model.apps import App, Owner
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.model.turn import Turn
from oauthbroker.records import AuthSession
from oauthbroker.records.auth_session import Claim
from oauthbroker.records.browser_attempt import Login
from oauthbroker.records.pending_code import MAX_TRIES, PendingCode
from oauthbroker.repository.repository import Conflict, Repository, Versioned
from tests.kit.samples import NOW, app_with, session_with, turn_with
from tests.unit.authorization.finish_kit import FinishWorld, moved_on

LOCATOR, COOKIE = "L" * 22, "this-browser"
HANDLE = LOCATOR + "h" * 43
CODE = "ABCDEFGH"
UNTIL = NOW + timedelta(seconds=60)
TURN = turn_with(user="acme:user:1")


class World(FinishWorld):
    """Pending codes of one app, with a scripted exchange."""

    def __init__(self, kind: Any) -> None:
        super().__init__(app_with(owner=Owner(binding=kind)))
        self.kind = kind
        self.refused: Code | None = None
        self.redeemed, self.synced = list[tuple[Any, ...]](), 0
        self.apps = {"mail": self.app}
        others: Any = self
        self.pending_codes = PendingCodes(
            repository=self.repository, finish=self.finish, exchange=others, mcp_clients=others, apps=self.apps,
            clock=self.clock,
        )  # fmt: skip

    async def sync(self) -> None:
        self.synced += 1

    async def see_through(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work

    async def redeem(self, app: App, versioned: Versioned[AuthSession], valid: Any, how: Any) -> AuthSession:
        self.redeemed.append((app.name, versioned.record.id, valid.code.reveal(), how))
        if self.refused is not None:
            raise BrokerError(self.refused)
        return versioned.record

    async def put_pending(self, *, proof: str = "", code: dict[str, Any] | None = None, **changes: Any) -> Any:
        proof = proof or (HANDLE if self.kind == "runtimeConfirm" else CODE)
        pending = PendingCode(kind=self.kind, code=Secret("c"), proof=Secret(proof), until=UNTIL)
        return await self.put(**{"pending_code": replace(pending, **(code or {})), **changes})

    async def confirm(self, handle: Any = HANDLE, subject: Any = "acme:user:1") -> SessionOutcome | Code:
        return await outcome(self.pending_codes.confirm(handle, subject))

    async def relay(self, code: Any = CODE, turn: Turn = TURN, apps: Any = None) -> SessionOutcome | Code:
        return await outcome(self.pending_codes.relay(turn, code, apps))

    async def tries(self, locator: str = LOCATOR) -> int | None:
        pending = (await self.session(locator)).pending_code
        return pending.tries if pending is not None else None


async def outcome(work: Coroutine[Any, Any, SessionOutcome]) -> SessionOutcome | Code:
    try:
        return await work
    except BrokerError as error:
        return error.code


@pytest.fixture
def runtime() -> World:
    return World("runtimeConfirm")


@pytest.fixture
def channel() -> World:
    return World("channelCode")


COMPLETED = SessionOutcome("completed", auth_session_id=f"as-{LOCATOR}")


# A handle


@pytest.mark.parametrize(
    ("handle", "expected"),
    [(HANDLE, f"as-{LOCATOR}"), (HANDLE[:-1], None), (HANDLE + "h", None), ("", None), (HANDLE[:-1] + "!", None)],
)
def test_a_handle_names_its_session_whether_or_not_there_is_one(handle: str, expected: str | None) -> None:
    assert expected == PendingCodes.session_in(handle)


async def test_the_subject_that_asked_releases_the_code(runtime: World) -> None:
    await runtime.put_pending()
    assert COMPLETED == await runtime.confirm()
    assert [("mail", f"as-{LOCATOR}", "c", "runtimeConfirm")] == runtime.redeemed
    assert 1 == runtime.synced, "an app that another process has registered is known"


@pytest.mark.parametrize("subject", ["acme:user:2", "Acme:user:1", "acme:user:1 ", ""])
async def test_another_subject_fails_the_session_and_the_code_is_never_redeemed(runtime: World, subject: str) -> None:
    await runtime.put_pending()
    assert Code.OWNER_BINDING_FAILED is await runtime.confirm(subject=subject)
    assert Code.OWNER_BINDING_FAILED is (await runtime.session()).failure
    assert Code.STATE_UNKNOWN is await runtime.confirm(), "the handle is used up by the wrong one"
    assert [] == runtime.redeemed


@pytest.mark.parametrize(("handle", "subject"), [(None, "acme:user:1"), (HANDLE, None), (b"x", "acme:user:1")])
async def test_a_confirmation_that_is_no_text_is_refused(runtime: World, handle: Any, subject: Any) -> None:
    await runtime.put_pending()
    assert (Code.REQUEST_INVALID, 0) == (await runtime.confirm(handle, subject), runtime.synced)


@pytest.mark.parametrize(
    "handle", [LOCATOR + "x" * 43, "M" * 22 + "h" * 43, LOCATOR, f"as-{LOCATOR}", ""],
    ids=["another proof", "no session", "the locator", "the id", "nothing"],
)  # fmt: skip
async def test_another_handle_is_unknown_and_changes_nothing(runtime: World, handle: str) -> None:
    versioned = await runtime.put_pending()
    assert Code.STATE_UNKNOWN is await runtime.confirm(handle)
    assert (versioned.record, []) == (await runtime.session(), runtime.redeemed)


async def test_a_session_without_a_pending_code_is_unknown(runtime: World) -> None:
    await runtime.put()
    assert Code.STATE_UNKNOWN is await runtime.confirm()


async def test_a_code_of_another_kind_is_unknown(channel: World) -> None:
    await channel.put_pending(proof=HANDLE)
    assert Code.STATE_UNKNOWN is await channel.confirm()
    assert [] == channel.redeemed


@pytest.mark.parametrize(("seconds", "late"), [(59, False), (60, True)])
async def test_a_handle_is_worth_something_for_a_minute_and_a_late_one_fails_the_session(
    runtime: World, seconds: int, late: bool
) -> None:
    await runtime.put_pending()
    runtime.clock.advance(seconds)
    assert (Code.STATE_UNKNOWN if late else COMPLETED) == await runtime.confirm()
    assert (Code.OWNER_BINDING_FAILED if late else None) is (await runtime.session()).failure


@pytest.mark.parametrize("gone", [True, False])
async def test_an_app_that_is_gone_or_has_changed_ends_the_session(runtime: World, gone: bool) -> None:
    await runtime.put_pending()
    if gone:
        del runtime.apps["mail"]
    else:
        runtime.apps["mail"] = replace(runtime.app, scopes=("read",))
    assert Code.STATE_UNKNOWN is await runtime.confirm()
    assert ("expired", []) == ((await runtime.session()).status, runtime.redeemed)


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (Code.STATE_USED, Code.STATE_UNKNOWN),
        (Code.SUBJECT_MISMATCH, SessionOutcome("failed", Code.SUBJECT_MISMATCH, f"as-{LOCATOR}")),
    ],
)
async def test_a_failed_exchange_is_an_outcome_and_a_lost_race_an_unknown_handle(
    runtime: World, refused: Code, expected: Any
) -> None:
    await runtime.put_pending()
    runtime.refused = refused
    assert expected == await runtime.confirm()


async def test_of_two_wrong_confirmations_the_later_one_learns_nothing(
    runtime: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    versioned = await runtime.put_pending()
    await runtime.repository.save_session(moved_on(versioned), expect=versioned.generation)

    async def as_it_was(*_: Any) -> Any:
        return versioned

    monkeypatch.setattr(runtime.repository, "session", as_it_was)
    assert Code.STATE_UNKNOWN is await runtime.confirm(subject="acme:user:2")


# A channel code


@pytest.mark.parametrize("text", [CODE, "abcd-efgh", " ABCD EFGH "])
async def test_the_code_that_its_user_writes_in_the_conversation_releases_it(channel: World, text: str) -> None:
    await channel.put_pending()
    assert COMPLETED == await channel.relay(text)
    assert [("mail", f"as-{LOCATOR}", "c", "channelCode")] == channel.redeemed
    assert (1, 1) == (channel.synced, await channel.tries())


@pytest.mark.parametrize("text", ["ABCDEFG", "hello", ""])
async def test_a_text_that_is_no_code_counts_as_no_try(channel: World, text: str) -> None:
    await channel.put_pending()
    assert (Code.STATE_UNKNOWN, 0) == (await channel.relay(text), await channel.tries())


async def test_a_value_that_is_no_text_counts_as_no_try(channel: World) -> None:
    await channel.put_pending()
    nothing: Any = None
    assert (Code.REQUEST_INVALID, 0) == (await channel.relay(nothing), await channel.tries())


async def test_a_wrong_code_counts_and_the_last_one_fails_the_session(channel: World) -> None:
    await channel.put_pending()
    for tried in range(1, MAX_TRIES):
        assert (Code.STATE_UNKNOWN, tried) == (await channel.relay("ZZZZZZZZ"), await channel.tries())
    assert Code.STATE_UNKNOWN is await channel.relay("ZZZZZZZZ")
    assert Code.OWNER_BINDING_FAILED is (await channel.session()).failure
    assert Code.STATE_UNKNOWN is await channel.relay(), "also the right one comes too late"


async def test_the_last_try_may_be_the_right_one(channel: World) -> None:
    await channel.put_pending(code={"tries": MAX_TRIES - 1})
    assert COMPLETED == await channel.relay()


IGNORED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tried too often": ({"code": {"tries": MAX_TRIES}}, {}),
    "of another conversation": ({"resume": replace(TURN.resume_target, instance_key="another")}, {}),
    "of another subject": ({}, {"turn": turn_with(user="acme:user:2")}),
    "of an app that is not asked about": ({}, {"apps": ["files"]}),
    "of another kind": ({"code": {"kind": "runtimeConfirm"}}, {}),
    "without a pending code": ({"pending_code": None}, {}),
    "late": ({"code": {"until": NOW}}, {}),
}


@pytest.mark.parametrize("name", IGNORED)
async def test_a_code_is_not_compared_with_a_session_that_waits_for_no_code_of_this_turn(
    channel: World, name: str
) -> None:
    put, relayed = IGNORED[name]
    versioned = await channel.put_pending(**put)
    assert Code.STATE_UNKNOWN is await channel.relay(**relayed)
    assert (versioned.record, []) == (await channel.session(), channel.redeemed)


@pytest.mark.parametrize("apps", [None, ["mail"], ["files", "mail"]])
async def test_apps_may_be_named(channel: World, apps: Any) -> None:
    await channel.put_pending()
    assert COMPLETED == await channel.relay(apps=apps)


async def test_an_app_of_another_binding_is_not_looked_at(channel: World) -> None:
    await channel.put_pending()
    channel.apps["mail"] = app_with(owner=Owner(binding="runtimeConfirm"))
    assert Code.STATE_UNKNOWN is await channel.relay()
    assert 0 == await channel.tries()


async def test_of_several_sessions_the_one_with_this_code_is_released(channel: World) -> None:
    other = "M" * 22
    await channel.put_pending(proof="ZZZZZZZZ")
    await channel.put(
        locator=other, ticket=Secret(other + "t" * 43),
        pending_code=PendingCode(kind="channelCode", code=Secret("d"), proof=Secret(CODE), until=UNTIL),
    )  # fmt: skip
    assert SessionOutcome("completed", auth_session_id=f"as-{other}") == await channel.relay()
    assert (1, 1) == (await channel.tries(), await channel.tries(other))


async def test_a_try_is_counted_before_the_code_is_compared_also_beside_another_writer(
    channel: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await channel.put_pending()
    fails = [Conflict()]

    async def save(self: Repository, session: AuthSession, **more: Any) -> Any:
        if fails:
            raise fails.pop()
        return await Repository.save_session(self, session, **more)

    monkeypatch.setattr(type(channel.repository), "save_session", save, raising=False)
    assert (COMPLETED, 1) == (await channel.relay(), await channel.tries())


async def test_a_try_that_cannot_be_counted_is_not_compared(channel: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await channel.put_pending()
    saves = list[AuthSession]()

    async def save(_: Any, session: AuthSession, **__: Any) -> Any:
        saves.append(session)
        raise Conflict

    monkeypatch.setattr(type(channel.repository), "save_session", save, raising=False)
    assert (Code.STORE_LOCKED, 8, []) == (await channel.relay(), len(saves), channel.redeemed)


# The browser that waits


def with_cookie(**changes: Any) -> dict[str, Any]:
    return {"attempt": replace(session_with().attempt, cookie=digest_of(COOKIE)), **changes}


PASSED = Login(attempt=session_with().attempt, digest="d", way_on=Secret("way-on"), until=UNTIL, used=True)
SEEN: dict[str, tuple[dict[str, Any], bool]] = {
    "a pending code": ({}, True),
    "late": ({"code": {"until": NOW}}, False),
    "nothing to wait for": ({"pending_code": None}, False),
    "a login that is passed": ({"pending_code": None, "login": PASSED}, True),
    "a login under way": ({"pending_code": None, "login": replace(PASSED, way_on=None)}, False),
    "claimed": ({"pending_code": None, "claim": Claim("x", UNTIL)}, True),
    "ended": ({"pending_code": None, "status": "completed"}, True),
}


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("cookie", [COOKIE, "another", None])
async def test_only_the_browser_that_brought_a_code_sees_its_session(
    runtime: World, name: str, cookie: str | None
) -> None:
    changes, is_seen = SEEN[name]
    versioned = await runtime.put_pending(**with_cookie(**changes))
    seeing: Any = runtime.pending_codes.session_of_browser(LOCATOR, cookie)
    expected = versioned.record if is_seen and cookie == COOKIE else Code.STATE_UNKNOWN
    assert expected == await outcome(seeing)


async def test_a_browser_of_no_session_sees_none(runtime: World) -> None:
    seeing: Any = runtime.pending_codes.session_of_browser("M" * 22, COOKIE)
    assert Code.STATE_UNKNOWN is await outcome(seeing)
