"""Hosts in network namespaces of their own, around one hub: a test cuts one off as if its cable were pulled.

Only root may make them. What the hosts share, the database above all, runs in the hub at `HUB`. A program in one loopback
reaches a program in another by two relays (`tests.kit.relay`) and a Unix socket, which no cut ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

HUB, _NET = "10.77.0.1", "10.77.0.0/24"
LACKS = "network namespaces (root, and the package iproute2)"


def possible() -> bool:
    """Tell whether this user can make network namespaces on this machine."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        with _namespace(f"oauthbroker-{os.getpid()}-try"):
            return True
    except subprocess.CalledProcessError:
        return False


@dataclass(frozen=True)
class Network:
    """The names of the namespaces: the hub, and each host."""

    hub: str
    hosts: tuple[str, ...]


@contextmanager
def network(count: int) -> Iterator[Network]:
    """Make a hub and so many hosts, with an address each in the hub's network."""
    name = f"oauthbroker-{os.getpid()}"
    with ExitStack() as stack:
        hub = stack.enter_context(_namespace(f"{name}-hub"))
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "addr", "add", f"{HUB}/24", "dev", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        hosts = tuple(stack.enter_context(_namespace(f"{name}-{number}")) for number in range(count))
        for number, host in enumerate(hosts):
            _ip("-n", hub, "link", "add", _cable(number), "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", hub, "link", "set", _cable(number), "master", "bridge", "up")
            _ip("-n", host, "addr", "add", f"10.77.0.{number + 2}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
        yield Network(hub, hosts)


def inside(namespace: str) -> list[str]:
    """Return the words before a command that make it run in a namespace."""
    return ["ip", "netns", "exec", namespace]


def cut(number: int) -> None:
    """Drop all packets of a host, unseen by it. To be called in the hub."""
    _ip("link", "set", _cable(number), "down")


def join(number: int) -> None:
    """Let the packets of a host through again. To be called in the hub."""
    _ip("link", "set", _cable(number), "up")


def trusted() -> str:
    """Return the lines of `pg_hba.conf` that let the hosts in."""
    return f"host all all {_NET} trust\nhost replication all {_NET} trust\n"


def _cable(number: int) -> str:
    return f"host{number}"


@contextmanager
def _namespace(name: str) -> Iterator[str]:
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)
