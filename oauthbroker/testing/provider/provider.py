"""IdentityProvider: the whole provider behind one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from oauthbroker.clock import Clock, SystemClock
from oauthbroker.secret import Secret
from oauthbroker.testing.browser import Browser
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider import authorize, resources, tokens
from oauthbroker.testing.provider.http import Answer, HttpServer, Reply, Request
from oauthbroker.testing.provider.keys import SigningKeys
from oauthbroker.testing.provider.ledger import Ledger
from oauthbroker.testing.provider.misbehave import wait_until
from oauthbroker.testing.provider.nouns import ALICE, BOB, MALLORY, SECRET_FIELDS, Account, Client, SeenRequest
from oauthbroker.testing.provider.person import go_through
from oauthbroker.testing.provider.script import Script
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.thread import ServerThread


@dataclass(frozen=True, slots=True)
class _Route:
    """`endpoint` is what is counted, `script` is whose misbehaviour applies."""

    endpoint: str
    work: Callable[[State, Request], Answer]
    script: str


_ROUTES = {
    "/authorize": _Route("authorize", authorize.authorize, "authorize"),
    "/login": _Route("login", authorize.login, "authorize"),
    "/consent": _Route("consent", authorize.consent, "authorize"),
    "/token": _Route("token", tokens.token, "token"),
    "/revoke": _Route("revoke", tokens.revoke, "revoke"),
    "/api/auth.revoke": _Route("revoke", tokens.slack_revoke, "revoke"),
    "/userinfo": _Route("userinfo", resources.userinfo, "userinfo"),
    "/user": _Route("userinfo", resources.userinfo, "userinfo"),
    "/jwks": _Route("jwks", resources.jwks, "jwks"),
    "/.well-known/openid-configuration": _Route("discovery", resources.discovery, "discovery"),
    "/.well-known/oauth-authorization-server": _Route("discovery", resources.discovery, "discovery"),
    "/api/me": _Route("resource", resources.me, "resource"),
    "/api/messages": _Route("resource", resources.messages, "resource"),
}


class IdentityProvider:
    """An authorization server for tests and demos, on 127.0.0.1.

    `async with IdentityProvider() as idp` runs it in the running loop, `with IdentityProvider() as idp` in a
    thread of its own (for sync tests, other loops, the demo). The port is bound at once, so `base_url` is
    known before it starts. `accounts` default to alice and bob of team T111 and mallory of team T666.
    `auto_consent` names the account that agrees to everything without being asked.
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
    ) -> None:
        self._server = HttpServer(self._handle, port)
        self.clock: Clock = clock or SystemClock()
        self.canaries = canaries if canaries is not None else Canaries.active()
        ledger = Ledger(self.clock, self.canaries)
        self._state = State(self.clock, self.canaries, ledger, f"http://127.0.0.1:{self._server.port}")
        self._state.auto_consent = auto_consent
        self.canaries.outside.add(self.base_url)
        self.requests: list[SeenRequest] = []
        self._thread: ServerThread | None = None
        for account in accounts:
            self.add_account(account)
        for client in clients:
            self.register(client)

    @property
    def base_url(self) -> str:
        """Its origin, which is also its issuer."""
        return self._state.base_url

    issuer = base_url

    def url(self, path: str) -> str:
        """The absolute URL of one of its paths: "/authorize", "/token", "/userinfo", "/api/me", ..."""
        return self.base_url + path

    @property
    def endpoints(self) -> dict[str, str]:
        """What an OAuthApp's `spec.endpoints` wants to know."""
        paths = {
            "authorizationUrl": "/authorize",
            "tokenUrl": "/token",
            "revokeUrl": "/revoke",
            "userInfoUrl": "/userinfo",
            "jwksUrl": "/jwks",
        }
        return {name: self.url(path) for name, path in paths.items()} | {"issuer": self.issuer}

    def add_account(self, account: Account) -> Account:
        """Let somebody in, or change him: accounts are known by `login`."""
        self._state.accounts[account.login] = account
        return account

    def account(self, login: str) -> Account:
        """Raises KeyError."""
        return self._state.accounts[login]

    @property
    def logins(self) -> list[str]:
        """Who has an account."""
        return list(self._state.accounts)

    def register(self, client: Client) -> Client:
        """Register a client, or replace it, and return it with its secret. Existing tokens stay."""
        takes_secret = client.auth_method in {"client_secret_basic", "client_secret_post"}
        if takes_secret and client.client_secret is None:
            client = replace(client, client_secret=self.canaries.mint("client secret"))
        elif client.client_secret is not None:
            self.canaries.add(client.client_secret, "client secret")
        self._state.clients[client.client_id] = client
        return client

    def change(self, client_id: str, **changes: Any) -> Client:
        """Replace fields of a registered client: `idp.change("bot", redirect_uris=(...,))`."""
        return self.register(replace(self._state.clients[client_id], **changes))

    def client(self, client_id: str) -> Client:
        """Raises KeyError."""
        return self._state.clients[client_id]

    @property
    def script(self) -> Script:
        """What each endpoint is told to do wrong: `idp.script.token.answer(status=500)`."""
        return self._state.script

    @property
    def keys(self) -> SigningKeys:
        """Its signing keys; `idp.keys.rotate()`."""
        return self._state.keys

    @property
    def auto_consent(self) -> str | None:
        """The login of the account that agrees to everything unasked, or None."""
        return self._state.auto_consent

    @auto_consent.setter
    def auto_consent(self, login: str | None) -> None:
        self._state.auto_consent = login

    @property
    def resource_scope(self) -> str | None:
        """The scope that `/api/...` demands, or None."""
        return self._state.resource_scope

    @resource_scope.setter
    def resource_scope(self, scope: str | None) -> None:
        self._state.resource_scope = scope

    def expire(self, client_id: str) -> None:
        """Let every access token of a client be over now; refresh tokens stay."""
        self._state.ledger.expire_access(client_id)

    def revoke_all(self, client_id: str, login: str | None = None) -> None:
        """Withdraw what people granted a client, as if they had done so in their settings."""
        self._state.ledger.revoke_all(client_id, self._state.accounts[login] if login else None)

    def is_alive(self, access_token: str | Secret) -> bool:
        """Whether an access token could be used now."""
        text = access_token.reveal() if isinstance(access_token, Secret) else access_token
        return self._state.ledger.living(text) is not None

    def living_tokens(self, client_id: str, login: str | None = None) -> int:
        """How many of a client's access tokens (of one person) could be used now."""
        found = (self._state.ledger.living(text) for text in list(self._state.ledger.tokens))
        alive = [token.agreement for token in found if token is not None]
        return sum(a.client_id == client_id and login in {None, a.account.login} for a in alive)

    def count(self, name: str) -> int:
        """How many requests an endpoint got ("authorize", "token", "userinfo", "jwks", "discovery", "revoke",
        "resource", "login", "consent", "unknown"), or how many were of a grant type ("authorization_code", ...)."""
        return len(self.seen(name))

    def seen(self, name: str) -> list[SeenRequest]:
        """Those requests, in order."""
        return [seen for seen in list(self.requests) if name in {seen.endpoint, seen.grant_type}]

    async def wait_for(self, name: str, count: int = 1, timeout: float = 5.0) -> None:
        """Return once `count(name)` is reached. Raises TimeoutError after `timeout` real seconds."""
        await wait_until(lambda: self.count(name) >= count, timeout)

    async def agree(
        self,
        url: str,
        account: str = "alice",
        *,
        browser: Browser | None = None,
        deny: bool = False,
        scopes: Sequence[str] | None = None,
        visit: bool = False,
    ) -> str:
        """Play a person from an authorization URL of this provider to the redirect back; returns the callback URL.

        The callback is not visited unless `visit`, so a test can hand it to another browser. `account` signs in,
        `deny` cancels, `scopes` are the ones left ticked (all by default). Raises AssertionError when the
        provider itself refuses the request with a page.
        """
        browser = browser or Browser(canaries=self.canaries)
        callback = await go_through(browser, url, home=self.base_url, account=account, deny=deny, scopes=scopes)
        if visit:
            await browser.follow(callback)
        return callback

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
        """A script that failed in the provider fails the test, unless it fails already."""
        if under_way is None and self._server.fault is not None:
            raise self._server.fault

    async def _handle(self, request: Request) -> Reply:
        route = _ROUTES.get(request.path)
        self.requests.append(self._note(request, route.endpoint if route else "unknown"))
        if route is None:
            return Answer(404)
        script = self._state.script.of(route.script)
        step = script.next_step()

        def work() -> Answer:
            return script.changed(route.work(self._state, request))

        return await step.play(work) if step else work()

    def _note(self, request: Request, endpoint: str) -> SeenRequest:
        fields = request.query_fields + request.form_fields
        kept = tuple((name, Secret(value) if name in SECRET_FIELDS else value) for name, value in fields)
        for name, value in fields:
            if name == "code_verifier" and len(value) >= 16:
                self.canaries.add(value, "code verifier")
        headers = {name: _without_credentials(name, value) for name, value in request.headers}
        return SeenRequest(endpoint, request.method, request.path, kept, headers, self.clock.now())


def _without_credentials(name: str, value: str) -> str:
    if name == "authorization":
        return value.partition(" ")[0] + " ***"
    if name == "cookie":
        return "; ".join(part.partition("=")[0].strip() + "=***" for part in value.split(";"))
    return value
