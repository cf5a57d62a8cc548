"""The database has an older version of a grant than a broker has stored: it lost its last transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oauthbroker import Ready
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import AuthSession
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit import postgres
from tests.kit.running_broker import ALICE, Harness, turn
from tests.story.hosts_kit import hosts

DATABASE = "lost"
OTHER_TIMELINE = "update oauthbroker.feature set name = 'timeline 0000ABCD 0' where name ~ 'timeline'"


@dataclass
class Row:
    """The row of the grant, put back as it was."""

    url: Secret
    kind: str
    name: bytes

    def read(self) -> Any:
        return self._run("select generation, version, record from oauthbroker.entry where kind = %s and name = %s")

    def put_back(self, before: Any) -> None:
        to = "(generation, version, record, kind, name) values (%s, %s, %s, %s, %s) on conflict (kind, name)"
        over = "do update set generation = excluded.generation, version = excluded.version, record = excluded.record"
        self._run(f"insert into oauthbroker.entry {to} {over} returning true", *before)

    def remove(self) -> None:
        self._run("delete from oauthbroker.entry where kind = %s and name = %s returning true")

    def _run(self, statement: str, *values: Any) -> Any:
        with psycopg.connect(self.url.reveal(), autocommit=True) as connection:
            return connection.execute(statement.encode(), [*values, self.kind, self.name]).fetchone()


@pytest.fixture
async def host(
    postgres_server: postgres.Server, tmp_path: Path, identity_provider: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[Harness]:
    """A broker without background, whose tests say when it restores."""
    url = postgres_server.new_database(DATABASE)
    async with hosts(1, url, tmp_path, identity_provider, test_clock) as (host,):
        for task in host.running.tasks:
            task.cancel()
        yield host


@pytest.fixture
def row(host: Harness, postgres_server: postgres.Server) -> Row:
    key = host.repository.grant_place(GrantKey("mail", ALICE))
    return Row(postgres_server.url(DATABASE), key.kind, bytes.fromhex(key.name))


async def reported(host: Harness, token: Secret) -> Ready:
    answer = await host.broker.oauth(turn()).report_rejected("mail", token)
    assert isinstance(answer, Ready), answer
    return answer


async def test_a_broker_that_remembers_a_newer_token_hands_it_out_and_refreshes_from_it(
    host: Harness, row: Row
) -> None:
    first = await host.connected()
    before = row.read()
    second = await reported(host, first.access_token)
    row.put_back(before)
    answer = await host.ask()
    assert isinstance(answer, Ready)
    assert second.access_token == answer.access_token
    third = await reported(host, answer.access_token)
    assert host.idp.is_alive(third.access_token)
    (family,) = host.idp.families("client-mail")
    assert ("", {1}) == (family.ended_by, set(family.redeemed.values()))


async def test_a_newer_token_is_stored_again_before_any_caller_needs_it(host: Harness, row: Row) -> None:
    first = await host.connected()
    before = row.read()
    second = await reported(host, first.access_token)
    row.put_back(before)
    assert isinstance(await host.ask(), Ready)
    assert 1 == await host.running.parts.background_refresh.restore()
    assert 0 == await host.running.parts.background_refresh.restore()
    grant = await host.grant()  # of a broker that remembers nothing
    assert grant is not None
    assert grant.token is not None
    assert second.access_token == grant.token.access_token
    assert "is stored again" in host.log.getvalue()


@pytest.mark.parametrize("steps", ["revoked", "revoked, and its tokens erased", "revoked, and its record erased"])
async def test_a_revocation_that_the_database_has_forgotten_still_holds_and_is_stored_again(
    host: Harness, row: Row, steps: str
) -> None:
    await host.connected()
    before = row.read()
    if steps == "revoked":
        await host.running.parts.revoke.write_tombstone(GrantKey("mail", ALICE))
    elif steps == "revoked, and its tokens erased":
        assert await host.broker.revoke("mail", subject=ALICE)
    else:
        assert (await host.broker.erase(ALICE)).done
    row.put_back(before)
    assert "authorization_required" == (await host.ask()).status
    assert 1 == await host.running.parts.background_refresh.restore()
    grant = await host.grant()
    assert grant is not None
    assert grant.revoked


async def test_a_consent_that_came_after_the_loss_is_not_replaced(host: Harness, row: Row) -> None:
    first = await host.connected()
    before = row.read()
    await reported(host, first.access_token)
    row.put_back(before)
    other = host.repository  # as on another host, that remembers nothing
    versioned = await other.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    answer = await host.ask(switch_account=True)
    assert (await host.connect(answer)).status == 200
    newest = await host.ask()
    assert isinstance(newest, Ready)
    assert 0 == await host.running.parts.background_refresh.restore()
    grant = await host.grant()
    assert grant is not None
    assert grant.token is not None
    assert newest.access_token == grant.token.access_token != first.access_token


async def test_a_first_consent_whose_session_closes_after_a_takeover_wakes_its_agent(
    host: Harness, row: Row, postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby lacks the grant, which has the only event, and not the session that is completed on it."""
    save_session: Any = Repository.save_session

    async def saved(repository: Repository, session: AuthSession, *, expect: int) -> Any:
        if session.status == "completed":
            row.remove()
            postgres_server.run(OTHER_TIMELINE, DATABASE)
        return await save_session(repository, session, expect=expect)

    monkeypatch.setattr(Repository, "save_session", saved)
    asked = await host.ask_link()
    assert 200 == (await host.connect(asked)).status
    await host.running.parts.relay.once()
    assert ["auth.granted"] == [each["type"] for each in await host.events()]
    assert isinstance(await host.ask(), Ready)
