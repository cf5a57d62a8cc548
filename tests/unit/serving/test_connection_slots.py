"""Connection slots of a listener: how many one client may have, in any spelling of its address."""

from __future__ import annotations

import pytest

from oauthbroker.serving.connection_slots import SPARE, ConnectionSlots
from oauthbroker.web.middleware.forwarded import Proxies

pytestmark = pytest.mark.case("83")


def slots_of(*addresses: str | None, most: int = 10, proxies: tuple[str, ...] = ()) -> list[str]:
    slots = ConnectionSlots[int](most, Proxies(proxies))
    return [slots.take_slot(at, address, gives_way=lambda _: False)[0] for at, address in enumerate(addresses)]


@pytest.mark.parametrize(
    "addresses",
    [
        ["198.51.100.7"],
        ["198.51.100.7", "::ffff:198.51.100.7"],
        ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:2::1%eth0"],
    ],
)
def test_one_client_has_half_however_it_writes_its_address(addresses: list[str]) -> None:
    asked = (addresses * 10)[:10]
    assert ["whole"] * 5 + ["none"] * 5 == slots_of(*asked)
    assert ["whole"] * 5 == slots_of(*asked, *["2001:db8:1:3::1"] * 5)[10:]


@pytest.mark.parametrize(
    ("address", "proxies"), [("10.0.0.7", ("10.0.0.0/24",)), ("::ffff:10.0.0.7", ("10.0.0.7",)), (None, ())]
)
def test_a_listed_proxy_and_a_unix_socket_have_all(address: str | None, proxies: tuple[str, ...]) -> None:
    assert ["whole"] * 10 + ["none"] == slots_of(*[address] * 11, proxies=proxies)


def test_a_listener_of_one_connection_serves_one() -> None:
    assert ["whole", "none"] == slots_of("198.51.100.7", "198.51.100.8", most=1)


def test_the_oldest_probe_that_gives_way_makes_reserve_for_the_next() -> None:
    slots = ConnectionSlots[int](1, Proxies())
    taken = [slots.take_slot(at, "127.0.0.1", gives_way=lambda _: False) for at in range(SPARE + 2)]
    assert [("whole", None), *[("probe", None)] * SPARE, ("none", None)] == taken
    assert ("probe", 3) == slots.take_slot(100, "127.0.0.1", gives_way=lambda each: each > 2)
    slots.free_slot(3)  # it has left already
    assert ("none", None) == slots.take_slot(101, "127.0.0.1", gives_way=lambda _: False)
    slots.free_slot(1)
    slots.free_slot(1)
    assert ("probe", None) == slots.take_slot(102, "127.0.0.1", gives_way=lambda _: False)
