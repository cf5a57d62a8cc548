"""oidc-provider (node/provider.mjs) as a child process of one test: the authorization server that we did not write."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from oauthbroker.core.secret import Secret
from tests.kit import installed

_PATIENCE = 20.0  # seconds for a busy machine to start or stop a Node process


class Authority:
    """Its address, and the requests that it received."""

    def __init__(self, issuer: str, ask: asyncio.StreamWriter) -> None:
        self.issuer = issuer
        self._ask = ask
        self._echo = asyncio.Event()
        self._answered: Counter[tuple[str, int]] = Counter()
        self._events: list[dict[str, Any]] = []

    async def count(self, route: str, status: int | None = None) -> int:
        """Requests it has answered on a route (with a status): `authorization`, `resume`, `token`, `userinfo`,
        `revocation`, ... as oidc-provider names them."""
        await self._order("")
        return sum(n for (name, code), n in self._answered.items() if name == route and status in {None, code})

    async def events(self, name: str, **facts: Any) -> list[dict[str, Any]]:
        """What became of grants, in order: `grant.success`, `grant.error`, `grant.revoked` (with `client`, `grant` type
        and `resource` of the request) or `refresh_token.consumed` (with `client`), as oidc-provider names them."""
        await self._order("")
        wanted = {"event": name, **facts}.items()
        return [event for event in self._events if wanted <= event.items()]

    async def let_tokens_live(self, seconds: int) -> None:
        """How long the access tokens live that it issues from now on."""
        await self._order(json.dumps({"lifetime": seconds}))

    async def be_late(self, seconds: float) -> None:
        """How long it keeps an answer with tokens to itself: who is gone meanwhile has lost it."""
        await self._order(json.dumps({"late": seconds * 1000}))

    async def end(self, access_token: Secret) -> None:
        """Stop accepting this access token, without telling the broker; the rest of its grant goes on."""
        await self._order(json.dumps({"end": access_token.reveal()}))

    async def listen(self, lines: asyncio.StreamReader) -> None:
        """Record its output until its process ends."""
        async for line in lines:
            said = json.loads(line)
            if "echo" in said:
                self._echo.set()
            elif "event" in said:
                self._events.append(said)
            else:
                self._answered[said["route"], said["status"]] += 1

    async def _order(self, line: str) -> None:
        """Once it has obeyed, everything that happened before has been heard."""
        self._echo.clear()
        self._ask.write(line.encode() + b"\n")
        await asyncio.wait_for(self._echo.wait(), _PATIENCE)


@asynccontextmanager
async def running(clients: Iterable[Mapping[str, Any]], *, rotating: bool = False) -> AsyncIterator[Authority]:
    """The provider with these clients (oidc-provider's client metadata), until the block ends.

    `rotating`: refresh tokens are for `offline_access` only and good for one use; a second use ends their grant.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        str(installed.node()), "provider.mjs", cwd=installed.NODE_HOME, stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps({"clients": list(clients), "rotating": rotating}).encode() + b"\n")
        line = await asyncio.wait_for(process.stdout.readline(), _PATIENCE)
        assert line, "oidc-provider did not start; its output is on stderr"
        authority = Authority(json.loads(line)["issuer"], process.stdin)
        listening = asyncio.create_task(authority.listen(process.stdout))
        yield authority
        process.stdin.close()
        await asyncio.wait_for(listening, _PATIENCE)
    finally:
        process.stdin.close()
        await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _PATIENCE)
    if process.returncode is None:
        process.kill()
        await process.wait()
