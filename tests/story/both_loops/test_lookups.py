"""Name resolution: hosts that hang, many of them, and all other hosts meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oauthbroker.protocol.network import name_lookups as module
from oauthbroker.protocol.network.name_lookups import MOST, MOST_FOR_ONE, Lookups, NoAddress
from tests.kit.waiting import until

pytestmark = pytest.mark.case("55")


class Names:
    """The system's resolver: `hang...` hangs until the test is over, `no...` has no address, others have one."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.over = threading.Event()

    def getaddrinfo(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("hang"):
            self.over.wait(60)
        if host.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    yield names
    names.over.set()


@asynccontextmanager
async def asking(lookups: Lookups, *hosts: str, app: str) -> AsyncIterator[list[asyncio.Task[list[str]]]]:
    """Each host is being asked for, until the block ends."""
    tasks = [asyncio.create_task(lookups.addresses(host, app)) for host in hosts]
    await asyncio.sleep(0.05)
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def soon(lookups: Lookups, host: str, app: str = "mail") -> list[str]:
    async with asyncio.timeout(60):
        return await lookups.addresses(host, app)


async def test_hosts_that_hang_leave_every_other_app_at_its_usual_pace(names: Names) -> None:
    """One app's documents name host after host; none of them takes a thread that another app waits for."""
    lookups = Lookups()
    async with asking(lookups, *[f"hang-{each}.example" for each in range(100)], app="hostile"):
        assert ["192.0.2.7"] == await soon(lookups, "idp.example")
        assert MOST_FOR_ONE == sum(host.startswith("hang") for host in names.asked)
        await asyncio.wait_for(asyncio.to_thread(int), 60)  # the loop's own threads are free


async def test_a_host_has_one_lookup_for_any_number_of_callers_also_when_some_give_up(names: Names) -> None:
    lookups = Lookups()
    async with asking(lookups, *["hang.example", "Hang.Example"] * 50, app="mail") as tasks:
        tasks[0].cancel()
        await asyncio.sleep(0.05)
        assert ["hang.example"] == names.asked
        names.over.set()
        assert {("192.0.2.7",)} == {tuple(await task) for task in tasks[1:]}
    assert ["192.0.2.7"] == await soon(lookups, "hang.example")
    assert 2 == len(names.asked)  # an answer is good for those who waited for it: each connection is checked anew


async def test_a_late_lookup_is_a_failure_at_once_until_its_thread_returns(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE_SECONDS", 0.2)
    lookups = Lookups()
    hosts = [f"hang-{each}.example" for each in range(MOST_FOR_ONE + 1)]
    async with asking(lookups, *hosts, app="hostile") as tasks:
        assert [True] * len(hosts) == [
            isinstance(each, NoAddress) for each in await asyncio.gather(*tasks, return_exceptions=True)
        ]
    monkeypatch.setattr(module, "LATE_SECONDS", 600)
    for host in (*hosts, "another.example"):  # its threads all hang: it is refused, and takes no further ones
        with pytest.raises(NoAddress):
            await soon(lookups, host, "hostile")
    assert MOST_FOR_ONE == len(names.asked)
    assert ["192.0.2.7"] == await soon(lookups, "another.example")
    names.over.set()
    async with asyncio.timeout(60):
        while lookups._running:
            await asyncio.sleep(0.01)
    assert ["192.0.2.7"] == await soon(lookups, hosts[0], "hostile")


async def test_who_asks_for_a_host_that_waits_behind_a_hostile_apps_own_does_not_wait(names: Names) -> None:
    """A hostile provider may name another provider's host as one of its own."""
    lookups = Lookups()
    hosts = [*(f"hang-{each}.example" for each in range(MOST_FOR_ONE)), "idp.example"]
    async with asking(lookups, *hosts, app="hostile") as tasks:
        assert "idp.example" not in names.asked
        assert ["192.0.2.7"] == await soon(lookups, "idp.example")
        assert ["192.0.2.7"] == await asyncio.wait_for(tasks[-1], 30)


async def test_all_apps_together_have_so_many_threads_and_then_wait_their_turn(names: Names) -> None:
    lookups = Lookups()
    hosts = [f"hang-{each}.example" for each in range(MOST + 10)]
    async with asking(lookups, *hosts, app=""), asking(lookups, "idp.example", app="mail") as (task,):
        await until(lambda: len(names.asked) >= MOST)
        assert (MOST, MOST, False) == (len(names.asked), len(lookups._running), task.done())
        names.over.set()
        assert ["192.0.2.7"] == await asyncio.wait_for(task, 30)


async def test_a_failure_is_remembered_for_a_moment(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = Lookups()
    monkeypatch.setattr(module, "FAILURE_SECONDS", 60)
    for _ in range(3):
        with pytest.raises(NoAddress):
            await soon(lookups, "no.example")
    assert ["no.example"] == names.asked
    monkeypatch.setattr(module, "FAILURE_SECONDS", 0.01)

    async def asked_again() -> bool:
        with pytest.raises(NoAddress):
            await soon(lookups, "nowhere.example")
        return names.asked.count("nowhere.example") > 1

    await until(asked_again)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_an_address_needs_no_lookup(names: Names, address: str) -> None:
    assert ([address], []) == (await soon(Lookups(), address), names.asked)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "..", "\udc80.example"], ids=ascii)
async def test_a_malformed_name_has_no_address(host: str) -> None:
    with pytest.raises(NoAddress):
        await soon(Lookups(), host)


async def test_a_system_without_another_thread_is_a_failed_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    lookups = Lookups()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NoAddress):
            await soon(lookups, "idp.example")
    assert [] == lookups._running
