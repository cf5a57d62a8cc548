"""One question, ours and the peers by their own packages, in one run: a valid token for this app and this account.

Ours reads the clock, sees with a `stat` that no other process changed the grant, and writes an audit entry. The peers
do less: MSAL's memory cache, Authlib's session and the MCP SDK's provider are the memory of one process, without audit,
turns or revocation from elsewhere; MSAL's file looks at the file's time; FastMCP's storage assesses no token.
Each row is a process of its own. All live at once and take turns; the yardstick runs in both environments.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.children import PEERS, Child, ChildFailed, child
from bench.figures import parser, show, show_failure
from bench.ours import fill

OURS = "ctx.oauth.get_access_token"
YARDSTICK = "yardstick"
ROWS = (
    "MSAL, memory",
    "MSAL, file",
    "Authlib, ensure_active_token",
    "MCP SDK, provider",
    "FastMCP, memory",
    "FastMCP, files",
)
MOST_OF_FASTMCP = 1_000  # 10,000 took more than 100 s to store in memory, and longer in files
WRITTEN = ("MSAL, memory", "MSAL, file")


def opened(stack: ExitStack, peer: str, grants: int) -> tuple[Child, dict[str, str]]:
    started = stack.enter_context(child("bench.peers.child", peer, str(grants), python=PEERS))
    return started, started.ask(do="make")["versions"]


def measure(folder: Path, grants: int, rounds: int, batch: int) -> None:
    """Print ours and each peer with so many grants, and what a write costs where a peer rewrites its cache."""
    asyncio.run(fill(folder, range(grants)))
    with ExitStack() as stack:
        ours = stack.enter_context(child("bench.ours", str(folder), "0"))
        ours.ask(do="open")
        yard = stack.enter_context(child("bench.peers.child", YARDSTICK, "1"))
        yard.ask(do="make")
        peers, versions = dict[str, Child](), dict[str, dict[str, str]]()
        for name in (YARDSTICK, *ROWS):
            if name.startswith("FastMCP") and grants > MOST_OF_FASTMCP:
                show_failure(f"{name}, {grants:,} grants", "not run: filling its storage takes minutes")
                continue
            try:
                peers[name], versions[name] = opened(stack, name, grants)
            except ChildFailed as why:
                show_failure(f"{name}, {grants:,} grants", str(why))
        taken: dict[str, list[float]] = {name: [] for name in (OURS, f"{YARDSTICK}, ours", *peers)}
        for _ in range(rounds):
            taken[OURS].append(ours.ask(do="warm", subject=0, batch=batch)["us"])
            taken[f"{YARDSTICK}, ours"].append(yard.ask(do="round", batch=batch)["us"])
            for name in [*peers]:
                try:
                    taken[name].append(
                        peers[name].ask(do="round", batch=batch if name != "FastMCP, files" else 5)["us"]
                    )
                except ChildFailed as why:
                    show_failure(f"{name}, {grants:,} grants", str(why))
                    del peers[name], taken[name]
        report(taken, versions, grants)
        for name in WRITTEN:
            if name in peers:
                writes = [peers[name].ask(do="write")["ms"] for _ in range(3 if grants > 1000 else 10)]
                show(f"{name}, {grants:,} grants: one token more", writes, "ms")


def report(taken: dict[str, list[float]], versions: dict[str, dict[str, str]], grants: int) -> None:
    ours, yard = taken.pop(OURS), taken.pop(f"{YARDSTICK}, ours")
    peers_yard = taken.pop(YARDSTICK, None)
    if peers_yard is not None:
        name = f"{YARDSTICK}: stat, write and lookup, {grants:,} grants"
        show(f"{name}: ours", yard, "us")
        show(f"{name}: peers'", peers_yard, "us", {f"{name}: ours": yard})
    for name, samples in taken.items():
        show(f"{name}, {grants:,} grants", samples, "us", packages=versions[name])
    show(f"{OURS}, {grants:,} grants", ours, "us", {f"{name}, {grants:,} grants": its for name, its in taken.items()})


def main(*, quick: bool) -> None:
    rounds, batch = (5, 50) if quick else (60, 500)
    for grants in (1, 50) if quick else (1, 1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), grants, rounds, batch)


if __name__ == "__main__":
    main(quick=parser().parse_args().quick)
