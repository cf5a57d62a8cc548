"""A grant whose token has ended, at a provider that can be taken back to how it was, so that every end is tried anew."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Ready, TokenResult
from oauthbroker.records import Grant
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing import IdentityProvider, TestClock, connect_through
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import CHANGING, Process
from tests.kit.crashfs import HookedFs
from tests.kit.running_broker import ALICE, Harness, running, turn, user_app

LIFETIME = 3600
LIMITS = Limits(provider_seconds=2)  # a wait for another process's lease is short


class FailFrom(HookedFs):
    """A disk that fails at the `number`-th change after `arm`, and at every one from then on, until it is `repaired`."""

    def __init__(self) -> None:
        self.fired: str | None = None
        self._left: int | None = None
        self._errno = 0

    def arm(self, number: int, errno: int) -> None:
        self._left, self._errno, self.fired = number, errno, None

    def repair(self) -> None:
        self._left = None

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if self._left is not None and call in CHANGING:
            self._left -= 1
            if self._left < 0:
                self.fired = self.fired or call
                raise OSError(self._errno, "a disk that fails")
        return run()


class Unsynced(Fs):
    """For disks on which nothing fails and no power is lost: waits for no disk."""

    def fsync(self, fd: int) -> None:
        pass


@dataclass(frozen=True)
class Expired:
    """One store with one grant of Alice's whose access token is over."""

    folder: Path
    ring: Keyring
    app: App
    idp: IdentityProvider
    clock: TestClock

    @classmethod
    async def prepare(cls, folder: Path, idp: IdentityProvider, clock: TestClock, grace: float = 0) -> Expired:
        """The provider ends the family of a refresh token that comes twice, unless it comes within `grace` seconds."""
        app, ring = user_app(idp), open_keyring(folder)
        idp.change("client-mail", reuse_grace=grace)
        story = cls(folder, ring, app, idp, clock)
        process = story.start(folder / "store")
        link = await asked(process)
        assert isinstance(link, AuthorizationRequired)
        assert 200 == (await connect_through(process.browser(), idp, link.authorization_url)).status
        await process.tend()
        await process.drain()
        await process.die()
        clock.advance(LIFETIME)
        return story

    def copy(self, to: Path) -> Path:
        return Path(shutil.copytree(self.folder / "store", to / "store"))

    def store(self, root: Path, fs: Fs | None = None, clock: TestClock | None = None) -> FileStore:
        clock, fs = clock or self.clock, fs or Unsynced()
        return FileStore(root, self.ring, kinds=KINDS, lease_kinds=LEASES, clock=clock, fs=fs)

    def start(self, root: Path, fs: Fs | None = None) -> Process:
        """A broker whose upkeep runs when the test says so."""
        return Process.on(self.store(root, fs), [self.app], self.clock)

    def running(
        self, root: Path, fs: Fs | None = None, clock: TestClock | None = None, *, limits: Limits = LIMITS
    ) -> Any:
        """A broker with a log, as `async with` block."""
        clock = clock or self.clock
        store = self.store(root, fs, clock)
        return running(self.idp, [self.app], clock=clock, store=store, limits=limits, background=False)

    @property
    def requests(self) -> int:
        return self.idp.count("refresh_token")


@dataclass(frozen=True)
class Moment:
    """What the provider knew and what time it was."""

    story: Expired
    at: Any
    ledger: tuple[Any, Any, Any]

    @classmethod
    def of(cls, story: Expired) -> Moment:
        return cls(story, story.clock.now(), _copied(story.idp._state.token_table))

    def again(self) -> None:
        """From here on as if nothing had happened since. Counters of requests go on."""
        ledger = self.story.idp._state.token_table
        ledger.tokens, ledger.families, ledger.codes = _copied(_Pictured(*self.ledger))
        self.story.clock.set(self.at)


@dataclass
class _Pictured:
    tokens: Any
    families: Any
    codes: Any


def _copied(ledger: Any) -> tuple[Any, Any, Any]:
    """Tokens, consents and families of their own."""
    agreements = {id(token.agreement): token.agreement for token in ledger.tokens.values()}
    twins = {key: _twin(agreement) for key, agreement in agreements.items()}
    families = {id(agreement.family): twins[key].family for key, agreement in agreements.items()}
    tokens = {text: replace(token, agreement=twins[id(token.agreement)]) for text, token in ledger.tokens.items()}
    return tokens, [families[id(one)] for one in ledger.families], dict(ledger.codes)


def _twin(agreement: Any) -> Any:
    twin = copy(agreement)
    twin.family = replace(agreement.family, redeemed=Counter(agreement.family.redeemed))
    return twin


async def asked(process: Process) -> TokenResult:
    return await process.broker.oauth(turn()).get_access_token("mail")


async def grant_in(store: FileStore) -> Grant:
    """As a second pair of eyes sees it."""
    versioned = await Repository(store).grant(GrantKey("mail", ALICE))
    assert versioned is not None
    return versioned.record


def is_live(story: Expired, result: TokenResult) -> bool:
    return isinstance(result, Ready) and story.idp.is_alive(result.access_token)


__all__ = ["LIFETIME", "Expired", "FailFrom", "Harness", "Moment", "asked", "grant_in", "is_live"]
