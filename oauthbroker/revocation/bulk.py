"""Ending many grants, and telling many providers: all of them end here first, then each app's provider hears of it at
its own pace. What is left to tell is written in the tombstones, so that whoever comes next goes on."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.revoke import ASK_AGAIN, Revoke, Told, can_tell, told_by_others
from oauthbroker.records import Grant
from oauthbroker.repository import Conflict, Due, Held, Repository

AT_ONCE = 32  # tombstones written side by side; the store's own executor is what bounds them
REFUSALS_IN_A_ROW = 10  # then it is our client that is refused, and the others would be refused too
LOOK_AGAIN_SECONDS = 1.0

Pair = tuple[str, str]
"""(app, subject)."""


@dataclass(slots=True)
class Figures:
    """How far a run has come. `ended` here by this run; `told` what each grant's provider knows, once that is known;
    `failed` are the grants that could not be ended here, and why."""

    chosen: int = 0
    ended: int = 0
    told: dict[Pair, Told] = field(default_factory=dict)
    failed: dict[Pair, Code] = field(default_factory=dict)

    def count(self, *what: Told) -> int:
        found = Counter(self.told.values())
        return sum(found[each] for each in what)

    @property
    def left(self) -> int:
        """Grants whose provider has still to be told."""
        return self.chosen - len(self.failed) - self.count("done", "none", "shared")


class Revocations:
    """Many at once. One per broker."""

    def __init__(
        self, repository: Repository, revoke: Revoke, apps: Callable[[str], OAuthApp | None], clock: Clock
    ) -> None:
        self._repository = repository
        self._revoke = revoke
        self._apps = apps
        self._clock = clock

    async def round(self) -> None:
        """Tells providers of what they have not heard of yet; none is waited for, and none keeps another one waiting.

        A provider that refuses is left alone for an hour: only an operator can mend that. What cannot be read or is
        being changed keeps nothing else back; then the store code is raised last.
        """
        by_app: dict[str, list[Due]] = defaultdict(list)
        for due in await self._repository.due():
            if due.key.kind == "grants":
                by_app[due.app].append(due)
        failed = await asyncio.gather(*(self._round_of(name, dues) for name, dues in by_app.items()))
        for error in failed:
            if error is not None:
                raise error

    async def end(
        self,
        pairs: Iterable[Pair],
        figures: Figures | None = None,
        *,
        patience: float = 0,
        on_change: Callable[[Figures], None] = lambda _: None,
    ) -> Figures:
        """Ends every one of them here, and only then tells their providers; `figures` is kept up to date meanwhile.

        A provider that is busy, or does not answer, is asked again for `patience` seconds in all, not before the time
        it said. What is left then is told by a running broker, or when the same is ended again.
        """
        chosen = list(dict.fromkeys(pairs))
        figures = figures if figures is not None else Figures()
        figures.chosen = len(chosen)
        for start in range(0, len(chosen), AT_ONCE):
            await asyncio.gather(*(self._bury(pair, figures) for pair in chosen[start : start + AT_ONCE]))
            on_change(figures)
        self._revoke.wake()
        by_app: dict[str, deque[Pair]] = defaultdict(deque)
        for pair in chosen:
            if pair not in figures.failed:
                by_app[pair[0]].append(pair)
        until = self._clock.monotonic() + patience
        async with asyncio.TaskGroup() as group:
            for queue in by_app.values():
                group.create_task(self._tell_queue(queue, figures, until, on_change))
        return figures

    async def _bury(self, pair: Pair, figures: Figures) -> None:
        try:
            ended = await self._revoke.bury(*pair) is not None
        except Conflict:
            figures.failed[pair] = Code.STORE_LOCKED
        except BrokerError as error:
            figures.failed[pair] = error.code
        else:
            figures.ended += ended

    async def _tell_queue(
        self, queue: deque[Pair], figures: Figures, until: float, on_change: Callable[[Figures], None]
    ) -> None:
        """One app's grants, one after the other."""
        refused = 0
        while queue and refused < REFUSALS_IN_A_ROW:
            pause = self._revoke.circuits.pause(queue[0][0])
            if pause and self._clock.monotonic() + pause > until:
                break
            await self._clock.sleep(pause)
            pair = queue.popleft()
            told, soon = await self._tell(pair)
            figures.told[pair] = told
            refused = refused + 1 if told == "refused" else 0
            on_change(figures)
            if told == "later" and soon and self._clock.monotonic() + LOOK_AGAIN_SECONDS <= until:
                queue.append(pair)  # the provider is busy, or somebody else is telling it at this moment
                await self._clock.sleep(LOOK_AGAIN_SECONDS)
        figures.told.update(dict.fromkeys(queue, "later"))
        on_change(figures)

    async def _tell(self, pair: Pair) -> tuple[Told, bool]:
        """What the provider knows, and whether asking again soon may change that."""
        app = self._apps(pair[0])
        try:
            held = await self._repository.grant(*pair)
            if held is None or not held.record.to_be_told:
                return told_by_others(held), True
            told = await self._revoke.resume(app, held, wait=self._revoke.limits.provider_seconds)
            return told, can_tell(app, held.record)
        except (BrokerError, Conflict):  # the store does not work just now; the tombstone is there
            return "later", True

    async def _round_of(self, name: str, dues: Sequence[Due]) -> BrokerError | None:
        """One app's; the last store code that was met."""
        app, refused, failed = self._apps(name), 0, None
        for due in dues:
            try:
                held = await self._waiting_for_its_provider(due)
                if held is None:
                    continue
                told = await self._revoke.resume(app, held)
            except Conflict:
                continue
            except BrokerError as error:
                failed = error
                continue
            refused = refused + 1 if told == "refused" else 0
            if refused >= REFUSALS_IN_A_ROW or self._revoke.circuits.pause(name):
                break
        return failed

    async def _waiting_for_its_provider(self, due: Due) -> Held[Grant] | None:
        held = await self._repository.due_grant(due)
        if held is None or not held.record.to_be_told:
            return None
        after, now = held.record.tell_after, self._clock.now()
        return None if after is not None and now < after <= now + ASK_AGAIN else held
