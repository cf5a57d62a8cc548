"""A process is stopped while it holds a lock: work that does not need that lock goes on, and no event loop blocks."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import oauthbroker
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.repository import repository
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file import locked_writes as writer
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.file.locked_writes import STRIPES
from oauthbroker.store.format.port import Key, Reservation
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.testing import IdentityProvider, TestClock, leave
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import Process, complete, visit_callback
from tests.kit.running_broker import ALICE, BOB, turn, user_app

pytestmark = [pytest.mark.slow, pytest.mark.case("74")]
SOURCE = Path(oauthbroker.__file__).parent
HOLDER = Path(__file__).with_name("lock_holder.py")
APPS = ("mail", "notes", "files")
AGENTS = {ALICE: "planner", BOB: "writer"}
SOON = 8.0  # seconds; the shortest wait for a held lock that this keeps from being waited for is twice as long
PATIENT = 30.0  # for a user's call, which may wait for a lock and is refused then
TICK = 1.0  # the longest that the loop may be blocked


@dataclass
class World:
    """A broker on files. Alice's records are held by the other process; Bob's are what goes on."""

    root: Path
    ring: Keyring
    idp: IdentityProvider
    process: Process = field(init=False)
    started: list[Process] = field(default_factory=list)
    alices: set[str] = field(default_factory=set)
    blocked: float = 0.0

    def start(self) -> Process:
        clock = TestClock(self.idp.clock.now())
        store = FileStore(self.root, self.ring, kinds=KINDS, lease_kinds=LEASES, clock=clock)
        audit = AuditFile(self.root / "data", AuditKeys(store.mac))
        self.started.append(Process.on(store, [user_app(self.idp, name) for name in APPS], clock, audit))
        return self.started[-1]

    async def ask(self, app: str, who: str, process: Process | None = None) -> Any:
        process = process or self.process
        return await process.broker.oauth(turn(who, agent=AGENTS[who], instance=who)).get_access_token(app)

    async def connect(self, app: str, who: str) -> Any:
        asked = await self.ask(app, who)
        if not isinstance(asked, AuthorizationRequired):
            return asked
        return 200 == await complete(self.process, self.idp, asked, "alice" if who == ALICE else "bob")

    async def prepare(self) -> None:
        """For both: a grant whose refresh was left open, one that its provider does not know to be revoked, events
        that are not queued, and a session that has expired."""
        self.alices = {self.process.store.key("grants", app, ALICE).name for app in APPS}
        for who in (ALICE, BOB):
            for app in ("mail", "notes"):
                assert await self.connect(app, who)
            versioned = await self.repository.grant(GrantKey("mail", who))
            assert versioned is not None
            await self.process.parts.refresh.writeback.begin(versioned, Reservation(versioned.entry.key), forced=False)
            await self.process.parts.revoke.write_tombstone(GrantKey("notes", who))
            await self.ask("files", who)
        self.alices |= {versioned.entry.key.name for versioned in await self.repository.waiting("files", ALICE)}
        clocks: list[Any] = [self.process.clock, self.idp.clock]
        for clock in clocks:
            clock.advance(660)

    @property
    def repository(self) -> Any:
        return self.process.parts.relay._repository

    def write_lock(self, key: Key) -> str:
        """Share no lock between Alice's records and others, as chance would."""
        if key.name in self.alices:
            return ALICES
        return f"write-{int(key.name[:4], 16) % (STRIPES - 1):02d}"

    def pairs(self, kind: str) -> list[str]:
        key = self.process.store.key
        return [f"locks/{kind}-{key(kind, app, ALICE).name}" for app in APPS]

    def next_slot(self) -> str:
        """The slot of the audit log that a process would take next."""
        log = self.root / "data" / "audit" / "001" / "audit.jsonl"
        for folder in (log.parent.parent, log.parent):
            folder.mkdir(mode=0o700)
        log.touch(0o600)
        return str(log.relative_to(self.root / "data"))

    async def tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time() - queued()
            await asyncio.sleep(0.01)
            self.blocked = max(self.blocked, loop.time() - queued() - before)


@dataclass(frozen=True)
class Row:
    """A lock: its files below `data/`, the calls that are refused while it is held, for any owner, and those that can do nothing
    meanwhile and is over soon all the same."""

    files: Callable[[World], list[str]]
    refused: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()


WRITTEN = frozenset({"relay", "sweep", "recover", "revocations"})  # rounds that write records
ALICES = f"write-{STRIPES - 1:02d}"  # the lock of her grants and sessions, and of nothing else
ROWS = {
    "pair": Row(lambda world: world.pairs("pair")),
    "provider": Row(lambda world: world.pairs("provider")),
    "queue": Row(lambda world: [f"locks/queue-{world.process.store.key('queue', AGENTS[ALICE]).name}"]),
    "plugin": Row(lambda world: [f"locks/plugin-{world.process.store.key('plugin', 'library', 'send').name}"]),
    "registration": Row(
        lambda world: [f"locks/registration-{world.process.store.key('registration', app).name}" for app in APPS]
    ),
    "forwarding": Row(lambda world: [f"locks/forwarding-{world.process.store.key('forwarding', AGENTS[ALICE]).name}"]),
    "write": Row(lambda _: [f"locks/{ALICES}"]),
    "every write": Row(
        lambda _: [f"locks/write-{number:02d}" for number in range(STRIPES)], frozenset({"connect"}), WRITTEN
    ),
    "audit": Row(lambda world: [world.next_slot()]),
    "anchor": Row(lambda _: ["audit.anchor"]),
}
LOCKING = {
    "store/file/locks.py": "the leases and write locks above",
    "audit/folder.py": "audit, anchor",
    "observability/shared_metrics.py": "tests/unit/observability/test_shared_metrics.py",
    "store/posix/system_calls.py": "what the others call",
    "store/posix/atomic_files.py": "a temporary file of one's own, tried once; init waits for another one in its folder",
    "store/posix/folders.py": "the probe at start and left over temporary files, tried once",
    "store/file/place_checks.py": "doctor's probe, tried once",
    "store/migration/raw_files.py": "a command that moves the store, tried once",
    "store/file/read_only.py": "takes none",
    "tools/changesets/git.py": "one for each repository; tests/unit/tools/changesets/test_crashes.py",
    "tools/changesets/revisions.py": "a revision in use; tests/unit/tools/changesets/test_crashes.py",
    "personal/serve_socket.py": "one `serve` at a person's socket, tried once",
    "personal/key_place.py": "one person's processes, while one makes or moves the key: tests/story/cli/test_keychain.py",
    "cli/demo/demo_folder.py": "the demo's own folder, tried once",
}


def test_every_lease_and_every_lock_of_the_source_is_in_the_tables() -> None:
    assert {*LEASES} < ROWS.keys()
    locks = re.compile(r"\b(?:(?:flock|try_lock|lockf|FileLock)\(|lock_descriptor\b)")
    sources = [path for path in SOURCE.rglob("*.py") if "testing" not in path.parts]
    assert LOCKING.keys() == {str(path.relative_to(SOURCE)) for path in sources if locks.search(path.read_text())}


@pytest.fixture
async def world(
    identity_provider: IdentityProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    world = World(tmp_path / "store", open_keyring(tmp_path), identity_provider)
    monkeypatch.setattr(writer, "write_lock", world.write_lock)
    world.process = world.start()
    await world.prepare()
    yield world
    for process in world.started:
        await process.die()


def queued() -> float:
    """Return the seconds that this thread was ready to run and had no processor: others keep the machine busy."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


@contextmanager
def stopped(paths: list[Path]) -> Iterator[None]:
    """A process of ours that holds these files, and does not run meanwhile."""
    pipe = subprocess.PIPE
    holder = subprocess.Popen([sys.executable, str(HOLDER), *map(str, paths)], stdin=pipe, stdout=pipe, text=True)
    try:
        assert holder.stdout
        assert "held\n" == holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        yield
    finally:
        holder.kill()
        holder.communicate()


@asynccontextmanager
async def ticking(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(world.tick())
    try:
        yield
        await asyncio.sleep(0.05)
    finally:
        task.cancel()


async def tried(work: Awaitable[object]) -> None:
    """One pass of background work: it raises a store code last if a part failed."""
    try:
        await work
    except BrokerError as error:
        if error.code is not Code.STORE_LOCKED:
            raise


async def token(world: World) -> Any:
    return await world.ask("mail", BOB)


async def start(world: World) -> Any:
    """Another process comes up beside it, with all that runs in the background, and answers."""
    process = world.start()
    await process.running.start(background=True)
    return await world.ask("mail", BOB, process)


async def relay(world: World) -> Any:
    await tried(world.process.parts.relay.once())
    delivery = await world.process.broker.events.lease(AGENTS[BOB])
    return delivery is not None and await delivery.ack()


async def sweep(world: World) -> Any:
    await tried(world.process.parts.sweep.once())
    return not await world.repository.waiting("files", BOB)


async def recover(world: World) -> Any:
    await tried(world.process.parts.background_refresh.recover())
    versioned = await world.repository.grant(GrantKey("mail", BOB))
    return versioned is not None and versioned.record.refresh_state.intent is None


async def revocations(world: World) -> Any:
    await tried(world.process.parts.bulk_revocation.run_pass())
    versioned = await world.repository.grant(GrantKey("notes", BOB))
    return versioned is not None and not versioned.record.revocation_pending


async def repair(world: World) -> Any:
    await tried(world.process.parts.background_refresh.repair())
    return True


async def tidy(world: World) -> Any:
    await tried(world.process.parts.queues.tidy())
    return True


async def health(world: World) -> Any:
    return world.process.broker.health() is not None


async def connect(world: World) -> Any:
    return await world.connect("files", BOB)


ACTIONS = (relay, token, health, sweep, recover, revocations, repair, tidy, start, connect)


def went_on(result: object, *, refused: bool) -> bool:
    return isinstance(result, Failed) if refused else result is True or isinstance(result, Ready)


@pytest.mark.parametrize("name", ROWS)
async def test_a_process_that_was_stopped_holds_up_nothing_of_others(world: World, name: str) -> None:
    row, late = ROWS[name], list[str]()
    loop = asyncio.get_running_loop()
    with stopped([world.root / "data" / path for path in row.files(world)]):
        async with ticking(world):
            for action in ACTIONS:
                began, refused = loop.time(), action.__name__ in row.refused
                went = went_on(await action(world), refused=refused)
                assert went is not (action.__name__ in row.idle), action.__name__
                if loop.time() - began > (PATIENT if refused else SOON):
                    late.append(f"{action.__name__}: {loop.time() - began:.1f} s")
    assert not late
    assert world.blocked < TICK
    async with asyncio.timeout(60):
        while await world.process.store.count("due"):  # skipped work is done in a later pass
            for chore in (
                world.process.parts.bulk_revocation.run_pass,
                world.process.parts.background_refresh.recover,
                world.process.tend,
            ):
                await tried(chore())


@pytest.mark.parametrize("name", ["pair", "write"])
async def test_a_callback_whose_grant_could_not_be_stored_loses_nothing(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(repository, "WRITABLE_SECONDS", 0.5)
    asked = await world.ask("files", ALICE)
    browser = world.process.browser()
    page = await leave(browser, asked.authorization_url)
    assert page.next_url is not None
    callback = await world.idp.agree(page.next_url, "alice", browser=browser)
    redeemed = world.idp.count("authorization_code")
    with stopped([world.root / "data" / path for path in ROWS[name].files(world)]):
        assert 503 == await visit_callback(browser, callback)
        assert redeemed == world.idp.count("authorization_code")
    assert 200 == await visit_callback(browser, callback)
    assert isinstance(await world.ask("files", ALICE), Ready)


async def test_a_log_whose_slot_another_process_took_is_continued_in_another_slot(world: World) -> None:
    """The file was moved away, and another process, which does not run any longer, was quicker to make it anew."""
    log = world.root / "data" / "audit.jsonl"
    assert isinstance(await token(world), Ready)
    log.rename(log.with_name("moved.jsonl"))
    log.touch(0o600)
    with stopped([log]):
        async with ticking(world):
            await world.process.parts.audit.keep_checkpoint()
            assert isinstance(await token(world), Ready)
    assert world.blocked < TICK
    assert (log.parent / "audit" / "001" / "audit.jsonl").stat().st_size
