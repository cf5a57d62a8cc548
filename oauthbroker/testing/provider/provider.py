"""IdentityProvider: the whole provider in one object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Self

from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.testing.authority import Certificate
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider.faults import wait_until
from oauthbroker.testing.provider.history import DeviceStory, Family, Refusal, Revocation, TokenResponse
from oauthbroker.testing.provider.http import Answer, Reply, Request
from oauthbroker.testing.provider.known_names import UnknownName
from oauthbroker.testing.provider.routes import COUNTED, route_of, seen
from oauthbroker.testing.provider.server import HttpServer, ServerThread
from oauthbroker.testing.provider.setup import ProviderSetup
from oauthbroker.testing.provider.simulated_user import SimulatedUser
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import Token, TokenTable
from oauthbroker.testing.provider.types import ALICE, BOB, MALLORY, Account, Client, SeenRequest


class IdentityProvider(ProviderSetup, SimulatedUser):
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
        origin = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.port}"
        table = TokenTable(self.clock, self.canaries)
        self._state = State(clock=self.clock, canaries=self.canaries, token_table=table, base_url=origin)
        self._state.script.clients = self._state.clients
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

    async def __aexit__(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
        await self.stop()
        self._own_up(exc)

    def __enter__(self) -> Self:
        self._thread = ServerThread(self._server)
        self._thread.start()
        return self

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
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

    # its requests, answers and tokens; reading changes nothing

    @property
    def requests(self) -> list[SeenRequest]:
        """Return every request, in order."""
        return self._state.requests

    def count(self, name: str, client_id: str = "") -> int:
        """Count the requests to an endpoint ("authorize", "token", "userinfo", "jwks", "discovery", "revoke", "par",
        "device", "verification", "resource", "login", "consent", "unknown"), or those of a grant type
        ("authorization_code", ...); of one client if given."""
        return len(self.seen(name, client_id))

    def seen(self, name: str, client_id: str = "") -> list[SeenRequest]:
        """Return those requests, in order. Raises ValueError for a name that is none of these, and as `client`."""
        if name not in COUNTED and all(name != seen.grant_type for seen in self.requests):
            raise UnknownName("endpoint or grant type", name, COUNTED)
        self._check_known(client_id)
        wanted = (seen for seen in list(self.requests) if name in {seen.endpoint, seen.grant_type})
        return [seen for seen in wanted if client_id in {"", seen.client_id}]

    async def wait_for(self, name: str, count: int = 1, timeout: float = 5.0) -> None:
        """Return once `count(name)` is reached. Raises TimeoutError after `timeout` seconds or more."""
        await wait_until(lambda: self.count(name) >= count, timeout)

    def is_alive(self, access_token: str | Secret) -> bool:
        """Tell whether an access token is usable now."""
        return self._state.token_table.living(_text(access_token)) is not None

    def living_tokens(self, client_id: str, login: str | None = None) -> int:
        """Count a client's usable access tokens (of one user if given)."""
        self._check_known(client_id, login or "")
        found = (self._state.token_table.living(text) for text in list(self._state.token_table.tokens))
        alive = [token.agreement for token in found if token is not None]
        return sum(a.client_id == client_id and login in {None, a.account.login} for a in alive)

    def families(self, client_id: str = "", login: str = "") -> list[Family]:
        """Return every consent that got a refresh token (of one client, of one user), the oldest first."""
        self._check_known(client_id, login)
        found = [replace(one, redeemed=Counter(one.redeemed)) for one in list(self._state.token_table.families)]
        return [one for one in found if client_id in {"", one.client_id} and login in {"", one.login}]

    def refusals(self, grant_type: str = "", client_id: str = "") -> list[Refusal]:
        """Return the honest refusals of the token endpoint (of one grant type, to one client), in order."""
        self._check_known(client_id)
        found = list(self._state.refusals)
        return [one for one in found if grant_type in {"", one.grant_type} and client_id in {"", one.client_id}]

    def token_responses(self, client_id: str = "", login: str = "") -> list[TokenResponse]:
        """Return the honest answers of the token endpoint, in order, to replay one or to send it to another request."""
        self._check_known(client_id, login)
        found = list(self._state.token_responses)
        return [one for one in found if client_id in {"", one.client_id} and login in {"", one.login}]

    @property
    def revocations(self) -> list[Revocation]:
        """Return every accepted revocation, in order."""
        return list(self._state.revocations)

    def device(self, user_code: str) -> DeviceStory:
        """Return the state of a device's code, and its polls with their times. Raises KeyError for an unknown code."""
        return self._state.device(user_code).story(self._state.clock.now())

    @property
    def user_codes(self) -> list[str]:
        """Return the user codes of all device authorizations, oldest first."""
        return list(self._state.devices)

    def resources_of(self, access_token: str | Secret) -> tuple[str, ...]:
        """Return the resources of an access token (RFC 8707). Raises KeyError for an unknown token."""
        return self._token(access_token).resources

    def generation_of(self, refresh_token: str | Secret) -> int:
        """Return the generation of a refresh token in its family, from 1. Raises KeyError for an unknown token."""
        return self._token(refresh_token).generation

    def _check_known(self, client_id: str, login: str = "") -> None:
        """Raise ValueError for a misspelt name: nothing is ever of it."""
        if client_id and all(client_id != seen.client_id for seen in self.requests):
            self.client(client_id)
        if login:
            self.account(login)

    def _token(self, token: str | Secret) -> Token:
        found = self._state.token_table.tokens.get(_text(token))
        if found is None:
            raise KeyError("no such token")
        return found


def _text(token: str | Secret) -> str:
    return token.reveal() if isinstance(token, Secret) else token
