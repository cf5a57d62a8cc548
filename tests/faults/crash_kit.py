"""Crash or fail a broker at every change of the disk, between a callback and the event that follows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from oauthbroker.model.apps import App
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.testing import Browser, IdentityProvider, leave
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import CHANGING, Process
from tests.kit.crashfs import CrashFs, FaultyFs
from tests.kit.running_broker import turn, user_app

MOST_CHANGES = 400  # far more than the story makes; the sweeps end by themselves
POWER_LOSS_STATES = (
    "clone-0-1.0",
    "clone-1-0.0",
    "clone-2-0.5",
)  # of the names that were not synced, all, none and some


class CrashAtChange(CrashFs):
    """Counts only calls that change the disk. A dead process keeps no lock and no descriptor. A sync only writes
    down; there is no real loss of power, so no test waits for the real disk."""

    def _step(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if call == "fsync":
            run = nothing
        if self.fired is not None and call in {"unlock", "close"}:
            return run()
        if self.fired is None and call not in CHANGING:
            left, self._left = self._left, None
            try:
                return super()._step(call, args, run)
            finally:
                self._left = left
        return super()._step(call, args, run)


def nothing() -> None:
    """Done."""


class FailAtChange(FaultyFs):
    """The same for a disk that fails."""

    def _is_due(self, call: str) -> bool:
        return call in CHANGING and super()._is_due(call)


@dataclass(frozen=True)
class BeforeCallback:
    """A story up to the moment in which the browser comes back: who waits, and the callback that it carries."""

    root: Path
    ring: Keyring
    app: App
    at: datetime
    browser: Browser
    callback: str
    first: str
    second: str
    other_account: str

    def start(self, root: Path | None = None, fs: Any = None, after: float = 0) -> Process:
        process = Process.start(root or self.root, self.ring, [self.app], self.at, fs)
        process.clock.advance(after)
        return process

    def granted(self, session: str) -> str:
        return f"evt-{session}-auth.granted"


async def before_callback(place: Path, idp: IdentityProvider) -> BeforeCallback:
    """Two turns wait for the same thing, one wants another account; the person has agreed at the provider."""
    ring, root, app = open_keyring(place), place / "store", user_app(idp)
    process = Process.start(root, ring, [app], idp.clock.now())
    asked = [await process.broker.oauth(turn(instance=name)).get_access_token("mail") for name in ("a", "b")]
    switching = await process.broker.oauth(turn(instance="c")).get_access_token("mail", switch_account=True)
    links = [each for each in (*asked, switching) if each.status == "authorization_required"]
    browser = process.browser()
    page = await leave(browser, links[0].authorization_url)
    assert page.next_url is not None
    callback = await idp.agree(page.next_url, "alice", browser=browser)
    ids = [each.auth_session_id for each in links]
    await process.die()
    return BeforeCallback(root, ring, app, process.clock.now(), browser, callback, *ids)
