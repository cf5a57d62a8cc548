"""The machine stops at every single change while two grants are ended: what must hold on every disk that this may leave.

A provider is told only of grants that have ended here. An ended grant stays ended: its token is never handed out again, its
provider is told, its tokens are erased, and its agent hears of it under one id. Every other grant works as before.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.model.apps import App
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.revocation import bulk
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.testing import IdentityProvider, connect_through
from oauthbroker.testing.stores import open_keyring
from tests.faults.crash_kit import MOST_CHANGES, POWER_LOSS_STATES, CrashAtChange
from tests.kit.broker_process import Process
from tests.kit.crashfs import Crash
from tests.kit.running_broker import ALICE, BOB, turn, user_app

SHARDS = 8
PEOPLE = {ALICE: "alice", BOB: "bob"}


@dataclass(frozen=True)
class Connected:
    """Two people have agreed, and their agents know it."""

    root: Path
    ring: Keyring
    app: App
    idp: IdentityProvider
    at: datetime
    sessions: Mapping[str, str]

    def start(self, root: Path | None = None, fs: Any = None) -> Process:
        return Process.start(root or self.root, self.ring, [self.app], self.at, fs)

    def revoked_event(self, subject: str) -> str:
        return f"evt-{self.sessions[subject]}-auth.revoked"

    def living(self) -> dict[str, int]:
        return {subject: self.idp.living_tokens("client-mail", login) for subject, login in PEOPLE.items()}


async def prepared(place: Path, idp: IdentityProvider) -> Connected:
    ring, root, app = open_keyring(place), place / "store", user_app(idp)
    process, sessions = Process.start(root, ring, [app], idp.clock.now()), {}
    idp.revoke_all("client-mail")
    for subject, login in PEOPLE.items():
        asked = await process.broker.oauth(turn(subject)).get_access_token("mail")
        assert isinstance(asked, AuthorizationRequired)
        page = await connect_through(process.browser(), idp, asked.authorization_url, login)
        assert 200 == page.status
        sessions[subject] = asked.auth_session_id
    await process.tend()
    await process.drain()
    await process.die()
    return Connected(root, ring, app, idp, process.clock.now(), sessions)


async def ended(process: Process) -> None:
    """What a command and a running broker do."""
    await process.broker.grants.revoke_all(app="mail")
    await recovered(process)


async def recovered(process: Process) -> None:
    await process.tend()
    await process.parts.bulk_revocation.run_pass()
    await process.tend()
    await process.drain()


async def check(story: Connected, process: Process, living: Mapping[str, int], heard: set[str]) -> set[bool]:
    """Of every grant, on what was left: is it ended?"""
    tombstones = {}
    for subject in PEOPLE:
        grant = await process.grant("mail", subject)
        assert grant is not None
        tombstones[subject] = grant.revoked
        assert grant.revoked or living[subject] == 1, "the provider was told before it was written down"
        answer = await process.broker.oauth(turn(subject)).get_access_token("mail")
        assert isinstance(answer, AuthorizationRequired if grant.revoked else Ready)
    await recovered(process)
    now_living = story.living()
    for subject, is_ended in tombstones.items():
        grant = await process.grant("mail", subject)
        assert grant is not None
        assert is_ended is grant.revoked
        assert (0 if is_ended else living[subject]) == now_living[subject]
        assert (grant.token is None, grant.revocation_pending) == (is_ended, False)
        assert is_ended is (story.revoked_event(subject) in heard | set(process.heard.received))
    assert 0 == (await process.counts(("due",)))["due"]
    return set(tombstones.values())


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.case("53", "63")
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_crash_at_any_change_of_a_revocation_ends_the_recorded_grants_and_no_others(
    identity_provider, tmp_path, shard, monkeypatch
):
    monkeypatch.setattr(bulk, "AT_ONCE", 1)  # the file layer counts the calls of one thread
    outcomes: set[bool] = set()
    for number in range(shard, MOST_CHANGES, SHARDS):
        place = tmp_path / str(number)
        place.mkdir()
        story = await prepared(place, identity_provider)
        fs = CrashAtChange(story.root)
        process = story.start(fs=fs)
        fs.arm(number)
        try:
            await ended(process)
        except* Crash:
            assert fs.fired
        living = story.living()
        name = POWER_LOSS_STATES[number // SHARDS % len(POWER_LOSS_STATES)]
        (clone,) = fs.clones(place / "clones", seeds=1, only=[name])
        fs.restore()
        await process.die()
        outcomes |= await looked_at(story, clone, set(process.heard.received), number, living)
        shutil.rmtree(place)
        if fs.fired is None:
            break
    assert fs.fired is None
    assert {True, False} == outcomes
    assert number > 40  # the story is long, and it was cut everywhere


async def looked_at(story: Connected, root: Path, heard: set[str], number: int, living: Mapping[str, int]) -> set[bool]:
    """`check` on one disk; then the same is ended again, the machine stops once more, and a third broker does the rest."""
    process = story.start(root)
    process.clock.advance(61)  # an event that was leased when the machine stopped comes again
    outcomes = await check(story, process, living, heard)
    heard |= set(process.heard.received)
    await process.die()
    fs = CrashAtChange(root)
    process = story.start(root, fs)
    fs.arm(random.Random(number).randrange(60))
    try:
        await ended(process)
    except* Crash:
        assert fs.fired
    fs.restore()
    await process.die()
    heard |= set(process.heard.received)
    last = story.start(root)
    last.clock.advance(122)
    await ended(last)
    assert {story.revoked_event(subject) for subject in PEOPLE} <= heard | set(last.heard.received)
    assert {ALICE: 0, BOB: 0} == story.living()
    assert {"due": 0, "events": 0} == await last.counts(("due", "events"))
    await last.die()
    return outcomes


async def left_pending(story: Connected) -> None:
    """A revocation is pending, and a broker with another client id is about to connect the person again."""
    process = story.start()
    story.idp.script.revoke.answer(503)
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    await process.tend()
    await process.die()


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.case("53", "63")
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_crash_at_any_change_of_a_login_with_another_client_loses_no_pending_revocation(
    identity_provider, tmp_path, shard
):
    app = user_app(identity_provider)
    client = user_app(identity_provider, "other").client
    identity_provider.change(client.client_id, redirect_uris=(app.redirect.uri,))
    other = replace(app, client=client)
    replacements = set[bool]()
    for number in range(shard, MOST_CHANGES, SHARDS):
        place = tmp_path / str(number)
        place.mkdir()
        story = await prepared(place, identity_provider)
        await left_pending(story)
        fs = CrashAtChange(story.root)
        process = Process.start(story.root, story.ring, [other], story.at, fs)
        process.clock.advance(60)
        fs.arm(number)
        try:
            asked = await process.broker.oauth(turn(ALICE)).get_access_token("mail")
            if isinstance(asked, AuthorizationRequired):
                await connect_through(process.browser(), identity_provider, asked.authorization_url, "alice")
            await recovered(process)
        except* Crash:
            assert fs.fired
        (clone,) = fs.clones(
            place / "clones", seeds=1, only=[POWER_LOSS_STATES[number // SHARDS % len(POWER_LOSS_STATES)]]
        )
        fs.restore()
        await process.die()
        replacements.add(await told_by_the_first(story, clone, other))
        shutil.rmtree(place)
        if fs.fired is None:
            break
    assert fs.fired is None
    assert {True, False} == replacements
    assert number > 20


async def told_by_the_first(story: Connected, root: Path, other: App) -> bool:
    """A broker with the new client finishes its part, then one with the old client tells. Return whether the login
    was stored."""
    for apps in ([other], [story.app]):
        process = Process.start(root, story.ring, apps, story.at)
        process.clock.advance(3600)
        await recovered(process)
        await process.die()
    assert 0 == story.living()[ALICE]
    last = story.start(root)
    grant = await last.grant("mail", ALICE)
    assert grant is not None
    assert not grant.revocation_pending
    await last.die()
    return not grant.revoked
