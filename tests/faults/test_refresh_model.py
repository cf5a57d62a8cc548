"""Random events around one grant in random order: the broker against a small model of its allowed states.

The model knows what the provider knows. Its invariants: no refresh token is sent twice without a sealed intent that says
so; a token that is handed out lives, or its person withdrew it without telling us; a revoked grant gives no token;
while a pause runs the provider hears nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.records import Grant
from oauthbroker.records.refresh_state import Intent
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing import IdentityProvider, TestClock, connect_through
from oauthbroker.testing.stores import open_keyring
from tests.faults.crash_kit import FailAtChange
from tests.kit.broker_process import Process
from tests.kit.crashfs import Crash
from tests.kit.running_broker import ALICE, turn, user_app

STEPS = 90
SEEDS = range(4)
CODES = {"providerUnreachable", "providerRateLimited", "rateLimited", "storeUnavailable", "refreshInProgress"}


class DyingFs(FailAtChange):
    """The process dies at the `number`-th change after `arm`; its changes so far stay on the disk."""

    def _step(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if self.fired is not None and call not in {"unlock", "close"}:
            raise Crash(call)
        try:
            return super()._step(call, args, (lambda: None) if call == "fsync" else run)
        except OSError:
            if self.fired is None:
                raise
            raise Crash(call) from None


class NotingStore(FileStore):
    """Notes every intent that is sealed: how many answers were lost before it."""

    intents: list[int]

    @classmethod
    def on(cls, root: Path, ring: Keyring, clock: TestClock, fs: Fs, intents: list[int]) -> NotingStore:
        store = cls(root, ring, kinds=KINDS, lease_kinds=LEASES, clock=clock, fs=fs)
        store.intents = intents
        return store

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        before = intent_in(await self.get(key))
        entry = await super().put(key, body, **more)
        intent = intent_in(entry)
        if intent is not None and (before is None or intent.attempt != before.attempt):
            self.intents.append(intent.lost)
        return entry


def intent_in(entry: Entry | None) -> Intent | None:
    if entry is None or entry.key.kind != "grants":
        return None
    return Grant.from_plaintext(entry.body).refresh_state.intent


@dataclass
class World:
    """One provider, one grant, one broker after the other, and the model."""

    idp: IdentityProvider
    clock: TestClock
    root: Path
    ring: Keyring
    dice: random.Random
    intents: list[int] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    given: list[Secret] = field(default_factory=list)
    revoked: bool = False
    requests: int = 0
    process: Process = field(init=False)
    fs: DyingFs = field(init=False)

    def start(self) -> None:
        self.fs = DyingFs()
        store = NotingStore.on(self.root, self.ring, self.clock, self.fs, self.intents)
        self.process = Process.on(store, [user_app(self.idp)], self.clock)

    # what may happen

    async def ask(self) -> None:
        await self._checked(self._call())

    async def report(self) -> None:
        """Of the token it got last, or of one long past."""
        if self.given:
            token = self.dice.choice(self.given[-3:])
            await self._checked(self.process.broker.oauth(turn()).report_rejected("mail", token))

    async def wait(self) -> None:
        self.clock.advance(self.dice.choice([1, 3, 20, 400, 3500, 4000]))

    async def lose(self) -> None:
        self.idp.script.refresh.close_after_accept(after_work=self.dice.random() < 0.6)

    async def refuse_to_work(self) -> None:
        script = self.idp.script.refresh
        match self.dice.randrange(4):
            case 0:
                script.busy(self.dice.choice([None, 5, 120]))
            case 1:
                script.answer(503)
            case 2:
                script.answer(500)
            case _:
                script.refuse("temporarily_unavailable")

    async def withdraw(self) -> None:
        """The person says no in the provider's settings."""
        self.idp.revoke_all("client-mail", "alice")

    async def revoke(self) -> None:
        """Here at once; the provider may have no time to be told, and the tokens lie in the tombstone until it has."""
        if self.dice.random() < 0.5:
            self.idp.script.revoke.answer(503)
        await self.process.broker.revoke("mail", subject=ALICE)
        self.revoked = True
        self._noted("revoked", None)

    async def connect(self) -> None:
        """The person agrees, if asked to."""
        result = await self._call()
        self._noted("asked", result)
        if isinstance(result, AuthorizationRequired):
            page = await connect_through(self.process.browser(), self.idp, result.authorization_url)
            assert 200 == page.status
            self.revoked = False

    async def upkeep(self) -> None:
        await self.process.parts.background_refresh.recover()
        await self.process.parts.bulk_revocation.run_pass()
        self._noted("recovered", None)

    async def crash(self) -> None:
        """A call runs, and the process dies meanwhile, or right after."""
        self.fs.arm(self.dice.randrange(25), 5)
        try:
            result: TokenResult | None = await self._call()
        except Crash:
            result = None
        died = self.fs.fired is not None
        self.fs.disarm()
        self.fs.fired = None
        await self.process.die()
        self._noted("died" if died else "ended", None if died else result)
        self.start()

    async def _call(self) -> TokenResult:
        self.requests = self.idp.count("refresh_token")
        return await self.process.broker.oauth(turn()).get_access_token("mail")

    # what must hold

    async def _checked(self, call: Awaitable[TokenResult]) -> None:
        grant = await self.process.grant("mail", ALICE)
        intent = grant.refresh_state.intent if grant is not None else None
        self.requests = self.idp.count("refresh_token")
        pausing = self.process.parts.refresh.circuits.pause("mail") > 0
        pausing = pausing or (intent is not None and intent.retry_at > self.clock.now())
        result = await call
        assert not pausing or self.requests == self.idp.count("refresh_token"), "asked during a pause"
        self._noted("asked", result)

    def _noted(self, what: str, result: TokenResult | None) -> None:
        self.history.append(f"{what}: {word_of(result)}")
        self.seen[word_of(result)] += 1
        self._check_requests()
        if isinstance(result, Ready):
            assert not self.revoked, "a token of a revoked grant"
            assert self.idp.is_alive(result.access_token) or self._has_ended(result.access_token), "a dead token"
            if result.access_token not in self.given:
                self.given.append(result.access_token)
        if isinstance(result, Failed):
            assert result.code.value in CODES, result
            assert result.retryable
        if isinstance(result, AuthorizationRequired):
            self._check_reason(result.reason)

    def _has_ended(self, token: Secret) -> bool:
        """Its family has ended since the provider issued it, which was not just now."""
        is_old = token in self.given or self.requests == self.idp.count("refresh_token")
        return is_old and bool(self.idp.families("client-mail")[-1].ended_by)

    def _check_reason(self, reason: str) -> None:
        families = self.idp.families("client-mail")
        ended = families[-1].ended_by if families else ""
        allowed = {"reuse": {"refreshUncertain"}, "person": {"expired", "refreshUncertain", "revoked"}}.get(
            ended, set()
        )
        if self.revoked:
            allowed = {"revoked"}
        if not families:
            allowed = {"noGrant"}
        assert reason in allowed, f"{reason} although the family was ended by {ended!r}"

    def _check_requests(self) -> None:
        """No request without an intent of its own; one that repeats a generation knows that an answer was lost."""
        seen = self.idp.seen("refresh_token")
        assert len(seen) <= len(self.intents), "a request without an intent"
        twice = sum(max(0, times - 1) for family in self.idp.families() for times in family.redeemed.values())
        reused = sum(family.reused for family in self.idp.families())
        assert twice + reused <= sum(lost > 0 for lost in self.intents), "a refresh token was sent twice in silence"


def word_of(result: TokenResult | None) -> str:
    match result:
        case Ready(degraded=degraded):
            return "degraded" if degraded else "ready"
        case AuthorizationRequired(reason=reason):
            return reason
        case Failed(code=code):
            return code.value
        case _:
            return "-"


WEIGHTS: dict[Callable[[World], Awaitable[None]], int] = {
    World.ask: 12,
    World.wait: 12,
    World.lose: 3,
    World.refuse_to_work: 2,
    World.withdraw: 1,
    World.revoke: 1,
    World.connect: 4,
    World.upkeep: 3,
    World.crash: 4,
    World.report: 4,
}


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.case("47", "48", "52", "53", "61")
@pytest.mark.parametrize("grace", [0, 30], ids=["reuse ends the family", "reuse is forgiven for half a minute"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_life_of_a_grant_keeps_to_the_model(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, seed: int, grace: float
):
    user_app(identity_provider)
    identity_provider.change("client-mail", reuse_grace=grace)
    ring, dice = open_keyring(tmp_path), random.Random(seed)
    world = World(identity_provider, test_clock, tmp_path / "store", ring, dice)
    world.start()
    await world.connect()
    try:
        for _ in range(STEPS):
            (step,) = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
            world.history.append(step.__name__)
            await step(world)
        await settled(world)
    except AssertionError as error:
        raise AssertionError(f"{error} after {world.history}") from None
    finally:
        await world.process.die()
    assert world.seen["ready"] > 0


async def settled(world: World) -> None:
    """When provider and disk work again, so does the grant: a living token without a person, or a person is asked."""
    world.idp.script.reset()
    world.clock.advance(4000)
    await world.upkeep()
    world.clock.advance(60)
    result = await world._call()
    world._noted("in the end", result)
    assert isinstance(result, Ready | AuthorizationRequired)
    await world.connect()
    last = await world._call()
    assert isinstance(last, Ready)
    assert world.idp.is_alive(last.access_token)
