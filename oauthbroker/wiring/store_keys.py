"""The operations on a store's keys, audited: for `oauthbroker keys` and the background of a broker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from oauthbroker.admin.gauges import KeyFigures
from oauthbroker.audit import KeysChanged
from oauthbroker.audit.port import AuditWriter
from oauthbroker.config.key_file import with_keys
from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import on_thread
from oauthbroker.core.progress import Progress, unseen
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import logger_log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.store.keys.rotation import GENTLE_SECONDS, KeyRotation, Resealed
from oauthbroker.wiring.storage import audit_file, open_store
from oauthbroker.wiring.store_place import naming_store


@dataclass(slots=True, kw_only=True)
class StoreKeys:
    """The keys of one open store. `figures` are those of the last look."""

    rotation: KeyRotation
    audit: AuditWriter
    clock: Clock
    figures: KeyFigures
    metrics: Metrics

    async def follow(self) -> None:
        """Open the keyring anew if it has changed. A broker does this every few seconds."""
        await self.rotation.follow()
        old = self.rotation.ring.old_seeds
        self.figures.epoch = self.rotation.ring.epoch
        self.figures.to_reseal = sum(not seed.resealed for seed in old)
        self.figures.to_retire = len(old) - self.figures.to_reseal

    async def rotate(self, *, wait: float) -> bool:
        self._note("rotate")
        return await self.rotation.rotate(wait=wait)

    async def rewrap(self) -> None:
        self._note("rewrap")
        await self.rotation.rewrap()

    async def reseal(self, progress: Progress = unseen) -> Resealed:
        self._note("reseal")
        return self._counted(await self.rotation.reseal(progress=progress))

    async def reseal_gently(self) -> None:
        """Seal records anew in the background, while no other process does."""
        if not self.figures.to_reseal:
            return
        try:
            self._counted(await self.rotation.reseal(rest=GENTLE_SECONDS, wait=0))
        except BrokerError as error:
            if error.code is not Code.STORE_LOCKED:
                raise
        await self.follow()

    async def retire(self, progress: Progress = unseen) -> int:
        self._note("retire")
        return await self.rotation.retire(progress)

    async def status(self, progress: Progress = unseen) -> dict[str, Any]:
        """Return the keys and seeds. Asks each key whether it opens the keyring, None for one that is not configured,
        and reads the header of every record."""
        await self.rotation.follow()
        ring, counted, known = self.rotation.ring, await self.rotation.seals(progress), self.rotation.home.keks
        configured = [kek.id() for kek in known]
        ids = dict.fromkeys([*(wrap.kek for wrap in ring.wraps), *configured])
        opening = await on_thread(lambda: {kek.id() for kek in known if ring.opens_with(kek)})
        return {
            "epoch": ring.epoch,
            "keys": [
                {"id": each, "opens": each in opening if each in configured else None, "configured": each in configured}
                for each in ids
            ],
            "seeds": [
                {
                    "id": seed.kid.hex()[:8],
                    "state": "next" if seed is ring.next_seed else seed.state.value,
                    "createdAt": seed.created_at,
                    "records": counted[seed.kid],
                }
                for seed in ring.seeds
            ],
            "processesBehind": await self.rotation.behind(),
        }

    def _note(self, action: str) -> None:
        """Write the audit entry before the change."""
        self.audit.write(KeysChanged(action=action, epoch=self.rotation.ring.epoch), self.clock.now())

    def _counted(self, done: Resealed) -> Resealed:
        self.metrics.counts[Metric.RECORDS_RESEALED, ()] += done.resealed
        return done


@asynccontextmanager
async def open_keys(settings: Settings, *, env: Mapping[str, str] | None = None) -> AsyncIterator[StoreKeys]:
    """Open the keys of a store without a broker. Raises store codes."""
    env, clock = os.environ if env is None else env, SystemClock()
    log = logger_log()
    async with AsyncExitStack() as stack:
        stack.enter_context(naming_store(settings, env))
        opened = await open_store(with_keys(settings, env), env, clock, log)
        stack.push_async_callback(opened.store.close)
        audit = audit_file(settings, opened.store, log)
        stack.callback(audit.close)
        yield StoreKeys(rotation=opened.rotation, audit=audit, clock=clock, figures=KeyFigures(), metrics=Metrics())
