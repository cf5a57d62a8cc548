"""The machine stops at every single change between a callback whose code is pending and the event of its confirmation.

What must hold on every disk that this may leave: who was sent on to the runtime finds the code pending there after a
restart, in its minute; a code is sent to the provider at most once; a connection that was acknowledged is there, and is
there if and only if its event comes; the session ends, and nothing is left lying about.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.model.apps import App, Owner
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.testing import Browser, IdentityProvider, leave
from oauthbroker.testing.stores import open_keyring
from tests.faults.crash_kit import CrashAtChange
from tests.kit.broker_process import AFTER_CLAIMS, Process
from tests.kit.crashfs import Crash
from tests.kit.running_broker import BASE, user_app
from tests.story.binding_kit import ALICE, RUNTIME, handle_on, of_alice

SHARDS, MOST_CHANGES = 3, 300


@dataclass
class Story:
    """A person who has agreed at the provider and is on the way back; `handle` once she was sent on to the runtime."""

    root: Path
    ring: Keyring
    app: App
    at: datetime
    browser: Browser
    callback: str
    session: str
    handle: str = ""
    reported: bool = False

    def start(self, root: Path | None = None, fs: Any = None) -> Process:
        return Process.start(root or self.root, self.ring, [self.app], self.at, fs)


async def prepared(place: Path, idp: IdentityProvider) -> Story:
    ring, root = open_keyring(place), place / "store"
    app = user_app(idp, owner=Owner(binding="runtimeConfirm", confirm_url=RUNTIME))
    process = Process.start(root, ring, [app], idp.clock.now())
    asked = await process.broker.oauth(of_alice()).get_access_token("mail")
    assert asked.status == "authorization_required"
    browser = process.browser()
    page = await leave(browser, asked.authorization_url)
    assert page.next_url is not None
    callback = await idp.agree(page.next_url, "alice", browser=browser)
    await process.die()
    return Story(root, ring, app, process.clock.now(), browser, callback, asked.auth_session_id)


async def lived(process: Process, story: Story) -> None:
    """From the callback to the acknowledged event."""
    story.browser.serve(BASE, process.broker.asgi.app)
    page = await story.browser.follow(story.callback)
    assert page.location is not None, page.text
    story.handle = handle_on(await story.browser.follow())
    story.reported = "completed" == (await process.broker.confirm(story.handle, ALICE)).status
    await process.tend()
    await process.drain()


async def looked_at(story: Story, root: Path, idp: IdentityProvider, exchanged: int) -> str:
    """A broker starts on the remaining files, and the runtime, which had no answer, repeats its call. Return the end."""
    process = story.start(root)
    before = await process.session(story.session)
    assert before is not None
    again = await said_again(process, story)
    assert again in {"", "completed", "stateUnknown"}
    if story.handle and before.open and before.claim is None:
        assert again == "completed", "who was sent on finds the code where it was pending"
    await process.tend()
    await process.drain()
    await process.tend(after=AFTER_CLAIMS)
    await process.drain()
    assert idp.count("token") <= exchanged + 1, "no code is sent twice"
    grant, session = await process.grant("mail", ALICE), await process.session(story.session)
    assert session is not None
    assert grant is not None or not (story.reported or again == "completed")
    event = f"evt-{story.session}-auth.granted"
    assert (grant is not None) is (event in {*process.heard.received, *story_heard(story)})
    assert (grant is not None) is ("completed" == session.status)
    if session.open:  # the callback had changed nothing yet: she may come back with it
        assert (None, None) == (session.pending_code, session.claim)
    await process.tend(after=700)
    session = await process.session(story.session)
    assert session is None or (not session.open and session.pending_code is None)
    await process.drain()
    await process.tend(after=7200)
    assert {"due": 0, "events": 0, "sessions": 0} == await process.counts()
    await process.die()
    return "granted" if grant is not None else "nothing"


def story_heard(story: Story) -> set[str]:
    return {f"evt-{story.session}-auth.granted"} if story.reported else set()


async def said_again(process: Process, story: Story) -> str:
    if not story.handle or story.reported:
        return ""
    try:
        return (await process.broker.confirm(story.handle, ALICE)).status
    except BrokerError as refused:
        return refused.code.value


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.case("36", "63")
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_crash_at_any_change_sends_no_code_twice_and_loses_no_connection(
    identity_provider: IdentityProvider, tmp_path: Path, shard: int
) -> None:
    outcomes = set()
    for number in range(shard, MOST_CHANGES, SHARDS):
        place = tmp_path / str(number)
        place.mkdir()
        story = await prepared(place, identity_provider)
        exchanged = identity_provider.count("token")
        fs = CrashAtChange(story.root)
        process = story.start(fs=fs)
        fs.arm(number)
        try:
            await lived(process, story)
        except Crash:
            assert fs.fired
        spent = identity_provider.count("token") - exchanged
        (clone,) = fs.clones(place / "clones", only=["clone-0-0.0"])
        outcomes.add((bool(story.handle), await looked_at(story, clone, identity_provider, exchanged)))
        assert spent <= 1
        fs.restore()
        await process.die()
        shutil.rmtree(place)
        if fs.fired is None:
            break
    assert fs.fired is None
    assert story.reported
    assert {(False, "nothing"), (True, "granted")} <= outcomes
    assert number > 25
