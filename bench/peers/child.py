"""A process that holds one peer with so many grants and measures it: python -m bench.peers.child <peer> <grants>."""

from __future__ import annotations

import asyncio
import inspect
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.answering import Answer, answer, memory_mib
from bench.figures import MS, a_round, called_in_turn
from bench.peers.peers import PEERS, Peer


class Measured:
    """Made at the first request, so that a peer that cannot be made is an answer that says so."""

    def __init__(self, name: str, grants: int, folder: Path) -> None:
        self._name, self._grants, self._folder = name, grants, folder
        self._peer: Peer | None = None

    async def made(self, _request: Mapping[str, Any]) -> Answer:
        made = PEERS[self._name](self._grants, self._folder)
        self._peer = peer = await made if inspect.isawaitable(made) else made
        await self.round({"batch": 1})
        return {"versions": peer.versions, "mib": memory_mib()}

    async def round(self, request: Mapping[str, Any]) -> Answer:
        assert self._peer is not None
        if self._peer.awaited is not None:
            return {"us": await a_round(self._peer.awaited, request["batch"])}
        assert self._peer.call is not None
        return {"us": called_in_turn({"": self._peer.call}, 1, request["batch"])[""][0]}

    async def write(self, _request: Mapping[str, Any]) -> Answer:
        assert self._peer is not None
        assert self._peer.write is not None
        began = time.perf_counter()
        self._peer.write()
        return {"ms": (time.perf_counter() - began) * MS}


async def main(name: str, grants: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        held = Measured(name, grants, Path(folder))
        await answer({"make": held.made, "round": held.round, "write": held.write})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
