"""Replay a trace of the model against the real transaction, repository and store, and compare after each action."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant, Token
from oauthbroker.repository.lost_versions import restore
from oauthbroker.repository.repository import Repository
from oauthbroker.store.format.port import Store
from oauthbroker.testing import TestClock
from tests.model import actions, disturbances
from tests.model.actions import Action, redeemed
from tests.model.gates import OVER, GatedStore, Shared
from tests.model.host_process import APP, HostProcess
from tests.model.state import ACTIVE, ORPHAN, QUIET, Provider, State

LONG = 400  # seconds: longer than any pause after a lost answer
Trace = list[tuple[Action, State]]


@dataclass
class World:
    """The hosts, the provider and the store of one trace, opened once for each host. `save` and `load` take it back."""

    stores: Sequence[Store]
    subject: str
    clock: TestClock
    habit: Any = "strict"
    save: Callable[[], Awaitable[Any]] | None = None
    load: Callable[[Any], Awaitable[None]] | None = None
    shared: Shared = field(default_factory=Shared)
    provider: Provider = field(default_factory=Provider)
    hosts: list[HostProcess] = field(default_factory=list)
    late: set[int] = field(default_factory=set)  # refresh tokens that came after a revocation, and were revoked
    fate: str = ""  # of the next request or answer
    behind: Any = None

    async def begin(self) -> None:
        self.hosts = [await self._started(number + 1) for number in range(len(self.stores))]
        await self.hosts[0].repository.save_grant(self._grant(1), expect=0)

    async def _started(self, number: int) -> HostProcess:
        store = GatedStore(self.stores[number - 1], self.shared, number)
        process = HostProcess(store, self.clock, reply=self.reply, late=self.revoke_late)
        with suppress(BrokerError):
            await process.repository.lost_writes()
        return process

    def _grant(self, number: int) -> Grant:
        now = self.clock.now()
        return Grant(
            app=APP.name, provider="oidc", subject=self.subject, flow="authorization_code", scopes=("read",),
            token=_token(number, now), created_at=now, updated_at=now, registration=APP.registration,
        )  # fmt: skip

    def reply(self, sent: str) -> bytes | None:
        """Answer a request as the model's provider does."""
        if self.fate == actions.UNHEARD:
            return None
        self.provider, came = redeemed(self.provider, int(sent.removeprefix("refresh-")), self.habit)
        if not came:
            return b'{"error": "invalid_grant"}'
        members = {"refresh_token": f"refresh-{came}", "token_type": "bearer", "expires_in": 3600}
        return json.dumps({**members, "access_token": f"access-{came}"}).encode()

    async def revoke_late(self, *_: Any, refresh: Secret | None, **__: Any) -> None:
        self.late.add(_number(refresh))

    async def play(self, trace: Trace) -> None:
        """Play a trace. Raises AssertionError, with the actions so far, where the code does something else."""
        begun, before = list[str](), trace[0][1]
        try:
            for action, after in trace:
                begun.append(str(action))
                await self._act(action, after)
                await self._compare(after)
                self._check_late(action, before)
                before = after
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"{error!r} after {begun}") from None
        finally:
            for host in self.hosts:
                host.kill()
            await asyncio.sleep(0)

    async def _act(self, action: Action, after: State) -> None:
        self.clock.advance(LONG if action.word in {actions.ASK, actions.TAKE} else 1)
        self.shared.quiet = {number for number, host in enumerate(after.hosts, 1) if host.contact == QUIET}
        if action.word in _HOST:
            host = self.hosts[action.host - 1]
            self.fate = action.word
            await _HOST[action.word](self, host)
            if action.word == actions.SEAL:
                host.attempt = await self._attempt()
        else:
            await self._trouble(action, after)

    def _check_late(self, action: Action, before: State) -> None:
        """A refresh token that comes after a revocation is revoked, too."""
        ended = before.record.word in {"revoked", "erased"} and not before.failed_over
        if ended and action.word in {actions.COMMIT, actions.SPARE}:
            assert before.hosts[action.host - 1].fresh in self.late, "a late token is not revoked"

    async def _trouble(self, action: Action, after: State) -> None:
        number = action.host
        match action.word:
            case disturbances.KILL:
                self.hosts[number - 1].kill()
                self.hosts[number - 1] = await self._started(number)
            case disturbances.AWAY:
                self.shared.up = False
                await self._try_in_vain(after)
            case disturbances.BEHIND:
                assert self.save is not None
                self.behind = await self.save()
            case disturbances.FAIL_OVER:
                assert self.load is not None
                await self.load(self.behind)
                self.shared.history += 1
                self.shared.since.clear()
            case disturbances.WRITE_BACK:
                assert 1 == len(await restore(self.hosts[number - 1].repository))
            case disturbances.WITHDRAW_THERE:
                self.provider = self.provider._replace(family="withdrawn")
            case disturbances.REVOKE | disturbances.CONSENT | disturbances.ERASE:
                await self._person(action.word, self.hosts[number - 1].repository, after)
        self.shared.up, self.shared.lease = after.up, after.lease

    async def _try_in_vain(self, after: State) -> None:
        """Let each holder of a new refresh token try to store it once. Its caller gets the token from memory."""
        for host, process in zip(after.hosts, self.hosts, strict=True):
            if host.step == "answered" and host.fresh and not host.asleep:
                await process.gates.until("write")
                process.gates.was_stored = False

    async def _person(self, word: str, repository: Repository, after: State) -> None:
        async with repository.pair(GrantKey(APP.name, self.subject)):
            versioned = await repository.grant(GrantKey(APP.name, self.subject))
            expect = 0 if versioned is None else versioned.generation
            if word == disturbances.CONSENT:
                await repository.save_grant(self._grant(after.provider.newest), expect=expect)
            elif versioned is not None and word == disturbances.REVOKE:
                await repository.save_grant(versioned.record.tombstoned(self.clock.now()), expect=expect)
            elif versioned is not None:
                await repository.erase_grant(versioned)
        self.provider = after.provider

    async def _stored(self) -> Grant | None:
        entry = await self.stores[0].get(self.hosts[0].repository.grant_place(GrantKey(APP.name, self.subject)))
        return None if entry is None else Grant.from_plaintext(entry.body)

    async def _attempt(self) -> str:
        grant = await self._stored()
        return grant.refresh_state.intent.attempt if grant is not None and grant.refresh_state.intent else ""

    async def _compare(self, model: State) -> None:
        expected, seen = reported(model), self._seen(await self._stored(), model)
        assert expected == seen, f"the model has {expected}, the code {seen}"
        for number, (host, process) in enumerate(zip(model.hosts, self.hosts, strict=True), 1):
            if host.step == "idle":
                assert process.gates.caller is None or process.gates.answered, f"host {number} has not answered"
            else:
                early = process.gates.answered and process.gates.was_stored
                assert not early, f"host {number} has answered before it has stored anything"

    def _seen(self, grant: Grant | None, model: State) -> dict[str, Any]:
        """Return what the store and the provider know, in the model's words."""
        seen: dict[str, Any] = {"lease": self.shared.lease, "provider": self.provider}
        if grant is None or grant.revoked:
            return {"word": "erased" if grant is None else "revoked", **seen}
        state, token = grant.refresh_state, grant.token
        assert token is not None
        intent = state.intent
        owner = 0
        if intent is not None:
            mine = [n for n, each in enumerate(self.hosts, 1) if each.attempt == intent.attempt]
            owner = mine[0] if mine and model.hosts[mine[0] - 1].step in ACTIVE else ORPHAN
        return {
            "word": state.ended or "live",
            "token": (_number(token.refresh_token), int(token.access_token.reveal().removeprefix("access-"))),
            "tries": tuple(map(_number, grant.refresh_tokens)),
            "intent": owner,
            "lost": min(intent.lost, 2) if intent is not None else 0,
            **seen,
        }


def reported(model: State) -> dict[str, Any]:
    record = model.record
    known = {"lease": model.lease, "provider": model.provider}
    if record.word in {"erased", "revoked"}:
        return {"word": record.word, **known}
    lost = record.lost if record.intent else 0
    return {
        "word": record.word, "token": (record.token,) * 2, "tries": record.tokens, "intent": record.intent, "lost": lost, **known
    }  # fmt: skip


def _token(number: int, now: Any) -> Token:
    ends = now + timedelta(hours=1)
    return Token(
        access_token=Secret(f"access-{number}"),
        token_type="bearer",
        refresh_token=Secret(f"refresh-{number}"),
        expires_at=ends,
        lifetime_seconds=3600,
    )


def _number(secret: Secret | None) -> int:
    return 0 if secret is None else int(secret.reveal().removeprefix("refresh-"))


def _to(stop: str, *passing: str) -> Callable[[World, HostProcess], Awaitable[None]]:
    async def go(_: World, host: HostProcess) -> None:
        await host.gates.until(stop, *passing)

    return go


async def _ask(world: World, host: HostProcess) -> None:
    await host.call(world.subject)
    await host.gates.until("take")


def _spoilt(fate: str) -> Callable[[World, HostProcess], Awaitable[None]]:
    async def go(_: World, host: HostProcess) -> None:
        host.asker.fate = fate
        await host.gates.until("write")
        host.asker.fate = ""

    return go


_WRITES = ("write", "written")
_HOST: dict[str, Callable[[World, HostProcess], Awaitable[None]]] = {
    actions.ASK: _ask,
    actions.TAKE: _to("leased"),
    actions.SETTLED: _to(OVER),
    actions.WAIT: _to(OVER),
    actions.SEAL: _to("written", "write"),
    actions.CANNOT: _to(OVER, *_WRITES),
    actions.MAY: _to("send"),
    actions.WITHDRAW: _to(OVER, *_WRITES),
    actions.SEND: _to("answer"),
    actions.UNHEARD: _to("write"),
    actions.HEAR: _to("write", "send", "answer"),
    actions.LOSE: _spoilt("lost"),
    actions.REFUSE: _spoilt("junk"),
    actions.COMMIT: _to(OVER, "written"),
    actions.SPARE: _to(OVER, "written"),
    actions.NOTE: _to(OVER, "written"),
    actions.SILENCE: _to(OVER, "written"),
}
