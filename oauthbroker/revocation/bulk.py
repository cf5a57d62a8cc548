"""End many grants and tell their providers: all of them end here first, then each provider gets the revocations at
its own pace. The tombstones record the revocations still to be sent, so another process can go on."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from oauthbroker.core.clock import Clock, has_passed
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Pass, to_its_end
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_request import checked_wait
from oauthbroker.repository.repository import Conflict, Due, DueWork, PendingRevocation, Repository
from oauthbroker.revocation.pending_revocations import RevocationOutcome, can_tell, outcome_by_others
from oauthbroker.revocation.revoke import ASK_AGAIN, Revoke

AT_ONCE = 32  # tombstones written concurrently; the store's executor bounds them
REFUSALS_IN_A_ROW = 10  # then the provider refuses our client, and would refuse the others too
LOOK_AGAIN_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class RevocationFigures:
    """The progress of a run. `ended` counts grants ended by this run; `over` are the grants that have ended, also those
    that ended before; `outcomes` is the state at each grant's provider, once known; `failed` are the grants that could
    not be ended, with the error code."""

    chosen: int = 0
    ended: int = 0
    over: set[GrantKey] = field(default_factory=set)
    outcomes: dict[GrantKey, RevocationOutcome] = field(default_factory=dict)
    failed: dict[GrantKey, Code] = field(default_factory=dict)

    def count(self, *what: RevocationOutcome) -> int:
        found = Counter(self.outcomes.values())
        return sum(found[each] for each in what)

    @property
    def unended(self) -> int:
        """Return how many grants a run that was stopped has not come to."""
        return self.chosen - len(self.over | self.failed.keys())

    @property
    def left(self) -> int:
        """Return how many ended grants' providers have still to be told."""
        return len(self.over - self.failed.keys()) - self.count("done", "none", "shared")


class BulkRevocation:
    """Ends many grants at once. One instance per broker."""

    def __init__(self, *, repository: Repository, revoke: Revoke, apps: Mapping[str, App], clock: Clock) -> None:
        self._repository = repository
        self._revoke = revoke
        self._apps = apps
        self._clock = clock

    async def run_pass(self) -> None:
        """Send the pending revocations of all apps, concurrently: no provider delays another one.

        After a refusal an app's provider is asked again in an hour, because only an operator can repair that. A record
        that cannot be read or is being changed delays no other one; the store code is raised at the end.
        """
        by_app, this_pass = defaultdict[str, list[Due]](list), Pass()
        for due in await self._repository.due(lambda due, pending: self._rests(due.grant.app, pending)):
            if due.key.kind == "grants":
                by_app[due.grant.app].append(due)
        await asyncio.gather(*(self._pass_of(name, dues, this_pass) for name, dues in by_app.items()))
        this_pass.over()

    async def revoke_grants(
        self,
        pairs: Iterable[GrantKey],
        figures: RevocationFigures | None = None,
        *,
        patience: float = 0,
        on_change: Callable[[RevocationFigures], None] = lambda _: None,
    ) -> RevocationFigures:
        """End every pair here first, then tell their providers. Return `figures`, which is updated meanwhile;
        `on_change` is called after each update.

        A provider that is busy or does not answer is asked again for `patience` seconds in all, never before its
        `Retry-After`. Revocations still pending then are sent by a running broker, or by the next call for the same
        pairs. A caller that is cancelled waits for the grants whose end is being written, so that the figures are true.
        """
        patience, chosen = checked_wait(patience), list(dict.fromkeys(pairs))
        figures = figures if figures is not None else RevocationFigures()
        figures.chosen = len(chosen)
        for start in range(0, len(chosen), AT_ONCE):
            block = chosen[start : start + AT_ONCE]
            await to_its_end(asyncio.gather(*(self._write_tombstone(pair, figures) for pair in block)))
            on_change(figures)
        self._revoke.outbox.notify()
        by_app: dict[str, deque[GrantKey]] = defaultdict(deque)
        for pair in chosen:
            if pair not in figures.failed:
                by_app[pair.app].append(pair)
        until = self._clock.monotonic() + patience
        async with asyncio.TaskGroup() as group:
            for queue in by_app.values():
                group.create_task(self._tell_queue(queue, figures, until, on_change))
        return figures

    async def _write_tombstone(self, pair: GrantKey, figures: RevocationFigures) -> None:
        try:
            ended = await self._revoke.write_tombstone(pair) is not None
        except Conflict:
            figures.failed[pair] = Code.STORE_LOCKED
        except BrokerError as error:
            figures.failed[pair] = error.code
        else:
            figures.ended += ended
            figures.over.add(pair)

    async def _tell_queue(
        self,
        queue: deque[GrantKey],
        figures: RevocationFigures,
        until: float,
        on_change: Callable[[RevocationFigures], None],
    ) -> None:
        """Tell one app's provider of its grants, one after the other."""
        refused = 0
        while queue and refused < REFUSALS_IN_A_ROW:
            pause = self._revoke.circuits.pause(queue[0].app)
            if pause and self._clock.monotonic() + pause > until:
                break
            await self._clock.sleep(pause)
            pair = queue.popleft()
            outcome, soon = await self._tell(pair)
            figures.outcomes[pair] = outcome
            refused = refused + 1 if outcome == "refused" else 0
            on_change(figures)
            if outcome == "later" and soon and self._clock.monotonic() + LOOK_AGAIN_SECONDS <= until:
                queue.append(pair)  # the provider is busy, or another caller is telling it
                await self._clock.sleep(LOOK_AGAIN_SECONDS)
        figures.outcomes.update(dict.fromkeys(queue, "later"))
        on_change(figures)

    async def _tell(self, pair: GrantKey) -> tuple[RevocationOutcome, bool]:
        """Tell the provider of one grant. Return its state there, and whether asking again soon may change that."""
        app = self._apps.get(pair.app)
        try:
            versioned = await self._repository.grant(pair)
            if versioned is None or not versioned.record.revocation_pending:
                return outcome_by_others(versioned), True
            outcome = await self._revoke.resume(app, versioned, wait=self._revoke.limits.provider_seconds)
            there = await self._repository.grant(pair)
            return outcome, there is not None and not self._rests(pair.app, DueWork.of(there.record))
        except (BrokerError, Conflict):  # the store failed; the tombstone is stored
            return "later", True

    async def _pass_of(self, name: str, dues: Sequence[Due], this_pass: Pass) -> None:
        """Send one app's pending revocations."""
        refused = 0
        for due in dues:
            if refused >= REFUSALS_IN_A_ROW or self._revoke.circuits.pause(name):
                break
            with this_pass.collected(), suppress(Conflict):
                outcome = await self._resume(due, this_pass)
                if outcome is not None:
                    refused = refused + 1 if outcome == "refused" else 0

    async def _resume(self, due: Due, this_pass: Pass) -> RevocationOutcome | None:
        """Tell the provider of one grant, if that is due and the outcome can be stored."""
        versioned = await self._repository.due_grant(due)
        if versioned is None or self._rests(due.grant.app, DueWork.of(versioned.record)):
            return None
        with this_pass.lock_budget():
            await self._repository.check_writable(due.grant)
        return await self._revoke.resume(self._apps.get(due.grant.app), versioned)

    def _rests(self, app: str, pending: DueWork) -> bool:
        """Return whether the provider need not or must not be told now: nothing is pending, the pause after a refusal
        lasts, or the app has another client now."""
        return all(self._waits(app, revocation) for revocation in pending.revocations)

    def _waits(self, app: str, revocation: PendingRevocation) -> bool:
        after, now = revocation.tell_after, self._clock.now()
        if after is not None and not has_passed(after, after - ASK_AGAIN, now):
            return True
        if can_tell(self._apps.get(app), revocation):
            return False
        return not (self._revoke.is_over(revocation.since) or self._revoke.is_ahead(revocation.since))
