"""A disk that fails in the middle of the commit (case 36): a durable grant counts, and is never revoked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oauthbroker.audit import Connected
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository.repository import Conflict, Repository, Versioned
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, Harness, running, user_app

Break = Callable[[Harness, pytest.MonkeyPatch], None]


def disk_full(*_: object, **__: object) -> None:
    raise BrokerError(Code.STORE_UNAVAILABLE, note="no space left")


def at_the_session(harness: Harness, patch: pytest.MonkeyPatch) -> None:
    """The grant is written; then the disk is full."""
    save = Repository.save_session

    async def save_or_fail(self: Repository, session: AuthSession, *, expect: int) -> Versioned[AuthSession]:
        if not session.open:
            disk_full()
        return await save(self, session, expect=expect)

    patch.setattr(Repository, "save_session", save_or_fail)


def after_the_grant(harness: Harness, patch: pytest.MonkeyPatch) -> None:
    """The grant reached its place, and the disk failed before it could say so."""
    save = Repository.save_grant

    async def save_and_fail(self: Repository, grant: Grant, *, expect: int) -> Versioned[Grant]:
        await save(self, grant, expect=expect)
        disk_full()
        raise AssertionError

    patch.setattr(Repository, "save_grant", save_and_fail)


@pytest.mark.case("36")
@pytest.mark.parametrize("break_down", [at_the_session, after_the_grant])
async def test_a_durable_grant_serves_after_any_later_failure(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, break_down: Break
) -> None:
    asked = await harness.ask_link()
    with monkeypatch.context() as patch:
        break_down(harness, patch)
        assert 200 == (await harness.connect(asked)).status
    ready = await harness.ask()
    assert isinstance(ready, Ready)
    assert harness.idp.is_alive(ready.access_token), "and was not revoked"
    assert 0 == harness.idp.count("revoke")
    session = await harness.session(asked)
    assert session.claim is not None
    harness.clock.set(session.claim.until)
    async with running(harness.idp, [user_app(harness.idp)], clock=harness.clock, store=harness.store) as successor:
        assert "completed" == (await successor.session(asked)).status
        assert ["auth.granted"] == [event["type"] for event in await successor.events()]


@pytest.mark.case("36")
async def test_a_grant_that_could_not_be_written_is_not_there_and_its_tokens_are_revoked(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await harness.ask_link()
    with monkeypatch.context() as patch:
        patch.setattr(Repository, "save_grant", disk_full)
        assert_error_page(await harness.connect(asked), Code.STORE_UNAVAILABLE)
    assert (None, Code.STORE_UNAVAILABLE) == (await harness.grant(), (await harness.session(asked)).failure)
    assert 0 == harness.idp.living_tokens("client-mail")
    assert isinstance(await harness.ask(), AuthorizationRequired)
    assert ["storeUnavailable"] == [event["payload"]["code"] for event in await harness.events()]


@pytest.mark.case("36")
async def test_without_an_audit_entry_there_is_no_grant(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit file is full when the provider has answered: nothing is stored, and nothing stays alive unseen."""
    asked = await harness.ask_link()
    person = harness.browser()
    url = await harness.way_back(asked, person)
    with monkeypatch.context() as patch:
        patch.setattr(AuditList, "write", disk_full)
        assert_error_page(await person.follow(url), Code.STORE_UNAVAILABLE)
    assert (None, Code.STORE_UNAVAILABLE) == (await harness.grant(), (await harness.session(asked)).failure)
    assert 0 == harness.idp.living_tokens("client-mail")


def another_writer_first(patch: pytest.MonkeyPatch, times: int) -> None:
    """The next `times` writes of a grant meet a newer version than the one that was read."""
    save, left = Repository.save_grant, [times]

    async def meet_a_newer_one(self: Repository, grant: Grant, *, expect: int, **more: Any) -> Versioned[Grant]:
        left[0] -= 1
        if left[0] >= 0:
            raise Conflict
        return await save(self, grant, expect=expect, **more)

    patch.setattr(Repository, "save_grant", meet_a_newer_one)


@pytest.mark.case("36")
@pytest.mark.parametrize("times", [1, 2])
async def test_a_login_that_meets_a_newer_grant_is_stored_above_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    asked = await harness.ask_link()
    with monkeypatch.context() as patch:
        another_writer_first(patch, times)
        assert 200 == (await harness.connect(asked)).status
    assert isinstance(await harness.ask(), Ready)
    assert 1 == sum(isinstance(entry, Connected) for entry in harness.audit.entries)


@pytest.mark.case("36")
async def test_a_login_that_cannot_be_stored_for_other_writers_is_refused_and_its_tokens_end(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await harness.ask_link()
    with monkeypatch.context() as patch:
        another_writer_first(patch, 1000)
        assert_error_page(await harness.connect(asked), Code.STORE_LOCKED)
    assert (None, Code.STORE_LOCKED) == (await harness.grant(), (await harness.session(asked)).failure)
    assert 0 == harness.idp.living_tokens("client-mail")
    assert isinstance(await harness.ask(), AuthorizationRequired)


async def test_a_revocation_that_meets_a_newer_grant_ends_that_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.connected()
    with monkeypatch.context() as patch:
        another_writer_first(patch, 1)
        assert await harness.broker.grants.revoke("mail", ALICE)
    assert 0 == harness.idp.living_tokens("client-mail")
