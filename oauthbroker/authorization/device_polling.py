"""Poll for device codes until the user has agreed elsewhere (RFC 8628 section 3.4), in one process at a time.

Every process of a store knows every open code: those it opened at once, others by the sweeper. So another process goes
on when one dies. The record holds the time of the next poll and is written before each poll. The process that holds the
pair's provider lease and reads a due record polls; a process that cannot store the result does not. The same process
keeps polling: the stored time lets others take over only when an answer is long overdue.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from datetime import datetime, timedelta

from oauthbroker.authorization.device_tokens import DeviceTokens
from oauthbroker.authorization.finish import Finish
from oauthbroker.core.clock import SET_BACK, Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import Log
from oauthbroker.observability.repeats import Repeats
from oauthbroker.observability.tracing import Span, span
from oauthbroker.protocol.answer_checks import LONGEST_WAIT
from oauthbroker.protocol.device_messages import DevicePending
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.protocol.token_endpoint import RefusedTokens, TokenResponse
from oauthbroker.records import AuthSession, Device
from oauthbroker.repository.repository import Repository, Versioned

SLOW_DOWN_SECONDS = 5  # RFC 8628 section 3.5
LONGEST_BACKOFF = 60
BUSY_SECONDS = 1.0  # how long to wait for the process that holds this pair or has just written this record
TICK_SECONDS = 0.2  # the longest delay before a due poll starts
PROVIDER_CALLS = 6  # keys twice, discovery twice, userinfo, revocation: a claim outlives them all


@dataclass(frozen=True, slots=True)
class _Heard:
    """The last poll of this process, which returned `authorization_pending` for this generation of the session.
    `again_at` is the next poll, in the clock's monotonic seconds."""

    generation: int
    again_at: float


@dataclass(slots=True, kw_only=True)
class Polling:
    """The polls of this process. `expired_events` is as for the sweeper."""

    repository: Repository
    tokens: DeviceTokens
    finish: Finish
    apps: Mapping[str, App]
    clock: Clock
    limits: Limits
    log: Log
    expired_events: bool = False
    _due: list[tuple[float, str]] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _heard: dict[str, _Heard] = field(default_factory=dict)
    _faults: dict[str, int] = field(default_factory=dict)
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: bool = False
    _repeats: Repeats = field(init=False)

    def __post_init__(self) -> None:
        self._repeats = Repeats(self.clock)

    def watch(self, session: AuthSession) -> None:
        """Poll for this session from now on, if it has a device code and is open. Idempotent."""
        if session.device is not None and session.open and session.locator not in self._known:
            self._known.add(session.locator)
            self._schedule(session.locator, self._until(session.device.next_poll_at, session))

    async def run(self) -> None:
        """Poll until cancelled, each session when it is due. A slow provider delays no other session."""
        while True:
            self._woken.clear()
            self._start_due()
            try:
                async with asyncio.timeout(TICK_SECONDS if self._due else None):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def once(self) -> None:
        """Run every poll that is due now. Cancelling the caller cancels no poll."""
        if started := self._start_due():
            await asyncio.wait(started)

    def _start_due(self) -> list[asyncio.Task[None]]:
        now, started = self.clock.monotonic(), list[asyncio.Task[None]]()
        while self._due and self._due[0][0] <= now and not self._closing:
            _, locator = heapq.heappop(self._due)
            started.append(asyncio.create_task(self._turn(locator)))
        for task in started:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return started

    async def close(self) -> None:
        """Start no other poll, and wait for running polls and commits."""
        self._closing = True
        await asyncio.gather(*self._running, return_exceptions=True)

    def _schedule(self, locator: str, wait: float) -> None:
        heapq.heappush(self._due, (self.clock.monotonic() + wait, locator))
        self._woken.set()

    async def _turn(self, locator: str) -> None:
        """Poll once and schedule the next poll, also after an error."""
        wait: float | None = self.limits.sweep_seconds
        try:
            wait = await self._poll(locator)
        except BrokerError as error:
            if error.code is Code.STORE_LOCKED:  # another writer was faster, or is under way
                wait = BUSY_SECONDS
            elif self._repeats.is_new("a poll", error.code, error.note):  # an outage meets every code
                self.log.warning("a device code could not be asked about", code=error.code.value, note=error.note)
        except Exception as error:  # noqa: BLE001  (its text may hold a secret, so only its type is logged)
            if self._repeats.is_new("a poll", type(error).__name__):
                self.log.warning("a device code could not be asked about", error=type(error).__name__)
        if wait is not None:
            self._schedule(locator, wait)
            return
        self._known.discard(locator)
        self._heard.pop(locator, None)
        self._faults.pop(locator, None)

    async def _poll(self, locator: str) -> float | None:
        """Return the seconds until the next poll of this session, None when it is not polled here any longer."""
        versioned = await self._still_waiting(locator)
        app = self.apps.get(versioned.record.app) if versioned is not None else None
        if versioned is None or app is None:
            return None
        app = app.at(versioned.record.params)
        if (early := self._early(versioned)) > 0:
            return early
        try:
            async with self.repository.provider_lease(versioned.record.key, wait=BUSY_SECONDS):
                return await self._poll_alone(app, locator)
        except BrokerError as error:
            if error.code is not Code.STORE_LOCKED:
                raise
        return BUSY_SECONDS

    async def _poll_alone(self, app: App, locator: str) -> float | None:
        """Read the session again under the provider lease, store the time of the next poll, then poll."""
        versioned = await self._still_waiting(locator)
        if versioned is None:
            return None
        if versioned.record.config_digest != app.config_digest:
            return None if await self.finish.lapse(versioned) else BUSY_SECONDS
        if (early := self._early(versioned)) > 0:
            return early
        await self.repository.check_writable(versioned.record.key)
        device, sent_at = _device(versioned), self.clock.now()
        is_sure = not device.unsure or self._has_heard(versioned)
        asking = device.asking(sent_at + timedelta(seconds=device.interval + self.limits.provider_seconds))
        versioned = await self.repository.save_session(versioned.record.polled(asking), expect=versioned.generation)
        try:
            answer = await self.tokens.ask(app, device)
        except BrokerError as error:
            refused = error
        else:
            if isinstance(answer, DevicePending):
                return await self._go_on(versioned, slower=answer.slower)
            await self._redeem(app, versioned, answer, sent_at)
            return None
        return await self._refused(app, versioned, refused, is_sure=is_sure)

    async def _still_waiting(self, locator: str) -> Versioned[AuthSession] | None:
        """Return the session if it still waits for the user. The sweeper ends expired ones."""
        versioned = await self.repository.session(locator)
        if versioned is None or versioned.record.device is None or versioned.record.device.code is None:
            return None
        session = versioned.record
        waits = session.open and session.claim is None and session.expires_at > self.clock.now()
        return versioned if waits else None

    def _early(self, versioned: Versioned[AuthSession]) -> float:
        """Return the seconds until the provider may be polled again, at most until the session expires."""
        session = versioned.record
        early = self._until(_device(versioned).next_poll_at, session)
        if self._has_heard(versioned):
            early = self._heard[session.locator].again_at - self.clock.monotonic()
        return min(early, (session.expires_at - self.clock.now()).total_seconds())

    def _until(self, moment: datetime, session: AuthSession) -> float:
        """Return the seconds until `moment`. Zero if the clock was set back by more than any provider's interval."""
        wait = min(moment - self.clock.now(), session.expires_at - session.created_at).total_seconds()
        return wait if moment - self.clock.now() <= timedelta(seconds=LONGEST_WAIT) + SET_BACK else 0.0

    def _has_heard(self, versioned: Versioned[AuthSession]) -> bool:
        heard = self._heard.get(versioned.record.locator)
        return heard is not None and heard.generation == versioned.generation

    async def _go_on(self, versioned: Versioned[AuthSession], *, slower: bool) -> float:
        """Schedule the next poll after `authorization_pending` or `slow_down` (RFC 8628 section 3.5). The code is
        unused, so an earlier lost response held no token."""
        session, device = versioned.record, _device(versioned)
        self._faults.pop(session.locator, None)
        interval = device.interval + (SLOW_DOWN_SECONDS if slower else 0)
        if slower:
            answered = device.answered(self.clock.now() + timedelta(seconds=interval), interval)
            versioned = await self.repository.save_session(session.polled(answered), expect=versioned.generation)
        return self._note_heard(versioned, interval)

    def _note_heard(self, versioned: Versioned[AuthSession], wait: float) -> float:
        self._heard[versioned.record.locator] = _Heard(versioned.generation, self.clock.monotonic() + wait)
        return wait

    async def _refused(
        self, app: App, versioned: Versioned[AuthSession], refused: BrokerError, *, is_sure: bool
    ) -> float | None:
        session, code = versioned.record, refused.code
        if code in {Code.PROVIDER_UNREACHABLE, Code.OUTGOING_PROXY_REFUSED, Code.PROVIDER_RATE_LIMITED}:
            return await self._back_off(app, versioned, refused, is_sure=is_sure)
        if code is Code.STATE_EXPIRED or (code is Code.EXCHANGE_FAILED and session.expires_at <= self.clock.now()):
            await self.finish.lapse(versioned, event="auth.expired" if self.expired_events else None)
        elif code is Code.PROVIDER_DENIED:
            await self.finish.fail(versioned, code, event="auth.denied")
        else:
            if code is Code.EXCHANGE_FAILED and not is_sure:
                code = Code.EXCHANGE_UNCERTAIN  # the code is used, and its tokens were in a lost response
            self.log.warning("a device code came to nothing", app=app.name, code=code.value, note=refused.note)
            issued = refused.issued if isinstance(refused, RefusedTokens) else IssuedTokens()
            await self.finish.give_up(app, versioned, code, issued)
        return None

    async def _back_off(
        self, app: App, versioned: Versioned[AuthSession], refused: BrokerError, *, is_sure: bool
    ) -> float:
        """Double the interval after every failure in a row, or wait as long as the provider asks (RFC 8628 section
        3.5)."""
        session, device = versioned.record, _device(versioned)
        faults = self._faults[session.locator] = self._faults.get(session.locator, 0) + 1
        doubled = min(device.interval * 2 ** min(faults, 16), max(LONGEST_BACKOFF, device.interval))
        wait = max(doubled, refused.retry_after_seconds or 0)
        if self._repeats.is_new("a provider", app.name, refused.code, refused.note):
            self.log.warning(
                "a provider could not say whether a device code is used",
                app=app.name, code=refused.code.value, note=refused.note, again_in=wait,
            )  # fmt: skip
        at = self.clock.now() + timedelta(seconds=wait)
        versioned = await self.repository.save_session(
            session.polled(device.postponed(at)), expect=versioned.generation
        )
        not_sent = isinstance(refused, TransportFailed) and not refused.sent
        if is_sure and (not_sent or refused.code is Code.PROVIDER_RATE_LIMITED):
            self._note_heard(versioned, wait)
        return float(wait)

    async def _redeem(
        self, app: App, versioned: Versioned[AuthSession], answer: TokenResponse, sent_at: datetime
    ) -> None:
        """Claim, verify and commit, as for a callback. A failure ends the session and stores nothing."""
        claimed, code, note = None, Code.STATE_USED, "the session ended while the provider answered"
        try:
            seconds = (PROVIDER_CALLS + len(app.facts.requests)) * self.limits.provider_seconds
            claimed = await self.finish.claim(versioned, seconds)
        except BrokerError as error:
            code, note = error.code, error.note
        if claimed is None:
            self.log.warning("tokens came too late to be kept", app=app.name, code=code.value, note=note)
            await self.finish.drop(app, versioned.record, code, answer.issued)
            return
        try:
            verified = await self.finish.verify(app, claimed.record, answer, sent_at)
            with span(Span.COMMIT, app=app.name):
                await self.finish.commit(app, claimed, verified, sent_at)
        except BrokerError as error:
            code, note = error.code, error.note
        else:
            return
        self.log.warning("a device code came to nothing", app=app.name, code=code.value, note=note)
        await self.finish.give_up(app, claimed, code, answer.issued)


def _device(versioned: Versioned[AuthSession]) -> Device:
    device = versioned.record.device
    assert device is not None  # noqa: S101  (only sessions that have one are looked at)
    return device
