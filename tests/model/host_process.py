"""One broker process of a replay: the part of it that takes part in a refresh, with doubles of what surrounds it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import Clock
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints, Owner, Redirect
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metrics
from oauthbroker.protocol.refresh_call import Redeemer
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.refresh.clients import Clients
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.retry_store import RetryStore
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.refresh.writeback import Later, Writeback
from oauthbroker.repository.repository import Repository
from tests.model.gates import GatedAsker, GatedStore, Gates, NoDiscovery, Owners

APP = App(
    name="mail",
    provider="oidc",
    flow="authorizationCode",
    subject_mode="user",
    client=Client("client", Secret("secret of the client")),
    endpoints=Endpoints(token_url="https://provider.example/token"),
    scopes=("read",),
    redirect=Redirect("/callback", "https://broker.example"),
    owner=Owner(),
)


class HostProcess:
    """One broker process: what of it takes part in a refresh."""

    def __init__(self, store: GatedStore, clock: Clock, *, reply: Callable[[str], bytes | None], late: Later) -> None:
        self.store, self.gates = store, Gates()
        self.attempt = ""  # of the intent that it has sealed last
        self.asker = GatedAsker(reply)
        self.repository = Repository(self.store)
        self.repository.shared = self.store  # type: ignore[assignment]  # one that may lose its last writes
        log, metrics = json_log(io.StringIO(), clock), Metrics()
        retry_store = RetryStore(back=self.repository.back, clock=clock, metrics=metrics, log=log)
        self.transaction = RefreshTransaction(
            repository=self.repository,
            discovery=NoDiscovery(),  # type: ignore[arg-type]
            redeemer=Redeemer(self.asker, Owners(), clock),  # type: ignore[arg-type]
            fetch=None,  # type: ignore[arg-type]
            writeback=Writeback(
                repository=self.repository, retry_store=retry_store, drop=_dropped, late=late, clock=clock,
                audit=AuditList(), metrics=metrics, log=log,
            ),
            circuits=Circuits(clock),
            clients=Clients(),
            clock=clock,
            limits=Limits(),
            log=log,
        )  # fmt: skip

    async def call(self, subject: str) -> None:
        """Begin a call whose token has ended, as the caller sees it."""
        seen = await self.repository.grant(GrantKey(APP.name, subject))
        job = RefreshJob(app=APP, key=GrantKey(APP.name, subject), seen=seen)
        self.transaction.circuits = Circuits(self.transaction.clock)
        self.gates = Gates()
        self.gates.begin(self.transaction.refresh(job), self._rest)

    async def _rest(self) -> None:
        if under_way := self.transaction._single_flight._under_way._tasks:
            await asyncio.wait(under_way)

    def kill(self) -> None:
        self.store.dead = True
        self.gates.die()


async def _dropped(*_: Any, **__: Any) -> bool:
    return True
