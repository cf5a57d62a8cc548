"""IdentityProvider: the whole provider in one object."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.testing.authority import Certificate
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider.http import Answer, Reply, Request
from oauthbroker.testing.provider.observations import Observations
from oauthbroker.testing.provider.routes import route_of, seen
from oauthbroker.testing.provider.server import HttpServer, ServerThread
from oauthbroker.testing.provider.setup import ProviderSetup
from oauthbroker.testing.provider.simulated_user import SimulatedUser
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import TokenTable
from oauthbroker.testing.provider.types import ALICE, BOB, MALLORY, Account, Client


class IdentityProvider(ProviderSetup, Observations, SimulatedUser):
    """An authorization server for tests and demos, on 127.0.0.1.

    `async with IdentityProvider() as idp` runs it in the running loop, `with IdentityProvider() as idp` in a thread of
    its own (for sync tests, other loops, the demo). The port is bound at once, so `base_url` is known before it starts.
    `accounts` default to alice and bob of team T111 and mallory of team T666. `auto_consent` names the account that
    agrees without being asked. With `tls` it serves https, with that certificate.
    """

    def __init__(
        self,
        *,
        accounts: Iterable[Account] = (ALICE, BOB, MALLORY),
        clients: Iterable[Client] = (),
        clock: Clock | None = None,
        canaries: Canaries | None = None,
        auto_consent: str | None = None,
        port: int = 0,
        tls: Certificate | None = None,
    ) -> None:
        self._server = HttpServer(self._handle, port, tls.context if tls else None)
        self._tls = tls
        self.clock: Clock = clock or SystemClock()
        self.canaries = canaries if canaries is not None else Canaries.active()
        token_table = TokenTable(self.clock, self.canaries)
        scheme = "https" if tls else "http"
        self._state = State(
            clock=self.clock,
            canaries=self.canaries,
            token_table=token_table,
            base_url=f"{scheme}://127.0.0.1:{self._server.port}",
        )
        self._state.auto_consent = auto_consent
        self.canaries.outside.add(self.base_url)
        self._thread: ServerThread | None = None
        for account in accounts:
            self.add_account(account)
        for client in clients:
            self.register(client)

    @property
    def base_url(self) -> str:
        """Return its origin, which is also its issuer."""
        return self._state.base_url

    issuer = base_url

    def url(self, path: str) -> str:
        """Return the absolute URL of one of its paths: "/authorize", "/token", "/userinfo", "/api/me", ..."""
        return self.base_url + path

    @property
    def endpoints(self) -> dict[str, str]:
        """Return an OAuthApp's `spec.endpoints`, with the address of PAR unless it is `off`."""
        paths = {
            "authorizationUrl": "/authorize",
            "tokenUrl": "/token",
            "revokeUrl": "/revoke",
            "userInfoUrl": "/userinfo",
            "jwksUrl": "/jwks",
            "deviceAuthorizationUrl": "/device_authorization",
        }
        paths |= {} if self.par == "off" else {"pushedAuthorizationUrl": "/par"}
        return {name: self.url(path) for name, path in paths.items()} | {"issuer": self.issuer}

    async def start(self) -> None:
        """Serve in the running loop until `stop`."""
        await self._server.start()

    async def stop(self) -> None:
        """Drop every connection, hanging ones included."""
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        self._own_up(exc)

    def __enter__(self) -> Self:
        self._thread = ServerThread(self._server)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
        self._own_up(exc)

    def _own_up(self, under_way: BaseException | None) -> None:
        """Fail the test for a script that failed in the provider, unless the test fails already."""
        if under_way is None and self._server.fault is not None:
            raise self._server.fault

    async def _handle(self, request: Request) -> Reply:
        state, route = self._state, route_of(request.path)
        noted = seen(state, request, route.endpoint if route else "unknown")
        state.requests.append(noted)
        if route is None:
            return Answer(404)
        chain = state.script.chain(route.script, noted.client_id, noted.grant_type)
        step = chain.next_step()

        def work() -> Answer:
            return chain.changed(route.work(state, request))

        return await step(work) if step else work()
