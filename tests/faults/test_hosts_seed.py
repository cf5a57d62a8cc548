"""A seed of the several hosts repeats the work of each process, under any process id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from oauthbroker.broker import Broker
from oauthbroker.core.errors import BrokerError, Code
from tests.faults import hosts_worker
from tests.faults.hosts_worker import HostNursery, Work
from tests.faults.storm_worker import World

ENDPOINTS = (
    "authorizationUrl", "tokenUrl", "revokeUrl", "userInfoUrl", "issuer", "jwksUrl", "deviceAuthorizationUrl",
)  # fmt: skip
ORDERS = {
    "endpoints": dict.fromkeys(ENDPOINTS, "http://127.0.0.1:1"),
    "secrets": {"client-strict": "s", "client-forgiving": "s"},
}
ENOUGH = 300


class EnoughError(Exception):
    """The process has made so many choices."""


class Refusing:
    """A broker that notes which token and which revocation it is asked for, and refuses everything."""

    def __init__(self) -> None:
        self.chosen: list[tuple[str, ...]] = []
        self.turns = self.events = self

    def oauth(self, turn: Any) -> Any:
        self._person = str(turn.auth)
        return self

    async def get_access_token(self, app: str) -> Any:
        self._choose("ask", app, self._person)

    async def revoke(self, app: str, *, subject: str) -> Any:
        self._choose("revoke", app, subject)

    async def begin(self, *_: Any, **__: Any) -> Any:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    enqueue = begin

    async def lease(self, *_: Any, **__: Any) -> Any:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    def _choose(self, *what: str) -> None:
        self.chosen.append(what)
        if len(self.chosen) == ENOUGH:
            raise EnoughError
        raise BrokerError(Code.STORE_UNAVAILABLE)


async def choices(folder: Path, patch: pytest.MonkeyPatch, *, pid: int, seed: str) -> list[tuple[str, ...]]:
    patch.setattr(hosts_worker, "PACE", (0, 0))
    patch.setattr(hosts_worker, "say", lambda *_: None)
    patch.setattr(os, "getpid", lambda: pid)
    broker = Refusing()
    with pytest.raises(ExceptionGroup) as ended:
        await Work(cast("Broker", broker), World(ORDERS), 5, shared=folder, seed=seed).go_on()
    assert [EnoughError] == [type(each) for each in ended.value.exceptions]
    return broker.chosen


async def test_the_same_seed_makes_the_same_choices_in_a_process_of_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await choices(tmp_path, monkeypatch, pid=1000, seed="5/0/1")
    assert {"ask", "revoke"} == {what for what, *_ in first}
    assert first == await choices(tmp_path, monkeypatch, pid=2000, seed="5/0/1")
    assert first != await choices(tmp_path, monkeypatch, pid=1000, seed="5/0/2")


def test_each_child_of_a_host_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    nursery = HostNursery({**ORDERS, "seed": "5/0"})
    monkeypatch.setattr(os, "fork", lambda: 1)
    seeds = []
    for _ in range(2):
        nursery._fork(None)
        seeds.append(nursery.seed)
    assert ["5/0/1", "5/0/2"] == seeds
