"""Listen to the changes of a database, on a connection of its own.

The feed confirms a version while its own heartbeats come back through the database: each is a notification, and
notifications arrive in the order of their commits. So an answer of the feed is at most `FEED_SECONDS` old, also if the
connection is half open, the process was frozen, or a pooler keeps notifications back. A late heartbeat ends all trust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final

import psycopg

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.store.format.port import FEED_SECONDS, Entry, Key
from oauthbroker.store.postgres.connect_failures import connect_failure
from oauthbroker.store.postgres.pools import TERMS

BEAT_SECONDS: Final = 1.0
SETTLING_SECONDS: Final = 30.0  # after the first feed of a store: writes that began before it tell nothing
KNOWN: Final = 50_000  # entries
_FAREWELL_SECONDS: Final = 1.0
_CHANNEL = "oauthbroker"
_BEAT, _QUEUE = "beat", "queue"  # the other payloads are "KIND NAME"
_BEGIN = """
with begun as (insert into oauthbroker.feature (name) values ('feed') on conflict do nothing returning at)
select extract(epoch from clock_timestamp() - at)::float8
from (select at from begun union all select at from oauthbroker.feature where name = 'feed') as known limit 1
"""
_TELL = "select pg_notify('oauthbroker', %s)"


class Feed:
    """The changes that one process hears of. Belongs to one event loop. `trusted`: versions may be confirmed, so
    that writers have to tell their changes; else the feed only wakes consumers of queues. `heard_at` is when the last
    heartbeat that came back was sent. Time is real also under a test's clock."""

    def __init__(self, url: Secret, *, trusted: bool = False, settling: float = SETTLING_SECONDS) -> None:
        self._url, self._trusted, self._settling, self._monotonic = url, trusted, settling, SystemClock.monotonic
        self.heard_at, self._settled_at = -inf, -inf
        self.unreached = _why(TimeoutError())
        self._known = Bounded[Key, object](KNOWN)
        self._changed = Bounded[Key, int](KNOWN)
        self._count, self._forgotten = 0, 0  # changes heard; the number up to which `_changed` may lack one
        self._wakes: list[Callable[[], None]] = []
        self._beat = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def live(self) -> bool:
        """Whether the last heartbeat is on time."""
        return self._monotonic() - self.heard_at < FEED_SECONDS

    @property
    def state(self) -> str:
        """Return `off`, `late` or `live`."""
        return "off" if self._task is None else "live" if self.live else "late"

    def begin(self, wake: Callable[[], None] | None = None) -> None:
        """Start to listen, once. `wake` is called whenever a queue may have changed."""
        if wake is not None and wake not in self._wakes:
            self._wakes.append(wake)
        if self._task is None:
            self._task = asyncio.create_task(self._listen_for_ever())

    async def heard(self) -> bool:
        """Listen, and return whether a heartbeat comes back within `FEED_SECONDS`."""
        self.begin()
        with suppress(TimeoutError):
            async with asyncio.timeout(FEED_SECONDS):
                await self._beat.wait()
        return self.live

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # versions

    @property
    def mark(self) -> int:
        """The number of changes heard. Take it before a version is read, for `learn`."""
        return self._count

    def learn(self, key: Key, stamp: object, mark: int) -> None:
        """Note the newest version of an entry, unless a change was heard since `mark`, or writes that tell nothing may
        still be under way."""
        settled = self._trusted and self._monotonic() >= self._settled_at
        if settled and mark >= self._forgotten and self._changed.get(key, 0) <= mark:
            self._known.keep(key, stamp)

    def confirms(self, entry: Entry) -> bool:
        """Return whether this was the newest version at most `FEED_SECONDS` ago. Cheap."""
        if not self._trusted:
            return False
        self.begin()
        return self.live and self._monotonic() >= self._settled_at and self._known.get(entry.key) == entry.stamp

    def _change(self, payload: str) -> None:
        kind, _, name = payload.partition(" ")
        key = Key(kind, name)
        self._count += 1
        self._known.pop(key)
        for _, number in self._changed.keep(key, self._count):
            self._forgotten = max(self._forgotten, number)

    def _forget(self) -> None:
        """Forget all versions: changes may have been missed."""
        self.heard_at = -inf
        self._beat.clear()
        self._count += 1
        self._forgotten = self._count
        self._known.clear()

    # listening

    async def _listen_for_ever(self) -> None:
        while True:
            with suppress(psycopg.Error, TimeoutError, OSError):
                await self._listen()
            self._forget()
            await asyncio.sleep(SystemClock().jitter(BEAT_SECONDS / 2, BEAT_SECONDS))

    async def _listen(self) -> None:
        """Listen on one connection until it fails, or a heartbeat is late."""
        try:
            connection = await self._connected()
        except (psycopg.Error, TimeoutError, OSError) as error:
            self.unreached = _why(error)
            raise
        self.unreached = ""
        try:
            async with asyncio.timeout(FEED_SECONDS):
                await self._subscribe(connection)
            await self._beats(connection)
        finally:
            connection.pgconn.finish()  # at once: a half-open connection answers no farewell

    async def _connected(self) -> psycopg.AsyncConnection:
        """Connect. A connect that was cancelled would keep its session until the next garbage collection: so it gets a
        moment to end."""
        connecting = asyncio.ensure_future(psycopg.AsyncConnection.connect(self._url.reveal(), **TERMS))
        try:
            async with asyncio.timeout(FEED_SECONDS * 3):
                return await asyncio.shield(connecting)
        except (asyncio.CancelledError, TimeoutError):
            await asyncio.wait([connecting], timeout=_FAREWELL_SECONDS)
            if not connecting.cancel() and connecting.exception() is None:
                connecting.result().pgconn.finish()
            raise

    async def _subscribe(self, connection: psycopg.AsyncConnection) -> None:
        await connection.execute(f"listen {_CHANNEL}")
        if self._trusted:
            rows = await (await connection.execute(_BEGIN)).fetchall()
            age = float(rows[0][0]) if rows else 0.0
            self._settled_at = self._monotonic() + max(0.0, self._settling - age)
        self._forget()  # versions that were read before may have changed, and no notification said so

    async def _beats(self, connection: psycopg.AsyncConnection) -> None:
        """Send heartbeats and read notifications. Raises TimeoutError when no heartbeat comes back."""
        begun = self._monotonic()
        while self._monotonic() - max(self.heard_at, begun) < FEED_SECONDS:
            async with asyncio.timeout(FEED_SECONDS):
                await connection.execute(_TELL, [f"{_BEAT} {self._monotonic()!r}"])
                async for notification in connection.notifies(timeout=BEAT_SECONDS):
                    self._hear(notification.payload, own=notification.pid == connection.info.backend_pid)
        raise TimeoutError

    def _hear(self, payload: str, *, own: bool) -> None:
        word, _, rest = payload.partition(" ")
        if word == _BEAT:
            if own:
                self.heard_at = max(self.heard_at, float(rest))
                self._beat.set()
        elif word == _QUEUE:
            for wake in self._wakes:
                wake()
        else:
            self._change(payload)


def _why(error: Exception) -> str:
    text = "timeout" if isinstance(error, TimeoutError) else str(error)
    return connect_failure(psycopg.OperationalError(text)) or "no connection can be opened"
