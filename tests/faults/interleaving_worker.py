"""The process that uses rights while another one ends them.

Arguments: the folder, the disk, the seed, and the mistake to make, if any. Each line of stdin is a new turn token or API
key, as JSON. Stdout has one line of JSON for each wrong answer, and one with all figures at the end of stdin.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from oauthbroker import open_broker
from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult, result_from_json
from oauthbroker.observability.logging import json_log
from oauthbroker.store.file import cache_stamp
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store
from oauthbroker.tokens.context import OAuthContext
from tests.faults.interleaving_kit import (
    APP,
    DISKS,
    KINDS,
    LASTING,
    RIGHTS,
    Answer,
    Board,
    Disk,
    Kind,
    Right,
    bundle,
)
from tests.kit.running_broker import BASE, turn
from tests.kit.wire import Line, a_listener

PAUSES = (0, 0, 0, 0.0002, 0.001, 0.003)
HOST = BASE.removeprefix("http://")
TURNS = 5
TRUST_SECONDS = 0.05  # of the store that makes a mistake


class Refused(Exception):
    """The right does not hold."""


@dataclass
class Held:
    """What this process has of one right: the newest token or key, and the objects that it keeps."""

    version: int = 0
    text: str = ""
    context: OAuthContext | None = None
    token_holder: TurnTokenHolder | None = None
    token: str = ""  # of a turn of a grant's subject


@dataclass
class Caller:
    """Calls with every right in every way, and checks each answer."""

    broker: Broker
    board: Board
    dice: random.Random
    held: dict[Right, Held] = field(default_factory=lambda: {right: Held() for right in RIGHTS})
    figures: Counter[str] = field(default_factory=Counter)
    over: bool = False

    def __post_init__(self) -> None:
        self.listener = a_listener(self.broker.asgi.app)

    async def watch(self, kind: Kind) -> None:
        """Call with the right that changes next, again and again."""
        while not self.over:
            await self.call(self.board.hot(kind))
            await asyncio.sleep(self.dice.choice(PAUSES))

    async def stroll(self) -> None:
        """Call with each right now and then, so that all caches stay warm."""
        while not self.over:
            for right in self.dice.sample(RIGHTS, len(RIGHTS)):
                await self.call(right)
                await asyncio.sleep(self.dice.choice(PAUSES))

    async def call(self, right: Right) -> None:
        held, before = self.held[right], self.board.answered(right)
        if right.kind != "grant" and not held.text:
            return
        version = before if right.kind == "grant" else held.version
        way = self.dice.choice(WAYS[right.kind])
        try:
            valid = await way(self, right, held)
        except Refused:
            valid = None
        answer = Answer(before, self.board.begun(right), version, valid)
        self.figures[f"{right.kind}s {'refused' if valid is None else 'valid'}"] += 1
        self.figures[f"calls by {way.__name__}"] += 1
        if not answer.fits:
            say({"problem": f"{right.kind} {right.number} by {way.__name__}: {answer}"})
        if version + 1 >= before:  # with the newest token or key that there was
            self.board.write(right, "seen", before)

    # ways to call

    async def kept_context(self, right: Right, held: Held) -> int:
        if held.context is None:
            held.context = self.broker.oauth(turn(right.subject))
        return proven(await held.context.get_access_token(APP), right, held)

    async def new_context(self, right: Right, held: Held) -> int:
        return proven(await self.broker.oauth(turn(right.subject)).get_access_token(APP), right, held)

    async def admission(self, right: Right, held: Held) -> int:
        held.token_holder = await self.admitted(held.text)
        return await self.kept_guest(right, held)

    async def kept_guest(self, right: Right, held: Held) -> int:
        token_holder = held.token_holder or await self.admitted(held.text)
        return proven(await self.broker.oauth_for(token_holder).get_access_token(APP), right, held)

    async def token_route(self, right: Right, held: Held) -> int:
        status, said = await self.request("POST", "/v1/tokens", held.text, {"oauthAppRef": f"OAuthApp/{APP}"})
        if (status, said.get("code")) == (401, "turnEnded"):
            raise Refused
        if status != 200:
            raise AssertionError(f"{status} {said}")
        return held.version

    async def connection(self, right: Right, held: Held) -> int:
        """Ask on a connection of a listener that remembers earlier requests."""
        if right.kind == "turn":
            status, said = await self.on_connection(held.text)
            if (status, said.get("code")) == (401, "turnEnded"):
                raise Refused
            assert status == 200, said
            return held.version
        for _ in range(TURNS):
            if not held.token:
                held.token = (await self.broker.turns.begin(turn(right.subject))).token.reveal()
            status, said = await self.on_connection(held.token)
            if status == 200:
                return proven(result_from_json(said), right, held)
            assert (status, said.get("code")) == (401, "turnEnded"), said
            held.token = ""  # the turn ended with everything of its subject
        raise AssertionError("no turn lasts")

    async def on_connection(self, bearer: str) -> tuple[int, Any]:
        body = json.dumps({"oauthAppRef": f"OAuthApp/{APP}"})
        head = f"POST /v1/tokens HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {bearer}\r\n"
        rest = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        line = Line(self.listener)
        said = await line.say((head + rest).encode())
        self.figures["answers at once"] += line.at_once
        await line.close()
        return int(said.split(b" ", 2)[1]), json.loads(said.partition(b"\r\n\r\n")[2])

    async def key_check(self, right: Right, held: Held) -> int:
        try:
            await self.broker.api_keys.check(held.text)
        except BrokerError as error:
            raise refused(error.code.value) from None
        return held.version

    async def key_route(self, right: Right, held: Held) -> int:
        status, said = await self.request("GET", "/v1/apps", held.text)
        if (status, said.get("code")) == (401, "unauthenticated"):
            raise Refused
        if status != 200:
            raise AssertionError(f"{status} {said}")
        return held.version

    async def admitted(self, text: str) -> TurnTokenHolder:
        try:
            return await self.broker.turns.admit(text)
        except BrokerError as error:
            raise refused(error.code.value) from None

    def address(self) -> str:
        """Return a new address: one that fails too often is answered 429."""
        return ".".join(str(self.dice.randrange(1, 255)) for _ in range(4))

    async def request(self, method: str, path: str, bearer: str, body: Any = None) -> tuple[int, Any]:
        """Make one request of the API, without a network."""
        sent, said, parts = json.dumps(body).encode() if body is not None else b"", list[int](), list[bytes]()
        headers = {"host": HOST, "authorization": f"Bearer {bearer}", "content-type": "application/json"}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": (self.address(), 40000), "server": ("127.0.0.1", 8420), "extensions": {}, "state": {},
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            if said:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                said.append(message["status"])
            else:
                parts.append(message.get("body", b""))

        await self.broker.asgi.app(scope, receive, send)
        return said[0], json.loads(b"".join(parts))


Way = Callable[[Caller, Right, Held], Awaitable[int]]
WAYS: dict[Kind, tuple[Any, ...]] = {
    "grant": (Caller.kept_context, Caller.new_context, Caller.connection),
    "turn": (Caller.admission, Caller.kept_guest, Caller.token_route, Caller.connection),
    "key": (Caller.key_check, Caller.key_route),
}


def proven(result: TokenResult, right: Right, held: Held) -> int:
    """Return the version that the answer proves. Raises `Refused`."""
    if isinstance(result, Ready):
        return version_of(result.access_token.reveal(), right, held)
    if isinstance(result, Failed):
        raise refused(result.code.value)
    assert isinstance(result, AuthorizationRequired)
    assert right.kind == "grant"
    raise Refused


def version_of(token: str, right: Right, held: Held) -> int:
    """A turn or key is proven by any token; a grant by its own."""
    if right.kind != "grant":
        return held.version
    version = int(token.rpartition("-")[2])
    assert right.token(version) == token
    return version


def refused(code: str) -> Exception:
    return Refused() if code in {"turnEnded", "unauthenticated"} else AssertionError(code)


def say(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def listen(caller: Caller) -> None:
    """Take new tokens and keys until stdin ends."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        reported = json.loads(line)
        caller.held[RIGHTS[reported["right"]]] = Held(reported["version"], reported["text"])
    caller.over = True


async def live(folder: Path, disk: Disk, seed: int) -> None:
    clock, log = SystemClock(), io.StringIO()
    store = open_file_store(folder, clock=clock, fs=DISKS[disk]())
    async with open_broker(
        bundle(folder), env={}, clock=clock, store=store, log=json_log(log, clock), background=False
    ) as broker:
        caller = Caller(broker, Board(folder / "board"), random.Random(seed))
        await caller.broker.oauth(turn(LASTING)).get_access_token(APP)
        say({"up": True})
        async with asyncio.TaskGroup() as tasks:
            for kind in KINDS:
                tasks.create_task(caller.watch(kind))
            tasks.create_task(caller.stroll())
            tasks.create_task(listen(caller))
    say({"figures": caller.figures})


# mistakes, each of which a run has to notice


def trust_the_store() -> None:
    """A store that confirms an entry for a moment after it has looked."""
    looked, unchanged = dict[Any, float](), FileStore.unchanged

    def trusting(self: FileStore, entry: Entry) -> bool:
        now = SystemClock().monotonic()
        if now - looked.get((entry.key, entry.generation), -1) < TRUST_SECONDS:
            return True
        if unchanged(self, entry):
            looked[entry.key, entry.generation] = now
            return True
        return False

    FileStore.unchanged = trusting  # type: ignore[method-assign]


def trust_young_times() -> None:
    """A store that compares no header while a file's times may still be those of the next version."""

    def same_times(self: cache_stamp.Stamp, fs: Fs, folder: int, name: str) -> bool:
        return cache_stamp.identity(fs.stat(name, dir_fd=folder)) == self.file

    cast("Any", cache_stamp)._tick = lambda _: -1.0
    cache_stamp.Stamp._same_header = same_times  # type: ignore[method-assign]


def trust_admissions() -> None:
    """A context that does not look whether its turn has ended since."""

    async def holds(*_: object) -> None:
        """Say yes."""

    TurnTokenHolder.check_turn = holds  # type: ignore[assignment]


MISTAKES = {"store": trust_the_store, "times": trust_young_times, "admissions": trust_admissions}


def main() -> None:
    folder, disk, seed, *mistake = sys.argv[1:]
    for name in mistake:
        MISTAKES[name]()
    asyncio.run(live(Path(folder), cast("Disk", disk), int(seed)))


if __name__ == "__main__":
    main()
