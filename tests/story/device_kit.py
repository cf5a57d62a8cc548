"""What the stories of device codes share: brokers whose polls run when the test says so, and a person elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oauthbroker.model.apps import App
from oauthbroker.model.token_results import AuthorizationRequired, DevicePrompt
from oauthbroker.records import AuthSession, Device
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider.history import DeviceStory
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import Process, ask
from tests.kit.running_broker import device_app

INTERVAL = 5
POLLS = "urn:ietf:params:oauth:grant-type:device_code"  # as the provider counts them


@dataclass
class World:
    """A provider, a store on files, and the brokers on it, all by one clock. Nothing happens by itself."""

    idp: IdentityProvider
    clock: TestClock
    root: Path
    ring: Keyring
    apps: list[App]
    brokers: list[Process] = field(default_factory=list)

    def start(self, apps: Iterable[App] | None = None) -> Process:
        """One more broker process."""
        store = FileStore(self.root, self.ring, kinds=KINDS, lease_kinds=LEASES, clock=self.clock)
        process = Process.on(store, self.apps if apps is None else apps, self.clock)
        self.brokers.append(process)
        return process

    async def poll(self, *brokers: Process, after: float = INTERVAL) -> None:
        """Time passes, and then these brokers poll for due sessions, one after the other (all, if none is named)."""
        self.clock.advance(after)
        for broker in brokers or self.brokers:
            await broker.parts.polling.once()

    def polls(self, prompt: DevicePrompt) -> list[str]:
        """What the provider answered to polls for this code."""
        return [poll.answer for poll in self.story(prompt).polls]

    def story(self, prompt: DevicePrompt) -> DeviceStory:
        return self.idp.device(prompt.user_code)


async def seconds_pass(here: World, seconds: int, *brokers: Process) -> None:
    """Second by second; every broker polls whenever something is due."""
    for _ in range(seconds):
        await here.poll(*brokers, after=1)


def world(idp: IdentityProvider, clock: TestClock, folder: Path, *apps: App) -> World:
    return World(idp, clock, folder / "store", open_keyring(folder), list(apps) or [device_app(idp)])


async def ask_for_code(broker: Process, app: str = "tv", **more: Any) -> AuthorizationRequired:
    """A tool asks for a token and is told that a person has to agree first."""
    result = await ask(broker, app, **more)
    assert isinstance(result, AuthorizationRequired), result
    return result


def prompt_of(asked: AuthorizationRequired) -> DevicePrompt:
    assert asked.device_code is not None
    return asked.device_code


async def session_of(broker: Process, asked: AuthorizationRequired) -> AuthSession:
    session = await broker.session(asked.auth_session_id)
    assert session is not None
    return session


async def device_of(broker: Process, asked: AuthorizationRequired) -> Device:
    device = (await session_of(broker, asked)).device
    assert device is not None
    return device


async def events(broker: Process) -> list[str]:
    """What the agent hears, by type."""
    await broker.parts.relay.once()
    before = len(broker.heard.received)
    await broker.drain()
    return [event.rpartition("-")[2] for event in broker.heard.received[before:]]
