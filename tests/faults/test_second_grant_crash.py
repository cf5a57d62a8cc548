"""The machine stops at every change between a callback that brings two grants and the events that follow it.

On every disk that this may leave: the code is sent once; a grant is there if and only if its event comes, once; the
first grant is never there without the second one, which is stored before it; the session ends, and nothing is left.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.stores import open_keyring
from tests.faults.crash_kit import CrashAtChange
from tests.faults.durable_stories import agreed
from tests.kit.broker_process import AFTER_CLAIMS, Process, visit_callback
from tests.kit.crashfs import Crash
from tests.kit.forms import swept
from tests.kit.running_broker import ALICE, BASE, TEAM
from tests.kit.slack_apps import SECOND, both_apps

MOST_CHANGES = 300


async def looked_at(
    root: Path, ring: Keyring, idp: IdentityProvider, session: str, before: Process
) -> tuple[bool, bool]:
    """A broker starts on the remaining files. Return which grants there are."""
    process = Process.start(root, ring, both_apps(idp), before.clock.now())
    process.heard = before.heard
    await process.tend()
    await process.drain()
    await process.tend(after=2 * AFTER_CLAIMS)
    await process.drain()
    there = [await process.grant(*key) is not None for key in (("mail", TEAM), (SECOND, ALICE))]
    event = f"evt-{session}-auth.granted"
    heard = [each for each in process.heard.received if "auth.granted" in each]
    assert there == [event in heard, f"{event}-{SECOND}" in heard]
    left = await process.session(session)
    assert left is None or left.status == ("completed" if there[0] else "failed") or (left.open and left.claim is None)
    await process.tend(after=700)
    await process.drain()
    await process.tend(after=7200)
    assert {"due": 0, "events": 0, "sessions": 0} == await process.counts()
    await process.die()
    return there[0], there[1]


@pytest.mark.slow
@pytest.mark.case("36", "63")
async def test_a_crash_at_any_change_loses_no_grant_that_was_stored(
    identity_provider: IdentityProvider, tmp_path: Path
) -> None:
    outcomes, changes = set[tuple[bool, bool]](), 0
    for number in swept(MOST_CHANGES):
        place = tmp_path / str(number)
        place.mkdir()
        ring = open_keyring(place)
        process = Process.start(place / "store", ring, both_apps(identity_provider))
        way = await agreed(process, identity_provider)
        await process.die()
        exchanged, fs = identity_provider.count("token"), CrashAtChange(place / "store")
        process = Process.start(place / "store", ring, both_apps(identity_provider), process.clock.now(), fs)
        fs.arm(number)
        try:
            way.browser.serve(BASE, process.broker.asgi.app)
            await visit_callback(way.browser, way.callback)
            await process.tend()
            await process.drain()
        except Crash:
            assert fs.fired
        (clone,) = fs.clones(place / "clones", only=["clone-0-0.0"])
        outcomes.add(await looked_at(clone, ring, identity_provider, way.asked.auth_session_id, process))
        assert identity_provider.count("token") <= exchanged + 1, "no code is sent twice"
        fs.restore()
        await process.die()
        shutil.rmtree(place)
        changes = number
        if fs.fired is None:
            break
    assert {(False, False), (False, True), (True, True)} == outcomes
    assert changes > 25
